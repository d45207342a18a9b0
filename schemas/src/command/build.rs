//! From what a form found to a command: every rule that needs no look at the world.

use std::borrow::Cow;

use super::asked::{self, Asked};
use super::field::{Field, Submitted};
use super::hash::{self, AskedDue};
use super::reason::{ReasonCode, Refusal};
use super::rules::{MAX_HEADERS, MAX_ID_BYTES, Rules};
use super::time::{after, parse_delay, parse_time, rfc3339};
use super::{Command, body_bytes};
use crate::due::Completion;
use crate::row::{RowBody, RowOptions};

pub(super) fn build(
    mut submitted: Submitted<'_>,
    reply: Option<Asked>,
    rules: &Rules,
    timestamp_at: i64,
) -> Result<Command, Refusal> {
    if let Some(fault) = submitted.fault() {
        return Err(fault);
    }
    check_built(&submitted)?;
    let (asked, due_at) = due(&submitted, timestamp_at)?;
    let name = submitted.name(Field::Topic);
    let Some(callback_topic) = submitted.text(Field::Topic)?.map(str::to_owned) else {
        return Err(Refusal::of_field(ReasonCode::TopicMissing, name, "is missing"));
    };
    rules.check_topic(name, &callback_topic)?;
    let task_id = id(&submitted, Field::TaskId)?;
    let shard_key = id(&submitted, Field::ShardKey)?;
    asked::check(&submitted)?;
    if switch(&submitted, Field::NoKey)? == Some(true) {
        if submitted.key_given {
            let problem = format!("stands beside {}", submitted.name(Field::Key));
            let name = submitted.name(Field::NoKey);
            return Err(Refusal::of_field(ReasonCode::ValueAmbiguous, name, &problem));
        }
        submitted.key = None;
    }
    let options = RowOptions {
        partition: partition(&submitted)?,
        expires_at: expires_at(&submitted, due_at)?,
        asked_at: None,
        completion: Completion::OnDelivery,
        ..RowOptions::default()
    };
    let body = RowBody {
        key: submitted.key.map(Cow::into_owned),
        headers: submitted.headers,
        value: submitted.value.map(Cow::into_owned),
    };
    if body.headers.len() > MAX_HEADERS {
        let problem = format!("the command has {} headers to deliver", body.headers.len());
        return Err(Refusal::of_record(ReasonCode::InvalidHeader, &problem));
    }
    let size = body_bytes(&body);
    if size > rules.max_body_bytes {
        let limit = rules.max_body_bytes;
        let problem = format!("key, value and headers are {size} bytes, more than the limit of {limit}");
        return Err(Refusal::of_record(ReasonCode::TooLarge, &problem));
    }
    let content_hash = hash::content(asked, &callback_topic, &body, &options);
    Ok(Command { due_at, task_id, shard_key, callback_topic, body, options, content_hash, reply })
}

/// Refuses what this version does not carry out, before anything else: the other fields may mean something else there.
fn check_built(submitted: &Submitted<'_>) -> Result<(), Refusal> {
    let not_yet = |field, text: &str| {
        let problem = "is not carried out by this version";
        Err(Refusal::of_value(ReasonCode::Unsupported, submitted.name(field), text.as_bytes(), problem))
    };
    let invalid = |field, text: &str, problem| {
        Err(Refusal::of_value(ReasonCode::InvalidOption, submitted.name(field), text.as_bytes(), problem))
    };
    match submitted.text(Field::Op)? {
        None | Some("schedule") => {}
        Some(op @ ("reschedule" | "cancel")) => return not_yet(Field::Op, op),
        Some(op) => return invalid(Field::Op, op, "is none of schedule, reschedule, cancel"),
    }
    match submitted.text(Field::Completion)? {
        None | Some("on_delivery") => {}
        Some(completion @ "on_ack") => return not_yet(Field::Completion, completion),
        Some(completion) => return invalid(Field::Completion, completion, "is none of on_delivery, on_ack"),
    }
    for &field in Field::ALL.iter().filter(|field| !field.is_built()) {
        if let Some(text) = submitted.text(field)? {
            return not_yet(field, text);
        }
    }
    Ok(())
}

fn due(submitted: &Submitted<'_>, timestamp_at: i64) -> Result<(AskedDue, i64), Refusal> {
    let (at_name, delay_name) = (submitted.name(Field::DueAt), submitted.name(Field::Delay));
    match (submitted.text(Field::DueAt)?, submitted.text(Field::Delay)?) {
        (None, None) => {
            let problem = format!("and {delay_name} are both missing");
            Err(Refusal::of_field(ReasonCode::DueMissing, at_name, &problem))
        }
        (Some(_), Some(_)) => {
            let problem = format!("and {delay_name} are both given");
            Err(Refusal::of_field(ReasonCode::DueAmbiguous, at_name, &problem))
        }
        (Some(text), None) => {
            let due_at = parse_time(at_name, text)?;
            Ok((AskedDue::At(due_at), due_at))
        }
        (None, Some(text)) => {
            let delay_ms = parse_delay(delay_name, text)?;
            Ok((AskedDue::After(delay_ms), after(delay_name, text, timestamp_at, delay_ms)?))
        }
    }
}

/// True or false.
pub(super) fn switch(submitted: &Submitted<'_>, field: Field) -> Result<Option<bool>, Refusal> {
    match submitted.text(field)? {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(text) => {
            let (code, name) = (ReasonCode::InvalidOption, submitted.name(field));
            Err(Refusal::of_value(code, name, text.as_bytes(), "is neither true nor false"))
        }
    }
}

fn id(submitted: &Submitted<'_>, field: Field) -> Result<Option<String>, Refusal> {
    let Some(bytes) = submitted.bytes(field) else { return Ok(None) };
    let refuse =
        |problem| Err(Refusal::of_value(ReasonCode::InvalidId, submitted.name(field), bytes, problem));
    match std::str::from_utf8(bytes) {
        Err(_) => refuse("is not UTF-8"),
        Ok("") => refuse("is empty"),
        Ok(id) if id.len() > MAX_ID_BYTES => refuse("is longer than 255 bytes"),
        Ok(id) => Ok(Some(id.to_owned())),
    }
}

fn partition(submitted: &Submitted<'_>) -> Result<Option<i32>, Refusal> {
    let Some(text) = submitted.text(Field::Partition)? else { return Ok(None) };
    match text.parse() {
        Ok(partition) if partition >= 0 => Ok(Some(partition)),
        _ => {
            let (code, name) = (ReasonCode::InvalidPartition, submitted.name(Field::Partition));
            Err(Refusal::of_value(code, name, text.as_bytes(), "is no whole number from 0 to 2147483647"))
        }
    }
}

fn expires_at(submitted: &Submitted<'_>, due_at: i64) -> Result<Option<i64>, Refusal> {
    let name = submitted.name(Field::ExpiresAt);
    let Some(text) = submitted.text(Field::ExpiresAt)? else { return Ok(None) };
    let expires_at = parse_time(name, text)?;
    if expires_at < due_at {
        let problem = format!("lies before the due time {}", rfc3339(due_at));
        return Err(Refusal::of_value(ReasonCode::ExpiresBeforeDue, name, text.as_bytes(), &problem));
    }
    Ok(Some(expires_at))
}
