//! What must hold, written once: I-1 to I-5 as far as they are built.

use crate::kafka::{Fate, JournalSpot, Kafka};
use crate::mysql::Db;
use protocol::apply::Changes;
use protocol::slot::{Alarm, Cause, DueItem, Event};
use protocol::state::TaskState;
use schemas::due::DueKind;
use schemas::ids::{RowGen, RowId, Slot};
use schemas::journal::{EntryKind, JournalKind, OwnerToken};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What has been seen of a run.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// The first things that were wrong.
    pub violations: Vec<String>,
    /// Fates in committed transactions, with their offsets.
    fates: HashMap<RowGen, (EntryKind, Slot, i64)>,
    pub delivered: HashMap<RowId, RowGen>,
    pub dead: HashSet<RowId>,
    /// Answered as cancelled.
    pub cancelled: HashSet<RowId>,
    owners: BTreeMap<Slot, (OwnerToken, HashSet<OwnerToken>)>,
    /// Rules of PROTOCOL §1 that are not invariants themselves are looked at too.
    pub strict: bool,
    /// A clock jumped: what was claimed as due may not be due a moment later.
    pub clocks_jumped: bool,
    /// Topics failed or tasks expired: dead letters are no surprise.
    pub deaths: u32,
}

impl Oracle {
    pub fn fail(&mut self, text: impl FnOnce() -> String) {
        if self.violations.len() < 5 {
            self.violations.push(text());
        }
    }

    pub fn is_fine(&self) -> bool {
        self.violations.is_empty()
    }

    /// A record is put on `due`.
    pub fn emitted(&mut self, db: &Db, item: &DueItem) {
        let Some(record) = item.record.as_ref().ok().filter(|_| self.strict) else { return };
        if record.kind != DueKind::Withdraw && record.due_at > db.shard[&record.shard].cursor_at {
            self.fail(|| format!("cursor rule: {:?} is emitted beyond the cursor", record.row_gen()));
        }
        if let Some((kind, _, offset)) = self.fates.get(&record.row_gen())
            && *offset < record.fence
        {
            let (kind, offset) = (*kind, *offset);
            self.fail(|| {
                format!(
                    "fence rule: {kind:?} of {:?} stands at {offset}, below {}",
                    record.row_gen(),
                    record.fence
                )
            });
        }
    }

    /// A transaction is committed or aborted, for ever.
    pub fn decided(&mut self, kafka: &Kafka, db: &Db, number: usize) {
        let txn = &kafka.txns[number];
        if txn.fate != Fate::Committed {
            return;
        }
        let mut sent: HashMap<RowGen, bool> = HashMap::new();
        for record in &txn.sent {
            if sent.insert(record.row_gen, record.dead).is_some() {
                self.fail(|| format!("I-3: {:?} is twice in one transaction", record.row_gen));
            }
            if !record.dead && (record.at < record.due_at || record.said_at < record.due_at) {
                self.fail(|| {
                    format!(
                        "I-2: {:?} is delivered {} ms early",
                        record.row_gen,
                        record.due_at - record.at.min(record.said_at)
                    )
                });
            }
        }
        for offset in &txn.journal {
            let JournalSpot::Record { record, .. } =
                &kafka.journal[usize::from(txn.slot.0)][*offset as usize].1
            else {
                continue;
            };
            self.owner(txn.slot, record.token, record.kind == JournalKind::Barrier);
            for entry in record.entries.iter().filter(|entry| entry.kind.is_fate()) {
                let row_gen = entry.row_gen();
                self.fate(row_gen, entry.kind, txn.slot, *offset);
                let record = sent.remove(&row_gen);
                let wanted = match entry.kind {
                    EntryKind::Delivered => Some(false),
                    EntryKind::Buried => Some(true),
                    EntryKind::Withdrawn | EntryKind::Stale => None,
                };
                if record != wanted {
                    self.fail(|| {
                        format!("I-3: {row_gen:?} is {:?}, but its record is {record:?}", entry.kind)
                    });
                }
                match entry.kind {
                    EntryKind::Delivered => self.visible(row_gen),
                    EntryKind::Buried => self.buried(row_gen.id),
                    EntryKind::Withdrawn | EntryKind::Stale => {}
                }
                if !db.task.contains_key(&row_gen.id) {
                    self.fail(|| format!("I-1: {row_gen:?} has a fate, but was never accepted"));
                }
            }
        }
        if let Some(row_gen) = sent.keys().next() {
            self.fail(|| format!("I-3: {row_gen:?} is visible without an entry in the journal"));
        }
    }

    fn fate(&mut self, row_gen: RowGen, kind: EntryKind, slot: Slot, offset: i64) {
        if let Some((before, _, at)) = self.fates.insert(row_gen, (kind, slot, offset)) {
            self.fail(|| format!("I-3: {row_gen:?} is {before:?} at {at} and {kind:?} at {offset}"));
        }
    }

    fn visible(&mut self, row_gen: RowGen) {
        if let Some(before) = self.delivered.insert(row_gen.id, row_gen) {
            self.fail(|| format!("I-3: row {} is delivered as {before:?} and as {row_gen:?}", row_gen.id));
        }
        if self.cancelled.contains(&row_gen.id) {
            self.fail(|| format!("I-4: row {} is delivered after it was cancelled", row_gen.id));
        }
        if self.dead.contains(&row_gen.id) {
            self.fail(|| format!("I-1: row {} is delivered after it was buried", row_gen.id));
        }
    }

    fn buried(&mut self, id: RowId) {
        if !self.dead.insert(id) {
            self.fail(|| format!("I-3: row {id} is buried twice"));
        }
        if self.delivered.contains_key(&id) {
            self.fail(|| format!("I-1: row {id} is buried after it was delivered"));
        }
        if self.deaths == 0 {
            self.fail(|| format!("I-1: row {id} is buried without a reason"));
        }
    }

    /// I-5: owners follow each other, each beginning with its barrier, and none comes back.
    fn owner(&mut self, slot: Slot, token: OwnerToken, barrier: bool) {
        let (current, past) = self.owners.entry(slot).or_insert((OwnerToken(0), HashSet::new()));
        if *current == token {
            return;
        }
        let fine = (barrier || !self.strict) && !past.contains(&token);
        past.insert(*current);
        *current = token;
        if !fine {
            self.fail(|| format!("I-5: {token:?} writes to the journal of slot {slot} out of turn"));
        }
    }

    /// Ingest has applied a stretch of a journal.
    pub fn applied(&mut self, changes: &Changes) {
        if let Some(alarm) = changes.alarms.first() {
            self.fail(|| format!("I-1: alarm of ingest: {alarm}"));
        }
    }

    /// A dispatcher tells of itself.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Alarm(Alarm::SettledCap | Alarm::DueTruncated | Alarm::BadDueRecord, _) => {}
            Event::Alarm(Alarm::ClaimedEarly, _) if self.clocks_jumped => {}
            Event::Alarm(alarm, text) => self.fail(|| format!("alarm {}: {text}", alarm.as_str())),
            Event::TakeOver { cause: Cause::Invariant, detail, .. } => {
                self.fail(|| format!("invariant: {detail}"))
            }
            Event::Halted(halt, text) => self.fail(|| format!("halted, {}: {text}", halt.as_str())),
            _ => {}
        }
    }

    /// `due_pos` of a slot stands here: every record below it that is none stands on `rejected` (I-6), but for what a cold
    /// start left behind.
    pub fn passed(&mut self, kafka: &Kafka, slot: usize, due_pos: i64) {
        let kept = &kafka.rejected[slot];
        let lost = kafka.due[slot].iter().map(|(_, item)| item).find(|item| {
            item.record.is_err()
                && (kafka.cold_from[slot]..due_pos).contains(&item.offset)
                && !kept.contains(&item.offset)
        });
        if let Some(offset) = lost.map(|item| item.offset) {
            self.fail(|| format!("I-6: due_pos {due_pos} has passed what is no due record at {offset}"));
        }
    }

    /// All faults are over and nothing moves any more.
    pub fn drained(&mut self, db: &Db, submitted: usize) {
        if db.task.len() != submitted {
            self.fail(|| format!("I-1: {} of {submitted} tasks were accepted", db.task.len()));
        }
        for (id, task) in &db.task {
            let (delivered, dead, cancelled) =
                (self.delivered.contains_key(id), self.dead.contains(id), self.cancelled.contains(id));
            let fine = match task.state {
                TaskState::Done => delivered && !dead && !cancelled,
                TaskState::Dead => dead && !delivered && !cancelled,
                TaskState::Cancelled => cancelled && !delivered && !dead,
                TaskState::Scheduled | TaskState::Running => false,
            };
            if !fine {
                let state = task.state;
                let text = format!("delivered {delivered}, dead {dead}, cancelled {cancelled}");
                self.violations.push(format!("I-1: row {id} ends as {state:?} ({text})"));
                break;
            }
        }
        if let Some(key) = db.pending.keys().next() {
            self.fail(|| format!("I-1: row {} still is pending", key.id));
        }
        for (stream, position) in &db.position {
            if position.confirmed != position.next {
                self.fail(|| format!("stream {stream:?} is never confirmed: {position:?}"));
            }
        }
    }
}
