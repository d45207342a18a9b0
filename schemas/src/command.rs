//! Commands of producers, and the three forms in which they may be submitted. See docs/CONTRACT.md.
//!
//! ```text
//! Kafka record ─┬─ a duestream-* header ──▶ headers ─┐
//!               ├─ C3 01, or 00         ──▶ avro ────┼──▶ Submitted ──▶ rules ──▶ Command | Refused
//!               └─ {                    ──▶ json ────┘
//! ```
//!
//! Nothing here looks at the world: whether a topic exists or an identity is taken, ingest finds out.

mod asked;
mod avro;
mod build;
mod field;
mod hash;
mod headers;
mod json;
mod reason;
mod rules;
mod task_command;
mod time;

#[cfg(test)]
mod tests;

pub use asked::{Asked, MAX_CORRELATION_BYTES};
pub use avro::{KnownSchemas, Lookup, SchemaFault, WriterSchema, WriterSchemas};
pub use field::HEADER_PREFIX;
pub use hash::{identities, identity, row_identity};
pub use reason::{ReasonCode, Refusal};
pub use rules::{DEFAULT_MAX_BODY_BYTES, MAX_HEADERS, MAX_ID_BYTES, Rules, TopicPattern, is_topic_name};
pub use task_command::{AvroTime, TaskCommand};

use std::borrow::Cow;

use self::field::Submitted;
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
    /// The reply that is asked for. No content: a resubmission may ask otherwise.
    pub reply: Option<Asked>,
}

/// A record that is no command, and the reply that it asks for all the same, as far as that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// Whom to tell.
    pub asked: Option<Asked>,
}

/// Why parsing gave no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// It is refused, and will be again.
    Refused(Box<Refused>),
    /// It was written with this schema of the registry. Fetch it and parse again: the next answer is final.
    NeedsSchema(u32),
}

impl From<Refusal> for ParseError {
    fn from(refusal: Refusal) -> Self {
        ParseError::Refused(Box::new(Refused { refusal, asked: None }))
    }
}

impl Command {
    /// Reads a command from a Kafka record. Never panics, whatever the bytes.
    pub fn parse(
        record: &RecordView<'_>,
        rules: &Rules,
        schemas: &dyn WriterSchemas,
    ) -> Result<Command, ParseError> {
        let submitted = read(record, schemas)?;
        let asked = Asked::of(&submitted);
        build::build(submitted, asked.clone(), rules, record.timestamp_at)
            .map_err(|refusal| ParseError::Refused(Box::new(Refused { refusal, asked })))
    }

    /// The task id: the producer's, or the row id in decimal.
    pub fn task_id(&self, id: RowId) -> Cow<'_, str> {
        self.task_id.as_deref().map_or_else(|| Cow::Owned(id.to_string()), Cow::Borrowed)
    }

    /// The shard key: the producer's, or the task id.
    pub fn shard_key(&self, id: RowId) -> Cow<'_, str> {
        self.shard_key.as_deref().map_or_else(|| self.task_id(id), Cow::Borrowed)
    }

    /// Identity of the task this command speaks of, see [`identity`] and [`row_identity`].
    pub fn identity(&self, id: RowId) -> [u8; 16] {
        match &self.task_id {
            Some(task_id) => identity(self.shard_key.as_deref().unwrap_or(task_id), task_id),
            None => row_identity(self.shard_key.as_deref(), id),
        }
    }
}

/// Tells the form and reads it.
fn read<'a>(record: &RecordView<'a>, schemas: &dyn WriterSchemas) -> Result<Submitted<'a>, ParseError> {
    if record.headers.iter().any(|header| field::is_reserved(header.name)) {
        return Ok(headers::read(record));
    }
    let problem = match record.value {
        Some(value) if value.starts_with(&SINGLE_OBJECT_MARK) || value.starts_with(&[avro::FRAME_MARK]) => {
            return avro::read(record, value, schemas);
        }
        Some(value) if value.starts_with(b"{") => return Ok(json::read(record, value)),
        Some([]) | None => "the record has no duestream-* header and no value".to_owned(),
        Some(value) => {
            let start = reason::shown(&value[..value.len().min(16)]);
            format!("the record has no duestream-* header and its value begins with {start}")
        }
    };
    Err(Refusal::of_record(ReasonCode::NotACommand, &problem).into())
}

/// Bytes that count against the limit: key, value, and of each header name, value and 8 bytes for its framing.
pub fn body_bytes(body: &RowBody) -> usize {
    let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
    let headers: usize =
        body.headers.iter().map(|header| header.name.len() + length(&header.value) + 8).sum();
    length(&body.key) + length(&body.value) + headers
}
