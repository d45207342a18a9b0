//! The form *headers*: the value is the payload, the key the callback key, headers say the rest.

use std::borrow::Cow;

use super::RecordView;
use super::field::{Field, Form, Submitted, is_reserved, user_header};
use super::reason::{ReasonCode, Refusal};

/// Reads a record that has at least one `duestream-*` header.
pub(super) fn read<'a>(record: &RecordView<'a>) -> Submitted<'a> {
    let mut submitted = Submitted::new(Form::Headers);
    let mut key_header = None;
    for header in record.headers {
        if !is_reserved(header.name) {
            submitted.push_header(user_header(header.name, header.value));
            continue;
        }
        let Some(&field) = Field::ALL.iter().find(|field| field.header().as_bytes() == header.name) else {
            if submitted.is_refused() {
                continue;
            }
            let problem = "is not one that a command may have";
            let code = ReasonCode::UnknownField;
            submitted.refuse(Refusal::of_name(code, "the header", header.name, problem));
            continue;
        };
        match header.value {
            Some(value) => submitted.set(field, Cow::Borrowed(value)),
            // The one field that may be null: the callback key, when the command itself needs one.
            None if field == Field::Key => submitted.set(field, Cow::Borrowed(b"")),
            None => {
                let problem = "is null";
                submitted.refuse(Refusal::of_field(ReasonCode::InvalidField, field.header(), problem));
            }
        }
        if field == Field::Key {
            key_header = Some(header.value);
        }
    }
    submitted.key_given = key_header.is_some();
    submitted.key = key_header.unwrap_or(record.key).map(Cow::Borrowed);
    submitted.value = record.value.map(Cow::Borrowed);
    submitted
}
