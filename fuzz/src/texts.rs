//! Times, delays, options, delivery ids, topic patterns: small languages that people and programs write.

use crate::command::{INSTANTS, parse};
use crate::memory::bounded;
use crate::record::{NOW_AT, Record};
use jiff::Timestamp;
use schemas::command::{Command, ReasonCode, TopicPattern, is_topic_name};
use schemas::delivery::DeliveryId;
use schemas::options::{self, Backoff, BadOption, Spread, Window};
use serde_json::json;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// One text, read as each of them.
pub fn all(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    bounded(data.len(), || {
        time(text);
        delay(text);
        delivery_id(text);
        topic(text);
        option::<Backoff>(text);
        option::<Spread>(text);
        option::<Window>(text);
        for limit in [options::parse_max_attempts(text), options::parse_max_stalls(text)] {
            judged(limit.map(i64::from));
        }
        judged(options::parse_ack_timeout(text));
    });
}

/// Due time and reason code of a task whose `field` holds `text`; the forms must agree.
fn taken(field: &str, text: &str) -> Result<Command, ReasonCode> {
    let by_header = Record::new()
        .header("duestream-topic", "callbacks")
        .header(&format!("duestream-{}", field.replace('_', "-")), text);
    let value = json!({ "topic": "callbacks", field: text }).to_string().into_bytes();
    // The same payload in both: null.
    let by_json = Record::of_value(value);
    let read = |record: &Record| parse(record).map_err(|refusal| refusal.code);
    let (by_header, by_json) = (read(&by_header), read(&by_json));
    assert_eq!(by_header, by_json, "the forms differ in {field} {text:?}");
    by_header
}

fn time(text: &str) {
    let outcome = taken("due_at", text);
    let number: Option<i64> = text.parse().ok().filter(|_| !text.starts_with('+'));
    if let Some(at) = number {
        assert_eq!(outcome.is_ok(), INSTANTS.contains(&at), "{at}");
        assert_eq!(outcome.as_ref().map_or(at, |command| command.due_at), at);
    }
    let Ok(command) = outcome else { return };
    let written = Timestamp::from_millisecond(command.due_at).expect("an instant in range");
    assert_eq!(taken("due_at", &written.to_string()), Ok(command.clone()), "written as {written}");
    assert_eq!(taken("due_at", &command.due_at.to_string()), Ok(command.clone()));
    if number.is_none() {
        let exact = text.parse::<Timestamp>().expect("what is no number is RFC 3339");
        let early = written.as_nanosecond() - exact.as_nanosecond();
        assert!((0..1_000_000).contains(&early), "{text} became {written}");
    }
}

fn delay(text: &str) {
    let Ok(command) = taken("delay", text) else { return };
    let delay_ms = command.due_at - NOW_AT;
    assert!(delay_ms >= 0, "{text:?} leads {delay_ms} ms into the past");
    // Content hash included: however a delay is written, a resubmission of it is the same content.
    assert_eq!(taken("delay", &format!("{delay_ms}ms")), Ok(command));
}

fn delivery_id(text: &str) {
    match text.parse::<DeliveryId>() {
        Ok(id) => assert_eq!(id.to_string(), text),
        Err(error) => assert!(error.to_string().len() < 1_000),
    }
}

fn topic(text: &str) {
    match TopicPattern::parse(text) {
        Some(TopicPattern::Exact(name)) => assert!(name == text && is_topic_name(&name)),
        Some(pattern @ TopicPattern::Prefix(_)) => assert!(pattern.matches(&text[..text.len() - 1])),
        None => assert!(!is_topic_name(text)),
    }
}

/// An option is hashed as it is written canonically: that text must mean the same, and be its own canonical text.
fn option<T: FromStr<Err = BadOption> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(option) => {
            let canonical = option.to_string();
            let again = canonical
                .parse::<T>()
                .unwrap_or_else(|error| panic!("{text:?} became {canonical:?}: {error}"));
            assert_eq!((again.to_string(), again), (canonical, option), "{text:?}");
        }
        Err(error) => judged(Err(error)),
    }
}

fn judged(outcome: Result<i64, BadOption>) {
    match outcome {
        Ok(number) => assert!(number >= 0, "{number}"),
        Err(error) => assert!((1..1_000).contains(&error.to_string().len()), "{error}"),
    }
}
