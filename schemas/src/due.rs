//! What the scanner, ingest and the compensator put on `due` for the dispatcher.

use crate::ids::{Generation, RowGen, RowId, Shard};
use crate::record::Header;

/// A due record: deliver or withdraw one generation of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct DueRecord {
    /// The row.
    pub id: RowId,
    /// Its generation.
    pub generation: Generation,
    /// The shard in which its row lies.
    pub shard: Shard,
    /// When it is due, epoch ms. Never changes for one `(row, gen)`.
    pub due_at: i64,
    /// `stream_position.next` of `journal[slot]`, read before the row was read (or committed) as pending with this gen.
    pub fence: i64,
    /// Names the ZSETs, also for a withdraw.
    pub callback_topic: String,
    /// What is asked.
    pub kind: DueKind,
}

impl DueRecord {
    /// The `(row, gen)` this record speaks of.
    pub fn row_gen(&self) -> RowGen {
        RowGen { id: self.id, generation: self.generation }
    }
}

/// What a due record asks of the dispatcher.
#[derive(Clone, Debug, PartialEq)]
pub enum DueKind {
    /// Deliver this at the due time (or bury it, where `bury` is set or it has expired by then).
    Deliver(Box<Deliver>),
    /// Do not deliver this `(row, gen)`, and say so in the journal.
    Withdraw,
}

/// All that a delivery needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Deliver {
    /// 1 for the first delivery, +1 for each retry.
    pub attempt: u16,
    /// As the producer chose it, or the row id in decimal.
    pub task_id: String,
    /// As the producer chose it; `None`: the task id serves.
    pub shard_key: Option<String>,
    /// Callback partition, if the producer asked for one.
    pub partition: Option<i32>,
    /// Callback key as submitted; `None` = null.
    pub key: Option<Vec<u8>>,
    /// User headers as submitted, in order, repeats kept.
    pub headers: Vec<Header>,
    /// Payload as submitted; `None` = null (a tombstone).
    pub value: Option<Vec<u8>>,
    /// Buried as expired instead of delivered from this time on, epoch ms.
    pub expires_at: Option<i64>,
    /// What the producer asked for, where a spread moved `due_at`.
    pub asked_at: Option<i64>,
    /// When the task is done.
    pub completion: Completion,
    /// Last progress of an earlier attempt.
    pub progress: Option<Vec<u8>>,
    /// Past attempts, oldest first.
    pub history: Vec<PastAttempt>,
    /// Reason: the dispatcher writes it to `dead` instead of delivering.
    pub bury: Option<String>,
}

/// When a delivered task is finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Completion {
    /// The delivery itself finishes it.
    #[default]
    OnDelivery,
    /// The consumer's ack finishes it.
    OnAck,
}

/// One past attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastAttempt {
    /// Which attempt.
    pub attempt: u16,
    /// When it ended, epoch ms.
    pub at: i64,
    /// How it ended: `failed`, `stalled`, …
    pub outcome: String,
    /// Why.
    pub reason: Option<String>,
}
