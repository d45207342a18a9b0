//! From what a form found to a command: every rule that needs no look at the world.

use std::borrow::Cow;

use super::asked::{self, Asked};
use super::field::{Field, Submitted};
use super::hash::{self, AskedDue, Place};
use super::reason::{ReasonCode, Refusal};
use super::rules::{MAX_HEADERS, MAX_ID_BYTES, Rules};
use super::time::{after, parse_delay, parse_time, rfc3339};
use super::{Command, Schedule, body_bytes, change, options, replay};
use crate::row::{RowBody, RowOptions};

/// What a command may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Schedule,
    Reschedule,
    Cancel,
    Replay,
}

pub(super) fn build(
    mut submitted: Submitted<'_>,
    reply: Option<Asked>,
    rules: &Rules,
    timestamp_at: i64,
) -> Result<Command, Refusal> {
    if let Some(fault) = submitted.fault() {
        return Err(fault);
    }
    // First of all: the other fields mean something else with another.
    let op = op(&submitted)?;
    if op != Op::Replay
        && let Some(name) = submitted.letter_header()
    {
        let problem = "is not one that a command may have";
        return Err(Refusal::of_name(ReasonCode::UnknownField, "the header", name.as_bytes(), problem));
    }
    match op {
        Op::Schedule => {
            schedule(submitted, reply, rules, timestamp_at).map(|it| Command::Schedule(Box::new(it)))
        }
        Op::Reschedule => {
            change::reschedule(&submitted, reply, timestamp_at).map(|it| Command::Change(Box::new(it)))
        }
        Op::Cancel => change::cancel(&submitted, reply).map(|it| Command::Change(Box::new(it))),
        Op::Replay => replay::replay(submitted, reply, rules).map(|it| Command::Replay(Box::new(it))),
    }
}

fn op(submitted: &Submitted<'_>) -> Result<Op, Refusal> {
    match submitted.text(Field::Op)? {
        None | Some("schedule") => Ok(Op::Schedule),
        Some("reschedule") => Ok(Op::Reschedule),
        Some("cancel") => Ok(Op::Cancel),
        Some("replay") => Ok(Op::Replay),
        Some(op) => {
            let problem = "is none of schedule, reschedule, cancel, replay";
            let (code, name) = (ReasonCode::InvalidOption, submitted.name(Field::Op));
            Err(Refusal::of_value(code, name, op.as_bytes(), problem))
        }
    }
}

fn schedule(
    mut submitted: Submitted<'_>,
    reply: Option<Asked>,
    rules: &Rules,
    timestamp_at: i64,
) -> Result<Schedule, Refusal> {
    let (asked, due_at) = due(&submitted, timestamp_at)?;
    let callback_topic = topic(&submitted, rules)?;
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
    let place =
        Place { partition: partition(&submitted)?, expires_at: expires_at(&submitted, Some(due_at))? };
    let given = options::given(&submitted)?;
    let all = options::complete(&submitted, &given, rules.defaults_of(&callback_topic))?;
    let mut options =
        RowOptions { partition: place.partition, expires_at: place.expires_at, ..RowOptions::default() };
    all.put_into(&mut options);
    let body = body(submitted, rules)?;
    let content_hash = hash::content(asked, &callback_topic, &body, &place, &given);
    let (spread, window) = (all.spread, all.window);
    Ok(Schedule {
        due_at,
        task_id,
        shard_key,
        callback_topic,
        body,
        options,
        spread,
        window,
        content_hash,
        reply,
    })
}

/// The callback topic, which must be there and allowed.
pub(super) fn topic(submitted: &Submitted<'_>, rules: &Rules) -> Result<String, Refusal> {
    let name = submitted.name(Field::Topic);
    let Some(topic) = submitted.text(Field::Topic)? else {
        return Err(Refusal::of_field(ReasonCode::TopicMissing, name, "is missing"));
    };
    rules.check_topic(name, topic)?;
    Ok(topic.to_owned())
}

/// What is to be delivered, within its limits.
pub(super) fn body(submitted: Submitted<'_>, rules: &Rules) -> Result<RowBody, Refusal> {
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
    Ok(body)
}

/// When it is due, as it was asked and as an instant.
pub(super) fn due(submitted: &Submitted<'_>, timestamp_at: i64) -> Result<(AskedDue, i64), Refusal> {
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

/// A task id or shard key.
pub(super) fn id(submitted: &Submitted<'_>, field: Field) -> Result<Option<String>, Refusal> {
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

/// Partition of the callback topic.
pub(super) fn partition(submitted: &Submitted<'_>) -> Result<Option<i32>, Refusal> {
    let Some(text) = submitted.text(Field::Partition)? else { return Ok(None) };
    match text.parse() {
        Ok(partition) if partition >= 0 => Ok(Some(partition)),
        _ => {
            let (code, name) = (ReasonCode::InvalidPartition, submitted.name(Field::Partition));
            Err(Refusal::of_value(code, name, text.as_bytes(), "is no whole number from 0 to 2147483647"))
        }
    }
}

/// When it expires: not before it is due, where that is known.
pub(super) fn expires_at(submitted: &Submitted<'_>, due_at: Option<i64>) -> Result<Option<i64>, Refusal> {
    let name = submitted.name(Field::ExpiresAt);
    let Some(text) = submitted.text(Field::ExpiresAt)? else { return Ok(None) };
    let expires_at = parse_time(name, text)?;
    if let Some(due_at) = due_at.filter(|due_at| expires_at < *due_at) {
        let problem = format!("lies before the due time {}", rfc3339(due_at));
        return Err(Refusal::of_value(ReasonCode::ExpiresBeforeDue, name, text.as_bytes(), &problem));
    }
    Ok(Some(expires_at))
}
