//! I-4 and the answers: what was promised to whoever asked, and what consumers said.

use super::Oracle;
use crate::kafka::{AckRecord, Command, Kafka, Op, Sent};
use crate::mysql::{ACKS, Db};
use protocol::ack::Report;
use protocol::change::{Answer, Change, Intent, Refused, Reschedule, Verdict};
use protocol::life::{Effects, Held, Open, Place, What};
use protocol::state::TaskState;
use schemas::ids::{Generation, RowGen, RowId};
use schemas::journal::{EntryKind, JournalEntry};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Accepted,
    Duplicate,
    Conflict,
    Change(Answer),
}

/// What was promised.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    replies: BTreeMap<RowId, Reply>,
    /// Rows that somebody wanted to cancel.
    cancels: HashSet<RowId>,
    /// Of rows whose cancel is answered.
    cancelled: HashSet<RowId>,
    /// Reschedules that are decided, by row.
    accepted: HashMap<RowId, Vec<Accepted>>,
    /// Rows that are to have no attempt after this one.
    stopped: HashMap<RowId, u16>,
    /// Which row a decided change speaks of.
    row_of: HashMap<RowId, RowId>,
    succeeded: HashSet<RowId>,
    failed: HashSet<RowId>,
}

#[derive(Clone, Copy, Debug)]
struct Accepted {
    command: RowId,
    /// What is delivered from now on has this generation or a later one …
    generation: Generation,
    /// … and as long as it is this attempt …
    attempt: u16,
    /// … it is due then, unless a later reschedule says otherwise.
    due_at: i64,
}

impl Answers {
    /// What a visible delivery breaks.
    pub fn broken_by(&self, sent: &Sent) -> Option<String> {
        let Sent { row_gen: RowGen { id, generation }, attempt, due_at, .. } = *sent;
        if self.cancelled.contains(&id) {
            return Some(format!("I-4: row {id} is delivered after it was cancelled"));
        }
        if self.stopped.get(&id).is_some_and(|last| attempt > *last) {
            return Some(format!("I-4: row {id} has another attempt, {attempt}, after a cancel"));
        }
        let accepted = self.accepted.get(&id)?;
        if let Some(newer) = accepted.iter().find(|accepted| accepted.generation > generation) {
            return Some(format!("I-4: row {id} is delivered at its old due time {due_at} after {newer:?}"));
        }
        let last = accepted.iter().filter(|accepted| accepted.attempt == attempt);
        let last = last.max_by_key(|accepted| accepted.command)?;
        (last.due_at != due_at)
            .then(|| format!("I-4: row {id} is delivered as due at {due_at}, after {last:?}"))
    }

    /// What a command was answered.
    pub fn of(&self, command: RowId) -> Option<Reply> {
        self.replies.get(&command).copied()
    }

    pub fn has_succeeded(&self, id: RowId) -> bool {
        self.succeeded.contains(&id)
    }

    pub fn has_failed(&self, id: RowId) -> bool {
        self.failed.contains(&id)
    }

    pub fn is_cancelled(&self, id: RowId) -> bool {
        self.cancels.contains(&id)
    }

    fn accept(&mut self, command: RowId, row: &Held, due_at: i64) {
        let accepted = Accepted { command, generation: row.generation, attempt: row.attempt, due_at };
        self.accepted.entry(row.id).or_default().push(accepted);
    }

    /// What was never answered, was answered unasked, or does not fit how its row ended.
    pub fn missing(&self, db: &Db, kafka: &Kafka) -> Vec<String> {
        let mut faults = Vec::new();
        let identities: HashMap<u32, RowId> = db.rows_by_task(kafka);
        for (partition, log) in kafka.tasks.iter().enumerate() {
            for (offset, (_, command)) in log.iter().enumerate() {
                let id =
                    RowId::pack(crate::mysql::TASKS, partition as i32, offset as i64).expect("small numbers");
                let Some(reply) = self.replies.get(&id) else {
                    if command.reply {
                        faults.push(format!("command {id} is never answered: {command:?}"));
                    }
                    continue;
                };
                let row = identities.get(&command.task);
                let state = row.and_then(|row| db.task.get(row)).map(|row| row.state());
                let same_partition = row.is_some_and(|row| row.partition() == id.partition() && *row < id);
                let fine = match (reply, command.op) {
                    (Reply::Accepted, Op::Schedule(_)) => row == Some(&id),
                    (Reply::Duplicate | Reply::Conflict, Op::Schedule(_)) => {
                        row.is_some_and(|row| *row != id)
                    }
                    (Reply::Change(_), Op::Schedule(_)) => false,
                    (
                        Reply::Accepted | Reply::Duplicate | Reply::Conflict,
                        Op::Cancel | Op::Reschedule(_),
                    ) => false,
                    (Reply::Change(answer), _) => match answer {
                        Answer::NotFound => !same_partition,
                        Answer::Cancelled => state == Some(TaskState::Cancelled),
                        Answer::Accepted => matches!(command.op, Op::Reschedule(_)),
                        Answer::AlreadySent => state.is_some(),
                        Answer::Rejected(Refused::Dead) => {
                            row.is_some_and(|row| self.failed.contains(row)) || state == Some(TaskState::Dead)
                        }
                        Answer::Rejected(Refused::ExpiresBeforeDue) => {
                            matches!(command.op, Op::Reschedule(_))
                        }
                        Answer::Rejected(Refused::NotDead) => false,
                    },
                };
                if !fine {
                    faults.push(format!(
                        "command {id} {command:?} is answered {reply:?}, but its row ends as {state:?}"
                    ));
                }
            }
        }
        faults
    }
}

impl Oracle {
    /// An answer is on `replies`.
    pub fn replied(&mut self, command: RowId, wanted: Command, reply: Reply) {
        if !wanted.reply {
            self.fail(|| format!("command {command} is answered unasked: {reply:?}"));
        }
        let before = self.answers.replies.insert(command, reply);
        if before.is_some_and(|before| before != reply) {
            self.fail(|| format!("command {command} is answered {before:?} and {reply:?}"));
        }
        let Some(row) = self.answers.row_of.get(&command).copied() else { return };
        match reply {
            Reply::Change(Answer::Cancelled) => {
                self.answers.cancelled.insert(row);
            }
            Reply::Change(Answer::AlreadySent)
                if !self.delivered.contains_key(&row) && !self.answers.succeeded.contains(&row) =>
            {
                self.fail(|| {
                    format!("command {command}: row {row} is already sent, but was never delivered")
                });
            }
            _ => {}
        }
    }

    /// A change was decided, or waits for the journal; its row as it stands then.
    pub fn verdict(&mut self, change: &Change, verdict: Verdict, row: Option<&Held>) {
        let Some(row) = row else { return };
        self.answers.row_of.insert(change.command, row.id);
        let cancel = change.op == protocol::change::Op::Cancel;
        if cancel && verdict != Verdict::Answered(Answer::NotFound) {
            self.answers.cancels.insert(row.id);
        }
        match verdict {
            Verdict::Answered(Answer::Accepted) => {
                let due_at = row.pending_key().map_or(0, |key| key.due_at);
                self.answers.accept(change.command, row, due_at);
            }
            Verdict::Answered(Answer::AlreadySent) if cancel && matches!(row.place, Place::Running(_)) => {
                self.answers.stopped.entry(row.id).or_insert(row.attempt);
            }
            Verdict::Answered(_) | Verdict::Intended => {}
        }
    }

    /// The journal decided intents. `open`: as they were before.
    pub fn folded<'a>(
        &mut self,
        effects: &Effects,
        open: &[Open],
        entries: impl Iterator<Item = &'a JournalEntry>,
    ) {
        let delivered: HashSet<RowGen> =
            entries.filter(|entry| entry.kind == EntryKind::Delivered).map(JournalEntry::row_gen).collect();
        for closed in &effects.closed {
            let Some(one) = open.iter().find(|open| open.command == closed.command) else { continue };
            let What::Intent(intent) = &one.what else { continue };
            let moved = effects.moved.iter().find(|moved| moved.from.id == one.id);
            match (intent, closed.answer, moved) {
                (Intent::Reschedule(Reschedule { due_at, .. }), Some(Answer::Accepted), Some(moved)) => {
                    // Commands are told apart by where they stand in their partition, whatever the fold believed.
                    let turned = one.command.0 > u64::MAX / 2;
                    let command = if turned { RowId(u64::MAX - one.command.0) } else { one.command };
                    self.answers.accept(command, &moved.to, *due_at);
                }
                (Intent::Cancel, Some(Answer::AlreadySent), Some(moved))
                    if delivered.contains(&RowGen { id: one.id, generation: one.generation }) =>
                {
                    self.answers.stopped.entry(one.id).or_insert(moved.from.attempt);
                }
                _ => {}
            }
        }
    }

    /// An ack was appended.
    pub fn acked(&mut self, record: &AckRecord) {
        let AckRecord::Ack { row_gen, report, .. } = record else { return };
        match report {
            Report::Succeeded => {
                self.answers.succeeded.insert(row_gen.id);
            }
            Report::Failed { .. } => {
                self.answers.failed.insert(row_gen.id);
            }
            Report::Progress => {}
        }
    }

    /// A running row is judged stalled although an ack of it was appended in time, and only not applied.
    pub fn stalled(&mut self, db: &Db, kafka: &Kafka, row: &Held) {
        self.answers.failed.insert(row.id);
        let Place::Running(working) = &row.place else { return };
        let deadline_at = working.key.due_at;
        for (partition, log) in kafka.acks.iter().enumerate() {
            let next = db.position[&(ACKS, partition as i32)].next;
            let unapplied = log.iter().skip(next as usize);
            let mut said = unapplied.filter(|(at, record)| *at <= deadline_at && speaks_of(record, row));
            if let Some((at, record)) = said.next_back() {
                let (at, record) = (*at, record.clone());
                self.fail(|| {
                    format!(
                        "R35: {:?} is judged stalled at {deadline_at}, but at {at} was appended {record:?}",
                        row.row_gen()
                    )
                });
            }
        }
    }
}

fn speaks_of(record: &AckRecord, row: &Held) -> bool {
    match record {
        AckRecord::Tick => false,
        AckRecord::Ack { row_gen, report, .. } => {
            row_gen.id == row.id && (row_gen.generation == row.generation || *report == Report::Succeeded)
        }
    }
}
