//! The forms in which a consumer may report: headers, Avro, JSON, told apart as those of a command are.

use serde::Deserialize;
use std::borrow::Cow;

use super::{Ack, AckOutcome};
use crate::avro::SINGLE_OBJECT_MARK;
use crate::command::{HEADER_PREFIX, ReasonCode, RecordView, Refusal};
use crate::delivery::{self, DeliveryId};
use crate::options::MAX_PROGRESS_BYTES;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// What is reported: `progress`, `succeeded` or `failed`.
pub const OUTCOME: &str = "duestream-ack";
/// Why it failed, for people.
pub const REASON: &str = "duestream-reason";
/// `true` with `failed`: no further attempt.
pub const PERMANENT: &str = "duestream-permanent";
/// Not of consumers: ingest's own word that it reads this partition.
pub const TICK: &str = "duestream-tick";

/// Headers of a delivery that a consumer may have copied together with the delivery id. They say nothing here.
const COPIED: [&str; 7] = [
    delivery::TASK_ID,
    delivery::SHARD_KEY,
    delivery::ATTEMPT,
    delivery::DUE_AT,
    delivery::ASKED_AT,
    delivery::DELIVERED_AT,
    delivery::PROGRESS,
];

const FRAME_MARK: u8 = 0;

/// A record of `acks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AckRecord {
    /// A consumer reports.
    Ack(Ack),
    /// Ingest's tick.
    Tick,
}

impl AckRecord {
    /// Reads a record. Never panics, whatever the bytes.
    pub fn parse(record: &RecordView<'_>) -> Result<AckRecord, Refusal> {
        let is = |name: &str| record.headers.iter().any(|header| header.name == name.as_bytes());
        if is(TICK) {
            return Ok(AckRecord::Tick);
        }
        let ours = |name: &[u8]| {
            let start = name.get(..HEADER_PREFIX.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(HEADER_PREFIX.as_bytes()))
        };
        let ack = if record.headers.iter().any(|header| ours(header.name)) {
            of_headers(record, ours)
        } else {
            match record.value {
                Some(value) if value.starts_with(&SINGLE_OBJECT_MARK) => of_avro(value),
                Some([FRAME_MARK, ..]) => Err(Refusal::of_record(
                    ReasonCode::UnknownSchema,
                    "the value is framed with a schema id, which acks do not read; write a single object (C3 01)",
                )),
                Some(value) if value.starts_with(b"{") => of_json(value),
                Some(_) | None => Err(Refusal::of_record(
                    ReasonCode::NotACommand,
                    "the record has no duestream-* header and its value is neither Avro nor a JSON object; an ack names \
                     duestream-delivery-id and duestream-ack",
                )),
            }
        }?;
        Ok(AckRecord::Ack(ack))
    }
}

fn of_headers(record: &RecordView<'_>, ours: impl Fn(&[u8]) -> bool) -> Result<Ack, Refusal> {
    let mut found: [Option<&str>; 4] = [None; 4];
    const NAMES: [&str; 4] = [delivery::DELIVERY_ID, OUTCOME, REASON, PERMANENT];
    for header in record.headers.iter().filter(|header| ours(header.name)) {
        let Some(at) = NAMES.iter().position(|name| name.as_bytes() == header.name) else {
            if COPIED.iter().any(|name| name.as_bytes() == header.name) {
                continue;
            }
            let problem = "is not one that an ack may have";
            return Err(Refusal::of_value(ReasonCode::UnknownField, "the header", header.name, problem));
        };
        let name = NAMES[at];
        if found[at].is_some() {
            return Err(Refusal::of_field(ReasonCode::RepeatedField, name, "stands more than once"));
        }
        let Some(value) = header.value else {
            return Err(Refusal::of_field(ReasonCode::InvalidField, name, "is null"));
        };
        let text = std::str::from_utf8(value)
            .map_err(|_| Refusal::of_value(ReasonCode::InvalidField, name, value, "is not UTF-8"))?;
        found[at] = Some(text);
    }
    let [delivery_id, outcome, reason, permanent] = found;
    let permanent = match permanent {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let problem = "is neither true nor false";
            return Err(Refusal::of_value(ReasonCode::InvalidField, PERMANENT, other.as_bytes(), problem));
        }
    };
    let progress = record.value.filter(|value| !value.is_empty()).map(<[u8]>::to_vec);
    Said { delivery_id, outcome, reason, permanent, progress }.judge(&NAMES)
}

fn of_avro(value: &[u8]) -> Result<Ack, Refusal> {
    let ack = Ack::decode(value).map_err(|error| {
        let code = match error {
            crate::avro::DecodeError::UnknownSchema { .. } => ReasonCode::UnknownSchema,
            _ => ReasonCode::InvalidAvro,
        };
        Refusal::of_record(code, &format!("the value is no ack: {error}"))
    })?;
    short_enough(ack.progress.as_deref(), JSON_NAMES[4])?;
    Ok(ack)
}

const JSON_NAMES: [&str; 5] = ["delivery_id", "outcome", "reason", "permanent", "progress"];

/// The JSON form: the fields of the Avro record, progress as text or in base 64.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonAck<'a> {
    #[serde(borrow)]
    delivery_id: Option<Cow<'a, str>>,
    outcome: Option<Cow<'a, str>>,
    reason: Option<Cow<'a, str>>,
    permanent: Option<bool>,
    progress: Option<Cow<'a, str>>,
    progress_base64: Option<Cow<'a, str>>,
}

fn of_json(value: &[u8]) -> Result<Ack, Refusal> {
    let json: JsonAck<'_> = serde_json::from_slice(value).map_err(|error| {
        Refusal::of_record(ReasonCode::InvalidJson, &format!("the value is no ack in JSON: {error}"))
    })?;
    let progress = match (json.progress, json.progress_base64) {
        (Some(_), Some(_)) => {
            let problem = "stands beside progress_base64";
            return Err(Refusal::of_field(ReasonCode::RepeatedField, JSON_NAMES[4], problem));
        }
        (Some(text), None) => Some(text.into_owned().into_bytes()),
        (None, Some(text)) => Some(BASE64.decode(text.as_bytes()).map_err(|_| {
            let (code, name) = (ReasonCode::InvalidField, "progress_base64");
            Refusal::of_value(code, name, text.as_bytes(), "is not base 64")
        })?),
        (None, None) => None,
    };
    Said {
        delivery_id: json.delivery_id.as_deref(),
        outcome: json.outcome.as_deref(),
        reason: json.reason.as_deref(),
        permanent: json.permanent.unwrap_or(false),
        progress,
    }
    .judge(&[JSON_NAMES[0], JSON_NAMES[1], JSON_NAMES[2], JSON_NAMES[3]])
}

/// What a form found, not yet judged.
struct Said<'a> {
    delivery_id: Option<&'a str>,
    outcome: Option<&'a str>,
    reason: Option<&'a str>,
    permanent: bool,
    progress: Option<Vec<u8>>,
}

impl Said<'_> {
    /// `names`: of delivery id, outcome, reason and permanent, as the form calls them.
    fn judge(self, names: &[&'static str; 4]) -> Result<Ack, Refusal> {
        let missing = |name| Refusal::of_field(ReasonCode::InvalidField, name, "is missing");
        let delivery_id = self.delivery_id.ok_or_else(|| missing(names[0]))?;
        let delivery_id: DeliveryId = delivery_id.parse().map_err(|_| {
            let problem = "is no delivery id; echo the header duestream-delivery-id as it was received";
            Refusal::of_value(ReasonCode::InvalidField, names[0], delivery_id.as_bytes(), problem)
        })?;
        let said = self.outcome.ok_or_else(|| missing(names[1]))?;
        let outcome = match said {
            "progress" => AckOutcome::Progress,
            "succeeded" => AckOutcome::Succeeded,
            "failed" => {
                AckOutcome::Failed { reason: self.reason.map(str::to_owned), permanent: self.permanent }
            }
            other => {
                let problem = "is none of progress, succeeded and failed";
                return Err(Refusal::of_value(ReasonCode::InvalidField, names[1], other.as_bytes(), problem));
            }
        };
        if said != "failed" && (self.reason.is_some() || self.permanent) {
            let name = if self.permanent { names[3] } else { names[2] };
            return Err(Refusal::of_field(ReasonCode::InvalidField, name, "is only for failed"));
        }
        short_enough(self.progress.as_deref(), "progress")?;
        Ok(Ack { delivery_id, outcome, progress: self.progress })
    }
}

fn short_enough(progress: Option<&[u8]>, name: &str) -> Result<(), Refusal> {
    let length = progress.map_or(0, <[u8]>::len);
    if length <= MAX_PROGRESS_BYTES {
        return Ok(());
    }
    let problem =
        format!("has {length} bytes, at most {MAX_PROGRESS_BYTES} are kept; keep the rest elsewhere");
    Err(Refusal::of_field(ReasonCode::InvalidField, name, &problem))
}

#[cfg(test)]
mod tests;
