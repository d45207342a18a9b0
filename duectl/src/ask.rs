//! Commands that ask for an answer, and the answers.
//!
//! ```text
//! ends of `replies` noted ─▶ commands sent, each with a correlation of its own ─▶ answers told apart by them
//! ```

use crate::exit::Failure;
use crate::servers::Servers;
use protocol::slot::murmur2;
use runtime::clock::now_ms;
use runtime::kafka::{Admin, BatchProducer, BatchSettings, OutRecord, Record, Tail, TailFrom};
use schemas::command::{Command, HeaderView, KnownSchemas, ParseError, RecordView, Rules};
use schemas::reply;
use serde_json::{Value, json};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// The partition to which our producers write a key.
pub(crate) fn partition_of(key: &[u8], partitions: i32) -> i32 {
    ((murmur2(key) & 0x7fff_ffff) % partitions.unsigned_abs().max(1)).cast_signed()
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Code of the answer, see [`reply::Answer`].
    pub(crate) answer: String,
    /// When the task is due, where the command was accepted.
    pub(crate) due_at: Option<i64>,
    /// Code of a refusal.
    pub(crate) reason: Option<String>,
    /// One sentence for people.
    pub(crate) message: Option<String>,
    correlation: Vec<u8>,
}

impl Heard {
    fn of(record: &Record) -> Option<Heard> {
        let bytes = |name: &str| record.headers.iter().find(|h| h.name == name)?.value.clone();
        let text = |name: &str| String::from_utf8(bytes(name)?).ok();
        Some(Heard {
            answer: text(reply::ANSWER)?,
            due_at: text(reply::DUE_AT).and_then(|text| text.parse().ok()),
            reason: text(reply::REASON),
            message: text(reply::MESSAGE),
            correlation: bytes(reply::CORRELATION)?,
        })
    }

    /// As one line of a report: the answer, and why.
    pub(crate) fn code(&self) -> String {
        match &self.reason {
            None => self.answer.clone(),
            Some(reason) => format!("{} ({reason})", self.answer),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({"answer": self.answer, "due_at": self.due_at, "reason": self.reason, "message": self.message})
    }
}

/// Listens for the answers to the commands of this very run.
pub(crate) struct Ear {
    tail: Tail,
    /// What all correlations of this run begin with.
    mark: String,
}

impl Ear {
    /// Listens from now on. `task_id`: only where the answers to its commands stand.
    pub(crate) async fn open(
        servers: &Servers,
        admin: &Admin,
        task_id: Option<&str>,
    ) -> Result<Ear, Failure> {
        let topic = servers.names.replies();
        let partitions = servers.partitions(admin, &topic, "run `duectl init`").await?;
        let wanted: Vec<(String, i32)> = match task_id {
            Some(task_id) => vec![(topic, partition_of(task_id.as_bytes(), partitions))],
            None => (0..partitions).map(|partition| (topic.clone(), partition)).collect(),
        };
        let tail = Tail::open_some(&servers.cluster, "duectl-replies", &wanted, TailFrom::End)
            .await
            .map_err(|e| servers.kafka_failed(&e))?;
        // Two processes with one id, on two machines, in one millisecond: the rest tells them apart.
        let rest = RandomState::new().hash_one(std::process::id());
        Ok(Ear { tail, mark: format!("duectl-{:x}-{rest:x}-", now_ms()) })
    }

    /// The correlation of the n-th command.
    pub(crate) fn correlation(&self, n: u64) -> String {
        format!("{}{n}", self.mark)
    }

    /// The next answer, and to which command. Cancel-safe. An answer may come more than once.
    pub(crate) async fn next(&self, servers: &Servers) -> Result<(u64, Heard), Failure> {
        loop {
            let record = self.tail.recv().await.map_err(|e| servers.kafka_failed(&e))?;
            let Some(heard) = Heard::of(&record) else { continue };
            if let Some(n) = number_of(&self.mark, &heard.correlation) {
                return Ok((n, heard));
            }
        }
    }
}

fn number_of(mark: &str, correlation: &[u8]) -> Option<u64> {
    std::str::from_utf8(correlation).ok()?.strip_prefix(mark)?.parse().ok()
}

/// A producer for commands.
pub(crate) fn producer(servers: &Servers) -> Result<Arc<BatchProducer>, Failure> {
    let mut settings = BatchSettings::new("commands");
    settings.linger = Duration::from_millis(2);
    let producer = BatchProducer::new(&servers.cluster, &settings);
    producer.map(Arc::new).map_err(|e| servers.kafka_failed(&e))
}

/// Reads a command as ingest will; `Err`: the words with which it would be refused. `now`: what a delay counts from, about.
pub(crate) fn check(record: &OutRecord, rules: &Rules, now: i64) -> Result<Command, String> {
    let headers: Vec<HeaderView<'_>> = record
        .headers
        .iter()
        .map(|h| HeaderView { name: h.name.as_bytes(), value: h.value.as_deref() })
        .collect();
    let view = RecordView {
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
        timestamp_at: now,
    };
    Command::parse(&view, rules, &KnownSchemas::shipped()).map_err(|error| match error {
        ParseError::Refused(refused) => refused.refusal.message,
        ParseError::NeedsSchema(id) => format!("the value is framed with schema id {id} of a registry"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::Header;

    fn reply(headers: &[(&str, &str)]) -> Record {
        let header = |(name, value): &(&str, &str)| Header {
            name: (*name).to_owned(),
            value: Some(value.as_bytes().to_vec()),
        };
        Record {
            topic: "replies".into(),
            partition: 0,
            offset: 0,
            at: 0,
            epoch: 0,
            key: None,
            value: None,
            headers: headers.iter().map(header).collect(),
            headers_intact: true,
            cut: None,
        }
    }

    #[test]
    fn an_answer_is_read_from_its_headers() {
        let heard = Heard::of(&reply(&[
            (reply::ANSWER, "rejected"),
            (reply::CORRELATION, "duectl-1-2-7"),
            (reply::REASON, "not_dead"),
            (reply::MESSAGE, "It is not dead."),
        ]))
        .unwrap();
        assert_eq!((heard.code().as_str(), heard.due_at), ("rejected (not_dead)", None));
        let accepted = reply(&[(reply::ANSWER, "accepted"), (reply::CORRELATION, ""), (reply::DUE_AT, "17")]);
        let accepted = Heard::of(&accepted).unwrap();
        assert_eq!((accepted.code().as_str(), accepted.due_at), ("accepted", Some(17)));
    }

    #[test]
    fn answers_to_others_are_passed_over() {
        assert_eq!(Heard::of(&reply(&[(reply::ANSWER, "accepted")])), None, "nobody said what it answers");
        for (correlation, number) in [
            (&b"duectl-1-2-7"[..], Some(7)),
            (b"duectl-1-3-7", None),
            (b"duectl-1-2-", None),
            (b"duectl-1-2-x", None),
            (b"\xff", None),
        ] {
            assert_eq!(number_of("duectl-1-2-", correlation), number);
        }
    }

    #[test]
    fn a_key_lies_where_java_producers_put_it() {
        // A row of protocol/golden/java_partitions.txt.
        assert!((0..3).contains(&partition_of(b"order-4711", 3)));
        assert_eq!(partition_of(b"k", 1), 0);
    }
}
