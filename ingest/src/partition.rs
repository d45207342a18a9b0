//! One partition of an input stream, from its assignment to its revocation: positions, batches, effects.
//!
//! ```text
//! positions in MySQL ─▶ seek to `confirmed` ─▶ batch ─┬─ below `next`: recall its effects ──────────┐
//!                                                     └─ else: apply, one transaction with `next` ──┤
//!       `confirmed` ◀── in batch order, in the next transaction or alone ◀── acked ◀── carry out ◀──┘
//! ```

mod worker;

pub use worker::Worker;

use crate::config::Confirm as ConfirmKeys;
use crate::turn::{Stop, Turn};
use protocol::position::BatchLimits;
use runtime::config::HumanDuration;
use runtime::kafka::Record;
use runtime::store::{StoreError, Tx, change, position};
use schemas::ids::{RowId, SourceId};
use std::sync::Arc;
use std::time::Duration;

/// How a stream is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Size of a batch.
    pub batch: BatchLimits,
    /// How long to wait for more after the first record.
    pub linger: Duration,
    /// Batches committed and not acked.
    pub in_flight: usize,
    /// Without traffic, `confirmed` moves after this long.
    pub confirm_idle: Duration,
}

impl Limits {
    /// As the section of a stream, and `[confirm]`, say.
    pub fn new(batch: BatchLimits, linger: HumanDuration, in_flight: usize, confirm: &ConfirmKeys) -> Limits {
        Limits { batch, linger: linger.get(), in_flight, confirm_idle: confirm.idle.get() }
    }
}

/// What becomes of the records of a stream.
pub trait Input: Send + Sync + Sized + 'static {
    /// What remains to be done after the commit.
    type Effects: Send + 'static;

    /// Number of its topic.
    fn source(&self) -> SourceId;

    /// How it is read.
    fn limits(&self) -> Limits;

    /// Whether a partition without a position begins at the start of its log.
    fn makes_positions(&self) -> bool;

    /// Applies records at or above `next` in one transaction that also does `commit`. `refused`: MySQL refuses this
    /// one record; apply it as a refusal.
    fn apply(
        &self,
        batch: &[Record],
        commit: &Commit,
        refused: Option<&StoreError>,
        turn: &Turn,
    ) -> impl Future<Output = Result<Applied<Self::Effects>, Stop>> + Send;

    /// The effects of records below `next`, from what MySQL holds. Nothing is validated again.
    fn recall(
        &self,
        batch: &[Record],
        turn: &Turn,
    ) -> impl Future<Output = Result<Applied<Self::Effects>, Stop>> + Send;

    /// Does what remains; returns when all of it is acked.
    fn carry_out(
        self: Arc<Self>,
        effects: Self::Effects,
        turn: Arc<Turn>,
    ) -> impl Future<Output = Result<(), Stop>> + Send + 'static;
}

/// What a batch's transaction does besides its rows.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// Number of the topic.
    pub source: SourceId,
    /// Partition.
    pub partition: i32,
    /// `next` as it must be.
    pub from: i64,
    /// `next` as it becomes.
    pub to: i64,
    /// Batches before it whose effects are acked.
    pub confirm: Option<Confirm>,
}

/// A move of `confirmed`.
#[derive(Clone, Copy, Debug)]
pub struct Confirm {
    /// Where it stands.
    pub from: i64,
    /// Where it goes.
    pub to: i64,
    /// Answers were owed in between.
    pub answers: bool,
}

/// A batch that was applied, or recalled.
#[derive(Debug)]
pub struct Applied<E> {
    /// What remains to be done; `None`: nothing.
    pub effects: Option<E>,
    /// Answers are owed for it, and are forgotten when it is confirmed.
    pub answers: bool,
}

impl Commit {
    /// Moves the positions, in the transaction of the rows. First in it: who comes second waits here, and misses.
    pub async fn advance(&self, tx: &mut Tx) -> Result<(), StoreError> {
        position::advance(tx, self.source, self.partition, self.from, self.to).await?;
        match &self.confirm {
            Some(confirm) => confirm.write(tx, self.source, self.partition).await,
            None => Ok(()),
        }
    }
}

impl Confirm {
    async fn write(&self, tx: &mut Tx, source: SourceId, partition: i32) -> Result<(), StoreError> {
        position::confirm(tx, source, partition, self.to).await?;
        let range = RowId::pack(source, partition, self.from).zip(RowId::pack(source, partition, self.to));
        if let Some((first, end)) = range.filter(|_| self.answers) {
            change::forget_answered(tx, first, end).await?;
        }
        Ok(())
    }
}
