//! Rejected commands: key, value and headers untouched, followed by why and where they came from.

use super::AddedHeader;
use crate::command::Refusal;

/// Code of the refusal, see [`ReasonCode`](crate::command::ReasonCode).
pub const REASON: &str = "duestream-rejected-reason";
/// The offending field, if it is one.
pub const FIELD: &str = "duestream-rejected-field";
/// One sentence for people.
pub const MESSAGE: &str = "duestream-rejected-message";
/// Topic of the command.
pub const SOURCE_TOPIC: &str = "duestream-rejected-topic";
/// Partition of the command.
pub const SOURCE_PARTITION: &str = "duestream-rejected-partition";
/// Offset of the command.
pub const SOURCE_OFFSET: &str = "duestream-rejected-offset";
/// Timestamp of the command.
pub const SOURCE_TIMESTAMP: &str = "duestream-rejected-timestamp";

/// How long the value was, where it was too long even for `rejected` and only its beginning is kept.
pub const VALUE_BYTES: &str = "duestream-rejected-value-bytes";
/// SHA-256 of that whole value, in hexadecimal.
pub const VALUE_SHA256: &str = "duestream-rejected-value-sha256";

/// What is told of a value of which only the beginning is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeValue {
    /// Its length.
    pub bytes: usize,
    /// Its SHA-256.
    pub sha256: [u8; 32],
}

/// Where a rejected record stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Timestamp, epoch ms.
    pub timestamp_at: i64,
}

/// Headers to append to a rejected record. A record that is put back unchanged carries them, and is refused for them
/// (`unknown_field`), so that it cannot go round in circles.
pub fn rejected_headers(refusal: &Refusal, origin: &Origin<'_>) -> Vec<AddedHeader> {
    let mut headers = vec![AddedHeader::new(REASON, refusal.code.as_str())];
    headers.extend(refusal.field.as_ref().map(|field| AddedHeader::new(FIELD, field.as_str())));
    headers.extend([
        AddedHeader::new(MESSAGE, refusal.message.as_str()),
        AddedHeader::new(SOURCE_TOPIC, origin.topic),
        AddedHeader::number(SOURCE_PARTITION, &origin.partition),
        AddedHeader::number(SOURCE_OFFSET, &origin.offset),
        AddedHeader::number(SOURCE_TIMESTAMP, &origin.timestamp_at),
    ]);
    headers
}
