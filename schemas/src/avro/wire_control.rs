//! Codecs of the records of `control`.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::LazyLock;

use super::codec::{Codec, DecodeError};
use crate::control::{TopicLimit, TopicRunning, TopicShare};
use crate::journal::OwnerToken;

const LIMIT: &str = "topic limit";
const RUNNING: &str = "topic running";
const SHARE: &str = "topic share";
pub(super) const LIMIT_VERSIONS: &[&str] = &[include_str!("../../avsc/topic_limit/v1.avsc")];
pub(super) const RUNNING_VERSIONS: &[&str] = &[include_str!("../../avsc/topic_running/v1.avsc")];
pub(super) const SHARE_VERSIONS: &[&str] = &[include_str!("../../avsc/topic_share/v1.avsc")];
static LIMITS: LazyLock<Codec<WireLimit<'static>>> = LazyLock::new(|| Codec::new(LIMIT, LIMIT_VERSIONS));
static RUNNINGS: LazyLock<Codec<WireRunning>> = LazyLock::new(|| Codec::new(RUNNING, RUNNING_VERSIONS));
static SHARES: LazyLock<Codec<WireShare>> = LazyLock::new(|| Codec::new(SHARE, SHARE_VERSIONS));

const RULE_COUNT: &str = "must not be negative";

#[derive(Serialize, Deserialize)]
#[serde(rename = "TopicLimit")]
struct WireLimit<'a> {
    rate: Option<Cow<'a, str>>,
    in_flight: Option<i32>,
    paused: bool,
    at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "TopicRunning")]
struct WireRunning {
    running: i64,
    journal_next: i64,
    at: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "TopicShare")]
struct WireShare {
    #[serde(with = "apache_avro::serde::fixed")]
    token: [u8; 16],
    limit_offset: i64,
    rate_held: i64,
    rate_want: i64,
    in_flight_held: i64,
    in_flight_want: i64,
    waiting: i64,
    journal_wanted: i64,
    at: i64,
}

impl TopicLimit {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let wire = WireLimit {
            rate: self.rate.map(|rate| rate.to_string().into()),
            in_flight: self.in_flight.map(|most| i32::try_from(most).unwrap_or(i32::MAX)),
            paused: self.paused,
            at: self.at,
        };
        LIMITS.encode(&wire, 24)
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<TopicLimit, DecodeError> {
        let wire = LIMITS.decode(bytes)?;
        let broken = |field, rule| DecodeError::Field { record: LIMIT, field, rule };
        let rate = wire.rate.map(|rate| rate.parse()).transpose();
        let in_flight = match wire.in_flight {
            Some(most) if most < 1 => return Err(broken("in_flight", "must be null or at least 1")),
            most => most.map(i32::unsigned_abs),
        };
        Ok(TopicLimit {
            rate: rate.map_err(|_| broken("rate", "must be null or a rate such as 100/s"))?,
            in_flight,
            paused: wire.paused,
            at: wire.at,
        })
    }
}

impl TopicRunning {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let TopicRunning { running, journal_next, at } = *self;
        RUNNINGS.encode(&WireRunning { running, journal_next, at }, 24)
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<TopicRunning, DecodeError> {
        let WireRunning { running, journal_next, at } = RUNNINGS.decode(bytes)?;
        for (field, count) in [("running", running), ("journal_next", journal_next)] {
            if count < 0 {
                return Err(DecodeError::Field { record: RUNNING, field, rule: RULE_COUNT });
            }
        }
        Ok(TopicRunning { running, journal_next, at })
    }
}

impl TopicShare {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let wire = WireShare {
            token: self.token.0.to_be_bytes(),
            limit_offset: self.limit_offset,
            rate_held: self.rate_held,
            rate_want: self.rate_want,
            in_flight_held: self.in_flight_held,
            in_flight_want: self.in_flight_want,
            waiting: self.waiting,
            journal_wanted: self.journal_wanted,
            at: self.at,
        };
        SHARES.encode(&wire, 80)
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<TopicShare, DecodeError> {
        let wire = SHARES.decode(bytes)?;
        for (field, count) in [
            ("rate_held", wire.rate_held),
            ("rate_want", wire.rate_want),
            ("in_flight_held", wire.in_flight_held),
            ("in_flight_want", wire.in_flight_want),
            ("waiting", wire.waiting),
        ] {
            if count < 0 {
                return Err(DecodeError::Field { record: SHARE, field, rule: RULE_COUNT });
            }
        }
        Ok(TopicShare {
            token: OwnerToken(u128::from_be_bytes(wire.token)),
            limit_offset: wire.limit_offset,
            rate_held: wire.rate_held,
            rate_want: wire.rate_want,
            in_flight_held: wire.in_flight_held,
            in_flight_want: wire.in_flight_want,
            waiting: wire.waiting,
            journal_wanted: wire.journal_wanted,
            at: wire.at,
        })
    }
}
