//! Rows under lock, table `change`, and what a transaction writes of them.

use super::{Db, Row};
use crate::kafka::Kafka;
use protocol::change::Answer;
use protocol::life::{Effects, Held, Life, Open, Place, What};
use protocol::reemit::Again;
use schemas::ids::{RowGen, RowId};
use std::collections::HashMap;
use std::rc::Rc;

/// Column `change.kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 1 and 3: an intent or a parked ack.
    Open(What),
    /// 2: owed by whoever read the command.
    Owed(crate::oracle::Reply),
    /// 4: owed by whoever applied the journal entry.
    OwedLate(Answer),
}

/// A row of `change`.
#[derive(Clone, Debug)]
pub struct Change {
    pub row_gen: RowGen,
    pub kind: Kind,
    /// An answer was asked for.
    pub reply: bool,
    /// Not before this time the compensator sees to it.
    pub resend_at: i64,
}

/// After which time an intent counts as lost …
const RESEND_MS: i64 = 3_000;
/// … and an answer: soon, so that both sides send it.
const ANSWER_MS: i64 = 300;

impl Db {
    /// Puts a row where it belongs.
    pub fn set(&mut self, row: Held) {
        if let Some(before) = self.task.remove(&row.id) {
            match &before.place {
                Place::Pending(waiting) => drop(self.pending.remove(&waiting.key)),
                Place::Running(working) => drop(self.running.remove(&working.key)),
                Place::Bodiless(_) | Place::Final(_) => {}
            }
        }
        let row: Row = Rc::new(row);
        match &row.place {
            Place::Pending(waiting) => drop(self.pending.insert(waiting.key, row.clone())),
            Place::Running(working) => drop(self.running.insert(working.key, row.clone())),
            Place::Bodiless(_) | Place::Final(_) => {}
        }
        self.task.insert(row.id, row);
    }

    /// These rows and what is open of them, locked.
    pub fn lock(&self, ids: impl IntoIterator<Item = RowId>) -> (Vec<Held>, Vec<Open>) {
        let (mut rows, mut open) = (Vec::new(), Vec::new());
        for id in ids {
            let Some(row) = self.task.get(&id) else { continue };
            let mut row = Held::clone(row);
            if let Place::Pending(waiting) = &mut row.place {
                waiting.noted = self.reemit.contains_key(&waiting.key);
            }
            rows.push(row);
            open.extend(self.open_of(id));
        }
        (rows, open)
    }

    pub fn life(&self, ids: impl IntoIterator<Item = RowId>) -> Life {
        let (rows, open) = self.lock(ids);
        Life::new(rows, open)
    }

    fn open_of(&self, id: RowId) -> impl Iterator<Item = Open> {
        let rows = self.change.iter().filter(move |(_, change)| change.row_gen.id == id);
        rows.filter_map(|(command, change)| match &change.kind {
            Kind::Open(what) => {
                let RowGen { id, generation } = change.row_gen;
                Some(Open { command: *command, id, generation, what: what.clone() })
            }
            Kind::Owed(_) | Kind::OwedLate(_) => None,
        })
    }

    /// Whether a withdraw is to be emitted instead of a deliver record.
    pub fn is_intended(&self, row_gen: RowGen) -> bool {
        self.change
            .values()
            .any(|change| change.row_gen == row_gen && matches!(change.kind, Kind::Open(What::Intent(_))))
    }

    /// Writes the net effect of a transaction. `asks`: whether an answer to a new intent was asked for.
    pub fn write(&mut self, effects: &Effects, now: i64, asks: impl Fn(RowId) -> bool) {
        for key in &effects.forgotten {
            self.reemit.remove(key);
        }
        for moved in &effects.moved {
            let mut row = moved.to.clone();
            if let Place::Pending(waiting) = &mut row.place {
                waiting.noted = false;
            }
            self.set(row);
        }
        for back in &effects.handed_back {
            let n = self.reemit.get(&back.key).map_or(0, |again| again.n);
            self.reemit.insert(back.key, Again { generation: back.generation, at: 0, n });
        }
        for open in &effects.opened {
            let row_gen = RowGen { id: open.id, generation: open.generation };
            let (kind, reply) = (Kind::Open(open.what.clone()), asks(open.command));
            self.change.insert(open.command, Change { row_gen, kind, reply, resend_at: now + RESEND_MS });
        }
        for closed in &effects.closed {
            let Some(mut row) = self.change.remove(&closed.command) else { continue };
            if let Some(answer) = closed.answer.filter(|_| row.reply) {
                row.kind = Kind::OwedLate(answer);
                row.resend_at = now + ANSWER_MS;
                self.change.insert(closed.command, row);
            }
        }
    }

    /// The row of each task.
    pub fn rows_by_task(&self, kafka: &Kafka) -> HashMap<u32, RowId> {
        let log = |id: RowId| &kafka.tasks[id.partition() as usize];
        self.task.keys().map(|id| (log(*id)[id.offset() as usize].1.task, *id)).collect()
    }

    /// An answer that was asked for, and is owed until it is acked.
    pub fn owe(&mut self, command: RowId, reply: crate::oracle::Reply) {
        let row_gen = RowGen { id: command, generation: schemas::ids::Generation(0) };
        let change = Change { row_gen, kind: Kind::Owed(reply), reply: true, resend_at: i64::MAX };
        self.change.insert(command, change);
    }

    /// Answers to commands of a stretch were acked. `late`: a mistake, those of the journal's side go with them.
    pub fn forget_answered(&mut self, first: RowId, end: RowId, late: bool) {
        let answered: Vec<RowId> = self
            .change
            .range(first..end)
            .filter(|(_, change)| match change.kind {
                Kind::Owed(_) => true,
                Kind::OwedLate(_) => late,
                Kind::Open(_) => false,
            })
            .map(|(command, _)| *command)
            .collect();
        for command in answered {
            self.change.remove(&command);
        }
    }
}
