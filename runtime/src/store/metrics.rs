//! Metrics of the MySQL layer.

use crate::telemetry::{CounterDef, HistogramDef, LATENCY_BUCKETS, MetricDef};

/// Time of each statement, as the client sees it.
pub const STATEMENTS: HistogramDef = HistogramDef {
    name: "duestream_mysql_statement_seconds",
    labels: &["statement"],
    buckets: LATENCY_BUCKETS,
    help: "Time of a statement, its round trip included. `statement`: its name in the store.",
};
/// Statements that failed.
pub const ERRORS: CounterDef = CounterDef {
    name: "duestream_mysql_errors_total",
    labels: &["kind"],
    help: "Statements that failed. `kind`: contended, duplicate, unavailable, timed_out (all retried), refused (bad data), fenced, invariant, world, other. Alert: other or invariant at all, unavailable or timed_out rising for a minute.",
};
/// Transactions run again.
pub const RETRIES: CounterDef = CounterDef {
    name: "duestream_mysql_retries_total",
    labels: &["kind"],
    help: "Transactions that were run again. `kind`: of the error before. Alert: contended above 1% of the statements.",
};

/// All of them.
pub const ALL: &[MetricDef] =
    &[MetricDef::Histogram(STATEMENTS), MetricDef::Counter(ERRORS), MetricDef::Counter(RETRIES)];

#[cfg(test)]
mod tests {
    #[test]
    fn metrics_are_well_defined() {
        crate::telemetry::assert_defs(super::ALL);
    }
}
