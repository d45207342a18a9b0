//! Metrics of the dispatcher. Names are an API.

use runtime::telemetry::{CounterDef, GaugeDef, HistogramDef, MetricDef};

/// Buckets of lateness: from the millisecond up.
const LATENESS_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 300.0, 3600.0,
];
const TIME_BUCKETS: &[f64] =
    &[0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0];
const SIZE_BUCKETS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 1000.0, 2000.0, 5000.0];

/// Fates committed.
pub const DELIVERIES: CounterDef = CounterDef {
    name: "duestream_deliveries_total",
    labels: &["outcome"],
    help: "Outcomes committed to the journal: delivered, buried, withdrawn, stale. Alert: buried above 1 % for 10 min.",
};
/// Burials by reason.
pub const BURIALS: CounterDef = CounterDef {
    name: "duestream_burials_total",
    labels: &["reason"],
    help: "Tasks written to dead, by reason code (other for what an application sent along).",
};
/// Due time to commit.
pub const LATENESS: HistogramDef = HistogramDef {
    name: "duestream_lateness_seconds",
    labels: &[],
    buckets: LATENESS_BUCKETS,
    help: "Due time to committed delivery, one sample per delivery. Alert: p99 above 1 s for 5 min.",
};
/// Transactions.
pub const TRANSACTION: HistogramDef = HistogramDef {
    name: "duestream_transaction_seconds",
    labels: &["lane"],
    buckets: TIME_BUCKETS,
    help: "Begin to committed, by lane: main, quarantine.",
};
/// Batch sizes.
pub const BATCH: HistogramDef = HistogramDef {
    name: "duestream_delivery_batch_tasks",
    labels: &[],
    buckets: SIZE_BUCKETS,
    help: "Outcomes in one committed transaction, heartbeats left out.",
};
/// Aborts.
pub const ABORTS: CounterDef = CounterDef {
    name: "duestream_aborts_total",
    labels: &["lane"],
    help: "Transactions given up after a record failed, by lane: main, quarantine.",
};
/// Take-overs by cause.
pub const TAKE_OVERS: CounterDef = CounterDef {
    name: "duestream_take_overs_total",
    labels: &["cause"],
    help: "Take-overs of a slot begun, by cause. Alert: any cause but assigned and aborted, more than 5 in 10 min.",
};
/// Cold ones.
pub const COLD: CounterDef = CounterDef {
    name: "duestream_cold_take_overs_total",
    labels: &[],
    help: "Take-overs that found nothing in Redis to rely on.",
};
/// How long they took.
pub const TAKE_OVER: HistogramDef = HistogramDef {
    name: "duestream_take_over_seconds",
    labels: &[],
    buckets: TIME_BUCKETS,
    help: "First action of a take-over to the running slot.",
};
/// Intake.
pub const INTAKE: CounterDef = CounterDef {
    name: "duestream_due_records_total",
    labels: &["verdict"],
    help: "Due records taken in: stored, settled, flying, waiting (all duplicates), held, stale, unusable.",
};
/// Copies to `rejected`.
pub const STRAYS: CounterDef = CounterDef {
    name: "duestream_due_strays_total",
    labels: &["outcome"],
    help: "Records of due that no program of Duestream wrote: done (copied to rejected, or refused there with an alarm), again (to be tried again). Alert: any.",
};
/// Given back.
pub const RELEASED: CounterDef = CounterDef {
    name: "duestream_released_total",
    labels: &[],
    help: "Members given back unsent: their partition has no leader, or nothing is known of their topic just now.",
};
/// Backlog.
pub const BACKLOG: GaugeDef = GaugeDef {
    name: "duestream_slot_backlog_tasks",
    labels: &["slot"],
    help: "Tasks in Redis for this slot.",
};
/// Bytes.
pub const BACKLOG_BYTES: GaugeDef = GaugeDef {
    name: "duestream_slot_backlog_bytes",
    labels: &["slot"],
    help: "Bytes of task bodies in Redis for this slot.",
};
/// Credit.
pub const CREDIT: GaugeDef = GaugeDef {
    name: "duestream_slot_credit_tasks",
    labels: &["slot"],
    help: "Tasks that the scanner may still send to this slot.",
};
/// Fates.
pub const SETTLED_BYTES: GaugeDef = GaugeDef {
    name: "duestream_settled_bytes",
    labels: &["slot"],
    help: "Memory of the fates kept to recognise late duplicates.",
};
/// Quarantine.
pub const QUARANTINED: GaugeDef = GaugeDef {
    name: "duestream_quarantined_topics",
    labels: &["slot"],
    help: "Callback topics that failed and have not succeeded since. Alert: above 0 for 10 min.",
};
/// State.
pub const SLOT_STATE: GaugeDef = GaugeDef {
    name: "duestream_slot_running",
    labels: &["slot"],
    help: "1 while this program delivers for the slot, 0 while it takes it over or stands still. Alert: sum below the number of slots for 1 min.",
};
/// Paused.
pub const PAUSES: CounterDef = CounterDef {
    name: "duestream_intake_pauses_total",
    labels: &[],
    help: "Times a slot stopped taking in due records because a cap was reached. Withdrawals wait then too.",
};
/// Redis full.
pub const OUT_OF_MEMORY: CounterDef = CounterDef {
    name: "duestream_redis_full_total",
    labels: &[],
    help: "Preloads that Redis refused at maxmemory. Alert: any.",
};
/// Alarms.
pub const ALARMS: CounterDef = CounterDef {
    name: "duestream_alarms_total",
    labels: &["alarm"],
    help: "What must not happen and did, by kind. Alert: any.",
};
/// Halts.
pub const HALTED: GaugeDef = GaugeDef {
    name: "duestream_slot_halted",
    labels: &["slot"],
    help: "1 while the slot stands still because its journal was lost, truncated or re-created. Alert: any.",
};

/// All of them.
pub const ALL: &[MetricDef] = &[
    MetricDef::Counter(DELIVERIES),
    MetricDef::Counter(BURIALS),
    MetricDef::Histogram(LATENESS),
    MetricDef::Histogram(TRANSACTION),
    MetricDef::Histogram(BATCH),
    MetricDef::Counter(ABORTS),
    MetricDef::Counter(TAKE_OVERS),
    MetricDef::Counter(COLD),
    MetricDef::Histogram(TAKE_OVER),
    MetricDef::Counter(INTAKE),
    MetricDef::Counter(STRAYS),
    MetricDef::Counter(RELEASED),
    MetricDef::Gauge(BACKLOG),
    MetricDef::Gauge(BACKLOG_BYTES),
    MetricDef::Gauge(CREDIT),
    MetricDef::Gauge(SETTLED_BYTES),
    MetricDef::Gauge(QUARANTINED),
    MetricDef::Gauge(SLOT_STATE),
    MetricDef::Counter(PAUSES),
    MetricDef::Counter(OUT_OF_MEMORY),
    MetricDef::Counter(ALARMS),
    MetricDef::Gauge(HALTED),
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_metric_is_well_named() {
        runtime::telemetry::assert_defs(super::ALL);
    }
}
