//! Configuration: `config.default.toml` is its default and its manual.

mod avro;
mod sources;

pub use avro::{Avro, Registry};
pub use sources::{Source, SourceCallback, SourceLimits, SourceRules, SourceUnknownTopic};

use runtime::config::{
    HTTP, Http, HumanDuration, KAFKA, Kafka, LIFECYCLE, Lifecycle, MYSQL, Mysql, Shared, TELEMETRY, TOPICS,
    Telemetry, Topics, Violations, positive,
};
use schemas::command::TopicPattern;
use serde::Deserialize;

/// Everything that may be configured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Brokers.
    pub kafka: Kafka,
    /// Names.
    pub topics: Topics,
    /// Database.
    pub mysql: Mysql,
    /// Probes.
    pub http: Http,
    /// Logs.
    pub telemetry: Telemetry,
    /// Stopping.
    pub lifecycle: Lifecycle,
    /// Topics of commands.
    pub sources: Vec<Source>,
    /// Commands.
    pub tasks: Tasks,
    /// Fates.
    pub journal: Journal,
    /// Callback topics.
    pub callback: Callback,
    /// Sizes.
    pub limits: Limits,
    /// Schemas of commands.
    pub avro: Avro,
    /// Schema registry.
    pub registry: Registry,
    /// Positions.
    pub confirm: Confirm,
}

/// `[tasks]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tasks {
    /// Records per batch.
    pub batch: usize,
    /// Bytes per batch.
    pub batch_bytes: usize,
    /// Wait for more records.
    pub linger: HumanDuration,
    /// Batches committed and not acked.
    pub in_flight: usize,
    /// Older commands are refused.
    pub dedup_window: HumanDuration,
}

/// `[journal]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// Records per batch.
    pub batch: usize,
    /// Bytes per batch.
    pub batch_bytes: usize,
    /// Wait for more records.
    pub linger: HumanDuration,
    /// Batches committed and not acked.
    pub in_flight: usize,
}

/// `[callback]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Callback {
    /// Patterns, separated by commas.
    pub allow: String,
    /// Whether a missing topic is refused.
    pub unknown_topic: UnknownTopic,
    /// How long a topic counts as seen.
    pub cache: HumanDuration,
}

/// What becomes of a task whose callback topic does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownTopic {
    /// It is refused.
    Refuse,
    /// It is accepted.
    Accept,
}

/// `[limits]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of key, value and headers.
    pub body: usize,
}

/// `[confirm]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirm {
    /// Without traffic, `confirmed` moves after this long.
    pub idle: HumanDuration,
    /// How often topic ids are compared.
    pub topic_check: HumanDuration,
}

/// Most that `limits.body` may be: what is emitted for a task must fit into a record of 1 MiB.
const MAX_BODY_BYTES: usize = 921_600;

/// Reads an allow-list. `Err`: the entry that is no pattern.
fn patterns(allow: &str) -> Result<Vec<TopicPattern>, &str> {
    let entries = allow.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries.map(|entry| TopicPattern::parse(entry).ok_or(entry)).collect()
}

impl runtime::config::Config for Config {
    const PROGRAM: &'static str = "ingest";
    const DEFAULTS: &'static str = include_str!("../config.default.toml");
    const SHARED: &'static [Shared] = &[KAFKA, TOPICS, MYSQL, HTTP, TELEMETRY, LIFECYCLE];

    fn check(&self, v: &mut Violations) {
        self.kafka.check("kafka", v);
        self.topics.check("topics", v);
        self.mysql.check("mysql", v);
        self.http.check("http", v);
        self.telemetry.check("telemetry", v);
        self.lifecycle.check("lifecycle", v);
        batch("tasks", (self.tasks.batch, 5_000), self.tasks.batch_bytes, self.tasks.in_flight, v);
        batch("journal", (self.journal.batch, 1_000), self.journal.batch_bytes, self.journal.in_flight, v);
        positive("tasks.dedup_window", self.tasks.dedup_window, v);
        positive("callback.cache", self.callback.cache, v);
        positive("confirm.idle", self.confirm.idle, v);
        positive("confirm.topic_check", self.confirm.topic_check, v);
        let patterns = patterns(&self.callback.allow);
        v.rule(
            "callback.allow",
            &self.callback.allow,
            patterns.is_ok_and(|patterns| !patterns.is_empty()),
            sources::ALLOW_RULE,
            "* allows every topic",
        );
        v.rule(
            "limits.body",
            &self.limits.body,
            (1..=MAX_BODY_BYTES).contains(&self.limits.body),
            "must lie between 1 and 921600",
            "what is emitted for a task must fit into a record of 1 MiB",
        );
        self.check_sources(v);
        self.avro.check("avro", v);
        self.registry.check("registry", v);
    }

    fn http(&self) -> &Http {
        &self.http
    }
    fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }
    fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }
}

fn batch(section: &str, (records, most): (usize, usize), bytes: usize, in_flight: usize, v: &mut Violations) {
    v.rule(
        &format!("{section}.batch"),
        &records,
        (1..=most).contains(&records),
        &format!("must lie between 1 and {most}"),
        "larger batches only add latency",
    );
    v.rule(
        &format!("{section}.batch_bytes"),
        &bytes,
        (4_096..=4 << 20).contains(&bytes),
        "must lie between 4096 and 4194304",
        "a transaction holds its locks as long as its bytes travel",
    );
    v.rule(
        &format!("{section}.in_flight"),
        &in_flight,
        (1..=64).contains(&in_flight),
        "must lie between 1 and 64",
        "each batch in flight is kept in memory until its emissions are acked",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_every_key_is_read() {
        runtime::config::assert_defaults::<Config>();
    }

    #[test]
    fn a_list_of_topics_is_read_and_a_bad_one_named() {
        assert_eq!(patterns("orders, mail.*").unwrap().len(), 2);
        assert_eq!(patterns("orders,a b"), Err("a b"));
    }
}
