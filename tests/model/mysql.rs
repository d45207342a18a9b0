//! MySQL as far as the protocol leans on it. Locks make a transaction one step; what is read before it is its own step.

use protocol::admission::{ContentHash, Identity, Known, Placed};
use protocol::apply::{self, Changes, Hold, Nexts, PendingRow as Locked, Row, RowKey};
use protocol::cursor::{Advance, Confirm, Fenced, ScanPoint, ShardRow};
use protocol::reemit::{Again, Candidate, SlotHealth};
use protocol::state::TaskState;
use schemas::due::Completion;
use schemas::ids::{Generation, RowGen, RowId, Shard, SourceId};
use schemas::journal::JournalEntry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

/// The number of `journal`.
pub const JOURNAL: SourceId = SourceId(1);
/// The number of `tasks`.
pub const TASKS: SourceId = SourceId(2);

/// A row of `task`.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub state: TaskState,
    pub generation: Generation,
    pub key: RowKey,
}

/// A row of `pending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub generation: Generation,
    pub topic: u8,
    pub expires_at: Option<i64>,
}

/// A row of `pending` with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub key: RowKey,
    pub row: Pending,
}

impl Waiting {
    pub fn placed(&self) -> Placed {
        let RowKey { shard, due_at, id } = self.key;
        Placed { id, generation: self.row.generation, shard, due_at }
    }
}

/// A row of `stream_position`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    pub next: i64,
    pub confirmed: i64,
    pub health: SlotHealth,
    pub credit: Option<i64>,
}

/// A row about to be inserted.
#[derive(Clone, Copy, Debug)]
pub struct New {
    pub identity: Identity,
    pub content: ContentHash,
    pub waiting: Waiting,
}

/// Why a transaction did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// A position or an epoch is not what it should be.
    Moved,
    /// An identity is there already.
    Duplicate,
}

/// All tables.
#[derive(Clone, Debug, Default)]
pub struct Db {
    pub task: BTreeMap<RowId, Task>,
    identity: HashMap<Identity, Known>,
    pub pending: BTreeMap<RowKey, Pending>,
    pub shard: BTreeMap<Shard, ShardRow>,
    pub position: BTreeMap<(SourceId, i32), Position>,
    pub reemit: BTreeMap<RowKey, Again>,
}

impl Db {
    pub fn new(shards: u16, slots: u16, partitions: i32) -> Db {
        let mut db = Db::default();
        for shard in (0..shards).map(Shard) {
            let confirmed = ScanPoint { due_at: 0, id: RowId(0) };
            db.shard.insert(shard, ShardRow { shard, epoch: 0, cursor_at: 0, confirmed });
        }
        for slot in 0..slots {
            db.position.insert((JOURNAL, i32::from(slot)), Position::default());
        }
        for partition in 0..partitions {
            db.position.insert((TASKS, partition), Position::default());
        }
        db
    }

    pub fn fence(&self, slot: u16) -> i64 {
        self.position[&(JOURNAL, i32::from(slot))].next
    }

    pub fn lookup(&self, identities: impl Iterator<Item = Identity>) -> HashMap<Identity, Known> {
        identities.filter_map(|identity| Some((identity, *self.identity.get(&identity)?))).collect()
    }

    pub fn cursors(&self) -> HashMap<Shard, i64> {
        self.shard.values().map(|row| (row.shard, row.cursor_at)).collect()
    }

    /// Which of these still are pending with their generation.
    pub fn second_look(&self, placed: &[Placed]) -> HashSet<RowGen> {
        let there = |row: &&Placed| {
            let key = RowKey { shard: row.shard, due_at: row.due_at, id: row.id };
            self.pending.get(&key).is_some_and(|found| found.generation == row.generation)
        };
        placed.iter().filter(there).map(Placed::row_gen).collect()
    }

    /// Of these rows, what still is pending at or below its cursor.
    pub fn pending_near(&self, ids: &[RowId]) -> Vec<Waiting> {
        ids.iter().filter_map(|id| self.waiting(*id)).filter(|row| !self.is_beyond(row.key)).collect()
    }

    /// The row of a scheduled task.
    pub fn waiting(&self, id: RowId) -> Option<Waiting> {
        let key = self.task.get(&id)?.key;
        Some(Waiting { key, row: *self.pending.get(&key)? })
    }

    pub fn is_beyond(&self, key: RowKey) -> bool {
        key.due_at > self.shard[&key.shard].cursor_at
    }

    /// Moves positions, compare-and-set. `confirm` moves `confirmed`.
    pub fn advance(
        &mut self,
        stream: (SourceId, i32),
        from: i64,
        to: i64,
        confirm: Option<i64>,
    ) -> Result<(), Failed> {
        let position = self.position.get_mut(&stream).ok_or(Failed::Moved)?;
        if position.next != from {
            return Err(Failed::Moved);
        }
        position.next = to;
        confirm.map_or(Ok(()), |confirm| self.confirm(stream, confirm))
    }

    /// Moves `confirmed`; never beyond `next`.
    pub fn confirm(&mut self, stream: (SourceId, i32), to: i64) -> Result<(), Failed> {
        let position = self.position.get_mut(&stream).ok_or(Failed::Moved)?;
        if position.next < to {
            return Err(Failed::Moved);
        }
        position.confirmed = position.confirmed.max(to);
        Ok(())
    }

    /// Inserts rows; all or none.
    pub fn insert(&mut self, rows: &[New]) -> Result<(), Failed> {
        if rows.iter().any(|row| self.identity.contains_key(&row.identity)) {
            return Err(Failed::Duplicate);
        }
        for New { identity, content, waiting } in rows {
            let Waiting { key, row } = *waiting;
            self.identity.insert(*identity, Known { id: key.id, content: *content });
            let state = TaskState::Scheduled;
            self.task.insert(key.id, Task { state, generation: row.generation, key });
            self.pending.insert(key, row);
        }
        Ok(())
    }

    /// The transaction of a start of scans.
    pub fn start_scan<F>(&mut self, shards: &[Shard], decide: F) -> Result<Vec<Advance>, Failed>
    where
        F: FnOnce(&[ShardRow]) -> Result<Vec<Advance>, Fenced>,
    {
        let rows: Vec<ShardRow> = shards.iter().map(|shard| self.shard[shard]).collect();
        let advances = decide(&rows).map_err(|_| Failed::Moved)?;
        for Advance { shard, epoch, cursor_at, confirmed, .. } in &advances {
            let row = ShardRow { shard: *shard, epoch: *epoch, cursor_at: *cursor_at, confirmed: *confirmed };
            self.shard.insert(*shard, row);
        }
        Ok(advances)
    }

    /// Writes `confirmed` of a shard under its epoch.
    pub fn confirm_scan(&mut self, confirm: &Confirm, any_epoch: bool) -> Result<(), Failed> {
        let row = self.shard.get_mut(&confirm.shard).ok_or(Failed::Moved)?;
        if row.epoch != confirm.epoch && !any_epoch {
            return Err(Failed::Moved);
        }
        row.confirmed = confirm.upto;
        Ok(())
    }

    /// Applies entries as the transaction of ingest does.
    pub fn apply<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a JournalEntry> + Clone,
    ) -> Result<Changes, Hold> {
        let rows: HashMap<RowId, Row> =
            entries.clone().filter_map(|e| Some((e.id, self.locked(e.id)?))).collect();
        let nexts: Nexts = self.position.iter().map(|(stream, position)| (*stream, position.next)).collect();
        let changes = apply::decide(entries, rows, &nexts)?;
        self.write(&changes);
        Ok(changes)
    }

    fn locked(&self, id: RowId) -> Option<Row> {
        let task = self.task.get(&id)?;
        Some(match task.state {
            TaskState::Running => Row::Running { generation: task.generation },
            TaskState::Done | TaskState::Dead | TaskState::Cancelled => {
                Row::Final { generation: task.generation }
            }
            TaskState::Scheduled => match self.pending.get(&task.key) {
                None => Row::Bodiless { generation: task.generation },
                Some(row) => Row::Pending(Locked {
                    key: task.key,
                    generation: row.generation,
                    completion: Completion::OnDelivery,
                    noted: self.reemit.contains_key(&task.key),
                }),
            },
        })
    }

    fn write(&mut self, changes: &Changes) {
        for finished in &changes.finished {
            if let Some(task) = self.task.get_mut(&finished.id) {
                (task.state, task.generation) = (finished.state, finished.generation);
            }
            if let Some(key) = finished.pending {
                self.pending.remove(&key);
            }
        }
        for renewed in &changes.renewed {
            if let Some(task) = self.task.get_mut(&renewed.key.id) {
                task.generation = renewed.generation;
            }
            if let Some(row) = self.pending.get_mut(&renewed.key) {
                row.generation = renewed.generation;
            }
        }
        for back in &changes.handed_back {
            let n = self.reemit.get(&back.key).map_or(0, |again| again.n);
            self.reemit.insert(back.key, Again { generation: back.generation, at: 0, n });
        }
        for key in &changes.forgotten {
            self.reemit.remove(key);
        }
    }

    /// Ends a task beyond the cursor at once.
    pub fn cancel(&mut self, key: RowKey) {
        self.pending.remove(&key);
        self.reemit.remove(&key);
        if let Some(task) = self.task.get_mut(&key.id) {
            task.state = TaskState::Cancelled;
        }
    }

    /// Rows of a shard behind a point up to a due time, in order.
    pub fn page<V: Copy>(
        table: &BTreeMap<RowKey, V>,
        shard: Shard,
        after: ScanPoint,
        upto_at: i64,
    ) -> impl Iterator<Item = (RowKey, V)> {
        let after = RowKey { shard, due_at: after.due_at, id: after.id };
        let upto = RowKey { shard, due_at: upto_at.max(after.due_at), id: RowId(u64::MAX) };
        let rows = table.range((Bound::Excluded(after), Bound::Included(upto)));
        rows.filter(move |(key, _)| key.due_at <= upto_at).map(|(key, value)| (*key, *value))
    }

    /// A row as the compensator sees it.
    pub fn candidate(&self, key: RowKey) -> Option<Candidate> {
        let row = self.pending.get(&key)?;
        let point = ScanPoint { due_at: key.due_at, id: key.id };
        let again = self.reemit.get(&key).copied();
        Some(Candidate { point, generation: row.generation, again, spoken_for: false })
    }

    /// Writes a note, if its row still is there.
    pub fn note(&mut self, key: RowKey, again: Again) {
        if self.pending.get(&key).is_some_and(|row| row.generation == again.generation) {
            self.reemit.insert(key, again);
        }
    }
}
