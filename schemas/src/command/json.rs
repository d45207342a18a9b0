//! The form *JSON*: one object with the fields, the payload as `value` (text) or `value_base64`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

use super::RecordView;
use super::field::{Field, Form, Submitted, is_reserved, user_header};
use super::reason::{ReasonCode, Refusal, shown};

const VALUE: &str = "value";
const VALUE_BASE64: &str = "value_base64";
const KEY_BASE64: &str = "key_base64";
const HEADERS: &str = "headers";

/// Reads a record whose value begins with `{` and that has no `duestream-*` header.
pub(super) fn read<'a>(record: &RecordView<'a>, value: &'a [u8]) -> Submitted<'a> {
    let mut submitted = Submitted::new(Form::Json);
    let pairs = match serde_json::from_slice(value) {
        Ok(Json::Object(pairs)) => pairs,
        Ok(_) => {
            submitted.refuse(Refusal::of_record(ReasonCode::InvalidJson, "the value is no JSON object"));
            return submitted;
        }
        Err(error) => {
            let problem = format!("the value is broken JSON: {error}");
            submitted.refuse(Refusal::of_record(ReasonCode::InvalidJson, &problem));
            return submitted;
        }
    };
    for header in record.headers {
        submitted.push_header(user_header(header.name, header.value));
    }
    // Beside the fields of all forms, the ones that only JSON needs.
    let mut extra = Extra::default();
    for (key, value) in pairs {
        if let Err(refusal) = take(&mut submitted, &mut extra, &key, value) {
            submitted.refuse(refusal);
        }
    }
    if let Err(refusal) = finish(&mut submitted, extra, record.key) {
        submitted.refuse(refusal);
    }
    submitted
}

/// Takes one member of the object.
fn take<'a>(
    submitted: &mut Submitted<'a>,
    extra: &mut Extra<'a>,
    key: &str,
    value: Json<'a>,
) -> Result<(), Refusal> {
    match key {
        VALUE => once(VALUE, &mut extra.value, value),
        VALUE_BASE64 => once(VALUE_BASE64, &mut extra.value_base64, value),
        KEY_BASE64 => once(KEY_BASE64, &mut extra.key_base64, value),
        HEADERS => once(HEADERS, &mut extra.headers, value),
        name => {
            let Some(&field) = Field::ALL.iter().find(|field| field.json() == name) else {
                if submitted.is_refused() {
                    return Ok(());
                }
                let problem = "is not one that a command may have";
                let code = ReasonCode::UnknownField;
                return Err(Refusal::of_name(code, "the JSON key", name.as_bytes(), problem));
            };
            // A seen null still counts as the one time that the key may stand.
            once(field.json(), &mut extra.seen[field as usize], Json::Null)?;
            if let Some(text) = scalar(field, value)? {
                submitted.set(field, into_bytes(text));
            }
            Ok(())
        }
    }
}

/// Key, value and headers, which may be said in more than one way.
fn finish<'a>(
    submitted: &mut Submitted<'a>,
    extra: Extra<'a>,
    record_key: Option<&'a [u8]>,
) -> Result<(), Refusal> {
    let key = submitted.bytes(Field::Key).map(|text| Cow::Owned(text.to_vec()));
    let key = bytes("key", key, KEY_BASE64, extra.key_base64)?;
    submitted.key_given = key.is_some();
    submitted.key = key.or(record_key.map(Cow::Borrowed));
    let text = match extra.value {
        Some(value) => text(VALUE, value)?.map(into_bytes),
        None => None,
    };
    submitted.value = bytes(VALUE, text, VALUE_BASE64, extra.value_base64)?;
    match extra.headers {
        Some(headers) => add_headers(submitted, headers),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Extra<'a> {
    value: Option<Json<'a>>,
    value_base64: Option<Json<'a>>,
    key_base64: Option<Json<'a>>,
    headers: Option<Json<'a>>,
    seen: [Option<Json<'a>>; Field::ALL.len()],
}

fn once<'a>(name: &str, place: &mut Option<Json<'a>>, value: Json<'a>) -> Result<(), Refusal> {
    if place.is_some() {
        return Err(Refusal::of_field(ReasonCode::RepeatedField, name, "stands more than once"));
    }
    *place = Some(value);
    Ok(())
}

/// A string or whole number, or a boolean where one is meant, as text; null counts as not given.
fn scalar<'a>(field: Field, value: Json<'a>) -> Result<Option<Cow<'a, str>>, Refusal> {
    match value {
        Json::Number(text) if !field.is_switch() => Ok(Some(Cow::Owned(text))),
        Json::Boolean(switch) if field.is_switch() => {
            Ok(Some(Cow::Borrowed(if switch { "true" } else { "false" })))
        }
        other => text(field.json(), other),
    }
}

/// A string; null counts as not given.
fn text<'a>(name: &str, value: Json<'a>) -> Result<Option<Cow<'a, str>>, Refusal> {
    let kind = match value {
        Json::Null => return Ok(None),
        Json::Text(text) => return Ok(Some(text)),
        Json::Number(_) => "a number",
        Json::Boolean(_) => "a boolean",
        Json::Object(_) => "an object",
        Json::Other(kind) => kind,
    };
    Err(Refusal::of_field(ReasonCode::InvalidField, name, &format!("is {kind}")))
}

/// Bytes that may be given as text or as base64.
fn bytes<'a>(
    plain_name: &str,
    plain: Option<Cow<'a, [u8]>>,
    base64_name: &str,
    base64: Option<Json<'_>>,
) -> Result<Option<Cow<'a, [u8]>>, Refusal> {
    let Some(base64) = base64.map(|value| text(base64_name, value)).transpose()?.flatten() else {
        return Ok(plain);
    };
    if plain.is_some() {
        let problem = format!("stands beside {plain_name}");
        return Err(Refusal::of_field(ReasonCode::ValueAmbiguous, base64_name, &problem));
    }
    match BASE64.decode(base64.as_bytes()) {
        Ok(bytes) => Ok(Some(Cow::Owned(bytes))),
        Err(error) => {
            let problem = format!("is broken base64 ({error})");
            Err(Refusal::of_value(ReasonCode::InvalidBase64, base64_name, base64.as_bytes(), &problem))
        }
    }
}

fn add_headers(submitted: &mut Submitted<'_>, headers: Json<'_>) -> Result<(), Refusal> {
    let pairs = match headers {
        Json::Null => return Ok(()),
        Json::Object(pairs) => pairs,
        _ => {
            let problem = "is no object of header names and texts";
            return Err(Refusal::of_field(ReasonCode::InvalidField, HEADERS, problem));
        }
    };
    for (name, value) in pairs {
        if is_reserved(name.as_bytes()) {
            let problem = "is reserved for Duestream";
            return Err(Refusal::of_value(ReasonCode::UnknownField, HEADERS, name.as_bytes(), problem));
        }
        let value = text(&format!("{HEADERS} {}", shown(name.as_bytes())), value)?;
        submitted.push_header(user_header(name.as_bytes(), value.as_deref().map(str::as_bytes)));
    }
    Ok(())
}

fn into_bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// As much of JSON as a command can hold. Unlike `serde_json::Value` it keeps repeated keys, so that they are noticed.
enum Json<'a> {
    Null,
    Text(Cow<'a, str>),
    /// A whole number, in decimal.
    Number(String),
    Boolean(bool),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
    /// What no field can be.
    Other(&'static str),
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor).map(|json: Json<'de>| json)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E: Error>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_i64<E: Error>(self, number: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.to_string()))
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.to_string()))
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<Json<'de>, E> {
        Ok(Json::Other("a number with a fraction, an exponent or more than 64 bits"))
    }
    fn visit_bool<E: Error>(self, switch: bool) -> Result<Json<'de>, E> {
        Ok(Json::Boolean(switch))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Json::Other("an array"))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Key<'de>, Json<'de>>()? {
            pairs.push((key.0, value));
        }
        Ok(Json::Object(pairs))
    }
}

/// An object's key, borrowed where it can be (`Cow` alone always copies).
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_str(JsonVisitor)? {
            Json::Text(text) => Ok(Key(text)),
            _ => Err(D::Error::custom("a key must be text")),
        }
    }
}
