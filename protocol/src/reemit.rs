//! When the compensator emits a pending row again (PROTOCOL §3): what stalled, what was handed back, what a cold
//! take-over may have lost.

use crate::cursor::ScanPoint;
use schemas::ids::Generation;

/// Settings of the re-emission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReemitRule {
    /// How long past its due time a row may still be pending before it counts as stalled.
    pub grace_ms: i64,
    /// Pause after the first re-emission of a row; it doubles with each further one …
    pub pause_ms: i64,
    /// … up to this.
    pub pause_max_ms: i64,
    /// The gate is shut unless the owner's last applied heartbeat is at most this old.
    pub heartbeat_max_ms: i64,
    /// The gate is shut while the owner reports more members than this: what looks stalled is only waiting.
    pub backlog_max: i64,
}

/// What is known of a slot's owner through its applied heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotHealth {
    /// `LogAppendTime` of the last applied journal record.
    pub hb_at: Option<i64>,
    /// Members in Redis.
    pub backlog: Option<i64>,
    /// `LogAppendTime` of the last cold barrier: what is due up to then may be gone from Redis.
    pub cold_upto: Option<i64>,
}

/// Whether a slot's rows may be emitted again now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The owner lives, its journal is applied, and it is not drowning.
    Open,
    /// No heartbeat of the owner was applied of late: a stuck journal, a dead ingest or a dead dispatcher. To emit more
    /// would not help, and what looks stalled may long be delivered.
    Silent,
    /// The owner has more than it can do.
    Drowning,
}

/// What table `reemit` says of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Only counts for a row of the same gen.
    pub generation: Generation,
    /// Not before.
    pub at: i64,
    /// Emissions so far; 0 = only handed back as stale.
    pub n: u8,
}

/// A row at or below the cursor that is still pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its place.
    pub point: ScanPoint,
    /// Its generation.
    pub generation: Generation,
    /// Its entry in `reemit`, if any.
    pub again: Option<Again>,
    /// An open intent or a parked ack of this gen: its fate is on the way, leave it alone.
    pub spoken_for: bool,
}

impl ReemitRule {
    /// Whether the slot may be acted on.
    pub fn gate(&self, now: i64, health: &SlotHealth) -> Gate {
        match health.hb_at {
            Some(hb_at) if now.saturating_sub(hb_at) <= self.heartbeat_max_ms => {}
            _ => return Gate::Silent,
        }
        if health.backlog.is_some_and(|backlog| backlog > self.backlog_max) {
            Gate::Drowning
        } else {
            Gate::Open
        }
    }

    /// Rows due after this are not even looked at. The cursor must have been read before the rows: beyond it a cancel
    /// is done at once, and an emission would overtake it.
    pub fn upto_at(&self, now: i64, cursor_at: i64, health: &SlotHealth) -> i64 {
        let stalled = now.saturating_sub(self.grace_ms);
        stalled.max(health.cold_upto.unwrap_or(i64::MIN)).min(cursor_at)
    }

    /// Whether a row is to be emitted now. `cursor_at` as for [`ReemitRule::upto_at`].
    pub fn is_eligible(&self, now: i64, cursor_at: i64, health: &SlotHealth, row: &Candidate) -> bool {
        if row.spoken_for || row.point.due_at > cursor_at {
            return false;
        }
        let again = row.again.filter(|again| again.generation == row.generation);
        let cold = health.cold_upto.filter(|upto| row.point.due_at <= *upto);
        match (again, cold) {
            // Emitted before the cold barrier: that emission may be lost, its pause means nothing.
            (Some(again), Some(cold_upto)) if self.emitted_at(&again).is_none_or(|at| at <= cold_upto) => {
                true
            }
            (Some(again), _) => again.at <= now,
            (None, Some(_)) => true,
            (None, None) => row.point.due_at <= now.saturating_sub(self.grace_ms),
        }
    }

    /// The entry to be written once a row's emission at `now` is acked.
    pub fn next(&self, now: i64, row: &Candidate) -> Again {
        let before = row.again.filter(|again| again.generation == row.generation).map_or(0, |again| again.n);
        let n = before.saturating_add(1);
        Again { generation: row.generation, at: now.saturating_add(self.pause(n)), n }
    }

    /// When the last of its emissions was.
    fn emitted_at(&self, again: &Again) -> Option<i64> {
        (again.n > 0).then(|| again.at.saturating_sub(self.pause(again.n)))
    }

    /// Pause after the n-th emission.
    fn pause(&self, n: u8) -> i64 {
        let doublings = u32::from(n.saturating_sub(1)).min(30);
        self.pause_ms.saturating_mul(1 << doublings).min(self.pause_max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use schemas::ids::RowId;

    const RULE: ReemitRule = ReemitRule {
        grace_ms: 30_000,
        pause_ms: 30_000,
        pause_max_ms: 3_600_000,
        heartbeat_max_ms: 10_000,
        backlog_max: 1_000,
    };
    const NOW: i64 = 1_000_000_000;
    const ALIVE: SlotHealth = SlotHealth { hb_at: Some(NOW - 1_000), backlog: Some(10), cold_upto: None };

    fn candidate(due_at: i64, again: Option<(u32, i64, u8)>) -> Candidate {
        let again = again.map(|(generation, at, n)| Again { generation: Generation(generation), at, n });
        let point = ScanPoint { due_at, id: RowId(1) };
        Candidate { point, generation: Generation(1), again, spoken_for: false }
    }

    fn eligible(health: &SlotHealth, row: &Candidate) -> bool {
        RULE.is_eligible(NOW, NOW + 60_000, health, row)
    }

    #[test]
    fn the_gate_is_open_only_while_the_owner_is_heard_and_not_drowning() {
        assert_eq!(RULE.gate(NOW, &ALIVE), Gate::Open);
        assert_eq!(RULE.gate(NOW, &SlotHealth { hb_at: Some(NOW - 10_000), ..ALIVE }), Gate::Open);
        assert_eq!(RULE.gate(NOW, &SlotHealth { hb_at: Some(NOW - 10_001), ..ALIVE }), Gate::Silent);
        assert_eq!(RULE.gate(NOW, &SlotHealth::default()), Gate::Silent);
        assert_eq!(RULE.gate(NOW, &SlotHealth { backlog: Some(1_001), ..ALIVE }), Gate::Drowning);
        assert_eq!(RULE.gate(NOW, &SlotHealth { backlog: None, ..ALIVE }), Gate::Open);
    }

    #[test]
    fn a_row_is_stalled_once_the_grace_is_over() {
        assert!(eligible(&ALIVE, &candidate(NOW - 30_000, None)));
        assert!(!eligible(&ALIVE, &candidate(NOW - 29_999, None)));
    }

    #[test]
    fn nothing_beyond_the_cursor_is_emitted_again() {
        let handed_back = candidate(NOW + 60_001, Some((1, NOW, 0)));
        assert!(!eligible(&ALIVE, &handed_back));
        assert!(!RULE.is_eligible(NOW, NOW - 50_000, &ALIVE, &candidate(NOW - 40_000, None)));
        assert_eq!(RULE.upto_at(NOW, NOW - 50_000, &ALIVE), NOW - 50_000);
        assert_eq!(RULE.upto_at(NOW, NOW + 60_000, &ALIVE), NOW - 30_000);
    }

    #[test]
    fn a_stale_row_is_emitted_at_once_even_before_it_is_due() {
        assert!(eligible(&ALIVE, &candidate(NOW + 50_000, Some((1, NOW, 0)))));
    }

    #[test]
    fn the_pause_between_emissions_doubles_up_to_its_cap() {
        let mut row = candidate(NOW - 30_000, None);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let again = RULE.next(NOW, &row);
            pauses.push((again.at - NOW) / 1_000);
            row.again = Some(again);
        }
        assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
        assert!(!eligible(&ALIVE, &row));
    }

    #[test]
    fn the_entry_of_an_older_generation_says_nothing() {
        let mut row = candidate(NOW - 30_000, Some((1, NOW + 500_000, 7)));
        row.generation = Generation(2);
        assert!(eligible(&ALIVE, &row));
        assert_eq!(RULE.next(NOW, &row).n, 1);
    }

    #[test]
    fn a_row_with_an_open_intent_is_left_alone() {
        let row = Candidate { spoken_for: true, ..candidate(NOW - 100_000, Some((1, 0, 0))) };
        assert!(!eligible(&ALIVE, &row));
    }

    #[test]
    fn after_a_cold_barrier_everything_due_by_then_is_emitted_once_at_once() {
        let cold = SlotHealth { cold_upto: Some(NOW - 2_000), ..ALIVE };
        assert_eq!(RULE.upto_at(NOW, NOW + 60_000, &cold), NOW - 2_000);
        let mut row = candidate(NOW - 2_000, None);
        assert!(eligible(&cold, &row));
        assert!(!eligible(&cold, &candidate(NOW - 1_999, None)));
        row.again = Some(RULE.next(NOW, &row));
        assert!(!eligible(&cold, &row), "once emitted after the barrier the pause counts");
        let long_ago = candidate(NOW - 400_000, Some((1, NOW + 200_000, 5)));
        assert!(eligible(&cold, &long_ago), "its last emission lies before the barrier");
    }

    proptest! {
        #[test]
        fn no_row_is_emitted_twice_within_the_pause_and_none_waits_for_ever(
            due_ago in 0i64..10_000_000, n in 0u8..=255, at_ahead in -10_000_000i64..10_000_000, cold_ago in proptest::option::of(1i64..100_000),
        ) {
            // In the very millisecond of the barrier an emission may have come before it: that one is repeated.
            let health = SlotHealth { cold_upto: cold_ago.map(|ago| NOW - ago), ..ALIVE };
            let mut row = candidate(NOW - due_ago, Some((1, NOW + at_ahead, n)));
            row.again = Some(RULE.next(NOW, &row));
            prop_assert!(!RULE.is_eligible(NOW + 1, NOW, &health, &row));
            prop_assert!(!RULE.is_eligible(NOW + RULE.pause_ms - 1, NOW, &health, &row));
            prop_assert!(RULE.is_eligible(NOW + RULE.pause_max_ms, NOW, &health, &row));
        }
    }
}
