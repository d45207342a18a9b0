//! Configuration of the compensator: `config.default.toml` is its manual.

use protocol::reemit::ReemitRule;
use runtime::config::{
    HTTP, Http, HumanDuration, KAFKA, Kafka, LIFECYCLE, Lifecycle, MYSQL, Mysql, Shared, TELEMETRY, TOPICS,
    Telemetry, Topics, Violations, positive,
};
use serde::Deserialize;
use std::time::Duration;

/// All of it.
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
    /// Handing stalled tasks on again.
    pub reemit: Reemit,
    /// Forgetting final tasks.
    pub purge: Purge,
}

/// `[reemit]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reemit {
    /// Time between looks.
    pub every: HumanDuration,
    /// Past its due time by this: stalled.
    pub grace: HumanDuration,
    /// Pause after the first re-emission of a task.
    pub pause: HumanDuration,
    /// Longest pause.
    pub pause_max: HumanDuration,
    /// Oldest heartbeat with which the gate is open.
    pub heartbeat_max: HumanDuration,
    /// Largest backlog with which the gate is open.
    pub backlog_max: i64,
    /// Emissions per slot and look.
    pub rows_per_pass: u32,
    /// Rows looked at per shard and look.
    pub examine_per_pass: u32,
}

/// `[purge]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purge {
    /// How long final tasks are kept.
    pub retention: HumanDuration,
    /// Time between sweeps.
    pub every: HumanDuration,
    /// Rows per step.
    pub chunk: u32,
    /// Pause between steps.
    pub pause: HumanDuration,
}

impl Reemit {
    /// As the protocol takes it.
    pub fn rule(&self) -> ReemitRule {
        ReemitRule {
            grace_ms: self.grace.as_ms(),
            pause_ms: self.pause.as_ms(),
            pause_max_ms: self.pause_max.as_ms(),
            heartbeat_max_ms: self.heartbeat_max.as_ms(),
            backlog_max: self.backlog_max,
        }
    }

    fn check(&self, v: &mut Violations) {
        let at_least = |key: &str, value: HumanDuration, least: Duration, v: &mut Violations| {
            let least_text = HumanDuration(least);
            v.rule(
                key,
                &value,
                *value >= least,
                &format!("must be {least_text} or more"),
                "see print-config --defaults",
            );
        };
        at_least("reemit.every", self.every, Duration::from_millis(200), v);
        at_least("reemit.grace", self.grace, Duration::from_secs(1), v);
        at_least("reemit.pause", self.pause, Duration::from_secs(1), v);
        v.rule(
            "reemit.pause_max",
            &self.pause_max,
            *self.pause_max >= *self.pause,
            "must be reemit.pause or more",
            "1h is the default",
        );
        v.rule(
            "reemit.heartbeat_max",
            &self.heartbeat_max,
            (Duration::from_secs(5)..=Duration::from_secs(60)).contains(&self.heartbeat_max),
            "must lie between 5s and 60s: dispatchers send a heartbeat every 2s",
            "10s is the default",
        );
        v.rule(
            "reemit.backlog_max",
            &self.backlog_max,
            self.backlog_max >= 1,
            "must be 1 or more",
            "to look for stalled tasks always, set it as high as the dispatcher's cap",
        );
        v.rule(
            "reemit.rows_per_pass",
            &self.rows_per_pass,
            (1..=100_000).contains(&self.rows_per_pass),
            "must lie between 1 and 100000",
            "1000 is the default",
        );
        v.rule(
            "reemit.examine_per_pass",
            &self.examine_per_pass,
            (100..=100_000).contains(&self.examine_per_pass),
            "must lie between 100 and 100000",
            "5000 is the default",
        );
    }
}

impl Purge {
    fn check(&self, v: &mut Violations) {
        v.rule(
            "purge.retention",
            &self.retention,
            *self.retention >= Duration::from_secs(60),
            "must be 1m or more",
            "7d is the default; it must be as long as duplicates may come late",
        );
        positive("purge.every", self.every, v);
        v.rule(
            "purge.chunk",
            &self.chunk,
            (1..=10_000).contains(&self.chunk),
            "must lie between 1 and 10000",
            "1000 is the default; larger ones hold locks longer",
        );
    }
}

impl runtime::config::Config for Config {
    const PROGRAM: &'static str = "compensator";
    const DEFAULTS: &'static str = include_str!("../config.default.toml");
    const SHARED: &'static [Shared] = &[KAFKA, TOPICS, MYSQL, HTTP, TELEMETRY, LIFECYCLE];

    fn check(&self, v: &mut Violations) {
        self.kafka.check("kafka", v);
        self.topics.check("topics", v);
        self.mysql.check("mysql", v);
        self.http.check("http", v);
        self.telemetry.check("telemetry", v);
        self.lifecycle.check("lifecycle", v);
        self.reemit.check(v);
        self.purge.check(v);
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

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::config::load_from;

    #[test]
    fn the_defaults_are_valid_and_every_key_is_read() {
        runtime::config::assert_defaults::<Config>();
    }

    #[test]
    fn every_broken_rule_is_reported_at_once() {
        let file = "[reemit]\nevery = \"1ms\"\ngrace = \"1ms\"\npause = \"2s\"\npause_max = \"1s\"\nheartbeat_max = \"1s\"\n\
                    backlog_max = 0\nrows_per_pass = 0\nexamine_per_pass = 1\n\
                    [purge]\nretention = \"1s\"\nevery = \"0s\"\nchunk = 0\n";
        let report =
            load_from::<Config>(Some(file), std::iter::empty()).expect_err("all of it is wrong").to_string();
        let reemit = [
            "every",
            "grace",
            "pause_max",
            "heartbeat_max",
            "backlog_max",
            "rows_per_pass",
            "examine_per_pass",
        ];
        for key in reemit.map(|key| format!("reemit.{key} ")) {
            assert!(report.contains(&key), "{key} in:\n{report}");
        }
        for key in ["purge.retention ", "purge.every ", "purge.chunk "] {
            assert!(report.contains(key), "{key} in:\n{report}");
        }
    }
}
