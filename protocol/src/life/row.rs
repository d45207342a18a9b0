//! Rows of `task`, `pending`, `running` and `change`, as far as decisions need them: all but the bodies.

use crate::ack::Ack;
use crate::change::Intent;
use crate::state::TaskState;
use schemas::delivery::DeadReason;
use schemas::ids::{Generation, RowGen, RowId, Shard};
use schemas::row::{RowHistory, RowOptions};

/// The key of a row in `pending` (shard, due time, id) or `running` (shard, deadline, id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// Its shard.
    pub shard: Shard,
    /// Its due time, in `running` its deadline.
    pub due_at: i64,
    /// The row.
    pub id: RowId,
}

/// A row as it was found under lock, or as decisions have left it: everything but its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The row.
    pub id: RowId,
    /// Its generation; of a final one, that in which it ended.
    pub generation: Generation,
    /// Its attempt.
    pub attempt: u16,
    /// Where it is delivered to.
    pub callback_topic: String,
    /// Where it lies, and what is known of it there.
    pub place: Place,
}

/// Where a row lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In `pending`: it waits for its due time.
    Pending(Waiting),
    /// In `running`: it was delivered and waits for its consumer.
    Running(Working),
    /// Nowhere, although its task says so: an invariant that broke, or a restored backup.
    Bodiless(TaskState),
    /// Over.
    Final(Ended),
}

/// A row of `pending`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Where it lies.
    pub key: RowKey,
    /// The dispatcher buries it instead of delivering it.
    pub bury: Option<DeadReason>,
    /// A note of it stands in `reemit`.
    pub noted: bool,
    /// What it carries wherever it lies.
    pub live: Live,
}

/// A row of `running`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Working {
    /// Where it lies: `due_at` of the key is the deadline, past which it counts as stalled.
    pub key: RowKey,
    /// When the generation that was delivered was due.
    pub due_at: i64,
    /// Last progress of this attempt.
    pub progress: Option<Vec<u8>>,
    /// No further attempts: a failure cancels.
    pub stop: bool,
    /// What it carries wherever it lies.
    pub live: Live,
}

/// What a row carries wherever it lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Attempts that failed.
    pub failures: u16,
    /// Attempts that stalled.
    pub stalls: u16,
    /// Column `options`.
    pub options: RowOptions,
    /// Column `history`.
    pub history: RowHistory,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// A final state.
    pub state: TaskState,
    /// When.
    pub finished_at: i64,
    /// The shard of its task: a replay goes on there.
    pub shard: Shard,
}

impl Held {
    /// The `(row, gen)`.
    pub fn row_gen(&self) -> RowGen {
        RowGen { id: self.id, generation: self.generation }
    }

    /// Its key in `pending`, where it lies there.
    pub fn pending_key(&self) -> Option<RowKey> {
        match &self.place {
            Place::Pending(row) => Some(row.key),
            Place::Running(_) | Place::Bodiless(_) | Place::Final(_) => None,
        }
    }

    /// Column `task.state`.
    pub fn state(&self) -> TaskState {
        match &self.place {
            Place::Pending(_) => TaskState::Scheduled,
            Place::Running(_) => TaskState::Running,
            Place::Bodiless(state) => *state,
            Place::Final(ended) => ended.state,
        }
    }

    /// The same row elsewhere.
    pub(crate) fn at(&self, place: Place) -> Held {
        Held { place, ..self.clone() }
    }

    /// The same row elsewhere, in the next generation.
    pub(crate) fn next(&self, place: Place) -> Held {
        Held { generation: Generation(self.generation.0.saturating_add(1)), ..self.at(place) }
    }
}

/// A row of `change`, as long as it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Row id form of the record of the command or ack. Commands are folded in its order.
    pub command: RowId,
    /// The row that it wants to change …
    pub id: RowId,
    /// … and the generation in which it found it.
    pub generation: Generation,
    /// What it wants.
    pub what: What,
}

/// What a row of `change` waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Kind 1: decided by the journal entry of its `(row, gen)`.
    Intent(Intent),
    /// Kind 3: applied with the journal entry of its `(row, gen)`.
    Parked(Ack),
}
