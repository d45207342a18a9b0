//! Metrics of the scanner: what the scan costs and whether it keeps up.

use runtime::telemetry::{CounterDef, GaugeDef, HistogramDef, MetricDef};
use schemas::ids::{Shard, Slot};

const SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const ROWS: &[f64] = &[0.0, 1.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0];
const WIDTHS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0];
const RATIOS: &[f64] = &[0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0];

/// Latency of a scan.
pub const SCAN_SECONDS: HistogramDef = HistogramDef {
    name: "duestream_scan_seconds",
    labels: &["shard"],
    buckets: SECONDS,
    help: "One scan of a shard, from its start to its last ack. `shard`: number, or `all` where there are more than 256. Alert: p99 above half the horizon.",
};
/// Scans by whether their bucket held a row.
pub const BUCKETS: CounterDef = CounterDef {
    name: "duestream_scan_buckets_total",
    labels: &["outcome"],
    help: "Scans finished. `outcome`: hit (found at least one row), miss. The share of hits is the bucket hit rate.",
};
/// Width of buckets.
pub const BUCKET_SECONDS: HistogramDef = HistogramDef {
    name: "duestream_scan_bucket_seconds",
    labels: &[],
    buckets: WIDTHS,
    help: "Due time by which one scan moved the cursor of a shard.",
};
/// Rows read.
pub const ROWS_EXAMINED: CounterDef = CounterDef {
    name: "duestream_scan_rows_examined_total",
    labels: &[],
    help: "Rows of pending that pages read. Divided by the rows emitted it is close to 1.",
};
/// Rows emitted.
pub const ROWS_EMITTED: CounterDef = CounterDef {
    name: "duestream_scan_rows_emitted_total",
    labels: &[],
    help: "Due records that were acked. Its rate is the throughput of the scan.",
};
/// Share of index entries read that were rows of the page.
pub const INDEX_HITS: HistogramDef = HistogramDef {
    name: "duestream_scan_index_hit_ratio",
    labels: &[],
    buckets: RATIOS,
    help: "Rows of a page divided by the index entries that MySQL says it read for them, of a sample of pages. Alert: below 0.9, the plan of the page is not what it should be.",
};
/// Rows per page.
pub const PAGE_ROWS: HistogramDef = HistogramDef {
    name: "duestream_scan_page_rows",
    labels: &[],
    buckets: ROWS,
    help: "Rows of one page: the batch of the scan.",
};
/// Time of the steps.
pub const STEP_SECONDS: HistogramDef = HistogramDef {
    name: "duestream_scan_step_seconds",
    labels: &["step"],
    buckets: SECONDS,
    help: "Steps of a scan. `step`: start (the transaction that moves cursors), page (reading), emit (until the last ack), confirm.",
};
/// How far behind.
pub const LAG: GaugeDef = GaugeDef {
    name: "duestream_scan_cursor_lag_seconds",
    labels: &["slot"],
    help: "Due time within the horizon that is not emitted yet, of the slot's slowest shard. 0 while the scan keeps up. Alert: above half the horizon.",
};
/// Horizon in use.
pub const HORIZON: GaugeDef = GaugeDef {
    name: "duestream_scan_horizon_seconds",
    labels: &["slot"],
    help: "Horizon in use: less than configured while the dispatcher reports that the slot is filling up.",
};
/// Starts that found another owner.
pub const FENCED: CounterDef = CounterDef {
    name: "duestream_scan_fenced_total",
    labels: &[],
    help: "Times that another scanner was found to have taken a slot. Rises at rebalances. Alert: rising without any.",
};
/// Steps that failed.
pub const FAILURES: CounterDef = CounterDef {
    name: "duestream_scan_failures_total",
    labels: &["step"],
    help: "Steps that failed and are done again. `step` as in duestream_scan_step_seconds.",
};
/// Rows that cannot be emitted.
pub const UNEMITTABLE: CounterDef = CounterDef {
    name: "duestream_scan_unemittable_total",
    labels: &[],
    help: "Rows of which no due record can be made, or that the topic never takes; each is logged. Alert: at all.",
};

/// All of them.
pub const ALL: &[MetricDef] = &[
    MetricDef::Histogram(SCAN_SECONDS),
    MetricDef::Counter(BUCKETS),
    MetricDef::Histogram(BUCKET_SECONDS),
    MetricDef::Counter(ROWS_EXAMINED),
    MetricDef::Counter(ROWS_EMITTED),
    MetricDef::Histogram(INDEX_HITS),
    MetricDef::Histogram(PAGE_ROWS),
    MetricDef::Histogram(STEP_SECONDS),
    MetricDef::Gauge(LAG),
    MetricDef::Gauge(HORIZON),
    MetricDef::Counter(FENCED),
    MetricDef::Counter(FAILURES),
    MetricDef::Counter(UNEMITTABLE),
];

/// A step of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The transaction that moves cursors.
    Start,
    /// Reading a page.
    Page,
    /// Producing until the last ack.
    Emit,
    /// Writing `confirmed`.
    Confirm,
}

impl Step {
    /// Label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Step::Start => "start",
            Step::Page => "page",
            Step::Emit => "emit",
            Step::Confirm => "confirm",
        }
    }
}

/// Handles of one slot, resolved once.
pub struct Meters {
    shards: u16,
    /// Buckets that held a row.
    pub hits: metrics::Counter,
    /// Buckets that held none.
    pub misses: metrics::Counter,
    /// Widths of buckets.
    pub bucket_seconds: metrics::Histogram,
    /// Rows read.
    pub examined: metrics::Counter,
    /// Rows emitted.
    pub emitted: metrics::Counter,
    /// Sampled ratio.
    pub index_hits: metrics::Histogram,
    /// Rows per page.
    pub page_rows: metrics::Histogram,
    /// Lag of the slot.
    pub lag: metrics::Gauge,
    /// Horizon of the slot.
    pub horizon: metrics::Gauge,
    /// Fenced.
    pub fenced: metrics::Counter,
    /// Rows that cannot be emitted.
    pub unemittable: metrics::Counter,
    steps: [(metrics::Histogram, metrics::Counter); 4],
}

impl Meters {
    /// Handles of a slot in a pipeline of `shards`.
    pub fn new(slot: Slot, shards: u16) -> Meters {
        let slot = slot.to_string();
        let step = |step: Step| (STEP_SECONDS.with(&[step.as_str()]), FAILURES.with(&[step.as_str()]));
        Meters {
            shards,
            hits: BUCKETS.with(&["hit"]),
            misses: BUCKETS.with(&["miss"]),
            bucket_seconds: BUCKET_SECONDS.with(&[]),
            examined: ROWS_EXAMINED.with(&[]),
            emitted: ROWS_EMITTED.with(&[]),
            index_hits: INDEX_HITS.with(&[]),
            page_rows: PAGE_ROWS.with(&[]),
            lag: LAG.with(&[&slot]),
            horizon: HORIZON.with(&[&slot]),
            fenced: FENCED.with(&[]),
            unemittable: UNEMITTABLE.with(&[]),
            steps: [step(Step::Start), step(Step::Page), step(Step::Emit), step(Step::Confirm)],
        }
    }

    /// Latency of a shard's scans. One look-up per scan: not a hot path.
    pub fn scan_seconds(&self, shard: Shard) -> metrics::Histogram {
        if self.shards > 256 { SCAN_SECONDS.with(&["all"]) } else { SCAN_SECONDS.with(&[&shard.to_string()]) }
    }

    /// Time of a step.
    pub fn seconds(&self, step: Step) -> &metrics::Histogram {
        &self.steps[step as usize].0
    }

    /// Failures of a step.
    pub fn failures(&self, step: Step) -> &metrics::Counter {
        &self.steps[step as usize].1
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn metrics_are_well_defined() {
        runtime::telemetry::assert_defs(super::ALL);
    }
}
