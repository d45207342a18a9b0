//! How far a task is shifted from the due time it asked for, so that a herd of equal ones leaves evenly (DESIGN §3).
//!
//! A pure function of the task's identity: a resubmission lands on the same instant. Never earlier than asked.

use crate::admission::Identity;
use crate::retry::{below, mix};
use schemas::options::{Spread, Window};

/// The shift in ms. A spread puts the task into one of its parts and shifts it by its jitter; a window alone shifts
/// evenly over its length; together, no part and no jitter leads beyond the window. Neither: 0.
pub fn shift_ms(identity: &Identity, spread: Option<Spread>, window: Option<Window>) -> i64 {
    // Two independent numbers from 128 bits that are a hash already.
    let (high, low) = identity.0.split_at(8);
    let number = |bytes: &[u8]| mix(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
    let (part, jitter) = (number(high), number(low));
    let window_ms = window.map(|window| window.window_ms.max(0));
    match (spread, window_ms) {
        (None, None) => 0,
        (None, Some(window_ms)) => below(part, window_ms),
        (Some(spread), window_ms) => {
            let bound_ms = window_ms.unwrap_or(i64::MAX);
            let offset_ms = spread.offset_ms.max(0);
            let parts = u64::from(spread.parts.max(1));
            // How many parts begin within the window.
            let fitting =
                bound_ms.checked_div(offset_ms).map_or(u64::MAX, |n| n.unsigned_abs().saturating_add(1));
            let begins_ms = i64::try_from(part % parts.min(fitting)).unwrap_or(0).saturating_mul(offset_ms);
            begins_ms.saturating_add(below(jitter, spread.jitter_ms.min(bound_ms - begins_ms)))
        }
    }
}

/// When a task is due that asked for `asked_at`: at or after it, and before it expires, for a spread must not make a dead
/// letter of what could be delivered. Where that leaves no room, nothing is shifted.
pub fn due_at(
    identity: &Identity,
    asked_at: i64,
    expires_at: Option<i64>,
    spread: Option<Spread>,
    window: Option<Window>,
) -> i64 {
    if spread.is_none() && window.is_none() {
        return asked_at;
    }
    // What has expired is not delivered: the last instant is the one before.
    let room_ms = expires_at.map(|expires_at| expires_at.saturating_sub(asked_at).saturating_sub(1).max(0));
    let bound_ms = match (window.map(|window| window.window_ms), room_ms) {
        (Some(window_ms), Some(room_ms)) => Some(window_ms.min(room_ms)),
        (window_ms, room_ms) => window_ms.or(room_ms),
    };
    let bound = bound_ms.map(|window_ms| Window { window_ms });
    asked_at.saturating_add(shift_ms(identity, spread, bound))
}

#[cfg(test)]
mod tests;
