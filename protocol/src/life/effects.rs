//! The net effect of a transaction.

use super::{Held, Life, Open, Place, RowKey};
use crate::change::Answer;
use crate::state::IllegalEvent;
use schemas::ids::{Generation, RowId};
use std::collections::BTreeSet;

/// What became of one row in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// As it was found, or inserted.
    pub from: Held,
    /// As it is to be.
    pub to: Held,
}

/// A row of `change` that is open no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The row of `change`.
    pub command: RowId,
    /// What is owed to whoever asked: the row is kept for it (kind 4). `None`: the row is deleted.
    pub answer: Option<Answer>,
}

/// A row whose due record was too old to be judged: to be emitted again with a fresh fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedBack {
    /// Where it lies.
    pub key: RowKey,
    /// Its generation, unchanged.
    pub generation: Generation,
}

/// Something that cannot happen while the invariants hold. Counted, logged, and passed over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Alarm {
    /// A fate for a row that MySQL does not know although its command was applied.
    #[error("the journal settles row {id} generation {}, which is not in MySQL", .generation.0)]
    UnknownRow {
        /// The row.
        id: RowId,
        /// The generation settled.
        generation: Generation,
    },
    /// A fate for a generation that has gone by.
    #[error("the journal settles row {id} generation {}, but MySQL is at generation {}", .settled.0, .found.0)]
    SettledTwice {
        /// The row.
        id: RowId,
        /// The generation settled.
        settled: Generation,
        /// The generation found.
        found: Generation,
    },
    /// An entry from ahead that says nothing about how the row stands now.
    #[error("the journal speaks of row {id} generation {}, but MySQL is at generation {}", .said.0, .found.0)]
    FromAhead {
        /// The row.
        id: RowId,
        /// The generation spoken of.
        said: Generation,
        /// The generation found.
        found: Generation,
    },
    /// A live task without a body.
    #[error("row {id} is alive, but has no row in `pending` or `running`")]
    Bodiless {
        /// The row.
        id: RowId,
    },
    /// A change that the table of states does not know.
    #[error("row {id}: {illegal}")]
    Illegal {
        /// The row.
        id: RowId,
        /// What the table of states says.
        illegal: IllegalEvent,
    },
}

/// All that a transaction writes for the rows it holds. Each list is in the order of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Rows that end elsewhere or otherwise than they were found.
    pub moved: Vec<Moved>,
    /// New rows of `change` (kinds 1 and 3).
    pub opened: Vec<Open>,
    /// Rows of `change` that are answered or applied.
    pub closed: Vec<Closed>,
    /// Rows for the compensator: notes to be written into `reemit`, due at once.
    pub handed_back: Vec<HandedBack>,
    /// Notes in `reemit` that no longer speak of a living `(row, gen)`.
    pub forgotten: Vec<RowKey>,
    /// Rows to look at after the commit: what of them then is pending at or below its cursor is emitted with a fresh
    /// fence, or, with an open intent, withdrawn.
    pub look: BTreeSet<RowId>,
    /// What should not have been.
    pub alarms: Vec<Alarm>,
}

pub(super) fn of(life: Life) -> Effects {
    let Life { mut found, now, opened, closed, handed_back, alarms, .. } = life;
    let mut effects = Effects {
        opened: opened.into_values().collect(),
        closed: closed.into_iter().map(|(command, answer)| Closed { command, answer }).collect(),
        alarms,
        ..Effects::default()
    };
    effects.look.extend(effects.opened.iter().filter(|open| open.is_intent()).map(|open| open.id));
    for id in handed_back {
        let row = now.get(&id).or_else(|| found.get(&id));
        let key = row.and_then(|row| Some((row.pending_key()?, row.generation)));
        effects.handed_back.extend(key.map(|(key, generation)| HandedBack { key, generation }));
    }
    for (id, to) in now {
        let Some(from) = found.remove(&id).filter(|from| *from != to) else { continue };
        let (left, entered) = (from.pending_key(), to.pending_key());
        let same = left == entered && from.generation == to.generation;
        if let Place::Pending(waiting) = &from.place
            && waiting.noted
            && !same
        {
            effects.forgotten.push(waiting.key);
        }
        if entered.is_some() && !same {
            effects.look.insert(id);
        }
        effects.moved.push(Moved { from, to });
    }
    effects.forgotten.sort_unstable();
    effects.handed_back.sort_unstable_by_key(|row| row.key);
    effects
}

impl Open {
    /// Whether it is an intent, which a withdraw goes out for; a parked ack only waits.
    pub fn is_intent(&self) -> bool {
        matches!(self.what, super::What::Intent(_))
    }
}
