//! When and whether a task is tried again, and what is remembered of the attempts before (PROTOCOL §3, §4).

use schemas::due::PastAttempt;
use schemas::ids::RowGen;
use schemas::options::{
    Backoff, DEFAULT_ACK_TIMEOUT_MS, DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_STALLS, Growth, MAX_DURATION_MS,
};
use schemas::row::{RowHistory, RowOptions};

pub use schemas::row::MAX_HISTORY_BYTES;

/// Longest reason that is kept of one attempt.
const MAX_REASON_BYTES: usize = 512;

/// What the options of a row come to, defaults included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Failed attempts after which the task is given up.
    pub max_attempts: u16,
    /// Stalled attempts that are forgiven.
    pub max_stalls: u16,
    /// How long a consumer may be silent, ms.
    pub ack_timeout_ms: i64,
    /// Pause before the next attempt.
    pub backoff: Backoff,
}

impl RetryPolicy {
    /// The policy of a row.
    pub fn of(options: &RowOptions) -> RetryPolicy {
        RetryPolicy {
            max_attempts: options.max_attempts.unwrap_or(DEFAULT_MAX_ATTEMPTS),
            max_stalls: options.max_stalls.unwrap_or(DEFAULT_MAX_STALLS),
            ack_timeout_ms: options
                .ack_timeout_ms
                .unwrap_or(DEFAULT_ACK_TIMEOUT_MS)
                .clamp(0, MAX_DURATION_MS),
            backoff: options.backoff.unwrap_or_default(),
        }
    }

    /// Whether this was the last failure that is borne; `failures` counts it.
    pub fn is_exhausted(&self, failures: u16) -> bool {
        failures >= self.max_attempts
    }

    /// Whether this stall is not forgiven any more; `stalls` counts it.
    pub fn is_stalled_out(&self, stalls: u16) -> bool {
        stalls > self.max_stalls
    }
}

/// The pause after the `n`-th failure (or stall), counted from 1: never negative, at most 366 days, and for one
/// `(row, gen)` always the same. `standard` is `min(n, 10) × 2 min + 0..30 s`.
pub fn delay_ms(backoff: &Backoff, n: u16, of: RowGen) -> i64 {
    let n = n.max(1);
    let step_ms = backoff.step_ms.clamp(0, MAX_DURATION_MS);
    let grown = match backoff.growth {
        Growth::Fixed => step_ms,
        Growth::Linear => step_ms.saturating_mul(i64::from(n)),
        // Past 2^35 any step but 0 lies beyond the cap.
        Growth::Exponential => step_ms.saturating_mul(1 << u32::from(n - 1).min(35)),
    };
    let capped = backoff.cap_ms.map_or(grown, |cap_ms| grown.min(cap_ms.max(0))).min(MAX_DURATION_MS);
    let jitter = below(mix(of.id.0 ^ u64::from(of.generation.0).rotate_left(32)), backoff.jitter_ms);
    capped.saturating_add(jitter).min(MAX_DURATION_MS)
}

/// Adds an attempt that ended, leaving out the oldest where the whole would not fit.
pub fn remember(history: &mut RowHistory, mut past: PastAttempt) {
    if let Some(reason) = &mut past.reason {
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
    }
    history.attempts.push(past);
    while history.attempts.len() > 1 && history.encode().len() > MAX_HISTORY_BYTES {
        history.attempts.remove(0);
    }
}

/// Spreads the bits of a number that has few (the finalizer of `SplitMix64`: the same everywhere, for ever).
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number from 0 to `most`, both included.
pub(crate) fn below(hash: u64, most: i64) -> i64 {
    let most = most.clamp(0, MAX_DURATION_MS);
    i64::try_from(hash % (most.unsigned_abs() + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
