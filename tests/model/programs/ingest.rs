//! Ingest: one worker per partition of `tasks`, `journal` or `acks`, in the order of steps of `ingest::partition`.

mod acks;
mod journal;
mod tasks;

use super::Did;
use super::effects::Effect;
use crate::kafka::{AckRecord, Command};
use crate::mysql::{ACKS, Failed, JOURNAL, TASKS};
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use protocol::position::{Flight, Handling, Ledger, LogRange, Positions};
use schemas::ids::{RowId, Slot, SourceId};
use schemas::journal::JournalRecord;

/// What a worker reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Tasks(i32),
    Journal(Slot),
    Acks(i32),
}

impl Stream {
    fn key(self) -> (SourceId, i32) {
        match self {
            Stream::Tasks(partition) => (TASKS, partition),
            Stream::Journal(slot) => (JOURNAL, i32::from(slot.0)),
            Stream::Acks(partition) => (ACKS, partition),
        }
    }
}

/// A worker of one partition.
#[derive(Debug)]
pub struct Ingest {
    pub name: String,
    pub stream: Stream,
    hold: Option<Box<Hold>>,
    /// When the next tick is due, of a worker of `acks`.
    tick_at: i64,
}

/// From reading the positions until they must be read again.
#[derive(Debug)]
struct Hold {
    ledger: Ledger,
    read_from: i64,
    work: Option<Work>,
    effects: Vec<(Flight, Effect)>,
}

/// A batch on its way to its commit.
#[derive(Debug)]
enum Work {
    /// Commands.
    Tasks(tasks::Batch),
    /// Journal records, each with its offset and time, applied in one transaction.
    Journal { records: Vec<(i64, i64, JournalRecord)>, end: i64 },
    /// Acks and ticks, likewise.
    Acks { records: Vec<(i64, i64, AckRecord)>, end: i64 },
}

const IN_FLIGHT: usize = 3;

/// Stretch of a log that is handled in one way: records with offset and time, and the offset behind them.
struct Stretch<T> {
    records: Vec<(i64, i64, T)>,
    handling: Handling,
    end: i64,
}

impl Ingest {
    pub fn new(w: &mut World, stream: Stream) -> Ingest {
        let process = w.name();
        let what = match stream {
            Stream::Tasks(_) => "tasks",
            Stream::Journal(_) => "journal",
            Stream::Acks(_) => "acks",
        };
        Ingest { name: format!("ingest {what} {process}"), stream, hold: None, tick_at: w.now }
    }

    /// Whether a batch is committed and its effects are not acked.
    pub fn has_effects(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| !hold.effects.is_empty())
    }

    /// One step.
    pub fn step(&mut self, w: &mut World) -> Did {
        let Some(mut hold) = self.hold.take() else { return self.open(w) };
        let did = self.hold_step(w, &mut hold);
        if let Some(did) = did {
            self.hold = Some(hold);
            return did;
        }
        w.saw("compare-and-set missed");
        w.say(&self.name, || "reads its positions again".into());
        Did::Work
    }

    fn open(&mut self, w: &mut World) -> Did {
        if w.db_mishap("positions", false) != Mishap::None {
            return Did::Work;
        }
        let position = w.db.position[&self.stream.key()];
        let positions = Positions { next: position.next, confirmed: position.confirmed };
        let end = self.log_end(w);
        match positions.seek(LogRange { start: 0, end }) {
            Ok(read_from) => {
                w.say(&self.name, || format!("starts at {positions:?}"));
                let ledger = Ledger::open(positions);
                self.hold = Some(Box::new(Hold { ledger, read_from, work: None, effects: Vec::new() }));
            }
            Err(outside) => w.oracle.fail(|| format!("{}: {outside}", self.name)),
        }
        Did::Work
    }

    fn log_end(&self, w: &World) -> i64 {
        match self.stream {
            Stream::Tasks(partition) => w.kafka.tasks[partition as usize].len() as i64,
            Stream::Journal(slot) => w.kafka.journal_end(slot),
            Stream::Acks(partition) => w.kafka.acks[partition as usize].len() as i64,
        }
    }

    /// `None`: the positions are to be read again, and everything under way is dropped.
    fn hold_step(&mut self, w: &mut World, hold: &mut Hold) -> Option<Did> {
        let effects_first =
            !hold.effects.is_empty() && (hold.work.is_none() || !w.rough || w.dice.roll(2) == 0);
        if effects_first && (w.rough || hold.effects.len() >= IN_FLIGHT || hold.work.is_none()) {
            let at = if w.rough { w.dice.roll(hold.effects.len() as u32) as usize } else { 0 };
            // Sometimes the next batch comes first.
            if !w.rough || hold.work.is_some() || hold.effects.len() >= IN_FLIGHT || w.dice.roll(3) != 1 {
                let (flight, effect) = hold.effects.swap_remove(at);
                match effect.step(w, &self.name) {
                    Some(effect) => hold.effects.push((flight, effect)),
                    None => hold.ledger.acked(flight),
                }
                return Some(Did::Work);
            }
        }
        if let Some(work) = hold.work.take() {
            return match work {
                Work::Tasks(batch) => self.tasks(w, hold, batch),
                Work::Journal { records, end } => self.journal(w, hold, records, end),
                Work::Acks { records, end } => self.acks(w, hold, records, end),
            };
        }
        if let Some(to) = hold.ledger.confirmable()
            && (!w.rough || w.dice.roll(4) == 0)
        {
            return match w.db_mishap("confirm", true) {
                Mishap::Refused => Some(Did::Work),
                mishap => {
                    let confirmed = self.confirm(w, to);
                    w.say(&self.name, || format!("confirms {to}: {confirmed:?}"));
                    confirmed.ok()?;
                    if mishap == Mishap::None {
                        hold.ledger.confirmed(to);
                    }
                    Some(Did::Work)
                }
            };
        }
        if hold.ledger.in_flight() < IN_FLIGHT && self.fetch(w, hold) {
            return Some(Did::Work);
        }
        let wake = match self.stream {
            Stream::Acks(partition) if self.tick_at <= w.now => {
                self.tick_at = w.now + w.setup.tick_ms;
                w.append_ack(partition, AckRecord::Tick);
                return Some(Did::Work);
            }
            Stream::Acks(_) => Some(self.tick_at),
            Stream::Tasks(_) | Stream::Journal(_) => None,
        };
        Some(if hold.effects.is_empty() { Did::Idle(wake) } else { Did::Work })
    }

    /// Moves `confirmed`. Answers that this side owed below it are acked.
    fn confirm(&self, w: &mut World, to: i64) -> Result<(), Failed> {
        let key = self.stream.key();
        let from = w.db.position[&key].confirmed;
        w.db.confirm(key, to)?;
        if matches!(self.stream, Stream::Tasks(_)) && from < to {
            let late = w.has(Mutation::ForgetLateAnswers);
            let first = if late { self.id(0) } else { self.id(from) };
            w.db.forget_answered(first, self.id(to), late);
        }
        Ok(())
    }

    fn fetch(&mut self, w: &mut World, hold: &mut Hold) -> bool {
        match self.stream {
            Stream::Tasks(partition) => self.fetch_tasks(w, hold, partition),
            Stream::Journal(slot) => self.fetch_journal(w, hold, slot),
            Stream::Acks(partition) => self.fetch_acks(w, hold, partition),
        }
    }

    /// Reads on in a log, as far as records are handled alike. `None`: nothing is there.
    fn stretch<T>(
        w: &mut World,
        hold: &mut Hold,
        end: i64,
        record: impl Fn(&World, i64) -> Option<(i64, T)>,
    ) -> Option<Stretch<T>> {
        let most = if w.rough { 1 + w.dice.roll(4) as usize } else { 8 };
        let mut records = Vec::new();
        let mut handling = None;
        while hold.read_from < end && records.len() < most {
            let offset = hold.read_from;
            if let Some((at, record)) = record(w, offset) {
                let this = hold.ledger.handling(offset);
                if handling.is_some_and(|handling| handling != this) {
                    break;
                }
                handling = Some(this);
                records.push((offset, at, record));
            }
            hold.read_from += 1;
        }
        let end = records.last()?.0 + 1;
        let mut handling = handling?;
        if handling == Handling::Repeat && w.has(Mutation::AppliedAgain) {
            handling = Handling::Apply;
        }
        Some(Stretch { records, handling, end })
    }

    fn repeat(&self, w: &mut World, hold: &mut Hold, end: i64, effect: Effect) {
        w.saw("effects repeated");
        w.say(&self.name, || format!("repeats the effects below {end}"));
        let flight = hold.ledger.repeating(end);
        if effect.is_empty() || w.has(Mutation::EffectsNotRepeated) {
            hold.ledger.acked(flight);
        } else {
            hold.effects.push((flight, effect));
        }
    }

    fn id(&self, offset: i64) -> RowId {
        let (source, partition) = self.stream.key();
        RowId::pack(source, partition, offset).expect("small numbers")
    }

    /// The transaction of a batch: positions first, then the rows; all or nothing.
    fn commit(
        &self,
        w: &mut World,
        hold: &mut Hold,
        end: i64,
        rows: impl FnOnce(&mut World) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let next = hold.ledger.positions().next;
        let key = self.stream.key();
        let before = w.db.position[&key];
        let again = end <= next && w.has(Mutation::AppliedAgain);
        if !again {
            w.db.advance(key, next, end, None)?;
        }
        if let Err(failed) = rows(w) {
            w.db.position.insert(key, before);
            return Err(failed);
        }
        if let Some(confirm) = hold.ledger.confirmable().filter(|_| !again) {
            self.confirm(w, confirm)?;
            hold.ledger.confirmed(confirm);
        }
        if w.has(Mutation::ConfirmBeforeAcks) {
            self.confirm(w, end)?;
        }
        Ok(())
    }

    fn committed(&self, hold: &mut Hold, end: i64, effect: Effect) {
        let again = end <= hold.ledger.positions().next;
        let flight = if again { hold.ledger.repeating(end) } else { hold.ledger.applied(end) };
        if effect.is_empty() {
            hold.ledger.acked(flight);
        } else {
            hold.effects.push((flight, effect));
        }
    }
}

/// Whether an answer to a command was asked for.
fn asks(tasks: &[Vec<(i64, Command)>], command: RowId) -> bool {
    let log = (command.source() == TASKS).then(|| tasks.get(command.partition() as usize)).flatten();
    log.and_then(|log| log.get(command.offset() as usize)).is_some_and(|(_, command)| command.reply)
}
