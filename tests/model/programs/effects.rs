//! What ingest does after a commit: find out what to emit, emit it, and know that it is acked.

use crate::mysql::Waiting;
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use protocol::admission::{self, Placed};
use schemas::due::DueRecord;
use schemas::ids::{RowId, Shard};
use std::collections::{HashMap, VecDeque};

/// Fences of all slots.
pub type Fences = Vec<i64>;

/// Reads them.
pub fn fences(w: &World) -> Fences {
    (0..w.setup.slots).map(|slot| w.db.fence(slot)).collect()
}

/// Effects of one batch, step by step.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Rows that were just committed: read the cursors …
    Cursors { rows: Vec<Waiting>, again: Vec<RowId>, fences: Fences },
    /// … and look again at what lies below them.
    Look { rows: Vec<Waiting>, again: Vec<RowId>, fences: Fences, cursors: HashMap<Shard, i64> },
    /// Whatever of these still is pending at or below the cursor: read the fences …
    Fences { ids: Vec<RowId>, then: VecDeque<DueRecord> },
    /// … and then the rows.
    Rows { ids: Vec<RowId>, then: VecDeque<DueRecord>, fences: Option<Fences> },
    /// Mistake: the fences last.
    FencesLast { rows: Vec<Waiting>, then: VecDeque<DueRecord> },
    /// Emit these, each until it is acked.
    Emit(VecDeque<DueRecord>),
}

impl Effect {
    /// What was committed just now; nothing where there is nothing to do.
    pub fn fresh(rows: Vec<Waiting>, again: Vec<RowId>, fences: Fences) -> Option<Effect> {
        (!rows.is_empty() || !again.is_empty()).then_some(Effect::Cursors { rows, again, fences })
    }

    /// What somebody committed, or what has a new generation.
    pub fn again(ids: Vec<RowId>) -> Option<Effect> {
        (!ids.is_empty()).then_some(Effect::Fences { ids, then: VecDeque::new() })
    }

    /// One step. `None`: all is acked.
    pub fn step(self, w: &mut World, who: &str) -> Option<Effect> {
        match self {
            Effect::Cursors { rows, again, fences } => {
                if w.db_mishap("cursors", false) != Mishap::None {
                    return Some(Effect::Cursors { rows, again, fences });
                }
                let cursors = w.db.cursors();
                w.say(who, || format!("reads cursors {cursors:?}"));
                Some(Effect::Look { rows, again, fences, cursors })
            }
            Effect::Look { rows, again, fences, cursors } => {
                if w.db_mishap("second_look", false) != Mishap::None {
                    return Some(Effect::Cursors { rows, again, fences });
                }
                let placed: Vec<Placed> = rows.iter().map(Waiting::placed).collect();
                let near = admission::near(&placed, &cursors);
                let looked_at: Vec<Placed> = near.iter().map(|index| placed[*index]).collect();
                let found = w.db.second_look(&looked_at);
                let chosen = if w.has(Mutation::NoSecondLook) {
                    near
                } else {
                    admission::still_there(&placed, &near, &found)
                };
                let fences = if w.has(Mutation::FenceAfterRow) { self::fences(w) } else { fences };
                let records = chosen.into_iter().map(|index| record(w, &rows[index], &fences)).collect();
                if again.is_empty() {
                    Some(Effect::Emit(records))
                } else {
                    Some(Effect::Fences { ids: again, then: records })
                }
            }
            Effect::Fences { ids, then } => {
                if w.has(Mutation::FenceAfterRow) {
                    return Some(Effect::Rows { ids, then, fences: None });
                }
                if w.db_mishap("fences", false) != Mishap::None {
                    return Some(Effect::Fences { ids, then });
                }
                let fences = Some(self::fences(w));
                Some(Effect::Rows { ids, then, fences })
            }
            Effect::Rows { ids, mut then, fences } => {
                if w.db_mishap("rows", false) != Mishap::None {
                    return Some(Effect::Rows { ids, then, fences });
                }
                let rows = w.db.pending_near(&ids);
                w.say(who, || format!("of {ids:?} still are pending below the cursor: {}", rows.len()));
                let Some(fences) = fences else { return Some(Effect::FencesLast { rows, then }) };
                then.extend(rows.iter().map(|row| record(w, row, &fences)).collect::<Vec<_>>());
                Some(Effect::Emit(then))
            }
            Effect::FencesLast { rows, mut then } => {
                let fences = self::fences(w);
                then.extend(rows.iter().map(|row| record(w, row, &fences)).collect::<Vec<_>>());
                Some(Effect::Emit(then))
            }
            Effect::Emit(mut records) => {
                let record = records.front()?.clone();
                if w.emit(who, record) {
                    records.pop_front();
                }
                (!records.is_empty()).then_some(Effect::Emit(records))
            }
        }
    }
}

fn record(w: &World, row: &Waiting, fences: &Fences) -> DueRecord {
    let slot = w.slot_of(row);
    w.due_record(row, fences[usize::from(slot.0)], false)
}
