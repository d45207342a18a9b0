//! Codec of the ack.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::LazyLock;

use super::codec::{Codec, DecodeError};
use super::wire_parts::{bytes_opt, bytes_size};
use crate::ack::{Ack, AckOutcome};

const RECORD: &str = "ack";
pub(super) const VERSIONS: &[&str] = &[include_str!("../../avsc/ack/v1.avsc")];
static CODEC: LazyLock<Codec<WireAck<'static>>> = LazyLock::new(|| Codec::new(RECORD, VERSIONS));

/// Outcomes as they are written: text, so that a reader meets a new one as a value and not as a broken record.
const PROGRESS: &str = "progress";
const SUCCEEDED: &str = "succeeded";
const FAILED: &str = "failed";

#[derive(Serialize, Deserialize)]
#[serde(rename = "Ack")]
struct WireAck<'a> {
    delivery_id: Cow<'a, str>,
    outcome: Cow<'a, str>,
    #[serde(with = "bytes_opt")]
    progress: Option<Cow<'a, [u8]>>,
    reason: Option<Cow<'a, str>>,
    permanent: bool,
}

impl Ack {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let (outcome, reason, permanent) = match &self.outcome {
            AckOutcome::Progress => (PROGRESS, None, false),
            AckOutcome::Succeeded => (SUCCEEDED, None, false),
            AckOutcome::Failed { reason, permanent } => (FAILED, reason.as_deref(), *permanent),
        };
        let wire = WireAck {
            delivery_id: self.delivery_id.to_string().into(),
            outcome: outcome.into(),
            progress: self.progress.as_deref().map(Cow::Borrowed),
            reason: reason.map(Cow::Borrowed),
            permanent,
        };
        CODEC.encode(&wire, 96 + bytes_size(&self.progress) + reason.map_or(0, str::len))
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<Ack, DecodeError> {
        let wire = CODEC.decode(bytes)?;
        let outcome = match (wire.outcome.as_ref(), wire.reason, wire.permanent) {
            (PROGRESS, None, false) => AckOutcome::Progress,
            (SUCCEEDED, None, false) => AckOutcome::Succeeded,
            (FAILED, reason, permanent) => {
                AckOutcome::Failed { reason: reason.map(Cow::into_owned), permanent }
            }
            (PROGRESS | SUCCEEDED, Some(_), _) => {
                return Err(broken("reason", "must be null but for failed"));
            }
            (PROGRESS | SUCCEEDED, None, true) => {
                return Err(broken("permanent", "must be false but for failed"));
            }
            _ => return Err(broken("outcome", "must be progress, succeeded or failed")),
        };
        Ok(Ack {
            delivery_id: wire
                .delivery_id
                .parse()
                .map_err(|_| broken("delivery_id", "must be the duestream-delivery-id of a delivery"))?,
            outcome,
            progress: wire.progress.map(Cow::into_owned),
        })
    }
}

fn broken(field: &'static str, rule: &'static str) -> DecodeError {
    DecodeError::Field { record: RECORD, field, rule }
}
