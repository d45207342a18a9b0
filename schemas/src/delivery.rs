//! What Duestream adds to the records it writes for others: callback records, dead letters, rejected commands.
//! docs/CONTRACT.md lists the headers. Times in them are epoch milliseconds in decimal, as commands accept them.

pub mod dead;
mod id;
pub mod rejected;

pub use dead::{DeadReason, dead_headers};
pub use id::{BadDeliveryId, DeliveryId};
pub use rejected::{Origin, rejected_headers};

use crate::due::{Deliver, DueRecord};

/// A header to add to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedHeader {
    /// Name.
    pub name: &'static str,
    /// Value; `None` = null.
    pub value: Option<Vec<u8>>,
}

impl AddedHeader {
    pub(crate) fn new(name: &'static str, value: impl Into<Vec<u8>>) -> AddedHeader {
        AddedHeader { name, value: Some(value.into()) }
    }

    pub(crate) fn number(name: &'static str, number: &impl ToString) -> AddedHeader {
        AddedHeader::new(name, number.to_string())
    }
}

/// Task id.
pub const TASK_ID: &str = "duestream-task-id";
/// Shard key.
pub const SHARD_KEY: &str = "duestream-shard-key";
/// Attempt, from 1.
pub const ATTEMPT: &str = "duestream-attempt";
/// Due time.
pub const DUE_AT: &str = "duestream-due-at";
/// Due time that was asked for, where a spread moved it.
pub const ASKED_AT: &str = "duestream-asked-at";
/// When the dispatcher delivered it, by its clock.
pub const DELIVERED_AT: &str = "duestream-delivered-at";
/// See [`DeliveryId`].
pub const DELIVERY_ID: &str = "duestream-delivery-id";
/// Last progress of an earlier attempt.
pub const PROGRESS: &str = "duestream-progress";

/// Headers of a callback record, to follow the user's own.
pub fn delivered_headers(due: &DueRecord, deliver: &Deliver, delivered_at: i64) -> Vec<AddedHeader> {
    let mut headers = Vec::with_capacity(8);
    headers.extend(identity_headers(due, deliver));
    headers.push(AddedHeader::number(DELIVERED_AT, &delivered_at));
    if let Some(progress) = &deliver.progress {
        headers.push(AddedHeader::new(PROGRESS, progress.clone()));
    }
    headers
}

/// What callback records and dead letters say alike of a task.
fn identity_headers(due: &DueRecord, deliver: &Deliver) -> impl Iterator<Item = AddedHeader> {
    let shard_key = deliver.shard_key.as_ref().unwrap_or(&deliver.task_id);
    [
        AddedHeader::new(TASK_ID, deliver.task_id.as_str()),
        AddedHeader::new(SHARD_KEY, shard_key.as_str()),
        AddedHeader::number(ATTEMPT, &deliver.attempt),
        AddedHeader::number(DUE_AT, &due.due_at),
        AddedHeader::number(DELIVERY_ID, &DeliveryId::of(due, deliver)),
    ]
    .into_iter()
    .chain(deliver.asked_at.map(|asked_at| AddedHeader::number(ASKED_AT, &asked_at)))
}

#[cfg(test)]
mod tests;
