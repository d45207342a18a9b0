//! Commands of producers, and the two forms in which they may be submitted. See docs/CONTRACT.md.
//!
//! ```text
//! Kafka record ─┬─ a duestream-* header ──▶ headers ─┐
//!               ├─ C3 01, or 00         ──▶ refused  ├──▶ Submitted ──▶ rules ──▶ Command | Refusal
//!               └─ {                    ──▶ json ────┘
//! ```
//!
//! Nothing here looks at the world: whether a topic exists or an identity is taken, ingest finds out.

mod build;
mod field;
mod hash;
mod headers;
mod json;
mod reason;
mod rules;
mod time;

#[cfg(test)]
mod tests;

pub use field::HEADER_PREFIX;
pub use hash::identity;
pub use reason::{ReasonCode, Refusal};
pub use rules::{DEFAULT_MAX_BODY_BYTES, MAX_ID_BYTES, Rules, TopicPattern, is_topic_name};

use std::borrow::Cow;

use crate::avro::SINGLE_OBJECT_MARK;
use crate::ids::RowId;
use crate::row::{RowBody, RowOptions};

/// What the parser looks at of a Kafka record.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// Key; `None` = null.
    pub key: Option<&'a [u8]>,
    /// Value; `None` = null.
    pub value: Option<&'a [u8]>,
    /// Headers in order.
    pub headers: &'a [HeaderView<'a>],
    /// Timestamp of the record (`tasks` is `LogAppendTime`), epoch ms: delays count from it.
    pub timestamp_at: i64,
}

/// A header of a Kafka record. The name is bytes because nobody checked that it is UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct HeaderView<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Value; `None` = null.
    pub value: Option<&'a [u8]>,
}

/// A command to schedule a task, checked as far as it can be without looking at the world.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// When it is due, epoch ms. May lie in the past.
    pub due_at: i64,
    /// As the producer chose it; `None`: the row id serves, see [`Command::task_id`].
    pub task_id: Option<String>,
    /// As the producer chose it; `None`: the task id serves, see [`Command::shard_key`].
    pub shard_key: Option<String>,
    /// Where it is to be delivered.
    pub callback_topic: String,
    /// Key, headers and value to deliver.
    pub body: RowBody,
    /// The rest.
    pub options: RowOptions,
    /// Hash of all that was submitted besides the identity: equal for resubmissions.
    pub content_hash: [u8; 16],
}

impl Command {
    /// Reads a command from a Kafka record. Never panics, whatever the bytes.
    pub fn parse(record: &RecordView<'_>, rules: &Rules) -> Result<Command, Refusal> {
        let submitted = if record.headers.iter().any(|header| field::is_reserved(header.name)) {
            headers::read(record)?
        } else {
            match record.value {
                Some(value) if value.starts_with(&SINGLE_OBJECT_MARK) || value.starts_with(&[0]) => {
                    let problem = "the value is Avro, which this version does not read as a command";
                    return Err(Refusal::of_record(ReasonCode::Unsupported, problem));
                }
                Some(value) if value.starts_with(b"{") => json::read(record, value)?,
                Some([]) | None => {
                    let problem = "the record has no duestream-* header and no value";
                    return Err(Refusal::of_record(ReasonCode::NotACommand, problem));
                }
                Some(value) => {
                    let start = reason::shown(&value[..value.len().min(16)]);
                    let problem =
                        format!("the record has no duestream-* header and its value begins with {start}");
                    return Err(Refusal::of_record(ReasonCode::NotACommand, &problem));
                }
            }
        };
        build::build(submitted, rules, record.timestamp_at)
    }

    /// The task id: the producer's, or the row id in decimal.
    pub fn task_id(&self, id: RowId) -> Cow<'_, str> {
        self.task_id.as_deref().map_or_else(|| Cow::Owned(id.to_string()), Cow::Borrowed)
    }

    /// The shard key: the producer's, or the task id.
    pub fn shard_key(&self, id: RowId) -> Cow<'_, str> {
        self.shard_key.as_deref().map_or_else(|| self.task_id(id), Cow::Borrowed)
    }

    /// Identity of the task this command speaks of, see [`identity`].
    pub fn identity(&self, id: RowId) -> [u8; 16] {
        identity(&self.shard_key(id), &self.task_id(id))
    }
}

/// Bytes that count against the limit: key, value, and of each header name, value and 8 bytes for its framing.
pub fn body_bytes(body: &RowBody) -> usize {
    let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    let headers: usize =
        body.headers.iter().map(|header| header.name.len() + length(&header.value) + 8).sum();
    length(&body.key) + length(&body.value) + headers
}
