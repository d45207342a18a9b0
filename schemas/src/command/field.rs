//! The fields of a command, whatever the form, and what a form found of them.

use std::borrow::Cow;

use super::reason::{ReasonCode, Refusal};
use crate::record::Header;

/// What the names of all headers of the contract begin with.
pub const HEADER_PREFIX: &str = "duestream-";

macro_rules! fields {
    ($($variant:ident = $suffix:literal / $json:literal, $built:literal;)*) => {
        /// A field that a command may have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Field { $($variant,)* }

        impl Field {
            pub(super) const ALL: &[Field] = &[$(Field::$variant,)*];

            /// Name of its header.
            pub(super) fn header(self) -> &'static str {
                match self { $(Field::$variant => concat!("duestream-", $suffix),)* }
            }

            /// Name of its JSON key.
            pub(super) fn json(self) -> &'static str {
                match self { $(Field::$variant => $json,)* }
            }

            /// Whether this version carries it out; what it does not is refused.
            pub(super) fn is_built(self) -> bool {
                match self { $(Field::$variant => $built,)* }
            }
        }
    };
}

fields! {
    Op = "op" / "op", true;
    DueAt = "due-at" / "due_at", true;
    Delay = "delay" / "delay", true;
    Topic = "topic" / "topic", true;
    TaskId = "task-id" / "task_id", true;
    ShardKey = "shard-key" / "shard_key", true;
    Key = "key" / "key", true;
    NoKey = "no-key" / "no_key", true;
    Partition = "partition" / "partition", true;
    ExpiresAt = "expires-at" / "expires_at", true;
    Completion = "completion" / "completion", true;
    MaxAttempts = "max-attempts" / "max_attempts", false;
    Backoff = "backoff" / "backoff", false;
    AckTimeout = "ack-timeout" / "ack_timeout", false;
    MaxStalls = "max-stalls" / "max_stalls", false;
    Spread = "spread" / "spread", false;
    Window = "window" / "window", false;
    Reply = "reply" / "reply", true;
    Correlation = "correlation" / "correlation", true;
}

impl Field {
    /// Whether it is true or false.
    pub(super) fn is_switch(self) -> bool {
        matches!(self, Field::NoKey | Field::Reply)
    }

    /// Whether it is an instant.
    pub(super) fn is_time(self) -> bool {
        matches!(self, Field::DueAt | Field::ExpiresAt)
    }
}

/// The form in which a command came: how its fields are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Headers,
    Json,
    Avro,
}

/// What a form found, not yet judged. A form goes on after its first fault: the reply needs what comes later.
pub(super) struct Submitted<'a> {
    pub(super) form: Form,
    fields: [Option<Cow<'a, [u8]>>; Field::ALL.len()],
    /// Callback key.
    pub(super) key: Option<Cow<'a, [u8]>>,
    /// Whether the command says what the callback key is.
    pub(super) key_given: bool,
    /// Headers that travel on.
    pub(super) headers: Vec<Header>,
    /// Payload.
    pub(super) value: Option<Cow<'a, [u8]>>,
    fault: Option<Refusal>,
}

impl<'a> Submitted<'a> {
    pub(super) fn new(form: Form) -> Submitted<'a> {
        Submitted {
            form,
            fields: Default::default(),
            key: None,
            key_given: false,
            headers: Vec::new(),
            value: None,
            fault: None,
        }
    }

    /// Notes a fault; the first one counts.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        self.fault.get_or_insert(refusal);
    }

    /// Whether a fault was found: a further one need not be put into words.
    pub(super) fn is_refused(&self) -> bool {
        self.fault.is_some()
    }

    /// The first fault that the form found.
    pub(super) fn fault(&mut self) -> Option<Refusal> {
        self.fault.take()
    }

    /// Takes a header that travels on, or the fault in it.
    pub(super) fn push_header(&mut self, header: Result<Header, Refusal>) {
        match header {
            Ok(header) => self.headers.push(header),
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// Name of a field as the producer wrote it.
    pub(super) fn name(&self, field: Field) -> &'static str {
        match self.form {
            Form::Headers => field.header(),
            Form::Json | Form::Avro => field.json(),
        }
    }

    /// Takes a field, once.
    pub(super) fn set(&mut self, field: Field, value: Cow<'a, [u8]>) {
        let name = self.name(field);
        let place = &mut self.fields[field as usize];
        if place.is_some() {
            self.refuse(Refusal::of_field(ReasonCode::RepeatedField, name, "stands more than once"));
        } else {
            *place = Some(value);
        }
    }

    /// The bytes of a field.
    pub(super) fn bytes(&self, field: Field) -> Option<&[u8]> {
        self.fields[field as usize].as_deref()
    }

    /// The text of a field.
    pub(super) fn text(&self, field: Field) -> Result<Option<&str>, Refusal> {
        let Some(bytes) = self.bytes(field) else { return Ok(None) };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => {
                Err(Refusal::of_value(ReasonCode::InvalidField, self.name(field), bytes, "is not UTF-8"))
            }
        }
    }
}

/// A header that is to travel on to the callback record.
pub(super) fn user_header(name: &[u8], value: Option<&[u8]>) -> Result<Header, Refusal> {
    let refuse =
        |problem| Err(Refusal::of_value(ReasonCode::InvalidHeader, "the header name", name, problem));
    match std::str::from_utf8(name) {
        Err(_) => refuse("is not UTF-8"),
        Ok("") => refuse("is empty"),
        Ok(text) if text.contains('\0') => refuse("holds a NUL byte"),
        Ok(text) => Ok(Header { name: text.to_owned(), value: value.map(<[u8]>::to_vec) }),
    }
}

/// Whether a header belongs to the contract's name space, however it is cased: such headers are never forwarded.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    name.get(..HEADER_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(HEADER_PREFIX.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_a_field_alike() {
        for field in Field::ALL {
            let suffix = field.header().strip_prefix(HEADER_PREFIX).unwrap();
            assert_eq!(suffix.replace('-', "_"), field.json());
        }
    }

    #[test]
    fn a_reserved_header_is_known_in_any_case() {
        assert!(
            is_reserved(b"duestream-topic") && is_reserved(b"DueStream-x") && is_reserved(b"duestream-\xff")
        );
        assert!(!is_reserved(b"duestream") && !is_reserved(b"x-duestream-topic") && !is_reserved(b""));
    }
}
