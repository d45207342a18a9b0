//! Commands: fences, identities, then one transaction with inserts first and changes in command order.

use super::{Did, Hold, Ingest, Work, asks};
use crate::kafka::{Command, Op, Wanted};
use crate::mysql::{Failed, New, Row};
use crate::oracle::Reply;
use crate::programs::effects::{Effect, Fences, fences};
use crate::setup::Mutation;
use crate::world::{Mishap, World, topic};
use protocol::admission::{self, ContentHash, Identity, Known, Offer, Verdict};
use protocol::change::{self, Answer, Change};
use protocol::life::{Cursors, Held, Life, Live, Place, RowKey, Waiting, Working};
use protocol::position::Handling;
use schemas::due::Completion;
use schemas::ids::{Generation, RowId};
use schemas::row::RowOptions;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Commands on their way to their commit.
#[derive(Debug)]
pub struct Batch {
    /// With offset and time.
    commands: Vec<(i64, i64, Command)>,
    fences: Option<Fences>,
    /// Mistake: the cursors, read too early.
    cursors: Option<Cursors>,
    known: Option<HashMap<Identity, Known>>,
}

/// What a transaction came to.
#[derive(Default)]
struct Written {
    rows: Vec<Row>,
    look: Vec<RowId>,
    replies: Vec<(RowId, Reply)>,
}

pub fn identity(task: u32) -> Identity {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&task.to_be_bytes());
    Identity(bytes)
}

impl Ingest {
    pub(super) fn fetch_tasks(&mut self, w: &mut World, hold: &mut Hold, partition: i32) -> bool {
        let end = w.kafka.tasks[partition as usize].len() as i64;
        let record = |w: &World, offset: i64| Some(w.kafka.tasks[partition as usize][offset as usize]);
        let Some(stretch) = Ingest::stretch(w, hold, end, record) else { return false };
        match stretch.handling {
            Handling::Apply => {
                let commands = stretch.records;
                hold.work = Some(Work::Tasks(Batch { commands, fences: None, cursors: None, known: None }));
            }
            Handling::Repeat => {
                let mut effect = Effect::default();
                effect
                    .look_up(stretch.records.iter().map(|(_, _, command)| identity(command.task)).collect());
                let first = stretch.records.first().map_or(stretch.end, |(offset, _, _)| *offset);
                effect.owed(self.id(first), self.id(stretch.end));
                self.repeat(w, hold, stretch.end, effect);
            }
            Handling::Skip => {}
        }
        true
    }

    pub(super) fn tasks(&mut self, w: &mut World, hold: &mut Hold, mut batch: Batch) -> Option<Did> {
        if batch.fences.is_none() {
            if w.db_mishap("fences", false) == Mishap::None {
                batch.fences = Some(fences(w));
                let early = w.has(Mutation::CursorBeforeCommit) || w.has(Mutation::CancelWithoutLock);
                batch.cursors = early.then(|| w.db.cursors());
            }
        } else if batch.known.is_none() {
            if w.db_mishap("look_up", false) == Mishap::None {
                let identities = batch.commands.iter().map(|(_, _, command)| identity(command.task));
                batch.known = Some(w.db.lookup(identities));
            } else {
                batch.fences = None;
            }
        } else {
            return self.write_tasks(w, hold, batch);
        }
        hold.work = Some(Work::Tasks(batch));
        Some(Did::Work)
    }

    fn write_tasks(&mut self, w: &mut World, hold: &mut Hold, mut batch: Batch) -> Option<Did> {
        let end = batch.commands.last().map_or(0, |(offset, _, _)| offset + 1);
        let (fences, known) = (batch.fences.take(), batch.known.take());
        let (Some(fences), Some(known)) = (fences, known) else { return Some(Did::Work) };
        let mishap = w.db_mishap("insert", true);
        if mishap == Mishap::Refused {
            hold.work = Some(Work::Tasks(batch));
            return Some(Did::Work);
        }
        let mut done = Written::default();
        let written = self.commit(w, hold, end, |w| {
            done = self.transaction(w, &batch, &known)?;
            Ok(())
        });
        w.say(&self.name, || {
            format!("commits {} new rows up to {end}: {written:?} ({mishap:?})", done.rows.len())
        });
        match written {
            Err(Failed::Moved) => return None,
            Err(Failed::Duplicate) => {
                w.saw("duplicate key");
                hold.work = Some(Work::Tasks(batch));
                return Some(Did::Work);
            }
            Ok(()) if mishap == Mishap::AnswerLost => {
                // Tried again from the start: the compare-and-set says what became of it.
                hold.work = Some(Work::Tasks(batch));
                return Some(Did::Work);
            }
            Ok(()) => {}
        }
        let mut effect = Effect::default();
        let cursors = batch.cursors.filter(|_| w.has(Mutation::CursorBeforeCommit));
        effect.fresh(done.rows, fences, cursors);
        effect.look(done.look);
        effect.tell(done.replies);
        if w.rough && w.dice.roll(2) == 1 {
            effect.answers_first();
        }
        self.committed(hold, end, effect);
        Some(Did::Work)
    }

    /// Inserts and changes; nothing is written where it fails.
    fn transaction(
        &self,
        w: &mut World,
        batch: &Batch,
        known: &HashMap<Identity, Known>,
    ) -> Result<Written, Failed> {
        let mut done = Written::default();
        let (mut offers, mut changes) = (Vec::new(), Vec::new());
        for (offset, at, command) in &batch.commands {
            match command.op {
                Op::Schedule(wanted) => {
                    let (id, content) = (self.id(*offset), ContentHash([wanted.content; 16]));
                    offers.push((Offer { id, identity: identity(command.task), content }, *command, wanted));
                }
                Op::Cancel => changes.push((*offset, *at, *command, change::Op::Cancel)),
                Op::Reschedule(to) => changes.push((*offset, *at, *command, change::Op::Reschedule(to))),
            }
        }
        let bare: Vec<Offer> = offers.iter().map(|(offer, ..)| *offer).collect();
        let judged = admission::judge(&bare, known);
        let mut of_task: HashMap<u32, RowId> = HashMap::new();
        let mut rows = Vec::new();
        for index in &judged.inserts {
            let (offer, command, wanted) = &offers[*index];
            of_task.insert(command.task, offer.id);
            rows.push(new_row(w, offer, command.task, wanted));
        }
        w.db.insert(&rows)?;
        for ((offer, command, _), verdict) in offers.iter().zip(&judged.verdicts) {
            let reply = match verdict {
                Verdict::Accepted | Verdict::AlreadyAccepted => Reply::Accepted,
                Verdict::Duplicate { .. } => Reply::Duplicate,
                Verdict::Conflict { .. } => Reply::Conflict,
            };
            done.replies.extend(command.reply.then_some((offer.id, reply)));
            if *verdict == Verdict::AlreadyAccepted {
                done.look.push(offer.id);
            }
        }
        done.rows = rows.into_iter().map(|new| new.row).collect();
        if !changes.is_empty() {
            let row_of =
                |task| of_task.get(&task).copied().or(known.get(&identity(task)).map(|known| known.id));
            let changes: Vec<Change> = changes
                .into_iter()
                .map(|(offset, at, command, op)| Change {
                    command: self.id(offset),
                    at,
                    row: row_of(command.task),
                    op,
                })
                .collect();
            self.changes(w, batch, &changes, &mut done);
        }
        if !w.has(Mutation::AnswerNotOwed) {
            for (command, reply) in &done.replies {
                w.db.owe(*command, *reply);
            }
        }
        Ok(done)
    }

    fn changes(&self, w: &mut World, batch: &Batch, changes: &[Change], done: &mut Written) {
        let inserted: BTreeSet<RowId> = done.rows.iter().map(|row| row.id).collect();
        let rows: BTreeSet<RowId> =
            changes.iter().filter_map(|change| change.row).filter(|id| !inserted.contains(id)).collect();
        let mut life: Life = w.db.life(rows);
        for row in &done.rows {
            life.insert(Held::clone(row));
        }
        let early = batch.cursors.clone().filter(|_| w.has(Mutation::CancelWithoutLock));
        let mut cursors = early.unwrap_or_else(|| w.db.cursors());
        if w.has(Mutation::ChangedWhileAlive) {
            cursors.values_mut().for_each(|cursor_at| *cursor_at = i64::MIN);
        }
        for change in changes {
            let verdict = change::decide(&mut life, change, &cursors, |_| true);
            w.say(&self.name, || format!("decides {change:?}: {verdict:?}"));
            w.oracle.verdict(change, verdict, change.row.and_then(|id| life.get(id)));
            saw(w, verdict);
            let asked = asks(&w.kafka.tasks, change.command);
            match verdict {
                change::Verdict::Answered(answer) if asked => {
                    done.replies.push((change.command, Reply::Change(answer)));
                }
                change::Verdict::Intended if asked && w.has(Mutation::AnswerBeforeJournal) => {
                    let answer = match change.op {
                        change::Op::Cancel => Answer::Cancelled,
                        change::Op::Reschedule(_) | change::Op::Replay(_) => Answer::Accepted,
                    };
                    done.replies.push((change.command, Reply::Change(answer)));
                }
                change::Verdict::Answered(_) | change::Verdict::Intended => {}
            }
        }
        let mut effects = life.into_effects();
        if w.has(Mutation::StopForgotten) {
            for moved in &mut effects.moved {
                if let Place::Running(Working { stop, .. }) = &mut moved.to.place {
                    *stop = false;
                }
            }
        }
        done.look.extend(effects.look.iter().copied());
        let now = w.now;
        let tasks = &w.kafka.tasks;
        w.db.write(&effects, now, |command| asks(tasks, command));
        w.oracle.wrote(&effects);
    }
}

fn saw(w: &mut World, verdict: change::Verdict) {
    w.saw(match verdict {
        change::Verdict::Intended => "change: intended",
        change::Verdict::Answered(Answer::Accepted) => "change: rescheduled at once",
        change::Verdict::Answered(Answer::Cancelled) => "change: cancelled",
        change::Verdict::Answered(Answer::AlreadySent) => "change: already sent",
        change::Verdict::Answered(Answer::NotFound) => "change: not found",
        change::Verdict::Answered(Answer::Rejected(refused)) => match refused {
            change::Refused::Dead => "change: rejected, dead",
            change::Refused::ExpiresBeforeDue => "change: rejected, expires before due",
            change::Refused::NotDead => "change: rejected, not dead",
        },
    });
}

fn new_row(w: &World, offer: &Offer, task: u32, wanted: &Wanted) -> New {
    let key = RowKey { shard: w.shard_of(task), due_at: wanted.due_at, id: offer.id };
    let completion = if wanted.on_ack { Completion::OnAck } else { Completion::OnDelivery };
    let options = RowOptions { completion, expires_at: wanted.expires_at, ..w.setup.options.clone() };
    let live = Live { options, ..Live::default() };
    let waiting = Waiting { key, bury: None, noted: false, live };
    let row = Rc::new(Held {
        id: offer.id,
        generation: Generation(1),
        attempt: 1,
        callback_topic: topic(wanted.topic).to_string(),
        place: Place::Pending(waiting),
    });
    New { identity: offer.identity, content: offer.content, row }
}
