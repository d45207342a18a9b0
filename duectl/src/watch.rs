//! `duectl watch`: deliveries as read-committed consumers see them, with their lateness.

use crate::cli::WatchArgs;
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use runtime::clock::now_ms;
use runtime::kafka::{Record, Tail, TailFrom};
use schemas::command::HEADER_PREFIX;
use schemas::delivery;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Latenesses that the summary is made of; beyond it only counts go on.
const KEPT: usize = 1_000_000;

pub(crate) async fn run(servers: &Servers, args: WatchArgs) -> Result<(), Failure> {
    let admin = servers.admin()?;
    let mut topics = Vec::new();
    for topic in &args.topics {
        topics
            .push((topic.clone(), servers.partitions(&admin, topic, "create it, or check the name").await?));
    }
    let from = if args.from_beginning { TailFrom::Beginning } else { TailFrom::End };
    let tail = Tail::open(&servers.cluster, "duectl-watch", &topics, from)
        .await
        .map_err(|e| servers.kafka_failed(&e))?;
    if !args.json {
        eprintln!("watching {}; Ctrl-C ends it", args.topics.join(", "));
    }
    let mut seen = Seen::default();
    let outcome = tokio::select! {
        outcome = follow(&tail, &args, &mut seen) => outcome.map_err(|e| servers.kafka_failed(&e)),
        () = timeout(args.timeout) => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    seen.summary();
    outcome?;
    match args.count {
        Some(count) if seen.count < count => {
            Err(Failure::NotFound(format!("{} of {count} deliveries came in time", seen.count)))
        }
        Some(_) | None => Ok(()),
    }
}

async fn timeout(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

async fn follow(tail: &Tail, args: &WatchArgs, seen: &mut Seen) -> Result<(), runtime::kafka::KafkaFault> {
    while args.count.is_none_or(|count| seen.count < count) {
        let record = tail.recv().await?;
        let delivery = Delivery::of(&record);
        seen.add(&delivery);
        show::say(&if args.json { delivery.json(&record).to_string() } else { delivery.line(&record) });
    }
    Ok(())
}

/// What the headers of a callback record say. A record that Duestream did not deliver has none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Delivery {
    task_id: Option<String>,
    attempt: Option<u16>,
    due_at: Option<i64>,
    delivered_at: Option<i64>,
}

impl Delivery {
    fn of(record: &Record) -> Delivery {
        let text = |name: &str| {
            let header = record.headers.iter().rev().find(|h| h.name == name)?;
            String::from_utf8(header.value.clone()?).ok()
        };
        Delivery {
            task_id: text(delivery::TASK_ID),
            attempt: text(delivery::ATTEMPT).and_then(|t| t.parse().ok()),
            due_at: text(delivery::DUE_AT).and_then(|t| t.parse().ok()),
            delivered_at: text(delivery::DELIVERED_AT).and_then(|t| t.parse().ok()),
        }
    }

    fn lateness_ms(&self) -> Option<i64> {
        Some(self.delivered_at? - self.due_at?)
    }

    fn line(&self, record: &Record) -> String {
        let at = show::time(self.delivered_at.unwrap_or_else(now_ms));
        let late = match self.lateness_ms() {
            None => "no due time".to_owned(),
            Some(ms) if ms < 0 => format!("EARLY by {}", show::span(-ms)),
            Some(ms) => format!("{} late", show::span(ms)),
        };
        let attempt = self.attempt.filter(|n| *n > 1).map_or(String::new(), |n| format!("  attempt {n}"));
        let user = record.headers.iter().filter(|h| !h.name.starts_with(HEADER_PREFIX));
        let user: String =
            user.map(|h| format!("  {}={}", h.name, show::bytes(h.value.as_deref(), 40))).collect();
        format!(
            "{at}  {late:>12}  {}[{}]@{}  task {}{attempt}  key {}  value {}{user}",
            record.topic,
            record.partition,
            record.offset,
            self.task_id.as_deref().unwrap_or("-"),
            show::bytes(record.key.as_deref(), 40),
            show::bytes(record.value.as_deref(), 80),
        )
    }

    fn json(&self, record: &Record) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("topic", json!(&*record.topic));
        put("partition", json!(record.partition));
        put("offset", json!(record.offset));
        put("task_id", json!(self.task_id));
        put("attempt", json!(self.attempt));
        put("due_at", json!(self.due_at));
        put("delivered_at", json!(self.delivered_at));
        put("lateness_ms", json!(self.lateness_ms()));
        put("seen_at", json!(now_ms()));
        for (name, bytes) in [("key", record.key.as_deref()), ("value", record.value.as_deref())] {
            put(name, text_or_bytes(bytes));
        }
        let headers = record.headers.iter().map(|h| json!([h.name, text_or_bytes(h.value.as_deref())]));
        put("headers", Value::Array(headers.collect()));
        Value::Object(object)
    }
}

/// Text as it is, null as null, what is no text as an array of bytes, so that nothing is guessed.
fn text_or_bytes(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => Value::Null,
        Some((_, Ok(text))) => json!(text),
        Some((bytes, Err(_))) => json!(bytes),
    }
}

#[derive(Default)]
struct Seen {
    count: u64,
    lateness_ms: Vec<i64>,
}

impl Seen {
    fn add(&mut self, delivery: &Delivery) {
        self.count += 1;
        if let Some(ms) = delivery.lateness_ms().filter(|_| self.lateness_ms.len() < KEPT) {
            self.lateness_ms.push(ms);
        }
    }

    fn summary(&mut self) {
        self.lateness_ms.sort_unstable();
        let sorted = &self.lateness_ms;
        let Some(max) = sorted.last() else {
            eprintln!("{} records, none with a due time", self.count);
            return;
        };
        let early = sorted.iter().filter(|ms| **ms < 0).count();
        eprintln!(
            "{} deliveries, {early} early; lateness p50 {}, p99 {}, max {}",
            self.count,
            show::span(show::quantile(sorted, 0.5)),
            show::span(show::quantile(sorted, 0.99)),
            show::span(*max)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::Header;

    fn record(headers: &[(&str, &str)]) -> Record {
        Record {
            topic: "callbacks".into(),
            partition: 2,
            offset: 17,
            at: 0,
            epoch: 0,
            key: None,
            value: Some(vec![0xff].into()),
            headers: headers
                .iter()
                .map(|(name, value)| Header { name: (*name).into(), value: Some(value.as_bytes().to_vec()) })
                .collect(),
            headers_intact: true,
            cut: None,
        }
    }

    #[test]
    fn a_delivery_shows_how_late_it_was() {
        let record = record(&[
            ("color", "red"),
            ("duestream-task-id", "t1"),
            ("duestream-attempt", "2"),
            ("duestream-due-at", "1700000000000"),
            ("duestream-delivered-at", "1700000000007"),
        ]);
        let delivery = Delivery::of(&record);
        assert_eq!(
            delivery.line(&record),
            "2023-11-14T22:13:20.007Z     7 ms late  callbacks[2]@17  task t1  attempt 2  key null  value 0xff  color=red"
        );
        let json = delivery.json(&record);
        assert_eq!(
            (&json["lateness_ms"], &json["key"], &json["value"]),
            (&json!(7), &Value::Null, &json!([255]))
        );
        assert_eq!(json["headers"][0], json!(["color", "red"]));
    }

    #[test]
    fn an_early_delivery_cries_out() {
        let record =
            record(&[("duestream-due-at", "1700000000000"), ("duestream-delivered-at", "1699999999990")]);
        assert!(Delivery::of(&record).line(&record).contains("EARLY by 10 ms"));
    }

    #[test]
    fn a_record_of_somebody_else_is_shown_without_lateness() {
        let record = record(&[]);
        assert!(Delivery::of(&record).line(&record).contains("no due time"));
    }
}
