//! What went wrong with Kafka, classified by what the caller must do about it.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use std::fmt;

/// What the caller must do. Matched without wildcard, so that a new variant breaks the build and not production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Brokers are not ready or slow: the same call may succeed later.
    Retry,
    /// This record or topic is refused and always will be, whatever else works: put it aside.
    Poison(Refusal),
    /// Another owner has taken over: drop what is unfinished, take over again only if the assignment still stands.
    Fenced,
    /// The client cannot go on, or a wrong assumption came to light: end, let a restart or a person decide.
    Fatal,
}

/// Why a broker (or librdkafka on its behalf) will never take a record, or never open a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The topic does not exist.
    UnknownTopic,
    /// The topic exists, this partition does not.
    UnknownPartition,
    /// The principal may not do this.
    NotAuthorized,
    /// The record is larger than the topic or the client allows.
    TooLarge,
    /// The record breaks a rule of the topic, such as a missing key on a compacted topic.
    Invalid,
}

impl Refusal {
    /// Stable text for metric labels and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::UnknownTopic => "unknown_topic",
            Refusal::UnknownPartition => "unknown_partition",
            Refusal::NotAuthorized => "not_authorized",
            Refusal::TooLarge => "too_large",
            Refusal::Invalid => "invalid",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed operation on Kafka.
#[derive(thiserror::Error, Clone, Debug)]
pub enum KafkaFault {
    /// Brokers unreachable, leaders moving, queues full, time-outs.
    #[error("{op}: Kafka is not ready: {source}")]
    Unavailable {
        /// What was tried.
        op: &'static str,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// Refused for good.
    #[error("{op}: refused ({refusal}): {source}")]
    Refused {
        /// What was tried.
        op: &'static str,
        /// Why.
        refusal: Refusal,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// Another producer with the same transactional id, or another member, has taken over.
    #[error("{op}: fenced by another owner: {source}")]
    Fenced {
        /// What was tried.
        op: &'static str,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// A position that the log does not have: below its start (truncated, re-created) or above its end (lost, restored).
    #[error("{topic}[{partition}]: position {position} is outside the log, which holds {start}..{end}")]
    OutsideLog {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// The position that was asked for.
        position: i64,
        /// First offset of the log; −1 where it could not be asked for.
        start: i64,
        /// Offset after the last record; −1 where it could not be asked for.
        end: i64,
    },
    /// The partition was revoked while the call was on its way.
    #[error("{op}: the partition is no longer assigned")]
    NotAssigned {
        /// What was tried.
        op: &'static str,
    },
    /// The caller's deadline passed; what was started may still happen.
    #[error("{op}: not finished before the deadline: {last}")]
    Deadline {
        /// What was tried.
        op: &'static str,
        /// The last thing seen.
        last: String,
    },
    /// The caller's cancellation came first.
    #[error("{op}: cancelled")]
    Cancelled {
        /// What was tried.
        op: &'static str,
    },
    /// Anything else: wrong configuration, a client that is unusable.
    #[error("{op}: {source}")]
    Fatal {
        /// What was tried.
        op: &'static str,
        /// What librdkafka said.
        source: KafkaError,
    },
}

impl KafkaFault {
    /// Classifies an error of librdkafka.
    pub fn of(op: &'static str, source: KafkaError) -> KafkaFault {
        match disposition_of(&source) {
            Disposition::Retry => KafkaFault::Unavailable { op, source },
            Disposition::Poison(refusal) => KafkaFault::Refused { op, refusal, source },
            Disposition::Fenced => KafkaFault::Fenced { op, source },
            Disposition::Fatal => KafkaFault::Fatal { op, source },
        }
    }

    /// For `map_err`.
    pub fn at(op: &'static str) -> impl Fn(KafkaError) -> KafkaFault {
        move |source| KafkaFault::of(op, source)
    }

    /// What the caller must do.
    pub fn disposition(&self) -> Disposition {
        match self {
            KafkaFault::Unavailable { .. } | KafkaFault::Deadline { .. } => Disposition::Retry,
            KafkaFault::Refused { refusal, .. } => Disposition::Poison(*refusal),
            KafkaFault::Fenced { .. } | KafkaFault::NotAssigned { .. } | KafkaFault::Cancelled { .. } => {
                Disposition::Fenced
            }
            KafkaFault::OutsideLog { .. } | KafkaFault::Fatal { .. } => Disposition::Fatal,
        }
    }

    /// Stable metric label.
    pub fn kind(&self) -> &'static str {
        match self {
            KafkaFault::Unavailable { .. } => "unavailable",
            KafkaFault::Refused { refusal, .. } => refusal.as_str(),
            KafkaFault::Fenced { .. } => "fenced",
            KafkaFault::OutsideLog { .. } => "outside_log",
            KafkaFault::NotAssigned { .. } => "not_assigned",
            KafkaFault::Deadline { .. } => "deadline",
            KafkaFault::Cancelled { .. } => "cancelled",
            KafkaFault::Fatal { .. } => "fatal",
        }
    }
}

/// What an error of librdkafka asks of the caller.
pub fn disposition_of(error: &KafkaError) -> Disposition {
    if let KafkaError::Transaction(e) = error {
        let by_code = disposition_of_code(e.code());
        return match by_code {
            Disposition::Fenced | Disposition::Poison(_) => by_code,
            Disposition::Retry | Disposition::Fatal if e.is_fatal() => Disposition::Fatal,
            Disposition::Retry | Disposition::Fatal if e.is_retriable() => Disposition::Retry,
            Disposition::Retry | Disposition::Fatal => Disposition::Fatal,
        };
    }
    match error {
        KafkaError::MessageConsumptionFatal(_)
        | KafkaError::ClientConfig(..)
        | KafkaError::ClientCreation(_)
        | KafkaError::AdminOpCreation(_)
        | KafkaError::Nul(_) => Disposition::Fatal,
        // rdkafka answers no code for this one.
        KafkaError::AdminOp(code) => disposition_of_code(*code),
        other => other.rdkafka_error_code().map_or(Disposition::Retry, disposition_of_code),
    }
}

/// What an error code asks of the caller.
pub fn disposition_of_code(code: Code) -> Disposition {
    match code {
        Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch | Code::FencedInstanceId => {
            Disposition::Fenced
        }
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::InvalidTopic | Code::UnknownTopicId => {
            Disposition::Poison(Refusal::UnknownTopic)
        }
        Code::UnknownPartition => Disposition::Poison(Refusal::UnknownPartition),
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => Disposition::Poison(Refusal::NotAuthorized),
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            Disposition::Poison(Refusal::TooLarge)
        }
        // `InvalidTimestamp` is not among them: our records say what time it is, so it is a clock that is wrong, for a time.
        Code::InvalidRecord | Code::UnsupportedForMessageFormat => Disposition::Poison(Refusal::Invalid),
        Code::Fatal
        | Code::InvalidArgument
        | Code::InvalidConfig
        | Code::InvalidRequest
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::PolicyViolation
        | Code::NotConfigured
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::InconsistentGroupProtocol
        | Code::InvalidGroupId
        | Code::InvalidSessionTimeout
        | Code::InvalidTransactionTimeout
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::AutoOffsetReset
        | Code::OffsetOutOfRange => Disposition::Fatal,
        _ => Disposition::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_record_is_poison_and_a_lost_leader_is_not() {
        let of = |code| disposition_of(&KafkaError::MessageProduction(code));
        assert_eq!(of(Code::MessageSizeTooLarge), Disposition::Poison(Refusal::TooLarge));
        assert_eq!(of(Code::UnknownTopicOrPartition), Disposition::Poison(Refusal::UnknownTopic));
        assert_eq!(of(Code::NotLeaderForPartition), Disposition::Retry);
        assert_eq!(of(Code::MessageTimedOut), Disposition::Retry);
        assert_eq!(of(Code::InvalidTimestamp), Disposition::Retry, "a clock is wrong, not the record");
        assert_eq!(of(Code::ProducerFenced), Disposition::Fenced);
    }

    #[test]
    fn a_position_outside_the_log_is_never_retried() {
        let fault =
            KafkaFault::OutsideLog { topic: "t".into(), partition: 0, position: 7, start: 9, end: 12 };
        assert_eq!(fault.disposition(), Disposition::Fatal);
        assert_eq!(fault.to_string(), "t[0]: position 7 is outside the log, which holds 9..12");
    }
}
