//! What the dispatcher writes on `journal`: the fate of every `(row, gen)`, and its heartbeats.

use crate::ids::{Generation, RowGen, RowId, Shard};

/// One record of the journal of one slot.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalRecord {
    /// Owner token of the writer: new at each take-over.
    pub token: OwnerToken,
    /// Barrier of a take-over, or a batch (with no entries: a heartbeat).
    pub kind: JournalKind,
    /// The slot's Redis data is being rebuilt (cold take-over).
    pub cold: bool,
    /// Members in Redis for this slot.
    pub backlog: i64,
    /// How many more records the slot takes before it pauses its partition of `due`.
    pub credit: i64,
    /// Local clock of the dispatcher, epoch ms.
    pub local_at: i64,
    /// Clock of the slot's Redis node, epoch ms.
    pub redis_at: i64,
    /// Fates, in the order they were decided.
    pub entries: Vec<JournalEntry>,
}

/// Random 128 bits that name one ownership of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerToken(pub u128);

/// Kind of a journal record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JournalKind {
    /// First record of an owner, alone in its transaction.
    Barrier,
    /// Entries of one delivery transaction; none = heartbeat.
    Batch,
}

/// What became of one `(row, gen)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// What became of it.
    pub kind: EntryKind,
    /// Shard, due time and id are the key of its row in `pending`.
    pub shard: Shard,
    /// Due time, epoch ms.
    pub due_at: i64,
    /// The row.
    pub id: RowId,
    /// Its generation.
    pub generation: Generation,
    /// When it was decided by the dispatcher's clock, epoch ms.
    pub at: i64,
    /// Reason code, for `buried`.
    pub reason: Option<String>,
}

impl JournalEntry {
    /// The `(row, gen)` this entry speaks of.
    pub fn row_gen(&self) -> RowGen {
        RowGen { id: self.id, generation: self.generation }
    }
}

/// Kind of a journal entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// The callback record is visible.
    Delivered,
    /// It will not be delivered in this generation.
    Withdrawn,
    /// It was written to `dead`.
    Buried,
    /// Not a fate: the record's fence was too old to judge; hand the row back for re-emission.
    Stale,
}

impl EntryKind {
    /// Whether this is the fate of its `(row, gen)`: exactly one fate per `(row, gen)` ever stands in the journal.
    pub fn is_fate(self) -> bool {
        match self {
            EntryKind::Delivered | EntryKind::Withdrawn | EntryKind::Buried => true,
            EntryKind::Stale => false,
        }
    }
}
