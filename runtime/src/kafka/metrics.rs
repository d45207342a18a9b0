//! Metrics of the Kafka clients.

use crate::telemetry::{CounterDef, GaugeDef, MetricDef};

/// Errors that librdkafka reported by itself.
pub const ERRORS: CounterDef = CounterDef {
    name: "duestream_kafka_errors_total",
    labels: &["role", "kind"],
    help: "Errors of Kafka clients. `role`: what the client is for; `kind`: unavailable (heals by itself), fenced, fatal or why a broker refused. Alert: fatal at all, unavailable rising for a minute.",
};
/// Partitions that this process has.
pub const ASSIGNED: GaugeDef = GaugeDef {
    name: "duestream_kafka_assigned_partitions",
    labels: &["group"],
    help: "Partitions assigned to this process.",
};
/// Changes of assignment.
pub const REBALANCES: CounterDef = CounterDef {
    name: "duestream_kafka_rebalances_total",
    labels: &["group", "change"],
    help: "Changes of assignment. `change`: assigned, revoked, lost. Alert: lost rising.",
};
/// Records sent in batches.
pub const PRODUCED: CounterDef = CounterDef {
    name: "duestream_kafka_produced_total",
    labels: &["role", "outcome"],
    help: "Records sent in batches. `role`: what the producer is for; `outcome`: acked, refused (never will be), failed (may be sent again).",
};

/// All of them.
pub const ALL: &[MetricDef] = &[
    MetricDef::Counter(ERRORS),
    MetricDef::Gauge(ASSIGNED),
    MetricDef::Counter(REBALANCES),
    MetricDef::Counter(PRODUCED),
];

#[cfg(test)]
mod tests {
    #[test]
    fn metrics_are_well_defined() {
        crate::telemetry::assert_defs(super::ALL);
    }
}
