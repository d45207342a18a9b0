//! Commands that want another fate for a task: cancel and reschedule.

use super::asked::{self, Asked};
use super::build::{due, expires_at, id};
use super::field::{Field, Submitted};
use super::identities;
use super::reason::{ReasonCode, Refusal};

/// A command that changes a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which task.
    pub task_id: String,
    /// `None`: the task id serves.
    pub shard_key: Option<String>,
    /// What is wanted of it.
    pub op: ChangeOp,
    /// The reply that is asked for.
    pub reply: Option<Asked>,
}

/// What is wanted of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOp {
    /// No delivery any more.
    Cancel,
    /// Another due time.
    Reschedule {
        /// The new due time, epoch ms. May lie in the past: then it is due at once.
        due_at: i64,
        /// The new expiry, epoch ms. `None`: as it was.
        expires_at: Option<i64>,
    },
}

/// What says which task, and to whom the answer goes.
const OF_CANCEL: &[Field] = &[Field::Op, Field::TaskId, Field::ShardKey, Field::Reply, Field::Correlation];
const OF_RESCHEDULE: &[Field] = &[
    Field::Op,
    Field::TaskId,
    Field::ShardKey,
    Field::DueAt,
    Field::Delay,
    Field::ExpiresAt,
    Field::Reply,
    Field::Correlation,
];

impl Change {
    /// The shard key: the producer's, or the task id.
    pub fn shard_key(&self) -> &str {
        self.shard_key.as_deref().unwrap_or(&self.task_id)
    }

    /// Identities of the task that may be meant, see [`identities`].
    pub fn identities(&self) -> Vec<[u8; 16]> {
        identities(self.shard_key.as_deref(), &self.task_id)
    }
}

pub(super) fn cancel(submitted: &Submitted<'_>, reply: Option<Asked>) -> Result<Change, Refusal> {
    only(submitted, "cancel", OF_CANCEL)?;
    no_content(submitted, "cancel")?;
    change(submitted, ChangeOp::Cancel, reply)
}

pub(super) fn reschedule(
    submitted: &Submitted<'_>,
    reply: Option<Asked>,
    timestamp_at: i64,
) -> Result<Change, Refusal> {
    only(submitted, "reschedule", OF_RESCHEDULE)?;
    no_content(submitted, "reschedule")?;
    let (_, due_at) = due(submitted, timestamp_at)?;
    let expires_at = expires_at(submitted, Some(due_at))?;
    change(submitted, ChangeOp::Reschedule { due_at, expires_at }, reply)
}

fn change(submitted: &Submitted<'_>, op: ChangeOp, reply: Option<Asked>) -> Result<Change, Refusal> {
    let task_id = task_id(submitted)?;
    let shard_key = id(submitted, Field::ShardKey)?;
    asked::check(submitted)?;
    Ok(Change { task_id, shard_key, op, reply })
}

/// The task that is spoken of.
pub(super) fn task_id(submitted: &Submitted<'_>) -> Result<String, Refusal> {
    let name = submitted.name(Field::TaskId);
    let missing = || Refusal::of_field(ReasonCode::TaskIdMissing, name, "is missing");
    id(submitted, Field::TaskId)?.ok_or_else(missing)
}

/// Refuses fields that would be ignored.
pub(super) fn only(submitted: &Submitted<'_>, op: &str, fields: &[Field]) -> Result<(), Refusal> {
    let mut others = Field::ALL.iter().filter(|field| !fields.contains(field));
    match others.find(|field| submitted.bytes(**field).is_some()) {
        None => Ok(()),
        Some(field) => Err(out_of_place(submitted.name(*field), op)),
    }
}

/// Refuses what would be delivered if there were something to deliver. The record's key is not content here but keeps
/// commands in order, and its own headers may come from whatever traces records.
fn no_content(submitted: &Submitted<'_>, op: &str) -> Result<(), Refusal> {
    let out = [
        (submitted.key_given, submitted.name(Field::Key)),
        (submitted.headers_given, "headers"),
        (submitted.value.as_ref().is_some_and(|value| !value.is_empty()), "value"),
    ];
    match out.into_iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, name)) => Err(out_of_place(name, op)),
    }
}

fn out_of_place(name: &str, op: &str) -> Refusal {
    Refusal::of_field(ReasonCode::OutOfPlace, name, &format!("stands on a {op}, which takes none"))
}
