//! Configuration of the scanner: `config.default.toml` is its manual.

use protocol::cursor::ScanRule;
use runtime::config::{
    HTTP, Http, HumanDuration, KAFKA, Kafka, LIFECYCLE, Lifecycle, MYSQL, Mysql, Shared, TELEMETRY, TOPICS,
    Telemetry, Topics, Violations,
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
    /// The scan itself.
    pub scan: Scan,
}

/// `[scan]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// How far ahead of its due time a task is handed on.
    pub horizon: HumanDuration,
    /// What is left of it when a slot is full.
    pub horizon_min: HumanDuration,
    /// Rows of a bucket and of a page.
    pub batch: u32,
    /// Narrowest bucket.
    pub bucket_min: HumanDuration,
    /// Widest bucket.
    pub bucket_max: HumanDuration,
    /// Size of a page.
    pub page_bytes: u64,
    /// Pages under way in this process.
    pub pages_at_once: u32,
}

impl Scan {
    /// As the protocol takes it.
    pub fn rule(&self) -> ScanRule {
        ScanRule {
            horizon_ms: self.horizon.as_ms(),
            horizon_min_ms: self.horizon_min.as_ms(),
            batch: self.batch,
            bucket_min_ms: self.bucket_min.as_ms(),
            bucket_max_ms: self.bucket_max.as_ms(),
            page_bytes: self.page_bytes,
        }
    }

    fn check(&self, v: &mut Violations) {
        v.rule(
            "scan.horizon",
            &self.horizon,
            (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.horizon),
            "must lie between 1s and 1h",
            "60s is the default; what lies within it is kept in Redis",
        );
        v.rule(
            "scan.horizon_min",
            &self.horizon_min,
            *self.horizon_min >= Duration::from_millis(500) && *self.horizon_min <= *self.horizon,
            "must lie between 500ms and scan.horizon",
            "lower scan.horizon_min or raise scan.horizon",
        );
        v.rule(
            "scan.batch",
            &self.batch,
            (1..=5000).contains(&self.batch),
            "must lie between 1 and 5000",
            "500 is the default; more rows per page only add latency",
        );
        v.rule(
            "scan.bucket_min",
            &self.bucket_min,
            *self.bucket_min >= Duration::from_millis(100),
            "must be 100ms or more",
            "1s is the default: a dense shard is looked at this often",
        );
        v.rule(
            "scan.bucket_max",
            &self.bucket_max,
            *self.bucket_max >= *self.bucket_min && *self.bucket_max <= Duration::from_secs(24 * 3600),
            "must lie between scan.bucket_min and 24h",
            "60s is the default",
        );
        v.rule(
            "scan.page_bytes",
            &self.page_bytes,
            (1 << 20..=64 << 20).contains(&self.page_bytes),
            "must lie between 1 MiB and 64 MiB (1048576 to 67108864)",
            "4194304 is the default",
        );
        v.rule(
            "scan.pages_at_once",
            &self.pages_at_once,
            (1..=256).contains(&self.pages_at_once),
            "must lie between 1 and 256",
            "twice mysql.pool_max is plenty",
        );
    }
}

impl runtime::config::Config for Config {
    const PROGRAM: &'static str = "scanner";
    const DEFAULTS: &'static str = include_str!("../config.default.toml");
    const SHARED: &'static [Shared] = &[KAFKA, TOPICS, MYSQL, HTTP, TELEMETRY, LIFECYCLE];

    fn check(&self, v: &mut Violations) {
        self.kafka.check("kafka", v);
        self.topics.check("topics", v);
        self.mysql.check("mysql", v);
        self.http.check("http", v);
        self.telemetry.check("telemetry", v);
        self.lifecycle.check("lifecycle", v);
        self.scan.check(v);
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
    fn every_broken_rule_of_a_scan_is_reported_at_once() {
        let file = "[scan]\nhorizon = \"2h\"\nhorizon_min = \"100ms\"\nbatch = 0\nbucket_min = \"10ms\"\n\
                    bucket_max = \"1ms\"\npage_bytes = 5\npages_at_once = 0\n";
        let report =
            load_from::<Config>(Some(file), std::iter::empty()).expect_err("all of it is wrong").to_string();
        for key in
            ["horizon", "horizon_min", "batch", "bucket_min", "bucket_max", "page_bytes", "pages_at_once"]
        {
            assert!(report.contains(&format!("scan.{key} ")), "{key} in:\n{report}");
        }
    }
}
