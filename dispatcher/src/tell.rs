//! Turns what a slot tells into metrics and log lines.

use crate::metrics::{
    ABORTS, ALARMS, BACKLOG, BACKLOG_BYTES, BATCH, BURIALS, COLD, CREDIT, DELIVERIES, HALTED, INTAKE,
    LATENESS, OUT_OF_MEMORY, PAUSES, QUARANTINED, RELEASED, SETTLED_BYTES, SLOT_STATE, STRAYS, TAKE_OVER,
    TAKE_OVERS, TRANSACTION,
};
use metrics::{Counter, Gauge, Histogram};
use protocol::slot::{Cause, Drop as Dropped, Event, Figures, Lane};
use schemas::delivery::DeadReason;
use schemas::ids::Slot;
use tracing::{debug, error, info, warn};

/// Handles of one slot, resolved once.
pub(crate) struct Teller {
    slot: Slot,
    delivered: Counter,
    buried: Counter,
    withdrawn: Counter,
    stale: Counter,
    lateness: Histogram,
    main: Histogram,
    quarantine: Histogram,
    batch: Histogram,
    backlog: Gauge,
    backlog_bytes: Gauge,
    credit: Gauge,
    settled_bytes: Gauge,
    quarantined: Gauge,
    running: Gauge,
    stored: Counter,
}

impl Teller {
    pub(crate) fn new(slot: Slot) -> Teller {
        let text = slot.to_string();
        let of: &[&str] = &[&text];
        HALTED.with(of).set(0.0);
        Teller {
            slot,
            delivered: DELIVERIES.with(&["delivered"]),
            buried: DELIVERIES.with(&["buried"]),
            withdrawn: DELIVERIES.with(&["withdrawn"]),
            stale: DELIVERIES.with(&["stale"]),
            lateness: LATENESS.with(&[]),
            main: TRANSACTION.with(&["main"]),
            quarantine: TRANSACTION.with(&["quarantine"]),
            batch: BATCH.with(&[]),
            backlog: BACKLOG.with(of),
            backlog_bytes: BACKLOG_BYTES.with(of),
            credit: CREDIT.with(of),
            settled_bytes: SETTLED_BYTES.with(of),
            quarantined: QUARANTINED.with(of),
            running: SLOT_STATE.with(of),
            stored: INTAKE.with(&["stored"]),
        }
    }

    pub(crate) fn figures(&self, figures: &Figures, running: bool) {
        self.backlog.set(figures.members as f64);
        self.backlog_bytes.set(figures.bytes as f64);
        self.credit.set(figures.credit as f64);
        self.settled_bytes.set(figures.settled_bytes as f64);
        self.quarantined.set(figures.quarantined_topics as f64);
        self.running.set(if running { 1.0 } else { 0.0 });
    }

    pub(crate) fn tell(&self, event: Event) {
        let slot = self.slot.0;
        match event {
            Event::TakeOver { cause, detail, pause_ms } => {
                TAKE_OVERS.with(&[cause.as_str()]).increment(1);
                match cause {
                    Cause::Assigned => info!(slot, "taking the slot over"),
                    Cause::Aborted | Cause::SlowTransaction => {
                        info!(slot, cause = cause.as_str(), detail, "taking the slot over again");
                    }
                    _ => warn!(slot, cause = cause.as_str(), detail, pause_ms, "taking the slot over again"),
                }
            }
            Event::Cold(cause) => {
                COLD.with(&[]).increment(1);
                info!(slot, cause = ?cause, "nothing in Redis to rely on: rebuilding the slot from Kafka");
            }
            Event::Running { took_ms, cold, fates, due_pos } => {
                TAKE_OVER.with(&[]).record(took_ms as f64 / 1e3);
                info!(slot, took_ms, cold, fates, due_pos, "the slot runs");
            }
            Event::Committed { lane, lateness_ms, buried, withdrawn, stale, took_ms } => {
                self.committed(lane, &lateness_ms, &buried, withdrawn, stale, took_ms);
            }
            Event::Aborted { lane, culprits, detail } => {
                ABORTS.with(&[lane_name(lane)]).increment(1);
                for (topic, text) in &culprits {
                    warn!(slot, kafka.topic = &**topic, "a callback topic failed: {text}");
                }
                info!(slot, lane = lane_name(lane), detail, "transaction given up");
            }
            Event::Released(n) => {
                RELEASED.with(&[]).increment(n as u64);
                debug!(slot, tasks = n, "given back unsent for a moment");
            }
            Event::Preloaded(n) => self.stored.increment(n as u64),
            Event::Dropped(why, n) => INTAKE.with(&[drop_name(why)]).increment(n as u64),
            Event::Stale(n) => INTAKE.with(&["stale"]).increment(n as u64),
            Event::Held(n) => INTAKE.with(&["held"]).increment(n as u64),
            Event::Strays { kept, again } => {
                STRAYS.with(&["done"]).increment(kept as u64);
                STRAYS.with(&["again"]).increment(again as u64);
                if again > 0 {
                    warn!(slot, records = again, "rejected does not take what is no due record: tried again");
                }
            }
            Event::Paused(true) => {
                PAUSES.with(&[]).increment(1);
                warn!(slot, "intake paused: a cap is reached, or Redis is full");
            }
            Event::Paused(false) => info!(slot, "intake goes on"),
            Event::OutOfMemory => {
                OUT_OF_MEMORY.with(&[]).increment(1);
                debug!(slot, "Redis refused a preload at maxmemory");
            }
            Event::Alarm(alarm, detail) => {
                ALARMS.with(&[alarm.as_str()]).increment(1);
                error!(slot, alarm = alarm.as_str(), detail, "alarm");
            }
            Event::Halted(halt, detail) => {
                ALARMS.with(&[halt.as_str()]).increment(1);
                HALTED.with(&[&self.slot.to_string()]).set(1.0);
                error!(
                    slot,
                    cause = halt.as_str(),
                    detail,
                    "the slot stands still until an operator decides"
                );
            }
        }
    }

    fn committed(
        &self,
        lane: Lane,
        lateness_ms: &[i64],
        buried: &[String],
        withdrawn: usize,
        stale: usize,
        took_ms: i64,
    ) {
        let histogram = match lane {
            Lane::Main => &self.main,
            Lane::Quarantine => &self.quarantine,
        };
        histogram.record(took_ms as f64 / 1e3);
        self.delivered.increment(lateness_ms.len() as u64);
        self.buried.increment(buried.len() as u64);
        self.withdrawn.increment(withdrawn as u64);
        self.stale.increment(stale as u64);
        for late_ms in lateness_ms {
            self.lateness.record(*late_ms as f64 / 1e3);
        }
        for reason in buried {
            // Reasons of burials that an application sends along are not bounded.
            let label = DeadReason::from_code(reason).map_or("other", DeadReason::as_str);
            BURIALS.with(&[label]).increment(1);
        }
        let outcomes = lateness_ms.len() + buried.len() + withdrawn + stale;
        if outcomes > 0 {
            self.batch.record(outcomes as f64);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        // Drained series say zero: the slot is somebody else's now.
        self.figures(&Figures::default(), false);
    }
}

fn lane_name(lane: Lane) -> &'static str {
    match lane {
        Lane::Main => "main",
        Lane::Quarantine => "quarantine",
    }
}

fn drop_name(why: Dropped) -> &'static str {
    match why {
        Dropped::Settled => "settled",
        Dropped::Flying => "flying",
        Dropped::Waiting => "waiting",
        Dropped::Unusable => "unusable",
    }
}
