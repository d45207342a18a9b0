//! Ingest: one worker per partition of `tasks` or `journal`, in the order of steps of `ingest::partition`.

use super::Did;
use super::effects::{Effect, Fences, fences};
use crate::kafka::Command;
use crate::mysql::{Failed, JOURNAL, New, Pending, TASKS, Waiting};
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use protocol::admission::{self, ContentHash, Identity, Known, Offer, Verdict};
use protocol::apply::{Beat, RowKey};
use protocol::position::{Flight, Handling, Ledger, LogRange, Positions};
use schemas::ids::{Generation, RowId, Shard, Slot, SourceId};
use schemas::journal::{EntryKind, JournalRecord};
use std::collections::{BTreeSet, HashMap};

/// What a worker reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Tasks(i32),
    Journal(Slot),
}

impl Stream {
    fn key(self) -> (SourceId, i32) {
        match self {
            Stream::Tasks(partition) => (TASKS, partition),
            Stream::Journal(slot) => (JOURNAL, i32::from(slot.0)),
        }
    }
}

/// A worker of one partition.
#[derive(Debug)]
pub struct Ingest {
    pub name: String,
    pub stream: Stream,
    hold: Option<Box<Hold>>,
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
    /// Commands: fences are read …
    Fences(Vec<(i64, Command)>),
    /// … identities looked up …
    LookUp { batch: Vec<(i64, Command)>, fences: Fences, cursors: Option<HashMap<Shard, i64>> },
    /// … rows and positions committed.
    Insert {
        batch: Vec<(i64, Command)>,
        fences: Fences,
        cursors: Option<HashMap<Shard, i64>>,
        known: HashMap<Identity, Known>,
    },
    /// Journal records: applied in one transaction.
    Apply { records: Vec<(i64, i64, JournalRecord)>, end: i64 },
}

const IN_FLIGHT: usize = 3;

impl Ingest {
    pub fn new(w: &mut World, stream: Stream) -> Ingest {
        let process = w.name();
        let what = match stream {
            Stream::Tasks(_) => "tasks",
            Stream::Journal(_) => "journal",
        };
        Ingest { name: format!("ingest {what} {process}"), stream, hold: None }
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
            return self.work(w, hold, work);
        }
        if let Some(to) = hold.ledger.confirmable()
            && (!w.rough || w.dice.roll(4) == 0)
        {
            return match w.db_mishap("confirm", true) {
                Mishap::Refused => Some(Did::Work),
                mishap => {
                    let confirmed = w.db.confirm(self.stream.key(), to);
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
        Some(if hold.effects.is_empty() { Did::Idle(None) } else { Did::Work })
    }

    fn fetch(&mut self, w: &mut World, hold: &mut Hold) -> bool {
        let most = if w.rough { 1 + w.dice.roll(4) as usize } else { 8 };
        match self.stream {
            Stream::Tasks(partition) => {
                let log = &w.kafka.tasks[partition as usize];
                let mut batch: Vec<(i64, Command)> = Vec::new();
                let mut handling = None;
                for offset in hold.read_from..log.len() as i64 {
                    let this = hold.ledger.handling(offset);
                    if batch.len() >= most || handling.is_some_and(|handling| handling != this) {
                        break;
                    }
                    handling = Some(this);
                    batch.push((offset, log[offset as usize].1));
                }
                let Some((last, _)) = batch.last() else { return false };
                hold.read_from = last + 1;
                let end = last + 1;
                let ids: Vec<RowId> = batch.iter().map(|(offset, _)| self.id(*offset)).collect();
                match handling {
                    Some(Handling::Apply) => hold.work = Some(Work::Fences(batch)),
                    Some(Handling::Repeat) if w.has(Mutation::AppliedAgain) => {
                        hold.work = Some(Work::Fences(batch))
                    }
                    Some(Handling::Repeat) => self.repeat(w, hold, end, ids),
                    Some(Handling::Skip) | None => {}
                }
                true
            }
            Stream::Journal(slot) => {
                let stable = w.kafka.stable(slot);
                if hold.read_from >= stable {
                    return false;
                }
                let mut records = Vec::new();
                let mut handling = None;
                while hold.read_from < stable && records.len() < most {
                    let offset = hold.read_from;
                    if let Some(record) = w.kafka.committed(slot, offset) {
                        let this = hold.ledger.handling(offset);
                        if handling.is_some_and(|handling| handling != this) {
                            break;
                        }
                        handling = Some(this);
                        records.push((
                            offset,
                            w.kafka.journal[usize::from(slot.0)][offset as usize].0,
                            record.clone(),
                        ));
                    }
                    hold.read_from += 1;
                }
                let Some((last, _, _)) = records.last() else { return true };
                let end = last + 1;
                let withdrawn = records.iter().flat_map(|(_, _, record)| &record.entries);
                let withdrawn = withdrawn.filter(|entry| entry.kind == EntryKind::Withdrawn);
                let ids: BTreeSet<RowId> = withdrawn.map(|entry| entry.id).collect();
                match handling {
                    Some(Handling::Apply) => hold.work = Some(Work::Apply { records, end }),
                    Some(Handling::Repeat) if w.has(Mutation::AppliedAgain) => {
                        hold.work = Some(Work::Apply { records, end });
                    }
                    Some(Handling::Repeat) => self.repeat(w, hold, end, ids.into_iter().collect()),
                    Some(Handling::Skip) | None => {}
                }
                true
            }
        }
    }

    fn repeat(&self, w: &mut World, hold: &mut Hold, end: i64, ids: Vec<RowId>) {
        w.saw("effects repeated");
        w.say(&self.name, || format!("repeats the effects below {end}"));
        let flight = hold.ledger.repeating(end);
        match Effect::again(ids).filter(|_| !w.has(Mutation::EffectsNotRepeated)) {
            Some(effect) => hold.effects.push((flight, effect)),
            None => hold.ledger.acked(flight),
        }
    }

    fn id(&self, offset: i64) -> RowId {
        let (source, partition) = self.stream.key();
        RowId::pack(source, partition, offset).expect("small numbers")
    }

    fn work(&mut self, w: &mut World, hold: &mut Hold, work: Work) -> Option<Did> {
        match work {
            Work::Fences(batch) => {
                hold.work = Some(if w.db_mishap("fences", false) == Mishap::None {
                    let cursors = w.has(Mutation::CursorBeforeCommit).then(|| w.db.cursors());
                    Work::LookUp { batch, fences: fences(w), cursors }
                } else {
                    Work::Fences(batch)
                });
                Some(Did::Work)
            }
            Work::LookUp { batch, fences, cursors } => {
                hold.work = Some(if w.db_mishap("look_up", false) == Mishap::None {
                    let known = w.db.lookup(batch.iter().map(|(_, command)| identity(command)));
                    Work::Insert { batch, fences, cursors, known }
                } else {
                    Work::Fences(batch)
                });
                Some(Did::Work)
            }
            Work::Insert { batch, fences, cursors, known } => {
                self.insert(w, hold, batch, fences, cursors, &known)
            }
            Work::Apply { records, end } => self.apply(w, hold, records, end),
        }
    }

    fn insert(
        &mut self,
        w: &mut World,
        hold: &mut Hold,
        batch: Vec<(i64, Command)>,
        fences: Fences,
        cursors: Option<HashMap<Shard, i64>>,
        known: &HashMap<Identity, Known>,
    ) -> Option<Did> {
        let offers: Vec<Offer> = batch
            .iter()
            .map(|(offset, command)| Offer {
                id: self.id(*offset),
                identity: identity(command),
                content: ContentHash([command.content; 16]),
            })
            .collect();
        let judged = admission::judge(&offers, known);
        let rows: Vec<New> =
            judged.inserts.iter().map(|index| new_row(w, &offers[*index], &batch[*index].1)).collect();
        let end = batch.last().map_or(0, |(offset, _)| offset + 1);
        let mishap = w.db_mishap("insert", true);
        if mishap == Mishap::Refused {
            hold.work = Some(Work::Fences(batch));
            return Some(Did::Work);
        }
        let written = self.commit(w, hold, end, |db| db.insert(&rows));
        w.say(&self.name, || format!("commits {} rows up to {end}: {written:?} ({mishap:?})", rows.len()));
        match written {
            Err(Failed::Duplicate) => {
                w.saw("duplicate key");
                hold.work = Some(Work::Fences(batch));
                return Some(Did::Work);
            }
            Err(Failed::Moved) => return None,
            Ok(()) if mishap == Mishap::AnswerLost => {
                // Tried again from the start: the compare-and-set says what became of it.
                hold.work = Some(Work::Fences(batch));
                return Some(Did::Work);
            }
            Ok(()) => {}
        }
        let again =
            judged.verdicts.iter().zip(&offers).filter(|(verdict, _)| **verdict == Verdict::AlreadyAccepted);
        let again = again.map(|(_, offer)| offer.id).collect();
        let rows = rows.iter().map(|row| row.waiting).collect();
        self.committed(
            hold,
            end,
            match cursors {
                None => Effect::fresh(rows, again, fences),
                Some(cursors) => Some(Effect::Look { rows, again, fences, cursors }),
            },
        );
        Some(Did::Work)
    }

    /// The transaction of a batch: positions first, then the rows; all or nothing.
    fn commit(
        &self,
        w: &mut World,
        hold: &mut Hold,
        end: i64,
        rows: impl FnOnce(&mut crate::mysql::Db) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let next = hold.ledger.positions().next;
        let key = self.stream.key();
        let before = w.db.position[&key];
        let again = end <= next && w.has(Mutation::AppliedAgain);
        let confirm = hold.ledger.confirmable();
        if !again {
            w.db.advance(key, next, end, confirm)?;
        }
        if let Err(failed) = rows(&mut w.db) {
            w.db.position.insert(key, before);
            return Err(failed);
        }
        if let Some(confirm) = confirm.filter(|_| !again) {
            hold.ledger.confirmed(confirm);
        }
        if w.has(Mutation::ConfirmBeforeAcks) {
            w.db.confirm(key, end)?;
        }
        Ok(())
    }

    fn committed(&self, hold: &mut Hold, end: i64, effect: Option<Effect>) {
        let again = end <= hold.ledger.positions().next;
        let flight = if again { hold.ledger.repeating(end) } else { hold.ledger.applied(end) };
        match effect {
            Some(effect) => hold.effects.push((flight, effect)),
            None => hold.ledger.acked(flight),
        }
    }

    fn apply(
        &mut self,
        w: &mut World,
        hold: &mut Hold,
        records: Vec<(i64, i64, JournalRecord)>,
        end: i64,
    ) -> Option<Did> {
        let mishap = w.db_mishap("apply", true);
        if mishap == Mishap::Refused {
            hold.work = Some(Work::Apply { records, end });
            return Some(Did::Work);
        }
        let key = self.stream.key();
        let mut changes = None;
        let same_generation = w.has(Mutation::SameGeneration);
        let written = self.commit(w, hold, end, |db| {
            let generations: HashMap<RowKey, Generation> = if same_generation {
                db.pending.iter().map(|(key, row)| (*key, row.generation)).collect()
            } else {
                HashMap::new()
            };
            let entries = records.iter().flat_map(|(_, _, record)| &record.entries);
            changes = Some(db.apply(entries));
            for (key, generation) in generations {
                if let Some(row) = db.pending.get_mut(&key) {
                    row.generation = generation;
                }
            }
            if let Some(beat) = Beat::fold(records.iter().map(|(_, at, record)| (*at, record))) {
                let position = db.position.entry(key).or_default();
                let health = &mut position.health;
                health.hb_at = health.hb_at.max(Some(beat.hb_at));
                health.backlog = beat.backlog.or(health.backlog);
                health.cold_upto = beat.cold_upto.or(health.cold_upto);
                position.credit = beat.credit.or(position.credit);
            }
            Ok(())
        });
        w.say(&self.name, || {
            let entries: usize = records.iter().map(|(_, _, record)| record.entries.len()).sum();
            format!("applies {entries} entries up to {end}: {written:?} ({mishap:?})")
        });
        written.ok()?;
        let changes = match changes {
            Some(Ok(changes)) => changes,
            Some(Err(held)) => {
                w.oracle.fail(|| format!("ingest stands still: {held}"));
                return Some(Did::Work);
            }
            None => return Some(Did::Work),
        };
        w.oracle.applied(&changes);
        if mishap == Mishap::AnswerLost {
            hold.work = Some(Work::Apply { records, end });
            return Some(Did::Work);
        }
        self.committed(hold, end, Effect::again(changes.renewed.iter().map(|row| row.key.id).collect()));
        Some(Did::Work)
    }
}

fn identity(command: &Command) -> Identity {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&command.task.to_be_bytes());
    Identity(bytes)
}

fn new_row(w: &World, offer: &Offer, command: &Command) -> New {
    let key = RowKey { shard: w.shard_of(command.task), due_at: command.due_at, id: offer.id };
    let row = Pending { generation: Generation(1), topic: command.topic, expires_at: command.expires_at };
    New { identity: offer.identity, content: offer.content, waiting: Waiting { key, row } }
}
