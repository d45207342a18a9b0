//! What the entries of the journal do to the rows in MySQL, and what its heartbeats say.
//!
//! The journal is the linearisation point: exactly one fate stands in it for every `(row, gen)`, and MySQL follows.
//! `gen` never changes while `(row, gen)` may be alive outside MySQL, so applying by `(row, gen)` is exact; whatever
//! does not match is either a restored backup (applied forward, or waited for) or an invariant that broke (alarm).

mod beat;

pub use beat::Beat;

use crate::state::{Event, IllegalEvent, TaskState};
use schemas::due::Completion;
use schemas::ids::{Generation, RowId, Shard, SourceId};
use schemas::journal::{EntryKind, JournalEntry};
use std::collections::HashMap;

/// A row as it was found under lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// It waits for its due time.
    Pending(PendingRow),
    /// It was delivered and waits for its consumer.
    Running {
        /// Its generation.
        generation: Generation,
    },
    /// It should wait for its due time, but its row in `pending` is missing.
    Bodiless {
        /// Its generation.
        generation: Generation,
    },
    /// It is over.
    Final {
        /// The generation in which it ended.
        generation: Generation,
    },
}

/// What applying an entry needs to know of a row in `pending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// Where it lies now.
    pub key: RowKey,
    /// Its generation.
    pub generation: Generation,
    /// What a delivery means for it.
    pub completion: Completion,
    /// Whether a note of it stands in `reemit`.
    pub noted: bool,
}

/// The key of a row in `pending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// Its shard.
    pub shard: Shard,
    /// Its due time.
    pub due_at: i64,
    /// The row.
    pub id: RowId,
}

/// A task that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The row.
    pub id: RowId,
    /// Its row in `pending`, to be deleted. `None`: a restored backup no longer had one.
    pub pending: Option<RowKey>,
    /// How it ended: a final state.
    pub state: TaskState,
    /// In which generation: a replay goes on from it.
    pub generation: Generation,
    /// When, by the dispatcher's clock.
    pub finished_at: i64,
}

/// A row that stays pending under a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Where it lies.
    pub key: RowKey,
    /// Its new generation.
    pub generation: Generation,
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
    /// A task that waits for its due time without a body.
    #[error("row {id} is scheduled, but has no row in `pending`")]
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

/// Why a batch cannot be applied now. Nothing of it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// The row's command has not been applied: MySQL was restored to an older state, and its source catches up.
    #[error(
        "row {id} comes from source {} partition {} offset {}, which is not applied yet (MySQL restored from a backup?)",
        .id.source().0, .id.partition(), .id.offset()
    )]
    SourceBehind {
        /// The row.
        id: RowId,
    },
    /// The task waits for its consumer, which this version cannot do: it refuses such tasks, so a newer one made it.
    #[error(
        "row {id} completes on ack, which this version does not support: run the version that accepted it"
    )]
    CompletesOnAck {
        /// The row.
        id: RowId,
    },
}

/// All that a batch of entries changes, each row at most once in each list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Tasks that are over.
    pub finished: Vec<Finished>,
    /// Rows that go on under a new generation. Whoever commits them emits what lies at or below the cursor.
    pub renewed: Vec<Renewed>,
    /// Rows for the compensator.
    pub handed_back: Vec<HandedBack>,
    /// Notes in `reemit` that no longer speak of a living `(row, gen)`.
    pub forgotten: Vec<RowKey>,
    /// What should not have been.
    pub alarms: Vec<Alarm>,
}

/// Where each input partition stands; a partition that is not in it has not been read at all.
pub type Nexts = HashMap<(SourceId, i32), i64>;

/// Decides entries in their order, each seeing what the earlier ones did. `rows` holds every row that the entries
/// name and MySQL has, as found under lock; `nexts` the positions of the sources of those it does not have.
pub fn decide<'a>(
    entries: impl IntoIterator<Item = &'a JournalEntry>,
    mut rows: HashMap<RowId, Row>,
    nexts: &Nexts,
) -> Result<Changes, Hold> {
    let mut changes = Working::default();
    for entry in entries {
        match rows.get(&entry.id).copied() {
            None => changes.without_row(entry, nexts)?,
            Some(Row::Pending(row)) => {
                if let Some(after) = changes.pending(entry, row)? {
                    rows.insert(entry.id, after);
                }
            }
            Some(Row::Bodiless { generation }) => {
                if let Some(after) = changes.bodiless(entry, generation)? {
                    rows.insert(entry.id, after);
                }
            }
            Some(Row::Running { generation }) => changes.running(entry, generation)?,
            Some(Row::Final { generation }) => {
                if let Some(after) = changes.over(entry, generation)? {
                    rows.insert(entry.id, after);
                }
            }
        }
    }
    Ok(changes.into_changes())
}

/// Changes by row, so that a later entry of the batch replaces what an earlier one of the same row asked for.
#[derive(Default)]
struct Working {
    finished: Vec<Finished>,
    /// Index into `finished`, for a second ending of one row.
    ended: HashMap<RowId, usize>,
    renewed: HashMap<RowId, Renewed>,
    handed_back: HashMap<RowId, HandedBack>,
    forgotten: HashMap<RowId, RowKey>,
    alarms: Vec<Alarm>,
}

impl Working {
    fn without_row(&mut self, entry: &JournalEntry, nexts: &Nexts) -> Result<(), Hold> {
        let id = entry.id;
        if !entry.kind.is_fate() {
            return Ok(()); // a late copy of a record whose task is long over
        }
        let next = nexts.get(&(id.source(), id.partition())).copied().unwrap_or(0);
        if id.offset() >= next {
            return Err(Hold::SourceBehind { id });
        }
        self.alarms.push(Alarm::UnknownRow { id, generation: entry.generation });
        Ok(())
    }

    fn pending(&mut self, entry: &JournalEntry, row: PendingRow) -> Result<Option<Row>, Hold> {
        let id = entry.id;
        if entry.generation < row.generation {
            self.went_by(entry, row.generation);
            return Ok(None);
        }
        match entry.kind {
            EntryKind::Delivered => self.settle(entry, Event::Delivered(row.completion), Some(row)),
            EntryKind::Buried => self.settle(entry, Event::Buried, Some(row)),
            EntryKind::Withdrawn => {
                let generation = Generation(entry.generation.0.saturating_add(1));
                self.forget(row);
                self.renewed.insert(id, Renewed { key: row.key, generation });
                Ok(Some(Row::Pending(PendingRow { generation, ..row })))
            }
            EntryKind::Stale if entry.generation > row.generation => {
                self.alarms.push(Alarm::FromAhead { id, said: entry.generation, found: row.generation });
                Ok(None)
            }
            EntryKind::Stale => {
                self.handed_back.insert(id, HandedBack { key: row.key, generation: row.generation });
                self.forgotten.remove(&id);
                Ok(None)
            }
        }
    }

    fn running(&mut self, entry: &JournalEntry, generation: Generation) -> Result<(), Hold> {
        if entry.generation > generation && entry.kind.is_fate() {
            return Err(Hold::CompletesOnAck { id: entry.id });
        }
        self.went_by(entry, generation);
        Ok(())
    }

    /// The journal knows how it ended; there is nothing left of it that could be delivered twice.
    fn bodiless(&mut self, entry: &JournalEntry, generation: Generation) -> Result<Option<Row>, Hold> {
        self.alarms.push(Alarm::Bodiless { id: entry.id });
        match entry.kind {
            EntryKind::Delivered if entry.generation >= generation => {
                self.settle(entry, Event::Delivered(Completion::OnDelivery), None)
            }
            EntryKind::Buried if entry.generation >= generation => self.settle(entry, Event::Buried, None),
            EntryKind::Delivered | EntryKind::Buried | EntryKind::Withdrawn | EntryKind::Stale => Ok(None),
        }
    }

    fn over(&mut self, entry: &JournalEntry, generation: Generation) -> Result<Option<Row>, Hold> {
        if entry.generation <= generation {
            self.went_by(entry, generation);
            return Ok(None);
        }
        // From a backup older than a replay: the journal knows better how it ended.
        match entry.kind {
            EntryKind::Delivered => self.settle(entry, Event::Delivered(Completion::OnDelivery), None),
            EntryKind::Buried => self.settle(entry, Event::Buried, None),
            EntryKind::Withdrawn | EntryKind::Stale => {
                self.alarms.push(Alarm::FromAhead {
                    id: entry.id,
                    said: entry.generation,
                    found: generation,
                });
                Ok(None)
            }
        }
    }

    /// What a fate makes of a task that was scheduled in that generation.
    fn settle(
        &mut self,
        entry: &JournalEntry,
        event: Event,
        row: Option<PendingRow>,
    ) -> Result<Option<Row>, Hold> {
        match TaskState::Scheduled.after(event) {
            Ok(state) if state.is_final() => Ok(Some(self.end(entry, row, state))),
            Ok(_) => Err(Hold::CompletesOnAck { id: entry.id }),
            Err(illegal) => {
                self.alarms.push(Alarm::Illegal { id: entry.id, illegal });
                Ok(None)
            }
        }
    }

    fn went_by(&mut self, entry: &JournalEntry, found: Generation) {
        if entry.kind.is_fate() {
            self.alarms.push(Alarm::SettledTwice { id: entry.id, settled: entry.generation, found });
        }
    }

    fn end(&mut self, entry: &JournalEntry, row: Option<PendingRow>, state: TaskState) -> Row {
        let (id, generation) = (entry.id, entry.generation);
        if let Some(row) = row {
            self.forget(row);
        }
        self.renewed.remove(&id);
        let pending = row.map(|row| row.key);
        let finished = Finished { id, pending, state, generation, finished_at: entry.at };
        match self.ended.get(&id) {
            Some(at) => {
                let pending = self.finished[*at].pending;
                self.finished[*at] = Finished { pending, ..finished };
            }
            None => {
                self.ended.insert(id, self.finished.len());
                self.finished.push(finished);
            }
        }
        Row::Final { generation }
    }

    fn forget(&mut self, row: PendingRow) {
        self.handed_back.remove(&row.key.id);
        if row.noted {
            self.forgotten.insert(row.key.id, row.key);
        }
    }

    fn into_changes(self) -> Changes {
        let mut changes = Changes {
            finished: self.finished,
            renewed: self.renewed.into_values().collect(),
            handed_back: self.handed_back.into_values().collect(),
            forgotten: self.forgotten.into_values().collect(),
            alarms: self.alarms,
        };
        // In the order of the key: everybody who writes many rows locks them in this order.
        changes.finished.sort_unstable_by_key(|row| row.id);
        changes.renewed.sort_unstable_by_key(|row| row.key);
        changes.handed_back.sort_unstable_by_key(|row| row.key);
        changes.forgotten.sort_unstable();
        changes
    }
}

#[cfg(test)]
mod tests;
