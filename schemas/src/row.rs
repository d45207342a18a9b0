//! What `pending` and `running` keep of a task as Avro blobs: body, options, history.

use crate::due::{Completion, PastAttempt};
use crate::options::Backoff;
use crate::record::Header;

/// Column `body`: key, headers and value exactly as they will be delivered.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RowBody {
    /// Callback key; `None` = null.
    pub key: Option<Vec<u8>>,
    /// User headers, in order.
    pub headers: Vec<Header>,
    /// Payload; `None` = null.
    pub value: Option<Vec<u8>>,
}

/// Column `options`: everything a producer may choose besides the body and the identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowOptions {
    /// Callback partition.
    pub partition: Option<i32>,
    /// Epoch ms.
    pub expires_at: Option<i64>,
    /// Epoch ms, where a spread moved the due time.
    pub asked_at: Option<i64>,
    /// When the task is done.
    pub completion: Completion,
    /// Last progress of an earlier attempt.
    pub progress: Option<Vec<u8>>,
    /// After so many failures it is given up. `None`: [`DEFAULT_MAX_ATTEMPTS`](crate::options::DEFAULT_MAX_ATTEMPTS).
    pub max_attempts: Option<u16>,
    /// Pause before the next attempt. `None`: [`Backoff::STANDARD`].
    pub backoff: Option<Backoff>,
    /// How long a consumer may be silent, ms. `None`: [`DEFAULT_ACK_TIMEOUT_MS`](crate::options::DEFAULT_ACK_TIMEOUT_MS).
    pub ack_timeout_ms: Option<i64>,
    /// More stalls than that are not forgiven. `None`: [`DEFAULT_MAX_STALLS`](crate::options::DEFAULT_MAX_STALLS).
    pub max_stalls: Option<u16>,
}

/// Column `history`: past attempts, newest kept when full.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RowHistory {
    /// Oldest first.
    pub attempts: Vec<PastAttempt>,
}
