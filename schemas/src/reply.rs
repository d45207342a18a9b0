//! Answers on `replies` to commands that asked for one. docs/CONTRACT.md, "Replies".
//!
//! A reply's Kafka key is the task id (null where none could be read). Its headers say everything; its value says the
//! same as a JSON object, or as an Avro `Reply` where the command came as Avro.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;

use crate::command::{Asked, ReasonCode, Refusal};
use crate::delivery::{AddedHeader, Origin};

/// [`Answer`].
pub const ANSWER: &str = "duestream-reply-answer";
/// Correlation of the command.
pub const CORRELATION: &str = "duestream-reply-correlation";
/// Task id.
pub const TASK_ID: &str = "duestream-reply-task-id";
/// Shard key.
pub const SHARD_KEY: &str = "duestream-reply-shard-key";
/// When the task is due.
pub const DUE_AT: &str = "duestream-reply-due-at";
/// [`ReasonCode`] of a refusal.
pub const REASON: &str = "duestream-reply-reason";
/// The offending field of a refusal.
pub const FIELD: &str = "duestream-reply-field";
/// One sentence for people, of a refusal.
pub const MESSAGE: &str = "duestream-reply-message";
/// Topic of the command.
pub const SOURCE_TOPIC: &str = "duestream-reply-topic";
/// Partition of the command.
pub const SOURCE_PARTITION: &str = "duestream-reply-partition";
/// Offset of the command.
pub const SOURCE_OFFSET: &str = "duestream-reply-offset";

macro_rules! answers {
    ($($variant:ident = $code:literal, $meaning:literal;)*) => {
        /// What became of a command. Header `duestream-reply-answer`, label of metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Answer { $(#[doc = $meaning] $variant,)* }

        impl Answer {
            /// All answers, in the order of docs/CONTRACT.md.
            pub const ALL: &'static [Answer] = &[$(Answer::$variant,)*];

            /// As it stands in replies. Never changes.
            pub fn as_str(self) -> &'static str {
                match self { $(Answer::$variant => $code,)* }
            }

            /// When it is given.
            pub fn meaning(self) -> &'static str {
                match self { $(Answer::$variant => $meaning,)* }
            }

            /// Reads a code back.
            pub fn from_code(code: &str) -> Option<Answer> {
                Answer::ALL.iter().copied().find(|answer| answer.as_str() == code)
            }
        }
    };
}

answers! {
    Accepted = "accepted", "The command was carried out: the task is in MySQL and will be delivered.";
    Duplicate = "duplicate", "The same task was submitted before; nothing was changed.";
    Conflict = "conflict", "The task was submitted before with other content; nothing was changed, and the command is on `rejected`.";
    Rejected = "rejected", "The command was refused for the reason that is given; it is on `rejected`.";
    Cancelled = "cancelled", "The task was cancelled and will not be delivered.";
    AlreadySent = "already_sent", "The task was delivered already.";
    NotFound = "not_found", "There is no such task, or it was purged.";
}

impl Answer {
    /// The answer to a command that is refused.
    pub fn to_refused(refusal: &Refusal) -> Answer {
        if refusal.code == ReasonCode::Conflict { Answer::Conflict } else { Answer::Rejected }
    }
}

/// One reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What became of the command.
    pub answer: Answer,
    /// The command's; where an accepted command had none, the row id in decimal.
    pub task_id: Option<&'a str>,
    /// The command's; where it had none, the task id.
    pub shard_key: Option<&'a str>,
    /// When the task is due, epoch ms. `None` where nothing was accepted.
    pub due_at: Option<i64>,
    /// Why it was refused.
    pub refusal: Option<&'a Refusal>,
    /// The command's.
    pub correlation: Option<&'a [u8]>,
    /// Where the command stood. (Its timestamp is not repeated.)
    pub origin: Origin<'a>,
}

impl<'a> Reply<'a> {
    /// The reply to a command that is refused, as far as it could be read.
    pub fn to_refused(asked: &'a Asked, refusal: &'a Refusal, origin: Origin<'a>) -> Reply<'a> {
        Reply {
            answer: Answer::to_refused(refusal),
            task_id: asked.task_id.as_deref(),
            shard_key: asked.shard_key.as_deref().or(asked.task_id.as_deref()),
            due_at: None,
            refusal: Some(refusal),
            correlation: asked.correlation.as_deref(),
            origin,
        }
    }

    /// Kafka key of the record.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.task_id.map(str::as_bytes)
    }

    /// All headers of the record.
    pub fn headers(&self) -> Vec<AddedHeader> {
        let text = |name, text: Option<&str>| text.map(|text| AddedHeader::new(name, text));
        let reason = self.refusal.map(|refusal| refusal.code.as_str());
        let field = self.refusal.and_then(|refusal| refusal.field.as_deref());
        [
            Some(AddedHeader::new(ANSWER, self.answer.as_str())),
            self.correlation.map(|bytes| AddedHeader::new(CORRELATION, bytes)),
            text(TASK_ID, self.task_id),
            text(SHARD_KEY, self.shard_key),
            self.due_at.map(|due_at| AddedHeader::number(DUE_AT, &due_at)),
            text(REASON, reason),
            text(FIELD, field),
            text(MESSAGE, self.refusal.map(|refusal| refusal.message.as_str())),
            text(SOURCE_TOPIC, Some(self.origin.topic)),
            Some(AddedHeader::number(SOURCE_PARTITION, &self.origin.partition)),
            Some(AddedHeader::number(SOURCE_OFFSET, &self.origin.offset)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Value of the record.
    pub fn value(&self, as_avro: bool) -> Vec<u8> {
        if as_avro { crate::avro::encode_reply(self) } else { self.json() }
    }

    fn json(&self) -> Vec<u8> {
        let text = self.correlation.map(std::str::from_utf8);
        let json = JsonReply {
            answer: self.answer.as_str(),
            correlation: text.and_then(Result::ok),
            correlation_base64: match text {
                Some(Err(_)) => self.correlation.map(|bytes| BASE64.encode(bytes)),
                Some(Ok(_)) | None => None,
            },
            task_id: self.task_id,
            shard_key: self.shard_key,
            due_at: self.due_at,
            reason: self.refusal.map(|refusal| refusal.code.as_str()),
            field: self.refusal.and_then(|refusal| refusal.field.as_deref()),
            message: self.refusal.map(|refusal| refusal.message.as_str()),
            topic: self.origin.topic,
            partition: self.origin.partition,
            offset: self.origin.offset,
        };
        serde_json::to_vec(&json).expect("text and numbers are JSON")
    }
}

#[derive(Serialize)]
struct JsonReply<'a> {
    answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<&'a str>,
    /// Where the correlation is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    topic: &'a str,
    partition: i32,
    offset: i64,
}
