//! Durations as people write them.

use serde::de::{self, Deserialize, Deserializer};
use std::{fmt, ops::Deref, str::FromStr, time::Duration};

/// A duration written as text: `500ms`, `10s`, `5m`, `1h`, `7d`, or joined as in `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration(pub Duration);

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl HumanDuration {
    /// The duration itself.
    pub fn get(self) -> Duration {
        self.0
    }

    /// In milliseconds, as times are counted everywhere.
    pub fn as_ms(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }
}

impl Deref for HumanDuration {
    type Target = Duration;
    fn deref(&self) -> &Duration {
        &self.0
    }
}

/// The text is no duration. Its display says how to write one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a duration; write numbers with units, such as 500ms, 10s, 5m, 1h or 7d")]
pub struct NotADuration;

impl FromStr for HumanDuration {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<HumanDuration, NotADuration> {
        let mut rest = text.trim();
        let mut total_ms = 0_u64;
        if rest.is_empty() {
            return Err(NotADuration);
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(NotADuration)?;
            let (number, tail) = rest.split_at(digits);
            let unit_len = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_len);
            let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(NotADuration)?;
            let number: u64 = number.parse().map_err(|_| NotADuration)?;
            let part_ms = number.checked_mul(*factor).ok_or(NotADuration)?;
            total_ms = total_ms.checked_add(part_ms).ok_or(NotADuration)?;
            rest = tail.trim_start();
        }
        // i64 milliseconds are what times are kept in.
        i64::try_from(total_ms).map_err(|_| NotADuration)?;
        Ok(HumanDuration(Duration::from_millis(total_ms)))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis() as u64;
        let (unit, factor) =
            UNITS.iter().rev().find(|(_, factor)| ms.is_multiple_of(*factor)).unwrap_or(&UNITS[0]);
        match ms {
            0 => f.write_str("0s"),
            _ => write!(f, "{}{unit}", ms / factor),
        }
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<HumanDuration, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_people_write_them() {
        for (text, ms, shown) in [
            ("500ms", 500, "500ms"),
            ("10s", 10_000, "10s"),
            ("90s", 90_000, "90s"),
            ("1h30m", 5_400_000, "90m"),
            ("1m 30s", 90_000, "90s"),
            ("7d", 604_800_000, "7d"),
            ("0s", 0, "0s"),
        ] {
            let read: HumanDuration = text.parse().unwrap();
            assert_eq!((read.as_ms(), read.to_string().as_str()), (ms, shown), "{text}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_no_duration() {
        for text in [
            "",
            "10",
            "s",
            "10 s",
            "-1s",
            "1.5s",
            "10x",
            "10sec",
            "99999999999999999999d",
            "9999999999999999d",
        ] {
            assert_eq!(text.parse::<HumanDuration>(), Err(NotADuration), "{text}");
        }
    }
}
