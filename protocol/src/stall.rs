//! What becomes of a running row whose consumer has been silent for too long (PROTOCOL §3).
//!
//! A deadline is judged only up to the oldest tick of `acks` that was applied: an ingest that is behind never looks like
//! consumers that stalled.

use crate::ack::{AttemptEnd, Outcome, Told, end_attempt};
use crate::life::{Life, Place};
use crate::retry::{self, RetryPolicy};
use schemas::delivery::DeadReason;
use schemas::ids::{RowGen, RowId};

/// Deadlines up to here may be judged: the clock, and for every partition of `acks` the `LogAppendTime` of its last applied
/// record. `None`: one partition has applied none yet, or there is no partition at all.
pub fn judged_upto(now: i64, applied: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    let mut ticks = applied.into_iter().peekable();
    ticks.peek()?;
    ticks.try_fold(now, |upto, tick| tick.map(|tick| upto.min(tick)))
}

/// Ends the attempt of a row that stalled. `row_gen`: as it was found without a lock; `upto` from [`judged_upto`].
/// `None`: it is none any more.
pub fn decide(life: &mut Life, row_gen: RowGen, now: i64, upto: i64) -> Option<Outcome> {
    let row = life.get(row_gen.id).filter(|row| row.generation == row_gen.generation)?.clone();
    let Place::Running(working) = &row.place else { return None };
    if working.key.due_at > upto.min(now) || is_spoken_for(life, row.id) {
        return None;
    }
    let stalls = working.live.stalls.saturating_add(1);
    let policy = RetryPolicy::of(&working.live.options);
    let end = if working.stop {
        AttemptEnd::Stop
    } else if policy.is_stalled_out(stalls) {
        AttemptEnd::Bury(DeadReason::AttemptsExhausted)
    } else {
        AttemptEnd::Again { after_ms: retry::delay_ms(&policy.backoff, stalls, row.row_gen()) }
    };
    let mut working = working.clone();
    working.live.stalls = stalls;
    Some(end_attempt(life, &row, working, end, Told { outcome: "stalled", reason: None, ack: None }, now))
}

/// An ack of it waits: it is no silence.
fn is_spoken_for(life: &Life, id: RowId) -> bool {
    life.open(id).any(|open| !open.is_intent())
}

#[cfg(test)]
mod tests;
