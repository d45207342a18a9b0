//! Options of a task that have a text of their own: how it is retried, how a herd of due times is spread.
//!
//! Each has one canonical text (`Display`), which the content hash and MySQL keep, and reads all of its spellings back.

mod backoff;
mod spread;

pub use backoff::{Backoff, Growth};
pub use spread::{Spread, Window};

use crate::duration;

/// Failed attempts after which a task is given up, where it does not say.
pub const DEFAULT_MAX_ATTEMPTS: u16 = 10;
/// Stalled attempts that are forgiven, where a task does not say.
pub const DEFAULT_MAX_STALLS: u16 = 3;
/// How long a consumer may be silent, where a task does not say: 15 minutes.
pub const DEFAULT_ACK_TIMEOUT_MS: i64 = 15 * 60_000;
/// Longest pause, spread, window or time-out: 366 days.
pub const MAX_DURATION_MS: i64 = 366 * 86_400_000;
/// Longest progress that an attempt may report.
pub const MAX_PROGRESS_BYTES: usize = 1024;

/// Text that is no such option: what is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} {problem}; write {example}")]
pub struct BadOption {
    /// The part of the text that is wrong, shortened.
    pub part: String,
    /// What is wrong with it, to follow it in a sentence.
    pub problem: String,
    /// A right one.
    pub example: &'static str,
}

impl BadOption {
    fn new(part: &str, problem: impl Into<String>, example: &'static str) -> BadOption {
        BadOption { part: part.chars().take(60).collect(), problem: problem.into(), example }
    }
}

/// Reads an ack time-out: from 1 second to 366 days, in milliseconds.
pub fn parse_ack_timeout(text: &str) -> Result<i64, BadOption> {
    let ms = bounded(text, EXAMPLE_TIMEOUT)?;
    if ms < 1_000 {
        return Err(BadOption::new(text, "is shorter than a second", EXAMPLE_TIMEOUT));
    }
    Ok(ms)
}

/// Reads a number of attempts: 1 to 65535.
pub fn parse_max_attempts(text: &str) -> Result<u16, BadOption> {
    let example = "a whole number from 1 to 65535";
    match text.parse() {
        Ok(n) if n > 0 && is_digits(text) => Ok(n),
        _ => Err(BadOption::new(text, "is no number of attempts", example)),
    }
}

/// Reads a number of stalls: 0 to 65535.
pub fn parse_max_stalls(text: &str) -> Result<u16, BadOption> {
    let example = "a whole number from 0 to 65535";
    match text.parse() {
        Ok(n) if is_digits(text) => Ok(n),
        _ => Err(BadOption::new(text, "is no number of stalls", example)),
    }
}

const EXAMPLE_TIMEOUT: &str = "a duration like 15m";

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A duration of at most 366 days.
fn bounded(text: &str, example: &'static str) -> Result<i64, BadOption> {
    match duration::parse_ms(text) {
        Ok(ms) if ms > MAX_DURATION_MS => Err(BadOption::new(text, "is longer than 366 days", example)),
        Ok(ms) => Ok(ms),
        Err(problem) => Err(BadOption::new(text, problem, example)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
