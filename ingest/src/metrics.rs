//! Metrics of ingest. Label `source` is the topic that was read: with several topics of commands it tells tenants apart.

use runtime::telemetry::{CounterDef, GaugeDef, HistogramDef, LATENCY_BUCKETS, MetricDef, SIZE_BUCKETS};

/// Records finished, by what became of them.
pub const RECORDS: CounterDef = CounterDef {
    name: "duestream_ingest_records_total",
    labels: &["stream", "source", "outcome"],
    help: "Records read. stream: tasks, journal; source: the topic. outcome: accepted, duplicate, rejected (also conflicts), applied, \
           repeated (below next: only effects).",
};
/// Refusals by reason.
pub const REJECTED: CounterDef = CounterDef {
    name: "duestream_ingest_rejected_total",
    labels: &["source", "reason"],
    help: "Records sent to `rejected`, by the topic they came from and reason code.",
};
/// Replies.
pub const REPLIES: CounterDef = CounterDef {
    name: "duestream_ingest_replies_total",
    labels: &["source", "answer"],
    help: "Replies sent to `replies`, by the topic of their command and the answer; again after a crash or hand-over.",
};
/// Questions to the schema registry.
pub const SCHEMAS: CounterDef = CounterDef {
    name: "duestream_ingest_schema_requests_total",
    labels: &["outcome"],
    help: "Questions to the schema registry. outcome: found, missing, unusable (no schema of commands), failed (no answer: \
           the partition waits). Alert: failed rising.",
};
/// Due records put on `due`.
pub const EMITTED: CounterDef = CounterDef {
    name: "duestream_ingest_emitted_total",
    labels: &["cause"],
    help: "Due records emitted and acked. cause: near (due at or below the cursor when committed), repeated (after a \
           crash or hand-over), withdrawn (a new generation after a withdrawal).",
};
/// Entries applied.
pub const ENTRIES: CounterDef = CounterDef {
    name: "duestream_ingest_journal_entries_total",
    labels: &["kind"],
    help: "Journal entries applied. kind: delivered, withdrawn, buried, stale.",
};
/// Records per batch.
pub const BATCH_RECORDS: HistogramDef = HistogramDef {
    name: "duestream_ingest_batch_records",
    labels: &["stream", "source"],
    buckets: SIZE_BUCKETS,
    help: "Records per batch, which is one transaction.",
};
/// Time of a batch's transaction.
pub const BATCH_SECONDS: HistogramDef = HistogramDef {
    name: "duestream_ingest_batch_seconds",
    labels: &["stream", "source"],
    buckets: LATENCY_BUCKETS,
    help: "From a batch being complete to its commit, retries included.",
};
/// Time of a batch's effects.
pub const EFFECTS_SECONDS: HistogramDef = HistogramDef {
    name: "duestream_ingest_effects_seconds",
    labels: &["stream", "source"],
    buckets: LATENCY_BUCKETS,
    help: "From a batch's commit to the ack of the last of its emissions and rejections.",
};
/// Append to commit.
pub const APPLY_LAG: GaugeDef = GaugeDef {
    name: "duestream_ingest_apply_lag_seconds",
    labels: &["stream", "source", "partition"],
    help: "Age of the last applied record when it was committed: how far this partition is behind. Alert: journal > 10 s \
           for 1 min (the compensator stands still meanwhile).",
};
/// Applied and not confirmed.
pub const UNCONFIRMED: GaugeDef = GaugeDef {
    name: "duestream_ingest_unconfirmed_offsets",
    labels: &["stream", "source", "partition"],
    help: "Offsets between confirmed and next: applied, effects not acked. Alert: growing for 1 min (Kafka does not take \
           emissions).",
};
/// What must not be.
pub const ALARMS: CounterDef = CounterDef {
    name: "duestream_ingest_alarms_total",
    labels: &["kind"],
    help: "Things that cannot be while the invariants hold, or that need a person. kind: outside_log, unreadable, topic_recreated, \
           wrong_source, source_behind, completes_on_ack, journal_unreadable, journal_miss, store, emission_refused. Alert: any.",
};
/// Partitions standing still.
pub const HALTED: GaugeDef = GaugeDef {
    name: "duestream_ingest_halted_partitions",
    labels: &["stream", "source"],
    help: "Partitions that stand still until a person acts; /ready says which and why. Alert: > 0.",
};

/// All of them.
pub const ALL: &[MetricDef] = &[
    MetricDef::Counter(RECORDS),
    MetricDef::Counter(REJECTED),
    MetricDef::Counter(REPLIES),
    MetricDef::Counter(SCHEMAS),
    MetricDef::Counter(EMITTED),
    MetricDef::Counter(ENTRIES),
    MetricDef::Histogram(BATCH_RECORDS),
    MetricDef::Histogram(BATCH_SECONDS),
    MetricDef::Histogram(EFFECTS_SECONDS),
    MetricDef::Gauge(APPLY_LAG),
    MetricDef::Gauge(UNCONFIRMED),
    MetricDef::Counter(ALARMS),
    MetricDef::Gauge(HALTED),
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_metric_is_described() {
        runtime::telemetry::assert_defs(super::ALL);
    }
}
