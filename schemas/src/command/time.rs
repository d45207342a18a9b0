//! Times and delays as producers write them.

use jiff::{Timestamp, civil};

use super::reason::{ReasonCode, Refusal};
use crate::duration;

/// 2001-01-01T00:00:00Z. Seconds of our time, read as milliseconds, lie in 1970.
const EARLIEST_AT: i64 = 978_307_200_000;
/// 2201-01-01T00:00:00Z, the first that is refused. Microseconds read as milliseconds lie millennia later.
const LATEST_AT: i64 = 7_289_654_400_000;

/// An instant: epoch milliseconds, or RFC 3339 with an offset. What is finer than a millisecond is rounded up, because
/// a task may be late but never early.
pub(super) fn parse_time(field: &str, text: &str) -> Result<i64, Refusal> {
    let refuse = |code, problem: &str| Refusal::of_value(code, field, text.as_bytes(), problem);
    if is_whole_number(text) {
        let at =
            text.parse().map_err(|_| refuse(ReasonCode::TimeOutOfRange, "is far outside 2001 to 2200"))?;
        return check_range(at).map_err(|problem| refuse(ReasonCode::TimeOutOfRange, &problem));
    }
    // RFC 9557, as Java's ZonedDateTime writes it. The zone may contradict the offset, and without an offset it names
    // no instant in the night of a clock change: neither is guessed.
    let (plain, zone) = match text.split_once('[') {
        Some((plain, _)) => (plain, true),
        None => (text, false),
    };
    let Ok(timestamp) = plain.parse::<Timestamp>() else {
        return Err(match plain.parse::<civil::DateTime>() {
            Ok(_) if zone => refuse(
                ReasonCode::TimeWithoutZone,
                "has no offset from UTC, and the name of a zone does not tell the two instants apart that some local times \
                 are",
            ),
            Ok(_) => refuse(ReasonCode::TimeWithoutZone, "has no offset from UTC"),
            Err(_) => refuse(ReasonCode::InvalidTime, "is neither RFC 3339 nor epoch milliseconds"),
        });
    };
    if zone {
        let problem = "names a zone in brackets, which may contradict the offset before it";
        return Err(refuse(ReasonCode::InvalidTime, problem));
    }
    // jiff reads it as the second before, and the task would be early.
    if is_leap_second(plain) {
        let problem = "lies in a leap second, which epoch milliseconds do not have";
        return Err(refuse(ReasonCode::LeapSecond, problem));
    }
    let mut at = timestamp.as_millisecond();
    if timestamp > Timestamp::from_millisecond(at).unwrap_or(Timestamp::MAX) {
        at += 1;
    }
    check_range(at).map_err(|problem| refuse(ReasonCode::TimeOutOfRange, &problem))
}

/// A delay with units, friendly (`90s`, `1h30m`) or ISO 8601 (`PT90S`), in milliseconds. A day has 24 hours.
pub(super) fn parse_delay(field: &str, text: &str) -> Result<i64, Refusal> {
    let refuse =
        |problem: &str| Err(Refusal::of_value(ReasonCode::InvalidDelay, field, text.as_bytes(), problem));
    duration::parse_ms(text).or_else(refuse)
}

/// When a delay ends that counts from `from_at`.
pub(super) fn after(field: &str, text: &str, from_at: i64, delay_ms: i64) -> Result<i64, Refusal> {
    from_at
        .checked_add(delay_ms)
        .ok_or_else(|| "ends far outside 2001 to 2200".to_owned())
        .and_then(check_range)
        .map_err(|problem| {
            let problem = format!("counted from the record's timestamp {from_at} {problem}");
            Refusal::of_value(ReasonCode::TimeOutOfRange, field, text.as_bytes(), &problem)
        })
}

/// RFC 3339 of an instant, for messages.
pub(super) fn rfc3339(at: i64) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| format!("{at} ms"), |timestamp| timestamp.to_string())
}

/// Whether the second is 60, in a text that is a time.
fn is_leap_second(text: &str) -> bool {
    let Some((_, time)) = text.split_once(['T', 't', ' ']) else { return false };
    let clock: Vec<u8> = time.bytes().filter(|byte| *byte != b':').take(6).collect();
    clock.iter().all(u8::is_ascii_digit) && clock.ends_with(b"60") && clock.len() == 6
}

fn is_whole_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The instant, or what is wrong with it and which unit may have been meant.
fn check_range(at: i64) -> Result<i64, String> {
    let fits = |at: i64| (EARLIEST_AT..LATEST_AT).contains(&at);
    if fits(at) {
        return Ok(at);
    }
    let read_as = rfc3339(at);
    let hint = if at.checked_mul(1_000).is_some_and(fits) {
        ": it looks like seconds"
    } else if fits(at / 1_000) {
        ": it looks like microseconds"
    } else if fits(at / 1_000_000) {
        ": it looks like nanoseconds"
    } else {
        ""
    };
    Err(format!("means {read_as}, outside 2001 to 2200{hint}"))
}

#[cfg(test)]
mod tests;
