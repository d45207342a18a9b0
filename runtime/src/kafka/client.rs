//! What every client of the cluster has in common.

use super::error::KafkaFault;
use super::metrics;
use crate::config::Kafka;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use std::collections::BTreeMap;

/// Largest record batch of the ordinary topics (`max.message.bytes`): Kafka's own default, 1 MiB and a header.
pub const MAX_MESSAGE_BYTES: i32 = 1_048_588;
/// The same for `rejected` and `dead`, whose records carry a command and what was wrong with it.
pub const MAX_LARGE_MESSAGE_BYTES: i32 = MAX_MESSAGE_BYTES + 65_536;

/// To how many bytes a batch may be unpacked (zstd only: the other methods have limits of their own, see docs/CONTRACT.md).
const MAX_UNPACKED_BYTES: &str = "33554432";

/// Where the cluster is and how to speak to it. Cheap to clone; every client of a program is made from one.
#[derive(Clone, Debug)]
pub struct Cluster {
    bootstrap: String,
    properties: BTreeMap<String, String>,
    client_id: String,
}

impl Cluster {
    /// A cluster by its bootstrap servers.
    ///
    /// `properties` are librdkafka's own, for TLS, SASL and tuning. What the protocol depends on (acks, isolation,
    /// commits, offsets) is set after them and cannot be changed by them.
    pub fn new(
        bootstrap: impl Into<String>,
        properties: BTreeMap<String, String>,
        client_id: impl Into<String>,
    ) -> Cluster {
        Cluster { bootstrap: bootstrap.into(), properties, client_id: client_id.into() }
    }

    /// The cluster of the configuration. `client_id` shows in the brokers' logs and metrics: the program's name.
    pub fn of(config: &Kafka, client_id: impl Into<String>) -> Cluster {
        Cluster::new(&config.bootstrap, config.properties.clone(), client_id)
    }

    /// Settings for any client. `defaults` may be overridden by the user's properties.
    pub(super) fn config(&self, defaults: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("client.id", &self.client_id)
            // With the default of ten seconds a client finds a restarted broker long after it is back.
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            .set("socket.keepalive.enable", "true")
            .set("socket.nagle.disable", "true")
            .set_log_level(RDKafkaLogLevel::Info);
        for (key, value) in defaults {
            config.set(*key, *value);
        }
        for (key, value) in &self.properties {
            config.set(key, value);
        }
        config.set("bootstrap.servers", &self.bootstrap).set("allow.auto.create.topics", "false");
        config
    }

    /// Settings for a producer that neither loses nor doubles nor reorders what it sends.
    pub(super) fn producer_config(&self, defaults: &[(&str, &str)]) -> ClientConfig {
        let mut config = self.config(defaults);
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // What Java producers do, for records whose partition is not given.
            .set("partitioner", "murmur2_random")
            // librdkafka's default refuses above 1,000,000 bytes, less than the topics take.
            .set("message.max.bytes", MAX_LARGE_MESSAGE_BYTES.to_string())
            // A batch never outgrows an ordinary topic; a single record may, where its topic takes it.
            .set("batch.size", "1000000");
        config
    }

    /// Settings for a consumer whose positions are given by the program.
    pub(super) fn consumer_config(&self, group: &str, defaults: &[(&str, &str)]) -> ClientConfig {
        let mut limits = vec![
            // What a fetch brings, of all its partitions; and the most to which a batch of zstd is unpacked, or else it is
            // undecodable. Producers keep batches below a few MiB before they compress them.
            ("fetch.max.bytes", "16777216"),
            ("receive.message.max.bytes", MAX_UNPACKED_BYTES),
        ];
        limits.extend_from_slice(defaults);
        let mut config = self.config(&limits);
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // A position outside the log is an error, never a guess.
            .set("auto.offset.reset", "error");
        config
    }

    /// Whether librdkafka takes the settings: for `check-config`, without a connection.
    pub fn check(&self) -> Result<(), KafkaFault> {
        self.config(&[]).create_native_config().map(drop).map_err(KafkaFault::at("check settings"))
    }
}

/// Sends librdkafka's logs and errors where ours go, and counts errors.
#[derive(Debug)]
pub(super) struct Quiet {
    /// What the client is for: a metric label.
    pub(super) role: &'static str,
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        log(self.role, level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        count(self.role, &error, reason);
    }
}

impl ConsumerContext for Quiet {}

/// librdkafka speaks of each connection that it tries: news for who looks, an alarm for nobody.
pub(super) fn log(role: &'static str, level: RDKafkaLogLevel, fac: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(kafka.role = role, kafka.facility = fac, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => {
            tracing::warn!(kafka.role = role, kafka.facility = fac, "librdkafka: {message}");
        }
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(kafka.role = role, kafka.facility = fac, "librdkafka: {message}");
        }
    }
}

/// Global errors of a client: most heal by themselves, so they are counted and said once, as warnings.
pub(super) fn count(role: &'static str, error: &KafkaError, reason: &str) {
    let fault = KafkaFault::of(role, error.clone());
    metrics::ERRORS.with(&[role, fault.kind()]).increment(1);
    tracing::warn!(kafka.role = role, kafka.kind = fault.kind(), "Kafka client: {error}: {reason}");
}
