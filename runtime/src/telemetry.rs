//! Logs and metrics.
//!
//! Logs go to stderr, one line each, as text or JSON; librdkafka's own lines come with target `librdkafka`.
//! Metrics are constants of [`CounterDef`], [`GaugeDef`], [`HistogramDef`] in `metrics.rs` of each crate; handles are made
//! once and kept (a lookup per event costs 20 times the event).

use crate::config::{LogFormat, Telemetry};
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::{io::IsTerminal, time::Duration};
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// Starts logging, for the life of the process.
pub fn init_logs(telemetry: &Telemetry) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(&telemetry.level)?;
    let registry = tracing_subscriber::registry().with(filter);
    match telemetry.format {
        LogFormat::Text => registry
            .with(fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()))
            .try_init()?,
        LogFormat::Json => registry
            .with(
                fmt::layer().json().flatten_event(true).with_current_span(false).with_writer(std::io::stderr),
            )
            .try_init()?,
    }
    Ok(())
}

/// Starts collecting the given metrics, for the life of the process. Each is described, and those without labels show as zero from the start.
pub fn init_metrics(defs: &[&[MetricDef]]) -> anyhow::Result<PrometheusHandle> {
    let defs = || defs.iter().flat_map(|defs| defs.iter());
    let mut builder = PrometheusBuilder::new();
    for def in defs() {
        if let MetricDef::Histogram(def) = def {
            builder = builder.set_buckets_for_metric(Matcher::Full(def.name.to_owned()), def.buckets)?;
        }
    }
    let handle = builder.install_recorder()?;
    for def in defs() {
        def.describe();
    }
    Ok(handle)
}

/// Drains histograms now and then, else they grow without bound while nobody asks for metrics.
pub async fn run_upkeep(handle: PrometheusHandle) {
    let mut every = tokio::time::interval(Duration::from_secs(5));
    loop {
        every.tick().await;
        handle.run_upkeep();
    }
}

/// Seconds: from a tenth of a millisecond to ten seconds. For calls and batches.
pub const LATENCY_BUCKETS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Seconds: from a millisecond to an hour. For lateness.
pub const LATENESS_BUCKETS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0];
/// Numbers of rows or records in a batch.
pub const SIZE_BUCKETS: &[f64] =
    &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0];

/// Values of the labels of one series, in the order of the definition.
pub type LabelValues<'v> = &'v [&'v str];

/// A counter: its name ends in `_total`.
#[derive(Clone, Copy, Debug)]
pub struct CounterDef {
    /// Name.
    pub name: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it counts, values of its labels, when to alert.
    pub help: &'static str,
}

/// A gauge, in base units.
#[derive(Clone, Copy, Debug)]
pub struct GaugeDef {
    /// Name.
    pub name: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it shows.
    pub help: &'static str,
}

/// A histogram, in base units (`_seconds`, `_bytes`, `_rows`).
#[derive(Clone, Copy, Debug)]
pub struct HistogramDef {
    /// Name.
    pub name: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Upper bounds of its buckets.
    pub buckets: &'static [f64],
    /// What it measures.
    pub help: &'static str,
}

/// Any of them: a crate lists its own in `metrics::ALL`.
#[derive(Clone, Copy, Debug)]
pub enum MetricDef {
    /// A counter.
    Counter(CounterDef),
    /// A gauge.
    Gauge(GaugeDef),
    /// A histogram.
    Histogram(HistogramDef),
}

static METADATA: Metadata<'static> = Metadata::new("duestream", Level::INFO, None);

fn key(name: &'static str, labels: &'static [&'static str], values: LabelValues<'_>) -> Key {
    debug_assert_eq!(labels.len(), values.len(), "{name} has labels {labels:?}");
    Key::from_parts(
        name,
        labels
            .iter()
            .zip(values)
            .map(|(label, value)| Label::new(*label, (*value).to_owned()))
            .collect::<Vec<_>>(),
    )
}

impl CounterDef {
    /// Handle of one series; keep it.
    pub fn with(&self, values: LabelValues<'_>) -> Counter {
        let key = key(self.name, self.labels, values);
        metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
    }
}

impl GaugeDef {
    /// Handle of one series; keep it.
    pub fn with(&self, values: LabelValues<'_>) -> Gauge {
        let key = key(self.name, self.labels, values);
        metrics::with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
    }
}

impl HistogramDef {
    /// Handle of one series; keep it.
    pub fn with(&self, values: LabelValues<'_>) -> Histogram {
        let key = key(self.name, self.labels, values);
        metrics::with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
    }
}

impl MetricDef {
    /// Name, labels and help.
    pub fn parts(&self) -> (&'static str, &'static [&'static str], &'static str) {
        match self {
            MetricDef::Counter(def) => (def.name, def.labels, def.help),
            MetricDef::Gauge(def) => (def.name, def.labels, def.help),
            MetricDef::Histogram(def) => (def.name, def.labels, def.help),
        }
    }

    /// `counter`, `gauge`, `histogram`.
    pub fn kind(&self) -> &'static str {
        match self {
            MetricDef::Counter(_) => "counter",
            MetricDef::Gauge(_) => "gauge",
            MetricDef::Histogram(_) => "histogram",
        }
    }

    fn describe(&self) {
        let (name, labels, help) = self.parts();
        metrics::with_recorder(|recorder| match self {
            MetricDef::Counter(_) => recorder.describe_counter(name.into(), None::<Unit>, help.into()),
            MetricDef::Gauge(_) => recorder.describe_gauge(name.into(), None, help.into()),
            MetricDef::Histogram(_) => recorder.describe_histogram(name.into(), None, help.into()),
        });
        // A series that is missing until its first event cannot be alerted on.
        if labels.is_empty() {
            match self {
                MetricDef::Counter(def) => drop(def.with(&[])),
                MetricDef::Gauge(def) => drop(def.with(&[])),
                MetricDef::Histogram(def) => drop(def.with(&[])),
            }
        }
    }
}

/// For the test of each crate: names and units follow the conventions, each says what it is, none comes twice.
///
/// # Panics
/// With the definition at fault.
pub fn assert_defs(defs: &[MetricDef]) {
    let mut seen = std::collections::BTreeSet::new();
    for def in defs {
        let (name, _, help) = def.parts();
        assert!(name.starts_with("duestream_"), "{name}: prefix");
        assert!(seen.insert(name), "{name}: twice");
        assert!(help.len() > 10 && help.ends_with('.'), "{name}: help is a sentence");
        assert_eq!(
            matches!(def, MetricDef::Counter(_)),
            name.ends_with("_total"),
            "{name}: counters, and they alone, end in _total"
        );
        assert!(!name.ends_with("_ms"), "{name}: base units");
        if let MetricDef::Histogram(def) = def {
            assert!(def.buckets.is_sorted() && !def.buckets.is_empty(), "{name}: buckets");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: CounterDef =
        CounterDef { name: "duestream_calls_total", labels: &["outcome"], help: "Calls by outcome." };
    const IDLE: CounterDef =
        CounterDef { name: "duestream_idle_total", labels: &[], help: "Never touched here." };
    const TOOK: HistogramDef = HistogramDef {
        name: "duestream_took_seconds",
        labels: &[],
        buckets: LATENCY_BUCKETS,
        help: "How long it took.",
    };

    #[test]
    fn series_without_labels_show_as_zero_and_histograms_have_their_buckets() {
        let defs = [MetricDef::Counter(CALLS), MetricDef::Counter(IDLE), MetricDef::Histogram(TOOK)];
        assert_defs(&defs);
        let handle = init_metrics(&[&defs]).unwrap();
        CALLS.with(&["ok"]).increment(2);
        TOOK.with(&[]).record(0.003);
        let text = handle.render();
        for line in [
            "duestream_calls_total{outcome=\"ok\"} 2",
            "duestream_idle_total 0",
            "duestream_took_seconds_bucket{le=\"0.0025\"} 0",
            "duestream_took_seconds_bucket{le=\"0.005\"} 1",
            "# HELP duestream_took_seconds How long it took.",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nin\n{text}");
        }
    }
}
