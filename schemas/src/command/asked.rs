//! The reply that a command asks for.

use super::build::switch;
use super::field::{Field, Form, Submitted};
use super::reason::{ReasonCode, Refusal};
use super::rules::MAX_ID_BYTES;

/// Longest correlation.
pub const MAX_CORRELATION_BYTES: usize = 255;

/// What must be known of a command to answer it, read as far as it can be, also from a command that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// To be repeated in the reply.
    pub correlation: Option<Vec<u8>>,
    /// As the producer chose it.
    pub task_id: Option<String>,
    /// As the producer chose it.
    pub shard_key: Option<String>,
    /// The command came as Avro, and so goes the reply.
    pub as_avro: bool,
}

impl Asked {
    /// What a command asks for. `None`: no reply.
    pub(super) fn of(submitted: &Submitted<'_>) -> Option<Asked> {
        if submitted.bytes(Field::Reply) != Some(b"true") {
            return None;
        }
        let id = |field| {
            let id = std::str::from_utf8(submitted.bytes(field)?).ok()?;
            (1..=MAX_ID_BYTES).contains(&id.len()).then(|| id.to_owned())
        };
        let correlation = submitted.bytes(Field::Correlation);
        Some(Asked {
            correlation: correlation.filter(|bytes| bytes.len() <= MAX_CORRELATION_BYTES).map(<[u8]>::to_vec),
            task_id: id(Field::TaskId),
            shard_key: id(Field::ShardKey),
            as_avro: submitted.form == Form::Avro,
        })
    }
}

/// The rules of reply and correlation.
pub(super) fn check(submitted: &Submitted<'_>) -> Result<(), Refusal> {
    let reply = switch(submitted, Field::Reply)?;
    let Some(correlation) = submitted.bytes(Field::Correlation) else { return Ok(()) };
    let name = submitted.name(Field::Correlation);
    if correlation.len() > MAX_CORRELATION_BYTES {
        let problem = "is longer than 255 bytes";
        return Err(Refusal::of_value(ReasonCode::InvalidCorrelation, name, correlation, problem));
    }
    if reply.is_none() {
        let problem = format!("stands without {}", submitted.name(Field::Reply));
        return Err(Refusal::of_field(ReasonCode::ReplyMissing, name, &problem));
    }
    Ok(())
}
