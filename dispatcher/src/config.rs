//! Configuration of the dispatcher. `config.default.toml` is its manual.

use protocol::slot::SlotConfig;
use runtime::config::{
    HTTP, Http, HumanDuration, KAFKA, Kafka, LIFECYCLE, Lifecycle, REDIS, Redis, Shared, TELEMETRY, TOPICS,
    Telemetry, Topics, Violations,
};
use serde::Deserialize;
use std::time::Duration;

/// Everything that can be set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Brokers.
    pub kafka: Kafka,
    /// Names.
    pub topics: Topics,
    /// The timer.
    pub redis: Redis,
    /// Probes.
    pub http: Http,
    /// Logs.
    pub telemetry: Telemetry,
    /// Drain.
    pub lifecycle: Lifecycle,
    /// Transactions.
    pub delivery: Delivery,
    /// Take-overs.
    pub takeover: Takeover,
    /// Caps.
    pub memory: Memory,
}

/// `[delivery]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// Kept as text so that a wrong word is reported like any other broken rule.
    pub guarantee: String,
    /// Tasks per transaction.
    pub batch: usize,
    /// Bytes per transaction.
    pub batch_bytes: usize,
    /// `message.timeout.ms` of both lanes.
    pub message_timeout: HumanDuration,
    /// `transaction.timeout.ms`.
    pub transaction_timeout: HumanDuration,
    /// Idle journal record.
    pub heartbeat: HumanDuration,
    /// Age of what is known of a topic.
    pub topic_refresh: HumanDuration,
    /// First pause of a failing topic.
    pub topic_backoff_min: HumanDuration,
    /// Longest pause of a failing topic.
    pub topic_backoff_max: HumanDuration,
}

/// `[takeover]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Takeover {
    /// W.
    pub window: HumanDuration,
    /// Doubt.
    pub slow_transaction: HumanDuration,
    /// First pause.
    pub backoff_min: HumanDuration,
    /// Longest pause.
    pub backoff_max: HumanDuration,
}

/// `[memory]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// No credit from here on.
    pub soft_tasks: u64,
    /// No intake from here on.
    pub hard_tasks: u64,
    /// No credit from here on.
    pub soft_bytes: u64,
    /// No intake from here on.
    pub hard_bytes: u64,
    /// Fates in memory.
    pub settled_bytes: usize,
    /// Fetched ahead.
    pub fetch_buffer_kib: u32,
}

impl runtime::config::Config for Config {
    const PROGRAM: &'static str = "dispatcher";
    const DEFAULTS: &'static str = include_str!("../config.default.toml");
    const SHARED: &'static [Shared] = &[KAFKA, TOPICS, REDIS, HTTP, TELEMETRY, LIFECYCLE];

    fn check(&self, v: &mut Violations) {
        self.kafka.check("kafka", v);
        self.topics.check("topics", v);
        self.redis.check("redis", v);
        self.http.check("http", v);
        self.telemetry.check("telemetry", v);
        self.lifecycle.check("lifecycle", v);
        self.check_drain(v);
        self.delivery.check(v);
        self.takeover.check(v);
        self.memory.check(v);
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

impl Config {
    fn check_drain(&self, v: &mut Violations) {
        v.rule(
            "lifecycle.drain_timeout",
            &self.lifecycle.drain_timeout,
            *self.lifecycle.drain_timeout <= *self.kafka.session_timeout,
            "must not exceed kafka.session_timeout: nobody takes the slots over while this program drains",
            "lower it, or raise kafka.session_timeout",
        );
    }

    /// What the slots need to know.
    pub fn slot(&self) -> SlotConfig {
        SlotConfig {
            window_ms: self.takeover.window.as_ms(),
            heartbeat_ms: self.delivery.heartbeat.as_ms(),
            batch_entries: self.delivery.batch,
            batch_bytes: self.delivery.batch_bytes,
            slow_transaction_ms: self.takeover.slow_transaction.as_ms(),
            report_timeout_ms: self.delivery.message_timeout.as_ms() + 2_000,
            settled_bytes: self.memory.settled_bytes,
            soft_members: self.memory.soft_tasks,
            hard_members: self.memory.hard_tasks,
            soft_bytes: self.memory.soft_bytes,
            hard_bytes: self.memory.hard_bytes,
            backoff_min_ms: self.takeover.backoff_min.as_ms(),
            backoff_max_ms: self.takeover.backoff_max.as_ms(),
            topic_backoff_min_ms: self.delivery.topic_backoff_min.as_ms(),
            topic_backoff_max_ms: self.delivery.topic_backoff_max.as_ms(),
            ..SlotConfig::default()
        }
    }
}

impl Delivery {
    fn check(&self, v: &mut Violations) {
        let known = ["exactly_once", "at_least_once"].contains(&self.guarantee.as_str());
        v.rule(
            "delivery.guarantee",
            &self.guarantee,
            known,
            "must be exactly_once or at_least_once",
            "exactly_once is the default",
        );
        v.rule(
            "delivery.guarantee",
            &self.guarantee,
            self.guarantee != "at_least_once",
            "is unsupported: this version delivers exactly once only",
            "set it to exactly_once",
        );
        v.rule(
            "delivery.batch",
            &self.batch,
            (1..=5_000).contains(&self.batch),
            "must lie between 1 and 5000",
            "500 is the default",
        );
        v.rule(
            "delivery.batch_bytes",
            &self.batch_bytes,
            (1_024..=1 << 20).contains(&self.batch_bytes),
            "must lie between 1024 and 1048576, the most that one Redis script may hand out",
            "1048576 is the default",
        );
        v.rule(
            "delivery.message_timeout",
            &self.message_timeout,
            (Duration::from_millis(500)..=*self.transaction_timeout / 2).contains(&*self.message_timeout),
            "must lie between 500ms and half of delivery.transaction_timeout: a record that is late must not outlive its transaction",
            "lower it, or raise delivery.transaction_timeout",
        );
        v.rule(
            "delivery.transaction_timeout",
            &self.transaction_timeout,
            (Duration::from_secs(1)..=Duration::from_secs(60)).contains(&*self.transaction_timeout),
            "must lie between 1s and 60s: for so long a transaction left behind may hold back the journal",
            "10s is the default",
        );
        v.rule(
            "delivery.heartbeat",
            &self.heartbeat,
            (Duration::from_millis(100)..=Duration::from_secs(5)).contains(&*self.heartbeat),
            "must lie between 100ms and 5s: the compensator takes a slot that is silent for 10s for dead",
            "2s is the default",
        );
        range(
            "delivery.topic_refresh",
            self.topic_refresh,
            Duration::from_secs(1),
            Duration::from_secs(3_600),
            v,
        );
        pair(
            "delivery.topic_backoff_min",
            self.topic_backoff_min,
            "delivery.topic_backoff_max",
            self.topic_backoff_max,
            v,
        );
    }
}

impl Takeover {
    fn check(&self, v: &mut Violations) {
        range("takeover.window", self.window, Duration::from_secs(10), Duration::from_secs(86_400), v);
        range(
            "takeover.slow_transaction",
            self.slow_transaction,
            Duration::from_millis(100),
            Duration::from_secs(10),
            v,
        );
        pair("takeover.backoff_min", self.backoff_min, "takeover.backoff_max", self.backoff_max, v);
    }
}

impl Memory {
    fn check(&self, v: &mut Violations) {
        let caps = [
            ("memory.soft_tasks", self.soft_tasks, "memory.hard_tasks", self.hard_tasks),
            ("memory.soft_bytes", self.soft_bytes, "memory.hard_bytes", self.hard_bytes),
        ];
        for (soft_key, soft, hard_key, hard) in caps {
            v.rule(
                soft_key,
                &soft,
                soft > 0 && soft < hard,
                &format!("must be above 0 and below {hard_key} = {hard}: the scanner is to slow down before the slot pauses"),
                &format!("lower it, or raise {hard_key}"),
            );
        }
        v.rule(
            "memory.settled_bytes",
            &self.settled_bytes,
            self.settled_bytes >= 1 << 20,
            "must be at least 1048576",
            "67108864 is the default, some 700,000 fates",
        );
        v.rule(
            "memory.fetch_buffer_kib",
            &self.fetch_buffer_kib,
            (1_024..=1 << 20).contains(&self.fetch_buffer_kib),
            "must lie between 1024 and 1048576: one due record can be 1 MiB",
            "4096 is the default",
        );
    }
}

fn range(key: &str, value: HumanDuration, least: Duration, most: Duration, v: &mut Violations) {
    let rule = format!("must lie between {} and {}", HumanDuration(least), HumanDuration(most));
    v.rule(key, &value, (least..=most).contains(&*value), &rule, "see print-config --defaults");
}

fn pair(low_key: &str, low: HumanDuration, high_key: &str, high: HumanDuration, v: &mut Violations) {
    let holds = !low.is_zero() && *low <= *high;
    v.rule(low_key, &low, holds, &format!("must be above 0 and at most {high_key} = {high}"), "lower it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_every_key_is_read() {
        runtime::config::assert_defaults::<Config>();
    }
}
