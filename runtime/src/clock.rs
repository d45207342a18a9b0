//! The one place that asks the machine what time it is (`clippy.toml` refuses it elsewhere).
//!
//! Due means by the database's clock (scanner, compensator) or by Redis' and the local one (dispatcher): see PROTOCOL §1, §2.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// Gives the time, epoch ms. May step back: use it for what is due, `Instant` for how long something takes.
pub trait Clock: Send + Sync + 'static {
    /// Now, epoch ms.
    fn now_ms(&self) -> i64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        now_ms()
    }
}

/// Now by the machine's clock, epoch ms.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now_ms() -> i64 {
    // A clock before 1970 is taken for 1970: everything is early then, and nothing is delivered.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A clock that tests set.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Stands at `now_ms`.
    pub fn at(now_ms: i64) -> ManualClock {
        ManualClock(AtomicI64::new(now_ms))
    }

    /// Moves it, backwards too.
    pub fn advance_ms(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}
