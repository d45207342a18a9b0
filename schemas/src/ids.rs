//! Identifiers that cross topics, tables and keys. Times are `i64` epoch milliseconds everywhere and end in `_at`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of a `(topic, topic id)` pair that ingest reads: 0 to 1023, given once, kept in table `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceId(pub u16);

/// Where the command of a row came from: `source(10) | partition(12) | offset(42)`.
///
/// The same when a batch is read twice, never the same for two commands. Avro and SQL carry its 64 bits
/// (Avro as a `long` in two's complement); Lua and JSON carry it as text, because a double loses bits above 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId(pub u64);

impl RowId {
    /// Largest source number.
    pub const MAX_SOURCE: u16 = (1 << 10) - 1;
    /// Largest partition of an input topic.
    pub const MAX_PARTITION: i32 = (1 << 12) - 1;
    /// Largest offset.
    pub const MAX_OFFSET: i64 = (1 << 42) - 1;

    /// Packs coordinates. `None` where one of them does not fit its bits.
    pub fn pack(source: SourceId, partition: i32, offset: i64) -> Option<RowId> {
        let fits = source.0 <= Self::MAX_SOURCE
            && (0..=Self::MAX_PARTITION).contains(&partition)
            && (0..=Self::MAX_OFFSET).contains(&offset);
        fits.then(|| RowId(u64::from(source.0) << 54 | (partition as u64) << 42 | offset as u64))
    }

    /// The source of the command.
    pub fn source(self) -> SourceId {
        SourceId((self.0 >> 54) as u16)
    }

    /// The partition of the command.
    pub fn partition(self) -> i32 {
        (self.0 >> 42 & 0xfff) as i32
    }

    /// The offset of the command.
    pub fn offset(self) -> i64 {
        (self.0 & Self::MAX_OFFSET as u64) as i64
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Generation of a live row: +1 for each retry, accepted reschedule, replay and recurrence. Starts at 1.
/// `(row, gen)` is what is delivered at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u32);

/// `crc32(shard_key) % shards`: which rows one scan loop reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shard(pub u16);

/// One partition of `due` and `journal`, one hash tag in Redis, one owner at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u16);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the protocol speaks of: one generation of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowGen {
    /// The row.
    pub id: RowId,
    /// Its generation.
    pub generation: Generation,
}

impl RowGen {
    /// Member of a slot's ZSETs: 8 bytes id + 4 bytes gen, big-endian, so that equal due times leave in submit order.
    pub fn member(self) -> [u8; 12] {
        let mut out = [0; 12];
        out[..8].copy_from_slice(&self.id.0.to_be_bytes());
        out[8..].copy_from_slice(&self.generation.0.to_be_bytes());
        out
    }

    /// Reads a member back. `None` unless it has 12 bytes.
    pub fn from_member(bytes: &[u8]) -> Option<RowGen> {
        let (id, generation) = (bytes.get(..8)?, bytes.get(8..12)?);
        (bytes.len() == 12).then(|| RowGen {
            id: RowId(u64::from_be_bytes(id.try_into().expect("8 bytes"))),
            generation: Generation(u32::from_be_bytes(generation.try_into().expect("4 bytes"))),
        })
    }
}
