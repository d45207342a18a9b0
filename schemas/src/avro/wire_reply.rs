//! Codec of the reply.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::LazyLock;

use super::codec::{Codec, DecodeError};
use super::wire_parts::bytes_opt;
use crate::reply::Reply;

pub(super) const VERSIONS: &[&str] = &[include_str!("../../avsc/reply/v1.avsc")];
static CODEC: LazyLock<Codec<WireReply<'static>>> = LazyLock::new(|| Codec::new("reply", VERSIONS));

#[derive(Serialize, Deserialize)]
#[serde(rename = "Reply")]
struct WireReply<'a> {
    answer: Cow<'a, str>,
    #[serde(with = "bytes_opt")]
    correlation: Option<Cow<'a, [u8]>>,
    task_id: Option<Cow<'a, str>>,
    shard_key: Option<Cow<'a, str>>,
    due_at: Option<i64>,
    reason: Option<Cow<'a, str>>,
    field: Option<Cow<'a, str>>,
    message: Option<Cow<'a, str>>,
    topic: Cow<'a, str>,
    partition: i32,
    offset: i64,
}

/// Avro single-object encoding.
pub(crate) fn encode_reply(reply: &Reply<'_>) -> Vec<u8> {
    let wire = WireReply {
        answer: reply.answer.as_str().into(),
        correlation: reply.correlation.map(Cow::Borrowed),
        task_id: reply.task_id.map(Cow::Borrowed),
        shard_key: reply.shard_key.map(Cow::Borrowed),
        due_at: reply.due_at,
        reason: reply.refusal.map(|refusal| refusal.code.as_str().into()),
        field: reply.refusal.and_then(|refusal| refusal.field.as_deref()).map(Cow::Borrowed),
        message: reply.refusal.map(|refusal| refusal.message.as_str().into()),
        topic: reply.origin.topic.into(),
        partition: reply.origin.partition,
        offset: reply.origin.offset,
    };
    CODEC.encode(&wire, 512)
}

/// A reply as whoever asked for it reads it: answers and reasons are text, because new ones may come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "schemas/avsc/reply documents the fields")]
pub struct ReadReply {
    pub answer: String,
    pub correlation: Option<Vec<u8>>,
    pub task_id: Option<String>,
    pub shard_key: Option<String>,
    pub due_at: Option<i64>,
    pub reason: Option<String>,
    pub field: Option<String>,
    pub message: Option<String>,
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

impl ReadReply {
    /// Reads what any shipped version of [`Reply`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<ReadReply, DecodeError> {
        let wire = CODEC.decode(bytes)?;
        Ok(ReadReply {
            answer: wire.answer.into_owned(),
            correlation: wire.correlation.map(Cow::into_owned),
            task_id: wire.task_id.map(Cow::into_owned),
            shard_key: wire.shard_key.map(Cow::into_owned),
            due_at: wire.due_at,
            reason: wire.reason.map(Cow::into_owned),
            field: wire.field.map(Cow::into_owned),
            message: wire.message.map(Cow::into_owned),
            topic: wire.topic.into_owned(),
            partition: wire.partition,
            offset: wire.offset,
        })
    }
}
