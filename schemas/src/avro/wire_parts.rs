//! Wire structs that several records share. Borrowed when written, owned when read.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

use crate::due::{Completion, PastAttempt};
use crate::record::Header;

/// `Option<Cow<[u8]>>` as `["null", "bytes"]`.
pub(super) mod bytes_opt {
    use serde::{Deserializer, Serializer};
    use std::borrow::Cow;

    pub(in crate::avro) fn serialize<S: Serializer>(
        bytes: &Option<Cow<'_, [u8]>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        apache_avro::serde::bytes_opt::serialize(&bytes.as_deref(), serializer)
    }

    pub(in crate::avro) fn deserialize<'de, 'a, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Cow<'a, [u8]>>, D::Error> {
        Ok(apache_avro::serde::bytes_opt::deserialize(deserializer)?.map(Cow::Owned))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Header")]
pub(super) struct WireHeader<'a> {
    name: Cow<'a, str>,
    #[serde(with = "bytes_opt")]
    value: Option<Cow<'a, [u8]>>,
}

impl<'a> From<&'a Header> for WireHeader<'a> {
    fn from(header: &'a Header) -> Self {
        WireHeader { name: header.name.as_str().into(), value: header.value.as_deref().map(Cow::Borrowed) }
    }
}

impl From<WireHeader<'_>> for Header {
    fn from(wire: WireHeader<'_>) -> Self {
        Header { name: wire.name.into_owned(), value: wire.value.map(Cow::into_owned) }
    }
}

pub(super) fn headers_size(headers: &[Header]) -> usize {
    headers.iter().map(|header| header.name.len() + bytes_size(&header.value)).sum()
}

/// Bytes of an optional byte string, length and branch included.
pub(super) fn bytes_size(bytes: &Option<Vec<u8>>) -> usize {
    8 + bytes.as_ref().map_or(0, Vec::len)
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename = "Completion", rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum WireCompletion {
    OnDelivery,
    OnAck,
}

impl From<Completion> for WireCompletion {
    fn from(completion: Completion) -> Self {
        match completion {
            Completion::OnDelivery => WireCompletion::OnDelivery,
            Completion::OnAck => WireCompletion::OnAck,
        }
    }
}

impl From<WireCompletion> for Completion {
    fn from(wire: WireCompletion) -> Self {
        match wire {
            WireCompletion::OnDelivery => Completion::OnDelivery,
            WireCompletion::OnAck => Completion::OnAck,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "PastAttempt")]
pub(super) struct WirePastAttempt<'a> {
    attempt: i32,
    at: i64,
    outcome: Cow<'a, str>,
    reason: Option<Cow<'a, str>>,
}

impl<'a> From<&'a PastAttempt> for WirePastAttempt<'a> {
    fn from(past: &'a PastAttempt) -> Self {
        WirePastAttempt {
            attempt: past.attempt.into(),
            at: past.at,
            outcome: past.outcome.as_str().into(),
            reason: past.reason.as_deref().map(Cow::Borrowed),
        }
    }
}

impl WirePastAttempt<'_> {
    /// `None`: the attempt does not fit 16 bits.
    pub(super) fn into_past(self) -> Option<PastAttempt> {
        Some(PastAttempt {
            attempt: self.attempt.try_into().ok()?,
            at: self.at,
            outcome: self.outcome.into_owned(),
            reason: self.reason.map(Cow::into_owned),
        })
    }
}

/// What a 16-bit field must be.
pub(super) const RULE_U16: &str = "must be 0 to 65535";
