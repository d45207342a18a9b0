//! Why a command is refused: one closed set of stable codes, and the sentence that tells people.

use std::fmt;

macro_rules! reason_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $rule:literal, $remedy:literal;)*) => {
        /// Stable codes of refusals: header `duestream-rejected-reason`, label of metrics. docs/CONTRACT.md lists them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ReasonCode {
            $(#[doc = $rule] $variant,)*
        }

        impl ReasonCode {
            /// All codes, in the order of docs/CONTRACT.md.
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$variant,)*];

            /// The code as it stands in headers and metrics. Never changes.
            pub fn as_str(self) -> &'static str {
                match self { $(ReasonCode::$variant => $code,)* }
            }

            /// When a command is refused with it.
            pub fn rule(self) -> &'static str {
                match self { $(ReasonCode::$variant => $rule,)* }
            }

            /// What the producer can do.
            pub fn remedy(self) -> &'static str {
                match self { $(ReasonCode::$variant => $remedy,)* }
            }
        }
    };
}

reason_codes! {
    NotACommand = "not_a_command",
        "The record has none of the forms of a command.",
        "set duestream-* headers, or send a JSON object that begins with `{`, or Avro";
    InvalidJson = "invalid_json",
        "The value begins with `{` but is not one JSON object in UTF-8.",
        "send exactly one JSON object (RFC 8259) and nothing after it";
    InvalidAvro = "invalid_avro",
        "The value begins as Avro does but is not exactly one record of the schema that it names.",
        "write one TaskCommand with the schema that its first bytes name, and nothing after it";
    UnknownSchema = "unknown_schema",
        "The value is Avro, and the schema that it names is not known.",
        "write with a shipped schema (schemas/avsc/task_command), or have the operator name yours in avro.schemas, or a registry in registry.url";
    IncompatibleSchema = "incompatible_schema",
        "The value is Avro, and the schema that it names cannot be that of a command.",
        "name the record TaskCommand, give its fields the types of schemas/avsc/task_command, and no recursion";
    UnknownField = "unknown_field",
        "A `duestream-*` header, a JSON key or an Avro field that is not null is not part of the contract, or only Duestream sets it.",
        "remove it or correct its spelling; names are lower case";
    RepeatedField = "repeated_field",
        "A `duestream-*` header or a JSON key stands more than once.",
        "send it once";
    InvalidField = "invalid_field",
        "A field has the wrong type, is null where it may not be, or is not UTF-8.",
        "send text in UTF-8, and in JSON a string, a whole number, or true or false where that is meant";
    InvalidHeader = "invalid_header",
        "The name of a header to deliver is empty, not UTF-8 or holds a NUL byte, or there are more than 99,900 headers.",
        "give each header a name of at least one character in UTF-8, and send at most 99,900";
    Unsupported = "unsupported",
        "A form, an operation or an option that this version does not carry out.",
        "leave it out, or wait for a version that has it";
    DueMissing = "due_missing",
        "Neither a due time nor a delay is given.",
        "give one of due-at and delay";
    DueAmbiguous = "due_ambiguous",
        "Both a due time and a delay are given.",
        "give one of due-at and delay";
    InvalidTime = "invalid_time",
        "A time is neither RFC 3339 nor epoch milliseconds.",
        "write it like 2026-01-31T09:00:00Z or 1769850000000";
    TimeWithoutZone = "time_without_zone",
        "A time has no offset from UTC, so it names no instant.",
        "append Z or an offset such as +02:00";
    TimeOutOfRange = "time_out_of_range",
        "A time lies outside the years 2001 to 2200, which can only be a mistake of unit.",
        "give epoch milliseconds, not seconds, microseconds or nanoseconds";
    LeapSecond = "leap_second",
        "A time lies in a leap second (23:59:60), which no epoch millisecond names.",
        "give the second before or the one after";
    InvalidDelay = "invalid_delay",
        "A delay is not a duration of fixed length with a unit, is negative, or is finer than a millisecond.",
        "write it like 90s, 15m, 1h30m, 2d or PT1H30M";
    ExpiresBeforeDue = "expires_before_due",
        "The task expires before it is due.",
        "set expires-at to the due time or later, or leave it out";
    TopicMissing = "topic_missing",
        "No callback topic is given.",
        "give the topic to deliver to";
    InvalidTopic = "invalid_topic",
        "The callback topic is no legal name of a Kafka topic.",
        "use 1 to 249 of the characters a-z A-Z 0-9 . _ - (not `.` or `..`)";
    TopicNotAllowed = "topic_not_allowed",
        "The callback topic is internal to Kafka or Duestream, or not on the allow-list.",
        "choose another topic, or have the operator allow it (callback.allow)";
    UnknownTopic = "unknown_topic",
        "The callback topic does not exist, or ingest may not see it.",
        "create it and let ingest describe it, or have the operator set callback.unknown_topic = accept";
    InvalidPartition = "invalid_partition",
        "The partition is not a whole number from 0 to 2147483647.",
        "give the number of a partition of the callback topic, or leave it out";
    UnknownPartition = "unknown_partition",
        "The callback topic has no such partition.",
        "give a partition that the topic has, or leave it out";
    InvalidId = "invalid_id",
        "A task id or shard key is not 1 to 255 bytes of UTF-8.",
        "shorten it, or leave it out";
    InvalidOption = "invalid_option",
        "An option has a value that it cannot have.",
        "use one of the values that the message names";
    InvalidCorrelation = "invalid_correlation",
        "A correlation is longer than 255 bytes.",
        "shorten it";
    ReplyMissing = "reply_missing",
        "A correlation is given, and it is not said whether a reply is wanted.",
        "set reply to true, or leave the correlation out";
    InvalidBase64 = "invalid_base64",
        "A `*_base64` field is not padded base64 of the standard alphabet.",
        "encode the bytes after RFC 4648 section 4";
    ValueAmbiguous = "value_ambiguous",
        "The same bytes are given twice: as text and as base64, or a key beside no-key.",
        "give one of the two";
    TooLarge = "too_large",
        "Key, value and headers together exceed the limit.",
        "store the payload elsewhere and schedule a reference to it, or have the operator raise limits.body";
    Conflict = "conflict",
        "A task with this identity exists with other content.",
        "choose another task id; resubmissions must be equal";
    TooOld = "too_old",
        "The command is older than the de-duplication window, so its duplicates may be forgotten.",
        "submit it again as a new record";
    RefusedByStore = "refused_by_store",
        "The database refused this row, and would refuse it again.",
        "report it with the record: validation should have caught it";
    Undecodable = "undecodable",
        "A compressed batch that cannot be unpacked: its bytes are broken, or what it holds is too large.",
        "send its records again, in smaller batches";
    ForeignRecord = "foreign_record",
        "A record on an internal topic (`due`, `journal`) that no program of Duestream wrote.",
        "find out who writes there, and take that right away";
    Dead = "dead",
        "The task that is to be changed was given up; it lies on `dead`.",
        "replay it with duectl dead replay, or submit a new task";
    NotDead = "not_dead",
        "The task that is to be replayed is not dead, or was replayed already.",
        "look at it with duectl get";
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Longest part of a producer's value that a message repeats, in characters.
const SHOWN_CHARS: usize = 60;
/// Longest part of a name that stands for a field.
const MAX_NAME_BYTES: usize = 255;

/// A command that is not accepted. Poison: the same bytes will be refused again (but for `unknown_topic`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// For programs.
    pub code: ReasonCode,
    /// Name of the offending field as the producer wrote it; `None`: the record as a whole.
    pub field: Option<String>,
    /// For people: field, value (shortened), broken rule, remedy.
    pub message: String,
}

impl Refusal {
    /// Refuses a value: `duestream-due-at "tomorrow" is not …; write it like …`.
    pub fn of_value(code: ReasonCode, field: &str, value: &[u8], problem: &str) -> Refusal {
        let message = format!("{field} {} {problem}; {}", shown(value), code.remedy());
        Refusal { code, field: Some(field.to_owned()), message }
    }

    /// Refuses a name that a field may not have: `the header "duestream-colour" is not …`. The field is that name, and
    /// where it is empty the record as a whole: a field of no name names none.
    pub fn of_name(code: ReasonCode, kind: &str, name: &[u8], problem: &str) -> Refusal {
        let message = format!("{kind} {} {problem}; {}", shown(name), code.remedy());
        let name = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME_BYTES)]);
        let field = (!name.is_empty()).then(|| name.into_owned());
        Refusal { code, field, message }
    }

    /// Refuses a field whatever its value.
    pub fn of_field(code: ReasonCode, field: &str, problem: &str) -> Refusal {
        let message = format!("{field} {problem}; {}", code.remedy());
        Refusal { code, field: Some(field.to_owned()), message }
    }

    /// Refuses the record as a whole.
    pub fn of_record(code: ReasonCode, problem: &str) -> Refusal {
        Refusal { code, field: None, message: format!("{problem}; {}", code.remedy()) }
    }
}

/// A value for a message: quoted, control characters escaped, cut to a bearable length.
pub(crate) fn shown(value: &[u8]) -> String {
    // A character has at most four bytes, so this prefix holds all that is shown.
    let prefix = String::from_utf8_lossy(&value[..value.len().min(4 * SHOWN_CHARS + 4)]);
    let text: String = prefix.chars().take(SHOWN_CHARS).collect();
    let cut = value.len() > text.len() && text.chars().count() == SHOWN_CHARS;
    if cut { format!("{text:?}… ({} bytes)", value.len()) } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_or_hostile_value_is_shown_short_and_escaped() {
        assert_eq!(shown(b"tomorrow"), r#""tomorrow""#);
        assert_eq!(shown(b"a\0\n\xff"), "\"a\\0\\n\u{fffd}\"");
        let long = shown("ä".repeat(1000).as_bytes());
        assert_eq!(long, format!("\"{}\"… (2000 bytes)", "ä".repeat(60)));
    }

    #[test]
    fn codes_are_distinct_and_in_snake_case() {
        let mut codes: Vec<_> = ReasonCode::ALL.iter().map(|code| code.as_str()).collect();
        assert!(
            codes
                .iter()
                .all(|code| code.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()))
        );
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ReasonCode::ALL.len());
    }
}
