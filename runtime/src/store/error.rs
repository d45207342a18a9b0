//! What went wrong in MySQL, sorted by what the caller must do.

use sqlx::mysql::MySqlDatabaseError;
use std::time::Duration;

/// What the caller must do. Matched without wildcard everywhere, so that a new case breaks the build, not production.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Do the whole transaction again, not before `after`.
    Retry {
        /// Least pause; [`super::Backoff`] makes it longer from try to try.
        after: Duration,
    },
    /// MySQL refuses this data and always will: bisect the batch, send the row to `rejected`.
    Poison,
    /// Somebody else owns this now: drop what was planned, read positions and epochs again.
    Fenced,
    /// Neither a retry nor another row helps: stop and say so.
    Fatal,
}

/// An error of the store. `op` names the statement or the step.
#[derive(thiserror::Error, Debug)]
pub enum StoreError {
    /// Deadlock, lock wait time-out, or a row that changed under a snapshot: MySQL rolled back.
    #[error("mysql: contention in {op}: {source}")]
    Contended {
        /// The statement.
        op: &'static str,
        /// What MySQL said.
        source: sqlx::Error,
    },
    /// A unique key is taken: look the identities up again, then decide again.
    #[error("mysql: duplicate key in {op}: {source}")]
    Duplicate {
        /// The statement.
        op: &'static str,
        /// What MySQL said.
        source: sqlx::Error,
    },
    /// Not reachable, going down, overloaded, read-only or out of time. After a COMMIT the outcome is unknown: the
    /// compare-and-set of the position tells on the next try.
    #[error("mysql: unavailable in {op}: {source}")]
    Unavailable {
        /// The statement.
        op: &'static str,
        /// What sqlx or MySQL said.
        source: sqlx::Error,
    },
    /// No answer within the client's time limit; the connection was closed.
    #[error("mysql: no answer to {op} within {limit:?}; connection closed")]
    TimedOut {
        /// The statement.
        op: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// MySQL refuses the data itself: too long, out of range, NULL where none may be.
    #[error("mysql: data refused in {op}: {source}")]
    Refused {
        /// The statement.
        op: &'static str,
        /// What MySQL said.
        source: sqlx::Error,
    },
    /// A compare-and-set missed: another owner has been here.
    #[error("mysql: fenced in {op}: {what}")]
    Fenced {
        /// The step.
        op: &'static str,
        /// What was found instead.
        what: String,
    },
    /// The database holds what the protocol rules out.
    #[error("mysql: invariant broken in {op}: {what}")]
    Invariant {
        /// The step.
        op: &'static str,
        /// What was found.
        what: String,
    },
    /// The database is not what this program needs: schema, rights, settings. Says the remedy.
    #[error("mysql: {what}")]
    World {
        /// What is wrong and how to mend it.
        what: String,
    },
    /// Anything else: a bug in a statement, an undecodable value, a wrong password.
    #[error("mysql: {op} failed: {source}")]
    Other {
        /// The statement.
        op: &'static str,
        /// What sqlx or MySQL said.
        source: sqlx::Error,
    },
}

impl StoreError {
    /// Classifies what sqlx reported for `op`.
    pub fn from_sqlx(op: &'static str, source: sqlx::Error) -> StoreError {
        match classify(&source) {
            Class::Contended => StoreError::Contended { op, source },
            Class::Duplicate => StoreError::Duplicate { op, source },
            Class::Unavailable => StoreError::Unavailable { op, source },
            Class::Refused => StoreError::Refused { op, source },
            Class::Other => StoreError::Other { op, source },
        }
    }

    /// What the caller must do.
    pub fn disposition(&self) -> Disposition {
        match self {
            StoreError::Contended { .. } | StoreError::Duplicate { .. } => {
                Disposition::Retry { after: Duration::ZERO }
            }
            StoreError::Unavailable { .. } | StoreError::TimedOut { .. } => {
                Disposition::Retry { after: Duration::from_millis(100) }
            }
            StoreError::Refused { .. } => Disposition::Poison,
            StoreError::Fenced { .. } => Disposition::Fenced,
            StoreError::Invariant { .. } | StoreError::World { .. } | StoreError::Other { .. } => {
                Disposition::Fatal
            }
        }
    }

    /// Stable label for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            StoreError::Contended { .. } => "contended",
            StoreError::Duplicate { .. } => "duplicate",
            StoreError::Unavailable { .. } => "unavailable",
            StoreError::TimedOut { .. } => "timed_out",
            StoreError::Refused { .. } => "refused",
            StoreError::Fenced { .. } => "fenced",
            StoreError::Invariant { .. } => "invariant",
            StoreError::World { .. } => "world",
            StoreError::Other { .. } => "other",
        }
    }

    /// Whether the connection must not be used again: broken, or to a server that is no primary any more.
    pub(super) fn spoils_connection(&self) -> bool {
        match self {
            StoreError::Unavailable { .. } | StoreError::TimedOut { .. } => true,
            // 1153: the packet was too large, and the server hangs up after saying so.
            StoreError::Refused { source, .. } => number(source) == Some(1153),
            StoreError::Contended { .. }
            | StoreError::Duplicate { .. }
            | StoreError::Fenced { .. }
            | StoreError::Invariant { .. }
            | StoreError::World { .. }
            | StoreError::Other { .. } => false,
        }
    }
}

/// The server's error number, where the server itself answered.
pub(super) fn number(e: &sqlx::Error) -> Option<u16> {
    e.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

#[derive(Debug, PartialEq, Eq)]
enum Class {
    Contended,
    Duplicate,
    Unavailable,
    Refused,
    Other,
}

fn classify(e: &sqlx::Error) -> Class {
    match e {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Class::Unavailable,
        // sqlx reports a stream cut off in the middle of a packet as a protocol error.
        sqlx::Error::Protocol(_) => Class::Unavailable,
        _ => number(e).map_or(Class::Other, classify_number),
    }
}

/// Numbers of both families; the gaps in between are bugs of a statement or of the set-up.
fn classify_number(number: u16) -> Class {
    match number {
        // lock wait time-out, deadlock, record changed since last read (MariaDB), rolled back by the group (MySQL)
        1205 | 1213 | 1020 | 3101 => Class::Contended,
        1062 | 1586 => Class::Duplicate,
        // too many connections, host blocked, shutdown, user's limits, killed, interrupted, out of time
        1040 | 1053 | 1129 | 1203 | 1226 | 1317 | 1927 | 1969 | 3024 | 3168 | 4031
        // network errors seen by the server
        | 1152 | 1158 | 1159 | 1160 | 1161 | 1184 | 2006 | 2013
        // read-only: the primary has moved; disk or table full; out of memory or of file handles
        | 1290 | 1792 | 1836 | 1021 | 1114 | 1037 | 1041 | 1135 | 3100
        // too many prepared statements on the server
        | 1461 => Class::Unavailable,
        // NULL, bad value, out of range, truncated, too long, no default, packet or row too large, bad UTF-8, a CHECK (MySQL, MariaDB), a trigger's SIGNAL
        1048 | 1366 | 1292 | 1264 | 1265 | 1406 | 1364 | 1153 | 1118 | 1300 | 1301 | 1690 | 3819 | 4025 | 1644 => Class::Refused,
        _ => Class::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disposition(e: sqlx::Error) -> Disposition {
        StoreError::from_sqlx("test", e).disposition()
    }

    #[test]
    fn contention_and_outages_are_retried() {
        for number in [1213, 1205, 1020] {
            assert_eq!(classify_number(number), Class::Contended, "{number}");
        }
        for number in [1040, 1053, 2006, 2013, 1290, 1836, 1969, 3024, 4031] {
            assert_eq!(classify_number(number), Class::Unavailable, "{number}");
        }
        let broken = sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert!(matches!(disposition(broken), Disposition::Retry { after } if after > Duration::ZERO));
        assert!(matches!(disposition(sqlx::Error::PoolTimedOut), Disposition::Retry { .. }));
    }

    #[test]
    fn bad_data_is_poison_and_bad_statements_are_fatal() {
        for number in [1406, 1264, 1048, 1153] {
            assert_eq!(classify_number(number), Class::Refused, "{number}");
        }
        for number in [1064, 1146, 1054, 1045, 1390] {
            assert_eq!(classify_number(number), Class::Other, "{number}");
        }
        assert_eq!(disposition(sqlx::Error::RowNotFound), Disposition::Fatal);
    }

    #[test]
    fn a_missed_compare_and_set_is_fenced() {
        let e = StoreError::Fenced { op: "test", what: "next is 7".into() };
        assert_eq!((e.disposition(), e.kind()), (Disposition::Fenced, "fenced"));
    }
}
