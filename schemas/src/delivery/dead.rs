//! Dead letters: the payload with all that is known, enough for a replay.

use super::{AddedHeader, identity_headers};
use crate::due::{Deliver, DueRecord};
use crate::row::RowHistory;

/// Callback topic the task was meant for.
pub const TOPIC: &str = "duestream-topic";
/// Callback key; null where it was null. (The key of the dead letter is the task id.)
pub const KEY: &str = "duestream-key";
/// Callback partition, if one was asked for.
pub const PARTITION: &str = "duestream-partition";
/// When the task expired.
pub const EXPIRES_AT: &str = "duestream-expires-at";
/// [`DeadReason`].
pub const DEAD_REASON: &str = "duestream-dead-reason";
/// One sentence for people.
pub const DEAD_MESSAGE: &str = "duestream-dead-message";
/// When the dispatcher buried it, by its clock.
pub const DEAD_AT: &str = "duestream-dead-at";
/// Past attempts: Avro `RowHistory`, absent where there are none.
pub const HISTORY: &str = "duestream-history";

macro_rules! dead_reasons {
    ($($variant:ident = $code:literal, $meaning:literal;)*) => {
        /// Stable codes of burials: header `duestream-dead-reason`, reason of the `buried` entry, label of metrics.
        /// MySQL keeps a reason as its place in this list: new ones are appended, none is ever removed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DeadReason {
            $(#[doc = $meaning] $variant,)*
        }

        impl DeadReason {
            /// All codes, in the order of docs/CONTRACT.md. Append only.
            pub const ALL: &'static [DeadReason] = &[$(DeadReason::$variant,)*];

            /// The code as it stands in headers, entries and metrics. Never changes.
            pub fn as_str(self) -> &'static str {
                match self { $(DeadReason::$variant => $code,)* }
            }

            /// When a task is buried with it.
            pub fn meaning(self) -> &'static str {
                match self { $(DeadReason::$variant => $meaning,)* }
            }

            /// Reads a code back.
            pub fn from_code(code: &str) -> Option<DeadReason> {
                DeadReason::ALL.iter().copied().find(|reason| reason.as_str() == code)
            }
        }
    };
}

dead_reasons! {
    Expired = "expired", "It was past its expires-at when its delivery came up.";
    UnknownTopic = "unknown_topic", "The callback topic does not exist.";
    UnknownPartition = "unknown_partition", "The callback topic has no partition of the number asked for.";
    NotAuthorized = "not_authorized", "The broker does not let Duestream write to the callback topic.";
    TooLarge = "too_large", "The callback topic does not take a record of this size.";
    KeyRequired = "key_required", "The callback topic is compacted and the task has no key.";
    InvalidRecord = "invalid_record", "The broker refused the record, and would refuse it again.";
    AttemptsExhausted = "attempts_exhausted", "Its last attempt failed or stalled.";
    Failed = "failed", "The consumer reported a failure as final.";
}

/// Headers of a dead letter, to follow the user's own. `reason` is a [`DeadReason`]'s code, or what `bury` says.
pub fn dead_headers(
    due: &DueRecord,
    deliver: &Deliver,
    reason: &str,
    message: &str,
    dead_at: i64,
) -> Vec<AddedHeader> {
    let mut headers: Vec<AddedHeader> = identity_headers(due, deliver).collect();
    headers.push(AddedHeader::new(TOPIC, due.callback_topic.as_str()));
    headers.push(AddedHeader { name: KEY, value: deliver.key.clone() });
    headers.extend(deliver.partition.map(|partition| AddedHeader::number(PARTITION, &partition)));
    headers.extend(deliver.expires_at.map(|expires_at| AddedHeader::number(EXPIRES_AT, &expires_at)));
    headers.extend(deliver.progress.clone().map(|progress| AddedHeader::new(super::PROGRESS, progress)));
    if !deliver.history.is_empty() {
        headers.push(AddedHeader::new(HISTORY, RowHistory { attempts: deliver.history.clone() }.encode()));
    }
    headers.push(AddedHeader::new(DEAD_REASON, reason));
    headers.push(AddedHeader::new(DEAD_MESSAGE, message));
    headers.push(AddedHeader::number(DEAD_AT, &dead_at));
    headers
}
