//! Codecs of the blobs that `pending` and `running` keep: body, options, history.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::LazyLock;

use super::codec::{Codec, DecodeError};
use super::wire_parts::{
    RULE_U16, WireCompletion, WireHeader, WirePastAttempt, bytes_opt, bytes_size, headers_size,
};
use crate::options::Backoff;
use crate::row::{RowBody, RowHistory, RowOptions};

pub(super) const BODY_VERSIONS: &[&str] = &[include_str!("../../avsc/row_body/v1.avsc")];
pub(super) const OPTIONS_VERSIONS: &[&str] =
    &[include_str!("../../avsc/row_options/v1.avsc"), include_str!("../../avsc/row_options/v2.avsc")];
pub(super) const HISTORY_VERSIONS: &[&str] = &[include_str!("../../avsc/row_history/v1.avsc")];

static BODY: LazyLock<Codec<WireBody<'static>>> = LazyLock::new(|| Codec::new("row body", BODY_VERSIONS));
static OPTIONS: LazyLock<Codec<WireOptions<'static>>> =
    LazyLock::new(|| Codec::new("row options", OPTIONS_VERSIONS));
static HISTORY: LazyLock<Codec<WireHistory<'static>>> =
    LazyLock::new(|| Codec::new("row history", HISTORY_VERSIONS));

#[derive(Serialize, Deserialize)]
#[serde(rename = "RowBody")]
struct WireBody<'a> {
    #[serde(with = "bytes_opt")]
    key: Option<Cow<'a, [u8]>>,
    headers: Vec<WireHeader<'a>>,
    #[serde(with = "bytes_opt")]
    value: Option<Cow<'a, [u8]>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "RowOptions")]
struct WireOptions<'a> {
    partition: Option<i32>,
    expires_at: Option<i64>,
    asked_at: Option<i64>,
    completion: WireCompletion,
    #[serde(with = "bytes_opt")]
    progress: Option<Cow<'a, [u8]>>,
    max_attempts: Option<i32>,
    backoff: Option<String>,
    ack_timeout_ms: Option<i64>,
    max_stalls: Option<i32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "RowHistory")]
struct WireHistory<'a> {
    attempts: Vec<WirePastAttempt<'a>>,
}

impl RowBody {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let wire = WireBody {
            key: self.key.as_deref().map(Cow::Borrowed),
            headers: self.headers.iter().map(WireHeader::from).collect(),
            value: self.value.as_deref().map(Cow::Borrowed),
        };
        let size = 16 + bytes_size(&self.key) + headers_size(&self.headers) + bytes_size(&self.value);
        BODY.encode(&wire, size)
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<RowBody, DecodeError> {
        let wire = BODY.decode(bytes)?;
        Ok(RowBody {
            key: wire.key.map(Cow::into_owned),
            headers: wire.headers.into_iter().map(Into::into).collect(),
            value: wire.value.map(Cow::into_owned),
        })
    }
}

impl RowOptions {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let wire = WireOptions {
            partition: self.partition,
            expires_at: self.expires_at,
            asked_at: self.asked_at,
            completion: self.completion.into(),
            progress: self.progress.as_deref().map(Cow::Borrowed),
            max_attempts: self.max_attempts.map(i32::from),
            backoff: self.backoff.map(|backoff| backoff.to_string()),
            ack_timeout_ms: self.ack_timeout_ms,
            max_stalls: self.max_stalls.map(i32::from),
        };
        OPTIONS.encode(&wire, 64 + bytes_size(&self.progress))
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<RowOptions, DecodeError> {
        let wire = OPTIONS.decode(bytes)?;
        let rule = |field, rule| DecodeError::Field { record: "row options", field, rule };
        let count = |field, count: Option<i32>| {
            count.map(|count| u16::try_from(count).map_err(|_| rule(field, RULE_U16))).transpose()
        };
        let backoff = wire.backoff.map(|text| text.parse::<Backoff>()).transpose();
        Ok(RowOptions {
            partition: wire.partition,
            expires_at: wire.expires_at,
            asked_at: wire.asked_at,
            completion: wire.completion.into(),
            progress: wire.progress.map(Cow::into_owned),
            max_attempts: count("max_attempts", wire.max_attempts)?,
            backoff: backoff.map_err(|_| rule("backoff", "must be the text of a backoff"))?,
            ack_timeout_ms: wire.ack_timeout_ms,
            max_stalls: count("max_stalls", wire.max_stalls)?,
        })
    }
}

impl RowHistory {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let wire = WireHistory { attempts: self.attempts.iter().map(WirePastAttempt::from).collect() };
        HISTORY.encode(&wire, 8 + self.attempts.len() * 64)
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<RowHistory, DecodeError> {
        let wire = HISTORY.decode(bytes)?;
        let attempts: Option<Vec<_>> = wire.attempts.into_iter().map(WirePastAttempt::into_past).collect();
        let rule = DecodeError::Field { record: "row history", field: "attempts.attempt", rule: RULE_U16 };
        Ok(RowHistory { attempts: attempts.ok_or(rule)? })
    }
}
