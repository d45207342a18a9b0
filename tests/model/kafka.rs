//! Kafka as far as the protocol leans on it: logs, transactions with epochs, markers that come later than decisions.

use protocol::slot::{DueItem, JournalItem, Lane};
use schemas::ids::{RowGen, Slot};
use schemas::journal::JournalRecord;
use std::collections::{BTreeMap, BTreeSet};

/// A transactional id. `owner` is nothing, but where ids belong to processes (a mistake).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnId {
    pub slot: Slot,
    pub quarantine: bool,
    pub owner: u32,
}

impl TxnId {
    pub fn new(slot: Slot, lane: Lane, owner: u32) -> TxnId {
        TxnId { slot, quarantine: lane == Lane::Quarantine, owner }
    }
}

/// How a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Open,
    Committed,
    Aborted,
}

/// A record for consumers, or a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub row_gen: RowGen,
    pub dead: bool,
    pub due_at: i64,
    /// When it was written, and when it says that it was.
    pub at: i64,
    pub said_at: i64,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Txn {
    pub slot: Slot,
    pub fate: Fate,
    /// Its marker stands in the journal: readers may pass it.
    pub marked: bool,
    pub opened_at: i64,
    pub sent: Vec<Sent>,
    /// Offsets of its journal records.
    pub journal: Vec<i64>,
}

/// What lies at one offset of the journal.
#[derive(Clone, Debug)]
pub enum JournalSpot {
    Record { record: Box<JournalRecord>, txn: usize },
    Marker,
}

#[derive(Clone, Debug, Default)]
struct Coordinator {
    epoch: u32,
    current: Option<usize>,
    completing: Option<usize>,
    last: Option<(u32, Fate)>,
}

/// What a producer holds of its transactional id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: TxnId,
    pub epoch: u32,
}

/// Another producer has this id by now, or the call makes no sense any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// How `init_transactions` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    Ready(u32),
    /// A transaction of an earlier owner is being ended: call again.
    Concurrent,
}

/// A submitted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Identity of its task.
    pub task: u32,
    /// What it says besides.
    pub content: u8,
    pub topic: u8,
    pub due_at: i64,
    pub expires_at: Option<i64>,
}

/// All logs.
#[derive(Clone, Debug, Default)]
pub struct Kafka {
    pub tasks: Vec<Vec<(i64, Command)>>,
    pub due: Vec<Vec<(i64, DueItem)>>,
    /// Offsets of `due` that were copied to `rejected`, by slot.
    pub rejected: Vec<BTreeSet<i64>>,
    /// Where the last cold start of each slot began to read `due`.
    pub cold_from: Vec<i64>,
    pub journal: Vec<Vec<(i64, JournalSpot)>>,
    pub txns: Vec<Txn>,
    coordinators: BTreeMap<TxnId, Coordinator>,
    /// Decided and not yet looked at by the oracle.
    pub decided: Vec<usize>,
    /// Transactions of strangers that hold a journal.
    foreign: Vec<usize>,
}

impl Kafka {
    pub fn new(partitions: i32, slots: u16) -> Kafka {
        Kafka {
            tasks: vec![Vec::new(); partitions as usize],
            due: vec![Vec::new(); usize::from(slots)],
            rejected: vec![BTreeSet::new(); usize::from(slots)],
            cold_from: vec![0; usize::from(slots)],
            journal: vec![Vec::new(); usize::from(slots)],
            ..Kafka::default()
        }
    }

    fn coordinator(&mut self, id: TxnId) -> &mut Coordinator {
        self.coordinators.entry(id).or_default()
    }

    /// `init_transactions`.
    pub fn init(&mut self, id: TxnId, now: i64) -> Init {
        let coordinator = self.coordinator(id);
        if coordinator.completing.is_some() {
            return Init::Concurrent;
        }
        coordinator.epoch += 1;
        if coordinator.current.is_some() {
            // The epoch is bumped at once: whoever had it is fenced before the abort is through.
            self.decide(id, Fate::Aborted, now);
            return Init::Concurrent;
        }
        coordinator.last = None;
        Init::Ready(coordinator.epoch)
    }

    /// Whether a record of this producer may be written now; opens the transaction if none is.
    pub fn join(&mut self, producer: Producer, now: i64, may_open: bool) -> Result<usize, Refused> {
        let coordinator = self.coordinator(producer.id);
        if coordinator.epoch != producer.epoch {
            return Err(Refused);
        }
        if coordinator.completing.is_some() {
            if !may_open {
                return Err(Refused);
            }
            // The client waits for its own last transaction.
            self.mark(producer.id, now);
        }
        if let Some(current) = self.coordinator(producer.id).current {
            return Ok(current);
        }
        if !may_open {
            return Err(Refused);
        }
        let slot = producer.id.slot;
        self.txns.push(Txn {
            slot,
            fate: Fate::Open,
            marked: false,
            opened_at: now,
            sent: Vec::new(),
            journal: Vec::new(),
        });
        let txn = self.txns.len() - 1;
        self.coordinator(producer.id).current = Some(txn);
        Ok(txn)
    }

    /// Appends a journal record within a transaction.
    pub fn append_journal(&mut self, txn: usize, record: JournalRecord, now: i64) -> i64 {
        let log = &mut self.journal[usize::from(self.txns[txn].slot.0)];
        log.push((now, JournalSpot::Record { record: Box::new(record), txn }));
        let offset = log.len() as i64 - 1;
        self.txns[txn].journal.push(offset);
        offset
    }

    /// `commit_transaction` or `abort_transaction`. `Ok(true)`: decided so.
    pub fn end(&mut self, producer: Producer, fate: Fate, now: i64) -> Result<(), Refused> {
        let coordinator = self.coordinator(producer.id);
        if coordinator.epoch != producer.epoch {
            return Err(Refused);
        }
        if coordinator.current.is_some() {
            self.decide(producer.id, fate, now);
            return Ok(());
        }
        // A repeated call whose first answer was lost.
        if coordinator.last == Some((producer.epoch, fate)) { Ok(()) } else { Err(Refused) }
    }

    fn decide(&mut self, id: TxnId, fate: Fate, now: i64) {
        let coordinator = self.coordinator(id);
        let Some(txn) = coordinator.current.take() else { return };
        coordinator.completing = Some(txn);
        coordinator.last = Some((coordinator.epoch, fate));
        self.txns[txn].fate = fate;
        self.decided.push(txn);
        if self.txns[txn].journal.is_empty() {
            self.mark(id, now);
        }
    }

    /// Writes the markers of an ended transaction.
    pub fn mark(&mut self, id: TxnId, now: i64) -> bool {
        let Some(txn) = self.coordinator(id).completing.take() else { return false };
        self.txns[txn].marked = true;
        if !self.txns[txn].journal.is_empty() {
            let slot = usize::from(self.txns[txn].slot.0);
            self.journal[slot].push((now, JournalSpot::Marker));
        }
        true
    }

    /// Writes all markers that are missing.
    pub fn mark_all(&mut self, now: i64) {
        for id in self.unmarked() {
            self.mark(id, now);
        }
    }

    /// Ids whose last transaction has no marker yet.
    pub fn unmarked(&self) -> Vec<TxnId> {
        self.coordinators.iter().filter(|(_, c)| c.completing.is_some()).map(|(id, _)| *id).collect()
    }

    /// The coordinator ends transactions that are open for longer than `timeout_ms`.
    pub fn time_out(&mut self, timeout_ms: i64, now: i64) -> usize {
        let txns = &self.txns;
        let late = |c: &Coordinator| c.current.is_some_and(|txn| txns[txn].opened_at + timeout_ms <= now);
        let ids: Vec<TxnId> = self.coordinators.iter().filter(|(_, c)| late(c)).map(|(id, _)| *id).collect();
        for id in &ids {
            self.coordinator(*id).epoch += 1;
            self.decide(*id, Fate::Aborted, now);
        }
        ids.len()
    }

    /// Mistake: a record that fences nobody, visible at once.
    pub fn append_plain(&mut self, slot: Slot, record: JournalRecord, now: i64) -> i64 {
        let (sent, journal) = (Vec::new(), Vec::new());
        self.txns.push(Txn { slot, fate: Fate::Committed, marked: true, opened_at: now, sent, journal });
        let txn = self.txns.len() - 1;
        self.decided.push(txn);
        self.append_journal(txn, record, now)
    }

    /// Somebody else opens a transaction on a journal, which holds its readers back.
    pub fn open_foreign(&mut self, slot: Slot, record: JournalRecord, now: i64) {
        let txn = Txn {
            slot,
            fate: Fate::Open,
            marked: false,
            opened_at: now,
            sent: Vec::new(),
            journal: Vec::new(),
        };
        self.txns.push(txn);
        let txn = self.txns.len() - 1;
        self.append_journal(txn, record, now);
        self.foreign.push(txn);
    }

    /// Those are aborted.
    pub fn close_foreign(&mut self, now: i64) -> bool {
        let open = std::mem::take(&mut self.foreign);
        for txn in &open {
            self.txns[*txn].fate = Fate::Aborted;
            self.txns[*txn].marked = true;
            self.journal[usize::from(self.txns[*txn].slot.0)].push((now, JournalSpot::Marker));
        }
        !open.is_empty()
    }

    /// Last stable offset of a journal.
    pub fn stable(&self, slot: Slot) -> i64 {
        // Only transactions of this slot write to its journal: the earliest unmarked one is the end.
        let open = self.txns.iter().filter(|txn| txn.slot == slot && !txn.marked);
        let first = open.filter_map(|txn| txn.journal.first()).min();
        first.copied().unwrap_or(self.journal_end(slot))
    }

    pub fn journal_end(&self, slot: Slot) -> i64 {
        self.journal[usize::from(slot.0)].len() as i64
    }

    /// What a read-committed reader finds at an offset below the last stable one.
    pub fn committed(&self, slot: Slot, offset: i64) -> Option<&JournalRecord> {
        match &self.journal[usize::from(slot.0)].get(offset as usize)?.1 {
            JournalSpot::Record { record, txn } if self.txns[*txn].fate == Fate::Committed => Some(record),
            JournalSpot::Record { .. } | JournalSpot::Marker => None,
        }
    }

    /// Committed records of `[from, to)`.
    pub fn read_journal(&self, slot: Slot, from: i64, to: i64) -> Vec<(i64, JournalItem)> {
        let known = |offset| {
            let record = self.committed(slot, offset)?.clone();
            Some((offset, JournalItem::Known(Box::new(record))))
        };
        (from..to).filter_map(known).collect()
    }

    /// First offset of a log at or after a time, else its end.
    pub fn offset_at<T>(log: &[(i64, T)], at: i64) -> i64 {
        log.partition_point(|(written_at, _)| *written_at < at) as i64
    }
}
