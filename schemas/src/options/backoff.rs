//! How long to wait before the next attempt. The formula itself is `protocol::retry`.

use std::fmt;
use std::str::FromStr;

use super::{BadOption, bounded};
use crate::duration::show_ms;

const EXAMPLE: &str = "standard, or one like linear:2m,cap=20m,jitter=30s (fixed, linear or exponential)";

/// Pause before the next attempt: `fixed:30s`, `linear:2m,cap=20m,jitter=30s`, `exponential:1s,cap=1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// How the pause grows.
    pub growth: Growth,
    /// The first pause, ms.
    pub step_ms: i64,
    /// The pause grows no further, ms; jitter is added to it.
    pub cap_ms: Option<i64>,
    /// A pause is lengthened by 0 to this, ms.
    pub jitter_ms: i64,
}

/// How a pause grows from one attempt to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Growth {
    /// Not at all.
    Fixed,
    /// By one step each time.
    Linear,
    /// It doubles.
    Exponential,
}

impl Growth {
    /// All of them.
    pub const ALL: [Growth; 3] = [Growth::Fixed, Growth::Linear, Growth::Exponential];

    /// Its name in the text.
    pub const fn name(self) -> &'static str {
        match self {
            Growth::Fixed => "fixed",
            Growth::Linear => "linear",
            Growth::Exponential => "exponential",
        }
    }
}

impl Backoff {
    /// `min(n, 10) × 2 min + 0..30 s`, also written `standard`: what applies where a task does not say.
    pub const STANDARD: Backoff =
        Backoff { growth: Growth::Linear, step_ms: 120_000, cap_ms: Some(1_200_000), jitter_ms: 30_000 };
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::STANDARD
    }
}

impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.growth.name(), show_ms(self.step_ms))?;
        if let Some(cap_ms) = self.cap_ms {
            write!(f, ",cap={}", show_ms(cap_ms))?;
        }
        if self.jitter_ms != 0 {
            write!(f, ",jitter={}", show_ms(self.jitter_ms))?;
        }
        Ok(())
    }
}

impl FromStr for Backoff {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<Backoff, BadOption> {
        if text == "standard" {
            return Ok(Backoff::STANDARD);
        }
        let bad = |part: &str, problem: &str| Err(BadOption::new(part, problem, EXAMPLE));
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let Some((name, step)) = first.split_once(':') else { return bad(first, "is no backoff") };
        let Some(growth) = Growth::ALL.into_iter().find(|growth| growth.name() == name) else {
            return bad(name, "is none of fixed, linear, exponential");
        };
        let step_ms = bounded(step, EXAMPLE)?;
        if step_ms == 0 && growth != Growth::Fixed {
            return bad(step, "never grows");
        }
        let (mut cap_ms, mut jitter_ms) = (None, None);
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return bad(part, "is none of cap=, jitter=");
            };
            let place = match key {
                "cap" => &mut cap_ms,
                "jitter" => &mut jitter_ms,
                _ => return bad(part, "is none of cap=, jitter="),
            };
            if place.replace(bounded(value, EXAMPLE)?).is_some() {
                return bad(part, "stands more than once");
            }
        }
        if cap_ms.is_some_and(|cap_ms| cap_ms < step_ms) {
            return bad(text, "has a cap below its first pause");
        }
        Ok(Backoff { growth, step_ms, cap_ms, jitter_ms: jitter_ms.unwrap_or(0) })
    }
}
