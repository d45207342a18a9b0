//! Somebody who cancels and withdraws: the rules of PROTOCOL §1 for changes, as far as there is something to try them on.
//! Beyond the cursor a task is cancelled at once; at or below it a withdraw is put on `due` under the fence rule.

use super::Did;
use crate::mysql::Waiting;
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use schemas::ids::RowId;

/// The canceller.
#[derive(Debug)]
pub struct Canceller {
    pub name: String,
    stage: Stage,
    pub wanted: Vec<RowId>,
}

#[derive(Debug)]
enum Stage {
    Rest,
    /// One transaction with the shard's row locked.
    Decide(RowId),
    /// Mistake: decided, and the shard's row is free again.
    CancelLater(Waiting),
    /// At or below the cursor: the fence …
    Fence(RowId),
    /// … then the row …
    Row {
        id: RowId,
        fence: i64,
    },
    /// … then the withdraw, until it is acked.
    Emit {
        row: Waiting,
        fence: i64,
    },
}

impl Canceller {
    pub fn new(w: &mut World) -> Canceller {
        Canceller { name: format!("canceller {}", w.name()), stage: Stage::Rest, wanted: Vec::new() }
    }

    /// One step.
    pub fn step(&mut self, w: &mut World) -> Did {
        let stage = std::mem::replace(&mut self.stage, Stage::Rest);
        match stage {
            Stage::Rest => match self.wanted.pop() {
                None => return Did::Idle(None),
                Some(id) => self.stage = Stage::Decide(id),
            },
            Stage::Decide(id) => {
                let Some(row) = w.db.waiting(id).filter(|_| w.db_mishap("cancel", false) == Mishap::None)
                else {
                    return Did::Work;
                };
                if !w.db.is_beyond(row.key) {
                    self.stage = Stage::Fence(id);
                } else if w.has(Mutation::CancelWithoutLock) {
                    self.stage = Stage::CancelLater(row);
                } else {
                    self.cancel(w, row);
                }
            }
            Stage::CancelLater(row) => {
                if w.db.pending.contains_key(&row.key) {
                    self.cancel(w, row);
                }
            }
            Stage::Fence(id) => {
                let key = w.db.task[&id].key;
                let fence = w.db.fence(w.routes.slot_at(key.shard, key.due_at).0);
                self.stage = Stage::Row { id, fence };
            }
            Stage::Row { id, fence } => {
                if let Some(row) = w.db.waiting(id).filter(|row| !w.db.is_beyond(row.key)) {
                    self.stage = Stage::Emit { row, fence };
                }
            }
            Stage::Emit { row, fence } => {
                let record = w.due_record(&row, fence, true);
                if !w.emit(&self.name, record) {
                    self.stage = Stage::Emit { row, fence };
                }
            }
        }
        Did::Work
    }

    fn cancel(&self, w: &mut World, row: Waiting) {
        w.saw("cancelled at once");
        w.say(&self.name, || format!("cancels {} at once", row.key.id));
        w.db.cancel(row.key);
        w.oracle.cancelled.insert(row.key.id);
    }
}
