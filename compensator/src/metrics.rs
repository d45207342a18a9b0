//! Metrics of the compensator.

use runtime::telemetry::{CounterDef, GaugeDef, MetricDef};

/// Looks at a slot.
pub const PASSES: CounterDef = CounterDef {
    name: "duestream_reemit_passes_total",
    labels: &["gate"],
    help: "Looks at a slot. `gate`: open, silent (no fresh heartbeat of its dispatcher was applied), drowning (it reports too large a backlog). Alert: silent for a minute.",
};
/// Whether the gate is open.
pub const GATE: GaugeDef = GaugeDef {
    name: "duestream_reemit_gate_open",
    labels: &["slot"],
    help: "1 while stalled tasks of the slot may be handed on again, else 0.",
};
/// Rows looked at.
pub const EXAMINED: CounterDef = CounterDef {
    name: "duestream_reemit_rows_examined_total",
    labels: &[],
    help: "Rows looked at for re-emission.",
};
/// Rows emitted again.
pub const EMITTED: CounterDef = CounterDef {
    name: "duestream_reemit_rows_emitted_total",
    labels: &["cause"],
    help: "Rows emitted again. `cause`: stalled (the first time), again (a further time), handed_back (the dispatcher could not judge it). Alert: stalled rising without a restart or an outage.",
};
/// Rows that cannot be emitted.
pub const UNEMITTABLE: CounterDef = CounterDef {
    name: "duestream_reemit_unemittable_total",
    labels: &[],
    help: "Rows of which no due record can be made, or that the topic never takes; each is logged. Alert: at all.",
};
/// Notes whose rows are settled.
pub const FORGOTTEN: CounterDef = CounterDef {
    name: "duestream_reemit_notes_forgotten_total",
    labels: &[],
    help: "Notes of table reemit deleted because their rows are settled.",
};
/// Final rows looked at.
pub const PURGE_EXAMINED: CounterDef = CounterDef {
    name: "duestream_purge_rows_examined_total",
    labels: &[],
    help: "Rows of task looked at by the purge.",
};
/// Final rows forgotten.
pub const PURGED: CounterDef = CounterDef {
    name: "duestream_purge_rows_total",
    labels: &[],
    help: "Final rows of task deleted because their retention is over.",
};
/// Steps that failed.
pub const FAILURES: CounterDef = CounterDef {
    name: "duestream_compensator_failures_total",
    labels: &["step"],
    help: "Steps that failed and are done again later. `step`: reemit, purge.",
};

/// All of them.
pub const ALL: &[MetricDef] = &[
    MetricDef::Counter(PASSES),
    MetricDef::Gauge(GATE),
    MetricDef::Counter(EXAMINED),
    MetricDef::Counter(EMITTED),
    MetricDef::Counter(UNEMITTABLE),
    MetricDef::Counter(FORGOTTEN),
    MetricDef::Counter(PURGE_EXAMINED),
    MetricDef::Counter(PURGED),
    MetricDef::Counter(FAILURES),
];

#[cfg(test)]
mod tests {
    #[test]
    fn metrics_are_well_defined() {
        runtime::telemetry::assert_defs(super::ALL);
    }
}
