//! How a herd of equal due times is spread. The shift itself is `protocol::spread`.

use std::fmt;
use std::str::FromStr;

use super::{BadOption, MAX_DURATION_MS, bounded};
use crate::duration::show_ms;

const EXAMPLE: &str = "one like 10x10s+5s (parts x offset + jitter)";
const EXAMPLE_WINDOW: &str = "a duration like 5m";

/// `10x10s+5s`: a task goes to one of ten parts, ten seconds apart, and is shifted by 0 to 5 s within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spread {
    /// How many parts there are, at least 1.
    pub parts: u32,
    /// From one part to the next, ms.
    pub offset_ms: i64,
    /// Within its part a task is shifted by 0 to this, ms.
    pub jitter_ms: i64,
}

/// `5m`: alone, tasks are spread evenly over it; beside a [`Spread`], no shift is longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Its length, ms.
    pub window_ms: i64,
}

impl Spread {
    /// The longest shift.
    pub fn longest_ms(&self) -> i64 {
        let parts = i64::from(self.parts.saturating_sub(1));
        parts.saturating_mul(self.offset_ms).saturating_add(self.jitter_ms)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.parts, show_ms(self.offset_ms))?;
        if self.jitter_ms != 0 {
            write!(f, "+{}", show_ms(self.jitter_ms))?;
        }
        Ok(())
    }
}

impl FromStr for Spread {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Spread, BadOption> {
        let bad = |part: &str, problem: &str| Err(BadOption::new(part, problem, EXAMPLE));
        let (herd, jitter) = match text.split_once('+') {
            Some((herd, jitter)) => (herd, Some(jitter)),
            None => (text, None),
        };
        let Some((parts, offset)) = herd.split_once('x') else { return bad(herd, "is no spread") };
        let parts = match parts.parse() {
            Ok(n) if n > 0 && super::is_digits(parts) => n,
            _ => return bad(parts, "is no number of parts from 1 to 4294967295"),
        };
        let offset_ms = bounded(offset, EXAMPLE)?;
        let jitter_ms = jitter.map_or(Ok(0), |jitter| bounded(jitter, EXAMPLE))?;
        let spread = Spread { parts, offset_ms, jitter_ms };
        if spread.longest_ms() > MAX_DURATION_MS {
            return bad(text, "shifts by more than 366 days");
        }
        Ok(spread)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_ms(self.window_ms))
    }
}

impl FromStr for Window {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Window, BadOption> {
        Ok(Window { window_ms: bounded(text, EXAMPLE_WINDOW)? })
    }
}
