//! MySQL as far as the protocol leans on it. Locks make a transaction one step; what is read before it is its own step.

mod life;

pub use life::{Change, Kind};

use protocol::admission::{ContentHash, Identity, Known, Placed};
use protocol::cursor::{Advance, Confirm, Fenced, ScanPoint, ShardRow};
use protocol::life::{Held, RowKey};
use protocol::reemit::{Again, Candidate, SlotHealth};
use schemas::ids::{RowGen, RowId, Shard, SourceId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::rc::Rc;

/// The number of `journal`.
pub const JOURNAL: SourceId = SourceId(1);
/// The number of `tasks`.
pub const TASKS: SourceId = SourceId(2);
/// The number of `acks`.
pub const ACKS: SourceId = SourceId(3);

/// A row of `task`, with its row in `pending` or `running`.
pub type Row = Rc<Held>;

/// A row of `stream_position`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    pub next: i64,
    pub confirmed: i64,
    pub health: SlotHealth,
    pub credit: Option<i64>,
}

/// A row about to be inserted.
#[derive(Clone, Debug)]
pub struct New {
    pub identity: Identity,
    pub content: ContentHash,
    pub row: Row,
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
    pub task: BTreeMap<RowId, Row>,
    identity: HashMap<Identity, Known>,
    pub pending: BTreeMap<RowKey, Row>,
    pub running: BTreeMap<RowKey, Row>,
    pub change: BTreeMap<RowId, Change>,
    pub shard: BTreeMap<Shard, ShardRow>,
    pub position: BTreeMap<(SourceId, i32), Position>,
    pub reemit: BTreeMap<RowKey, Again>,
}

/// Where a pending row lies.
pub fn key(row: &Row) -> RowKey {
    row.pending_key().expect("a row of `pending`")
}

/// A pending row as admission sees it.
pub fn placed(row: &Row) -> Placed {
    let RowKey { shard, due_at, id } = key(row);
    Placed { id, generation: row.generation, shard, due_at }
}

impl Db {
    pub fn new(shards: u16, slots: u16, partitions: i32, acks: i32) -> Db {
        let mut db = Db::default();
        for shard in (0..shards).map(Shard) {
            let confirmed = ScanPoint { due_at: 0, id: RowId(0) };
            db.shard.insert(shard, ShardRow { shard, epoch: 0, cursor_at: 0, confirmed });
        }
        let streams = (0..slots).map(|slot| (JOURNAL, i32::from(slot)));
        let streams = streams.chain((0..partitions).map(|partition| (TASKS, partition)));
        let streams = streams.chain((0..acks).map(|partition| (ACKS, partition)));
        db.position.extend(streams.map(|stream| (stream, Position::default())));
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
    pub fn pending_near(&self, ids: &[RowId]) -> Vec<Row> {
        ids.iter().filter_map(|id| self.waiting(*id)).filter(|row| !self.is_beyond(key(row))).collect()
    }

    /// The row of a scheduled task.
    pub fn waiting(&self, id: RowId) -> Option<Row> {
        self.task.get(&id).filter(|row| row.pending_key().is_some()).cloned()
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
        for New { identity, content, row } in rows {
            self.identity.insert(*identity, Known { id: row.id, content: *content });
            self.set(Held::clone(row));
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

    /// Rows of a shard behind a point up to a due time, in order.
    pub fn page<V: Clone>(
        table: &BTreeMap<RowKey, V>,
        shard: Shard,
        after: ScanPoint,
        upto_at: i64,
    ) -> impl Iterator<Item = (RowKey, V)> {
        let after = RowKey { shard, due_at: after.due_at, id: after.id };
        let upto = RowKey { shard, due_at: upto_at.max(after.due_at), id: RowId(u64::MAX) };
        let rows = table.range((Bound::Excluded(after), Bound::Included(upto)));
        rows.filter(move |(key, _)| key.due_at <= upto_at).map(|(key, value)| (*key, value.clone()))
    }

    /// A row as the compensator sees it.
    pub fn candidate(&self, key: RowKey) -> Option<Candidate> {
        let row = self.pending.get(&key)?;
        let point = ScanPoint { due_at: key.due_at, id: key.id };
        let again = self.reemit.get(&key).copied();
        let spoken_for = self.is_intended(row.row_gen());
        Some(Candidate { point, generation: row.generation, again, spoken_for })
    }

    /// Writes a note, if its row still is there.
    pub fn note(&mut self, key: RowKey, again: Again) {
        if self.pending.get(&key).is_some_and(|row| row.generation == again.generation) {
            self.reemit.insert(key, again);
        }
    }
}
