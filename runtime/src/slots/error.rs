//! What can go wrong with a slot's data, by what the caller must do.

use super::check::CheckError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Outcome of a call that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// Another owner's token stands in meta. Still assigned: back off, take over again; else stop and drop everything.
    #[error("another owner has taken the slot over")]
    Fenced,
    /// Redis went back in time, or an unanswered call was applied after all. Take over.
    #[error("the slot's sequence number is not the expected one")]
    RolledBack,
    /// Meta is missing or did not match the data; it is deleted. Take over: it will be cold.
    #[error("the slot's data is incomplete")]
    Lost,
    /// Only from `preload`: Redis is full, nothing was written, ownership is intact. Stop taking in, go on claiming and
    /// settling, try again later.
    #[error("redis has reached its maxmemory")]
    OutOfMemory,
    /// No answer in time: it may have been carried out, or still will be. Take over.
    #[error("redis did not answer {script} in time")]
    Timeout {
        /// What was called.
        script: &'static str,
    },
    /// The connection broke, or the server cannot serve: it may have been carried out. Take over.
    #[error("redis is unavailable for {script}")]
    Unavailable {
        /// What was called.
        script: &'static str,
        /// Why.
        #[source]
        source: RedisError,
    },
    /// The script failed, or answered what it never should. Take over; look into it.
    #[error("script {script}: {what}")]
    Script {
        /// What was called.
        script: &'static str,
        /// What happened.
        what: String,
    },
    /// There was no take-over yet, or none since an error that left doubt. Take over.
    #[error("the slot was not taken over")]
    NotOwner,
    /// An argument breaks a limit; nothing was sent. The caller is wrong.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// The server's version or policy is not what the protocol needs. Take over again later, with an alarm.
    #[error(transparent)]
    Policy(#[from] CheckError),
}

/// What the caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotDisposition {
    /// Nothing in memory is to be trusted: take the slot over, with a pause between attempts.
    TakeOver,
    /// Pause the partition of `due`; the rest goes on.
    PauseIntake,
    /// A defect of the caller: stop.
    Fix,
}

impl SlotError {
    /// What the caller must do.
    pub fn disposition(&self) -> SlotDisposition {
        match self {
            SlotError::Fenced
            | SlotError::RolledBack
            | SlotError::Lost
            | SlotError::Timeout { .. }
            | SlotError::Unavailable { .. }
            | SlotError::Script { .. }
            | SlotError::NotOwner
            | SlotError::Policy(_) => SlotDisposition::TakeOver,
            SlotError::OutOfMemory => SlotDisposition::PauseIntake,
            SlotError::Refused(_) => SlotDisposition::Fix,
        }
    }

    /// Label for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            SlotError::Fenced => "fenced",
            SlotError::RolledBack => "rolled_back",
            SlotError::Lost => "lost",
            SlotError::OutOfMemory => "out_of_memory",
            SlotError::Timeout { .. } => "timeout",
            SlotError::Unavailable { .. } => "unavailable",
            SlotError::Script { .. } => "script",
            SlotError::NotOwner => "not_owner",
            SlotError::Refused(_) => "refused",
            SlotError::Policy(_) => "policy",
        }
    }

    /// Sorts what the client library reports. Whether it was carried out is unknown in all cases but OOM and a server
    /// that says it cannot serve; there is no need to tell them apart, since all but OOM end in a take-over.
    pub(super) fn from_redis(script: &'static str, source: RedisError) -> SlotError {
        if source.code() == Some("OOM") {
            return SlotError::OutOfMemory;
        }
        if source.is_timeout() {
            return SlotError::Timeout { script };
        }
        let failed = match source.kind() {
            ErrorKind::Server(ServerErrorKind::ResponseError | ServerErrorKind::CrossSlot) => true,
            ErrorKind::Extension => source.code() != Some("BUSY"),
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => true,
            _ => false,
        };
        if failed {
            SlotError::Script { script, what: source.to_string() }
        } else {
            SlotError::Unavailable { script, source }
        }
    }
}
