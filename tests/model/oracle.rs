//! What must hold, written once: I-1 to I-5.

mod answers;

pub use answers::Reply;

use crate::kafka::{Fate, JournalSpot, Kafka, Sent};
use crate::mysql::Db;
use answers::Answers;
use protocol::life::Effects;
use protocol::slot::{Alarm, Cause, DueItem, Event};
use protocol::state::TaskState;
use schemas::due::{Completion, DueKind};
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
    /// The last visible attempt of each row.
    pub delivered: HashMap<RowId, (u16, RowGen)>,
    pub dead: HashSet<RowId>,
    pub answers: Answers,
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
        let mut sent: HashMap<RowGen, Sent> = HashMap::new();
        for record in &txn.sent {
            if sent.insert(record.row_gen, *record).is_some() {
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
                if record.map(|record| record.dead) != wanted {
                    self.fail(|| {
                        format!("I-3: {row_gen:?} is {:?}, but its record is {record:?}", entry.kind)
                    });
                }
                match (entry.kind, record) {
                    (EntryKind::Delivered, Some(sent)) => self.visible(&sent),
                    (EntryKind::Buried, _) => self.buried(row_gen.id),
                    _ => {}
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

    /// Each attempt is visible once, one after the other.
    fn visible(&mut self, sent: &Sent) {
        let Sent { row_gen, attempt, .. } = *sent;
        let before = self.delivered.insert(row_gen.id, (attempt, row_gen));
        if before.map_or(0, |(attempt, _)| attempt) + 1 != attempt {
            self.fail(|| {
                format!(
                    "I-3: row {} attempt {attempt} is visible as {row_gen:?}, after {before:?}",
                    row_gen.id
                )
            });
        }
        if self.dead.contains(&row_gen.id) {
            self.fail(|| format!("I-1: row {} is delivered after it was buried", row_gen.id));
        }
        if let Some(text) = self.answers.broken_by(sent) {
            self.fail(|| text);
        }
    }

    fn buried(&mut self, id: RowId) {
        if !self.dead.insert(id) {
            self.fail(|| format!("I-3: row {id} is buried twice"));
        }
        if self.deaths == 0 && !self.answers.has_failed(id) {
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

    /// A transaction has changed rows.
    pub fn wrote(&mut self, effects: &Effects) {
        if let Some(alarm) = effects.alarms.first() {
            self.fail(|| format!("I-1: alarm: {alarm}"));
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
    pub fn drained(&mut self, db: &Db, kafka: &Kafka, submitted: usize) {
        if db.task.len() != submitted {
            self.fail(|| format!("I-1: {} of {submitted} tasks were accepted", db.task.len()));
        }
        if let Some(key) = db.pending.keys().next() {
            self.fail(|| format!("I-1: row {} still is pending", key.id));
        }
        if let Some(key) = db.running.keys().next() {
            self.fail(|| format!("I-1: row {} still is running", key.id));
        }
        if let Some((command, change)) = db.change.iter().next() {
            self.fail(|| format!("I-1: {command} still is open: {change:?}"));
        }
        for (id, row) in &db.task {
            let (delivered, dead) = (self.delivered.contains_key(id), self.dead.contains(id));
            let (finished, cancelled) = (self.answers.has_succeeded(*id), self.answers.is_cancelled(*id));
            let on_ack = kafka.tasks[id.partition() as usize][id.offset() as usize].1.completion()
                == Some(Completion::OnAck);
            let fine = match row.state() {
                TaskState::Done if on_ack => finished && !dead,
                TaskState::Done => delivered && !dead,
                TaskState::Dead => dead && (on_ack || !delivered),
                TaskState::Cancelled => cancelled && !dead && (on_ack || !delivered),
                TaskState::Scheduled | TaskState::Running => false,
            };
            if !fine {
                let state = row.state();
                self.fail(|| {
                    format!(
                        "I-1: row {id} ends as {state:?} (on_ack {on_ack}, delivered {delivered}, dead {dead}, finished {finished}, cancel {cancelled})"
                    )
                });
                break;
            }
        }
        for text in self.answers.missing(db, kafka) {
            self.fail(|| text);
        }
        for (stream, position) in &db.position {
            if position.confirmed != position.next {
                self.fail(|| format!("stream {stream:?} is never confirmed: {position:?}"));
            }
        }
    }
}
