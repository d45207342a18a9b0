//! The cursor rule: how a scanner moves through a shard's future without locks (PROTOCOL §1).
//!
//! ```text
//!  rest ─▶ advance (one transaction: epoch +1, cursor forward) ─▶ page ─▶ produce ─▶ acks ─▶ confirm ─┐
//!   ▲                                                              ▲                                  │
//!   └────────────── the cursor is reached ◀─────────────────────── └────────── more below the cursor ─┘
//! ```
//!
//! A row beyond the cursor has never been emitted with its gen; one at or below it has been, is being, or will be.
//! `confirmed` says up to where the scanner's own emissions are acked: every start of a scan goes on from there.
//! Any failure and any doubt leads back to a new start, never to a guess.

mod bucket;
mod scan;
#[cfg(test)]
mod tests;

pub use bucket::{Pace, ScanRule, SlotLoad};
pub use scan::{Advance, AfterPage, Confirm, Fenced, PageRead, PageRequest, SlotScan, Start};

use schemas::ids::{RowId, Shard};

/// A place in a shard's future: rows are in the order of `(due_at, id)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScanPoint {
    /// Due time, epoch ms.
    pub due_at: i64,
    /// Row.
    pub id: RowId,
}

impl ScanPoint {
    /// Behind every row that is due at or before `due_at`.
    pub const fn end_of(due_at: i64) -> ScanPoint {
        ScanPoint { due_at, id: RowId(u64::MAX) }
    }
}

/// One row of table `shard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow {
    /// The shard.
    pub shard: Shard,
    /// +1 at each start of a scan: fences the scanner before.
    pub epoch: u64,
    /// What is due at or before it has been, is being or will be emitted. Only grows.
    pub cursor_at: i64,
    /// Up to here the scanner's emissions are acked. Only grows.
    pub confirmed: ScanPoint,
}
