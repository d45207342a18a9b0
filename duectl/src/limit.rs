//! `duectl limit`, `duectl pause` and `duectl resume`: what dispatchers may deliver to a callback topic.

use crate::cli::{LimitCommand, LimitSetArgs, OfTopic};
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use protocol::limits::{Board, MOST_LIMITS};
use runtime::clock::now_ms;
use runtime::control::look;
use runtime::kafka::{BatchProducer, BatchSettings, OutRecord};
use schemas::command::is_topic_name;
use schemas::control::{ControlKey, Rate, TopicLimit};
use serde_json::{Value, json};
use std::time::Duration;

/// A record that is not acked by then was not written.
const MESSAGE: Duration = Duration::from_secs(10);

pub(crate) async fn run(servers: &Servers, command: LimitCommand) -> Result<(), Failure> {
    match command {
        LimitCommand::Set(args) => set(servers, args).await,
        LimitCommand::List { json } => list(servers, json).await,
        LimitCommand::Clear(args) => clear(servers, args).await,
    }
}

/// What one of the two limits becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<T> {
    /// This.
    Some(T),
    /// None.
    Lifted,
}

impl<T: Copy> Wanted<T> {
    fn get(self) -> Option<T> {
        match self {
            Wanted::Some(value) => Some(value),
            Wanted::Lifted => None,
        }
    }
}

/// For clap: `100/s`, or `none`.
pub(crate) fn rate(text: &str) -> Result<Wanted<Rate>, String> {
    if text == "none" {
        return Ok(Wanted::Lifted);
    }
    text.parse().map(Wanted::Some).map_err(|error: schemas::control::NotARate| format!("{error}, or none"))
}

/// For clap: a number, or `none`.
pub(crate) fn in_flight(text: &str) -> Result<Wanted<u32>, String> {
    const MOST: u32 = 1_000_000;
    if text == "none" {
        return Ok(Wanted::Lifted);
    }
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.map(Wanted::Some).ok_or_else(|| {
        format!("it must be a number from 1 to {MOST}, or none; to deliver nothing at all, use duectl pause")
    })
}

async fn set(servers: &Servers, args: LimitSetArgs) -> Result<(), Failure> {
    if args.rate.is_none() && args.in_flight.is_none() {
        return Err(Failure::Usage(
            "limit set needs --rate N/s, --in-flight N, or both; duectl limit clear lifts a limit".into(),
        ));
    }
    let OfTopic { topic, json } = args.of;
    change(servers, &topic, json, |limit| {
        if let Some(rate) = args.rate {
            limit.rate = rate.get();
        }
        if let Some(in_flight) = args.in_flight {
            limit.in_flight = in_flight.get();
        }
        Ok(())
    })
    .await
}

async fn clear(servers: &Servers, args: OfTopic) -> Result<(), Failure> {
    let OfTopic { topic, json } = args;
    change(servers, &topic, json, |limit| {
        if limit.rate.is_none() && limit.in_flight.is_none() {
            return Err(Failure::NotFound(format!(
                "{topic} has no limit; duectl limit list shows who has one"
            )));
        }
        (limit.rate, limit.in_flight) = (None, None);
        Ok(())
    })
    .await
}

pub(crate) async fn pause(servers: &Servers, args: OfTopic, paused: bool) -> Result<(), Failure> {
    let OfTopic { topic, json } = args;
    change(servers, &topic, json, |limit| {
        if !paused && !limit.paused {
            return Err(Failure::NotFound(format!("{topic} is not paused; duectl limit list shows who is")));
        }
        limit.paused = paused;
        Ok(())
    })
    .await
}

/// Reads what is there, changes it, writes it back.
async fn change(
    servers: &Servers,
    topic: &str,
    json: bool,
    change: impl FnOnce(&mut TopicLimit) -> Result<(), Failure>,
) -> Result<(), Failure> {
    check(servers, topic)?;
    let board = board(servers).await?;
    let known = board.limit_of(topic).copied();
    let mut limit = known.unwrap_or_default();
    change(&mut limit)?;
    limit.at = now_ms();
    let empty = TopicLimit { at: limit.at, ..TopicLimit::default() };
    if limit != empty && known.is_none() && board.limits().count() >= MOST_LIMITS {
        return Err(Failure::Failed(anyhow::anyhow!(
            "{MOST_LIMITS} topics have a limit or are paused, and no more can: lift one (duectl limit list, limit clear, resume)"
        )));
    }
    if limit == empty && known.is_none() {
        return Err(Failure::NotFound(format!("{topic} has no limit; duectl limit list shows who has one")));
    }
    write(servers, topic, (limit != empty).then_some(limit)).await?;
    if json {
        show::say(&described(topic, &limit, &board).to_string());
    } else {
        show::say(&format!("{topic}: {}; in effect within two seconds", in_words(&limit)));
    }
    Ok(())
}

fn check(servers: &Servers, topic: &str) -> Result<(), Failure> {
    let own = topic.starts_with(servers.names.prefix()) || topic.starts_with("__");
    if own || !is_topic_name(topic) {
        return Err(Failure::Usage(format!(
            "{topic:?} cannot be a callback topic: give the name of a topic that tasks are delivered to"
        )));
    }
    Ok(())
}

async fn board(servers: &Servers) -> Result<Board, Failure> {
    let control = servers.names.control();
    servers.partitions(&servers.admin()?, &control, "run `duectl init`").await?;
    look(&servers.cluster, &servers.names, "duectl-control")
        .await
        .map_err(|fault| servers.kafka_failed(&fault))
}

async fn write(servers: &Servers, topic: &str, limit: Option<TopicLimit>) -> Result<(), Failure> {
    let settings = BatchSettings { message_timeout: MESSAGE, ..BatchSettings::new("duectl") };
    let failed = |fault| servers.kafka_failed(&fault);
    let producer = BatchProducer::new(&servers.cluster, &settings).map_err(failed)?;
    let key = ControlKey::Limit(topic.to_owned()).to_string();
    let mut record = OutRecord::to(servers.names.control()).partition(0).key(key);
    record.value = limit.map(|limit| limit.encode().into());
    producer.send(&record).await.map(drop).map_err(failed)
}

/// `100/s, at most 50 in flight, paused`.
fn in_words(limit: &TopicLimit) -> String {
    let rate = limit.rate.map(|rate| rate.to_string());
    let in_flight = limit.in_flight.map(|most| format!("at most {most} in flight"));
    let paused = limit.paused.then(|| "paused".to_owned());
    let words: Vec<String> = [rate, in_flight, paused].into_iter().flatten().collect();
    if words.is_empty() { "no limit".to_owned() } else { words.join(", ") }
}

/// Tasks that are due, and deliveries in flight, of all slots.
fn sums(topic: &str, board: &Board) -> (i64, i64) {
    let waiting = board.shares_of(topic).map(|(_, share)| share.said.waiting).sum();
    let running = board.running_of(topic).map(|(_, count)| count.running).sum();
    (waiting, running)
}

fn described(topic: &str, limit: &TopicLimit, board: &Board) -> Value {
    let (waiting, running) = sums(topic, board);
    json!({
        "topic": topic,
        "rate": limit.rate.map(|rate| rate.to_string()),
        "in_flight": limit.in_flight,
        "paused": limit.paused,
        "at": limit.at,
        "waiting": waiting,
        "running": limit.in_flight.map(|_| running),
    })
}

async fn list(servers: &Servers, json: bool) -> Result<(), Failure> {
    let board = board(servers).await?;
    if json {
        let all: Vec<Value> = board.limits().map(|(topic, limit)| described(topic, limit, &board)).collect();
        show::say(&Value::from(all).to_string());
        return Ok(());
    }
    if board.limits().next().is_none() {
        show::say("no topic has a limit, and none is paused");
        return Ok(());
    }
    show::say(&format!(
        "{:<40} {:>10} {:>10} {:>7} {:>10} {:>10}",
        "TOPIC", "RATE", "IN FLIGHT", "PAUSED", "RUNNING", "WAITING"
    ));
    for (topic, limit) in board.limits() {
        let (waiting, running) = sums(topic, &board);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        show::say(&format!(
            "{:<40} {:>10} {:>10} {:>7} {:>10} {:>10}",
            topic,
            or_dash(limit.rate.map(|rate| rate.to_string())),
            or_dash(limit.in_flight.map(|most| most.to_string())),
            if limit.paused { "yes" } else { "no" },
            or_dash(limit.in_flight.map(|_| running.to_string())),
            waiting,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_or_refused_with_a_remedy() {
        assert_eq!(rate("none"), Ok(Wanted::Lifted));
        assert_eq!(rate("5/m").unwrap().get().unwrap().to_string(), "5/m");
        assert!(rate("5").unwrap_err().contains("such as 100/s"));
        assert_eq!(in_flight("50"), Ok(Wanted::Some(50)));
        for text in ["0", "-1", "1000001", "x"] {
            assert!(in_flight(text).unwrap_err().contains("duectl pause"), "{text}");
        }
    }

    #[test]
    fn a_limit_reads_well() {
        let limit = |rate: Option<&str>, in_flight, paused| TopicLimit {
            rate: rate.map(|rate| rate.parse().unwrap()),
            in_flight,
            paused,
            at: 0,
        };
        assert_eq!(in_words(&limit(None, None, false)), "no limit");
        assert_eq!(in_words(&limit(Some("100/s"), Some(50), true)), "100/s, at most 50 in flight, paused");
    }
}
