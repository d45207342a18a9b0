//! Codec of the due record.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::LazyLock;

use super::codec::{Codec, DecodeError};
use super::wire_parts::{
    RULE_U16, WireCompletion, WireHeader, WirePastAttempt, bytes_opt, bytes_size, headers_size,
};
use crate::due::{Deliver, DueKind, DueRecord};
use crate::ids::{Generation, RowId, Shard};

const RECORD: &str = "due record";
pub(super) const VERSIONS: &[&str] = &[include_str!("../../avsc/due_record/v1.avsc")];
static CODEC: LazyLock<Codec<WireDue<'static>>> = LazyLock::new(|| Codec::new(RECORD, VERSIONS));

#[derive(Serialize, Deserialize)]
#[serde(rename = "DueRecord")]
struct WireDue<'a> {
    id: i64,
    #[serde(rename = "gen")]
    generation: i32,
    shard: i32,
    due_at: i64,
    fence: i64,
    callback_topic: Cow<'a, str>,
    kind: WireKind,
    deliver: Option<WireDeliver<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "DueKind", rename_all = "SCREAMING_SNAKE_CASE")]
enum WireKind {
    Deliver,
    Withdraw,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Deliver")]
struct WireDeliver<'a> {
    attempt: i32,
    task_id: Cow<'a, str>,
    shard_key: Option<Cow<'a, str>>,
    partition: Option<i32>,
    #[serde(with = "bytes_opt")]
    key: Option<Cow<'a, [u8]>>,
    headers: Vec<WireHeader<'a>>,
    #[serde(with = "bytes_opt")]
    value: Option<Cow<'a, [u8]>>,
    expires_at: Option<i64>,
    asked_at: Option<i64>,
    completion: WireCompletion,
    #[serde(with = "bytes_opt")]
    progress: Option<Cow<'a, [u8]>>,
    history: Vec<WirePastAttempt<'a>>,
    bury: Option<Cow<'a, str>>,
}

impl DueRecord {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, deliver) = match &self.kind {
            DueKind::Deliver(deliver) => (WireKind::Deliver, Some(deliver.as_ref())),
            DueKind::Withdraw => (WireKind::Withdraw, None),
        };
        let size = 64 + self.callback_topic.len() + deliver.map_or(0, deliver_size);
        let wire = WireDue {
            id: self.id.0.cast_signed(),
            generation: self.generation.0.cast_signed(),
            shard: self.shard.0.into(),
            due_at: self.due_at,
            fence: self.fence,
            callback_topic: self.callback_topic.as_str().into(),
            kind,
            deliver: deliver.map(WireDeliver::from),
        };
        CODEC.encode(&wire, size)
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<DueRecord, DecodeError> {
        let wire = CODEC.decode(bytes)?;
        let kind = match (wire.kind, wire.deliver) {
            (WireKind::Deliver, Some(deliver)) => DueKind::Deliver(Box::new(deliver.into_deliver()?)),
            (WireKind::Withdraw, None) => DueKind::Withdraw,
            (WireKind::Deliver, None) => return Err(broken("deliver", "must be set when kind is DELIVER")),
            (WireKind::Withdraw, Some(_)) => {
                return Err(broken("deliver", "must be null when kind is WITHDRAW"));
            }
        };
        Ok(DueRecord {
            id: RowId(wire.id.cast_unsigned()),
            generation: Generation(wire.generation.cast_unsigned()),
            shard: Shard(wire.shard.try_into().map_err(|_| broken("shard", RULE_U16))?),
            due_at: wire.due_at,
            fence: wire.fence,
            callback_topic: wire.callback_topic.into_owned(),
            kind,
        })
    }
}

fn broken(field: &'static str, rule: &'static str) -> DecodeError {
    DecodeError::Field { record: RECORD, field, rule }
}

fn deliver_size(deliver: &Deliver) -> usize {
    96 + deliver.task_id.len()
        + deliver.shard_key.as_ref().map_or(0, String::len)
        + bytes_size(&deliver.key)
        + headers_size(&deliver.headers)
        + bytes_size(&deliver.value)
        + bytes_size(&deliver.progress)
        + deliver.history.len() * 64
}

impl<'a> From<&'a Deliver> for WireDeliver<'a> {
    fn from(deliver: &'a Deliver) -> Self {
        WireDeliver {
            attempt: deliver.attempt.into(),
            task_id: deliver.task_id.as_str().into(),
            shard_key: deliver.shard_key.as_deref().map(Cow::Borrowed),
            partition: deliver.partition,
            key: deliver.key.as_deref().map(Cow::Borrowed),
            headers: deliver.headers.iter().map(WireHeader::from).collect(),
            value: deliver.value.as_deref().map(Cow::Borrowed),
            expires_at: deliver.expires_at,
            asked_at: deliver.asked_at,
            completion: deliver.completion.into(),
            progress: deliver.progress.as_deref().map(Cow::Borrowed),
            history: deliver.history.iter().map(WirePastAttempt::from).collect(),
            bury: deliver.bury.as_deref().map(Cow::Borrowed),
        }
    }
}

impl WireDeliver<'_> {
    fn into_deliver(self) -> Result<Deliver, DecodeError> {
        let history: Option<Vec<_>> = self.history.into_iter().map(WirePastAttempt::into_past).collect();
        Ok(Deliver {
            attempt: self.attempt.try_into().map_err(|_| broken("attempt", RULE_U16))?,
            task_id: self.task_id.into_owned(),
            shard_key: self.shard_key.map(Cow::into_owned),
            partition: self.partition,
            key: self.key.map(Cow::into_owned),
            headers: self.headers.into_iter().map(Into::into).collect(),
            value: self.value.map(Cow::into_owned),
            expires_at: self.expires_at,
            asked_at: self.asked_at,
            completion: self.completion.into(),
            progress: self.progress.map(Cow::into_owned),
            history: history.ok_or_else(|| broken("history.attempt", RULE_U16))?,
            bury: self.bury.map(Cow::into_owned),
        })
    }
}
