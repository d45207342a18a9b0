//! Sections that several programs have. Each default stands once, in `shared/<section>.toml`.

use super::{HumanDuration, Secret, Violations};
use serde::Deserialize;
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

/// A shared section: name and defaults.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Name of the section.
    pub name: &'static str,
    /// Its defaults and manual.
    pub defaults: &'static str,
}

/// `[kafka]`.
pub const KAFKA: Shared = Shared { name: "kafka", defaults: include_str!("shared/kafka.toml") };
/// `[topics]`.
pub const TOPICS: Shared = Shared { name: "topics", defaults: include_str!("shared/topics.toml") };
/// `[mysql]`.
pub const MYSQL: Shared = Shared { name: "mysql", defaults: include_str!("shared/mysql.toml") };
/// `[redis]`.
pub const REDIS: Shared = Shared { name: "redis", defaults: include_str!("shared/redis.toml") };
/// `[http]`.
pub const HTTP: Shared = Shared { name: "http", defaults: include_str!("shared/http.toml") };
/// `[telemetry]`.
pub const TELEMETRY: Shared = Shared { name: "telemetry", defaults: include_str!("shared/telemetry.toml") };
/// `[lifecycle]`.
pub const LIFECYCLE: Shared = Shared { name: "lifecycle", defaults: include_str!("shared/lifecycle.toml") };

/// `[kafka]`: where the brokers are and how to talk to them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kafka {
    /// host:port, separated by commas.
    pub bootstrap: String,
    /// Consumer group session.
    pub session_timeout: HumanDuration,
    /// Metadata, offsets, admin calls.
    pub request_timeout: HumanDuration,
    /// Further settings of librdkafka.
    pub properties: BTreeMap<String, String>,
}

/// What the protocol rests on is set by the programs alone.
const OWN_PROPERTIES: [&str; 17] = [
    "acks",
    "allow.auto.create.topics",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "group.protocol",
    "isolation.level",
    "message.timeout.ms",
    "metadata.broker.list",
    "partition.assignment.strategy",
    "request.required.acks",
    "session.timeout.ms",
    "transactional.id",
];

impl Kafka {
    /// Rules of the section.
    pub fn check(&self, prefix: &str, v: &mut Violations) {
        let bad = self.bootstrap.split(',').map(str::trim).find(|broker| !is_host_port(broker));
        v.rule(
            &format!("{prefix}.bootstrap"),
            &self.bootstrap,
            bad.is_none(),
            "must be host:port, several separated by commas",
            "for example 127.0.0.1:9092",
        );
        v.rule(
            &format!("{prefix}.session_timeout"),
            &self.session_timeout,
            (Duration::from_secs(2)..=Duration::from_secs(300)).contains(&self.session_timeout),
            "must lie between 2s and 5m",
            "10s is the default; below 6s only where the brokers lower group.min.session.timeout.ms",
        );
        positive(&format!("{prefix}.request_timeout"), self.request_timeout, v);
        for name in self.properties.keys() {
            v.rule(
                &format!("{prefix}.properties.{name}"),
                &self.properties[name],
                !OWN_PROPERTIES.contains(&name.as_str()),
                "is set by Duestream itself, because exactly-once delivery rests on it",
                "leave it out",
            );
        }
    }
}

/// `[topics]`: names of a pipeline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topics {
    /// All names of the pipeline start with it.
    pub prefix: String,
}

impl Topics {
    /// Rules of the section.
    pub fn check(&self, prefix: &str, v: &mut Violations) {
        let legal = self.prefix.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        v.rule(
            &format!("{prefix}.prefix"),
            &self.prefix,
            legal && !self.prefix.is_empty() && self.prefix.len() <= 200 && !self.prefix.starts_with("__"),
            "must be 1 to 200 of the characters a-z A-Z 0-9 . _ - and must not start with __",
            "for example duestream.",
        );
    }

    /// Names of topics, groups and transactional ids.
    pub fn names(&self) -> schemas::topics::Names {
        schemas::topics::Names::new(self.prefix.clone())
    }
}

/// `[mysql]`: the database of the pipeline.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mysql {
    /// `mysql://user:password@host:port/database`.
    pub url: Secret,
    /// Connections of this process.
    pub pool_max: u32,
    /// Wait for a connection.
    pub acquire_timeout: HumanDuration,
    /// Idle connections are closed.
    pub idle_timeout: HumanDuration,
    /// Session variable of the same name.
    pub wait_timeout: HumanDuration,
    /// `innodb_lock_wait_timeout` of the session.
    pub lock_wait_timeout: HumanDuration,
    /// The client gives up a statement.
    pub statement_timeout: HumanDuration,
    /// Prepared statements per connection.
    pub statement_cache: u32,
    /// Retries of a transaction after a deadlock or a lost connection.
    pub retries: u32,
    /// First pause between retries.
    pub retry_min: HumanDuration,
    /// Longest pause between retries.
    pub retry_max: HumanDuration,
}

impl Mysql {
    /// Rules of the section.
    pub fn check(&self, prefix: &str, v: &mut Violations) {
        let key = |name: &str| format!("{prefix}.{name}");
        let url = self.url.expose();
        let database = url.strip_prefix("mysql://").map(|rest| rest.split('?').next().unwrap_or(rest));
        let database = database.and_then(|rest| rest.rsplit_once('/')).map(|(_, name)| name);
        v.rule(
            &key("url"),
            &self.url,
            database.is_some_and(|name| !name.is_empty() && !name.contains('@')),
            "must name server and database",
            "mysql://user:password@host:3306/database",
        );
        v.rule(
            &key("pool_max"),
            &self.pool_max,
            (1..=256).contains(&self.pool_max),
            "must lie between 1 and 256",
            "2 to 4 per database on two cores is best",
        );
        v.rule(
            &key("wait_timeout"),
            &self.wait_timeout,
            whole_seconds(self.wait_timeout) && self.wait_timeout.as_secs() <= 10,
            "must be whole seconds and at most 10s: it is how long a stopped program may hold locks",
            "10s is the default",
        );
        v.rule(
            &key("lock_wait_timeout"),
            &self.lock_wait_timeout,
            whole_seconds(self.lock_wait_timeout),
            "must be whole seconds",
            "3s is the default",
        );
        v.rule(
            &key("idle_timeout"),
            &self.idle_timeout,
            self.idle_timeout.0 * 2 <= self.wait_timeout.0,
            &format!(
                "must be at most half of {} = {}: else the server closes connections that the pool still trusts",
                key("wait_timeout"),
                self.wait_timeout
            ),
            "lower it",
        );
        v.rule(
            &key("statement_timeout"),
            &self.statement_timeout,
            self.statement_timeout.0 > self.lock_wait_timeout.0,
            &format!("must exceed {} = {}", key("lock_wait_timeout"), self.lock_wait_timeout),
            "raise it",
        );
        v.rule(
            &key("statement_cache"),
            &self.statement_cache,
            self.statement_cache >= 128,
            "must be at least 128: a statement closed for want of room stalls its connection for 40 ms",
            "512 is the default",
        );
        positive(&key("acquire_timeout"), self.acquire_timeout, v);
        backoff(prefix, self.retry_min, self.retry_max, v);
    }
}

/// `[redis]`: the timer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// `redis://user:password@host:port/db`.
    pub url: Secret,
    /// All keys start with it.
    pub prefix: String,
    /// Connecting.
    pub connect_timeout: HumanDuration,
    /// One call.
    pub response_timeout: HumanDuration,
    /// Reconnects.
    pub retries: u32,
    /// First pause between reconnects.
    pub retry_min: HumanDuration,
    /// Longest pause between reconnects.
    pub retry_max: HumanDuration,
}

impl Redis {
    /// Rules of the section.
    pub fn check(&self, prefix: &str, v: &mut Violations) {
        let key = |name: &str| format!("{prefix}.{name}");
        let url = self.url.expose();
        let known = ["redis://", "rediss://", "redis+unix://", "unix://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        v.rule(
            &key("url"),
            &self.url,
            known && url.split_once("://").is_some_and(|(_, rest)| !rest.is_empty()),
            "must start with redis://, rediss:// or unix://",
            "for example redis://127.0.0.1:6379",
        );
        v.rule(
            &key("prefix"),
            &self.prefix,
            !self.prefix.is_empty()
                && self.prefix.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)),
            "must be of the characters a-z A-Z 0-9 . _ -, because braces and colons have a meaning in keys",
            "ds is the default",
        );
        positive(&key("connect_timeout"), self.connect_timeout, v);
        v.rule(
            &key("response_timeout"),
            &self.response_timeout,
            (Duration::from_millis(500)..=Duration::from_secs(60)).contains(&self.response_timeout),
            "must lie between 500ms and 60s: a claim of a thousand tasks alone takes 80 ms under load",
            "5s is the default",
        );
        backoff(prefix, self.retry_min, self.retry_max, v);
    }
}

/// `[http]`: probes and metrics.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Address of `/live`, `/ready`, `/metrics`.
    pub listen: String,
}

impl Http {
    /// Rules of the section.
    pub fn check(&self, prefix: &str, v: &mut Violations) {
        let ok = self.listen.parse::<SocketAddr>().is_ok();
        v.rule(
            &format!("{prefix}.listen"),
            &self.listen,
            ok,
            "must be address:port",
            "for example 127.0.0.1:9470",
        );
    }

    /// The address. Checked before.
    pub fn address(&self) -> SocketAddr {
        self.listen.parse().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0)))
    }
}

/// `[telemetry]`: logs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// Directives of the log filter.
    pub level: String,
    /// Form of the lines.
    pub format: LogFormat,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object per line.
    Json,
}

impl Telemetry {
    /// Rules of the section.
    pub fn check(&self, prefix: &str, v: &mut Violations) {
        let bad = tracing_subscriber::EnvFilter::builder().parse(&self.level).err();
        v.rule(
            &format!("{prefix}.level"),
            &self.level,
            bad.is_none() && !self.level.is_empty(),
            "must be a level, or target=level separated by commas",
            "for example info,librdkafka=warn",
        );
    }
}

/// `[lifecycle]`: stopping.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lifecycle {
    /// Time to finish what is under way.
    pub drain_timeout: HumanDuration,
}

impl Lifecycle {
    /// Rules of the section.
    pub fn check(&self, prefix: &str, v: &mut Violations) {
        v.rule(
            &format!("{prefix}.drain_timeout"),
            &self.drain_timeout,
            (Duration::from_secs(1)..=Duration::from_secs(120)).contains(&self.drain_timeout),
            "must lie between 1s and 2m",
            "10s is the default",
        );
    }
}

fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains("://") && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

fn whole_seconds(duration: HumanDuration) -> bool {
    duration.as_secs() >= 1 && duration.subsec_nanos() == 0
}

/// The duration must be above zero.
pub fn positive(key: &str, value: HumanDuration, v: &mut Violations) {
    v.rule(key, &value, !value.is_zero(), "must be above zero", "raise it");
}

fn backoff(prefix: &str, min: HumanDuration, max: HumanDuration, v: &mut Violations) {
    positive(&format!("{prefix}.retry_min"), min, v);
    v.rule(
        &format!("{prefix}.retry_max"),
        &max,
        max >= min,
        &format!("must be at least {prefix}.retry_min = {min}"),
        "raise it",
    );
}
