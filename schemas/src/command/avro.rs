//! The form *Avro*: a `TaskCommand`, as single-object encoding or in Confluent framing.
//!
//! ```text
//! C3 01 fingerprint(8, LE) datum ─┐
//!                                 ├─▶ writer's schema ─▶ fields by name ─▶ Submitted
//! 00 schema id(4, BE)      datum ─┘
//! ```
//!
//! What was written is resolved to the fields of this version by name, as Avro does, with one difference: a field that
//! this version does not know must be null. Avro would ignore it, and with it what the producer asked for.

mod datum;
mod shape;
mod writer;

pub use writer::{KnownSchemas, Lookup, SchemaFault, WriterSchema, WriterSchemas};

use std::borrow::Cow;
use std::sync::Arc;

use self::datum::{Broken, Datum, Found};
use self::shape::Shape;
use self::writer::{Target, WriterField};
use super::field::{Field, Form, Submitted, is_reserved, user_header};
use super::reason::{ReasonCode, Refusal, shown};
use super::{ParseError, RecordView};
use crate::avro::SINGLE_OBJECT_MARK;

/// First byte of Confluent's framing.
pub(super) const FRAME_MARK: u8 = 0;
const VALUE: &str = "value";
const HEADERS: &str = "headers";

/// Reads a record whose value begins as Avro does and that has no `duestream-*` header.
pub(super) fn read<'a>(
    record: &RecordView<'a>,
    value: &'a [u8],
    schemas: &dyn WriterSchemas,
) -> Result<Submitted<'a>, ParseError> {
    let (schema, datum) = writer(value, schemas)?;
    let mut submitted = Submitted::new(Form::Avro);
    for header in record.headers {
        submitted.push_header(user_header(header.name, header.value));
    }
    let mut datum = Datum::new(datum);
    for field in &schema.fields {
        if let Err(Broken(problem)) = read_field(&mut submitted, field, &mut datum) {
            let problem = format!("the Avro value {problem}, in field {}", shown(field.name.as_bytes()));
            submitted.refuse(Refusal::of_record(ReasonCode::InvalidAvro, &problem));
            return Ok(submitted);
        }
    }
    if datum.left() > 0 {
        let problem = format!("the Avro value has {} bytes after the end of its record", datum.left());
        submitted.refuse(Refusal::of_record(ReasonCode::InvalidAvro, &problem));
    }
    submitted.key = submitted.key.take().or(record.key.map(Cow::Borrowed));
    Ok(submitted)
}

/// The writer's schema, and the bytes that follow the name of it.
fn writer<'a>(
    value: &'a [u8],
    schemas: &dyn WriterSchemas,
) -> Result<(Arc<WriterSchema>, &'a [u8]), ParseError> {
    let unknown = |problem: &str| Err(Refusal::of_record(ReasonCode::UnknownSchema, problem).into());
    let short =
        || Refusal::of_record(ReasonCode::InvalidAvro, "the Avro value ends before its schema is named");
    if let Some(rest) = value.strip_prefix(&SINGLE_OBJECT_MARK) {
        let (fingerprint, datum) = rest.split_first_chunk().ok_or_else(short)?;
        let fingerprint = u64::from_le_bytes(*fingerprint);
        return match schemas.by_fingerprint(fingerprint) {
            Some(schema) => Ok((schema, datum)),
            None => unknown(&format!("no schema with the fingerprint {fingerprint:016x} is known")),
        };
    }
    let rest = value.strip_prefix(&[FRAME_MARK]).unwrap_or_default();
    let (id, datum) = rest.split_first_chunk().ok_or_else(short)?;
    let id = u32::from_be_bytes(*id);
    match schemas.by_id(id) {
        Lookup::Known(schema) => Ok((schema, datum)),
        Lookup::Unfetched => Err(ParseError::NeedsSchema(id)),
        Lookup::Missing => unknown(&format!("the schema registry has no schema {id}")),
        Lookup::NoRegistry => {
            unknown(&format!("the value is framed with schema id {id}, and no schema registry is configured"))
        }
        Lookup::Unusable(fault) => {
            let problem = format!("schema {id} of the registry is none of a command: {fault}");
            Err(Refusal::of_record(ReasonCode::IncompatibleSchema, &problem).into())
        }
    }
}

fn read_field<'a>(
    submitted: &mut Submitted<'a>,
    field: &WriterField,
    datum: &mut Datum<'a>,
) -> Result<(), Broken> {
    if field.target == Target::Headers {
        return read_headers(submitted, &field.shape, datum);
    }
    let found = datum.scalar(&field.shape)?;
    if found == Found::Null {
        return Ok(());
    }
    match field.target {
        Target::Unknown => {
            let problem = "is not one that a command may have";
            let (code, name) = (ReasonCode::UnknownField, field.name.as_bytes());
            submitted.refuse(Refusal::of_name(code, "the Avro field", name, problem));
        }
        Target::Value => match into_bytes(VALUE, &found) {
            Ok(bytes) => submitted.value = Some(Cow::Borrowed(bytes)),
            Err(refusal) => submitted.refuse(refusal),
        },
        Target::Field(Field::Key) => match into_bytes(Field::Key.json(), &found) {
            Ok(bytes) => {
                submitted.key = Some(Cow::Borrowed(bytes));
                submitted.key_given = true;
            }
            Err(refusal) => submitted.refuse(refusal),
        },
        Target::Field(field) => match into_scalar(field, found) {
            Ok(text) => submitted.set(field, text),
            Err(refusal) => submitted.refuse(refusal),
        },
        Target::Headers => {}
    }
    Ok(())
}

/// The bytes of a scalar as the headers form would have them; numbers in decimal.
fn into_scalar<'a>(field: Field, found: Found<'a>) -> Result<Cow<'a, [u8]>, Refusal> {
    let invalid = |problem: &str| Err(Refusal::of_field(ReasonCode::InvalidField, field.json(), problem));
    let number = |number: i64| Ok(Cow::Owned(number.to_string().into_bytes()));
    match found {
        Found::Text(bytes) | Found::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
        Found::Symbol(symbol) => Ok(Cow::Owned(symbol.into_bytes())),
        Found::Boolean(switch) if field.is_switch() => Ok(Cow::Owned(switch.to_string().into_bytes())),
        Found::Number(value) if !field.is_switch() => number(value),
        Found::Instant(at) if field.is_time() => number(at),
        Found::Local if field.is_time() => {
            let problem = "is a local timestamp, which has no offset from UTC";
            Err(Refusal::of_field(ReasonCode::TimeWithoutZone, field.json(), problem))
        }
        Found::Boolean(_) => invalid("is a boolean"),
        Found::Number(_) => invalid("is a number"),
        Found::Instant(_) | Found::Local => invalid("is a timestamp"),
        Found::Other(kind) => invalid(&format!("is {kind}")),
        Found::Null => invalid("is null"),
    }
}

fn into_bytes<'a>(name: &str, found: &Found<'a>) -> Result<&'a [u8], Refusal> {
    let kind = match found {
        Found::Bytes(bytes) => return Ok(bytes),
        Found::Text(bytes) if std::str::from_utf8(bytes).is_ok() => return Ok(bytes),
        Found::Text(_) => "a string that is not UTF-8",
        Found::Null => "null",
        Found::Boolean(_) => "a boolean",
        Found::Number(_) => "a number",
        Found::Symbol(_) => "an enum",
        Found::Instant(_) | Found::Local => "a timestamp",
        Found::Other(kind) => kind,
    };
    Err(Refusal::of_field(ReasonCode::InvalidField, name, &format!("is {kind}")))
}

/// Headers to deliver: an array of records with `name` and `value`, or a map.
fn read_headers<'a>(
    submitted: &mut Submitted<'a>,
    shape: &Shape,
    datum: &mut Datum<'a>,
) -> Result<(), Broken> {
    match shape {
        Shape::Union(branches) => {
            let branch = datum.branch(branches)?;
            read_headers(submitted, branch, datum)
        }
        Shape::Map(values) => datum.items(|datum| {
            let name = datum.bytes()?;
            let value = datum.scalar(values)?;
            add_header(submitted, Found::Text(name), value);
            Ok(())
        }),
        Shape::Array(items) => datum.items(|datum| {
            let Shape::Record(fields) = items.as_ref() else { return datum.scalar(items).map(|_| ()) };
            let (mut name, mut value) = (Found::Null, Found::Null);
            for (field, shape) in fields {
                match (field.as_str(), datum.scalar(shape)?) {
                    ("name", found) => name = found,
                    ("value", found) => value = found,
                    (_, Found::Null) => {}
                    (field, _) => {
                        let problem = "is not one that a header may have";
                        let (code, field) = (ReasonCode::UnknownField, field.as_bytes());
                        submitted.refuse(Refusal::of_name(code, "headers: the Avro field", field, problem));
                    }
                }
            }
            add_header(submitted, name, value);
            Ok(())
        }),
        shape => {
            let found = datum.scalar(shape)?;
            if found != Found::Null {
                let problem = "is neither an array nor a map of headers";
                submitted.refuse(Refusal::of_field(ReasonCode::InvalidField, HEADERS, problem));
            }
            Ok(())
        }
    }
}

fn add_header<'a>(submitted: &mut Submitted<'a>, name: Found<'a>, value: Found<'a>) {
    let symbol;
    let name = match name {
        Found::Text(name) | Found::Bytes(name) => name,
        Found::Symbol(text) => {
            symbol = text;
            symbol.as_bytes()
        }
        _ => {
            let problem = "has a header whose name is no text";
            submitted.refuse(Refusal::of_field(ReasonCode::InvalidField, HEADERS, problem));
            return;
        }
    };
    if is_reserved(name) {
        let problem = "is reserved for Duestream";
        submitted.refuse(Refusal::of_value(ReasonCode::UnknownField, HEADERS, name, problem));
        return;
    }
    let value = match value {
        Found::Null => Ok(None),
        found => into_bytes(&format!("{HEADERS} {}", shown(name)), &found).map(Some),
    };
    submitted.push_header(value.and_then(|value| user_header(name, value)));
}
