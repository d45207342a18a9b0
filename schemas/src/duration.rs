//! Durations as producers write them: `90s`, `1h30m`, `PT90S`.

use jiff::{Span, SpanRelativeTo};

/// Reads a duration of fixed length in milliseconds; a day has 24 hours. `Err`: what is wrong with the text.
pub(crate) fn parse_ms(text: &str) -> Result<i64, &'static str> {
    // `00:05` would be read as a clock's, and may be minutes or seconds to whoever wrote it.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_number || text.contains(':') {
        return Err("has no unit");
    }
    let Ok(span) = text.parse::<Span>() else { return Err("is not a duration") };
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err("has years or months, whose length varies");
    }
    if span.is_negative() {
        return Err("is negative");
    }
    let Ok(duration) = span.to_duration(SpanRelativeTo::days_are_24_hours()) else {
        return Err("is too long");
    };
    let nanos = duration.as_nanos();
    if nanos % 1_000_000 != 0 {
        return Err("is finer than a millisecond");
    }
    i64::try_from(nanos / 1_000_000).map_err(|_| "is too long")
}

/// The one text of a duration: the largest unit in which it is a whole number. [`parse_ms`] reads it back.
pub(crate) fn show_ms(ms: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    match units.into_iter().find(|(unit, _)| ms != 0 && ms % unit == 0) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0s".into(),
        None => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_duration_is_shown_in_its_largest_whole_unit() {
        let shown: Vec<String> =
            [0, 1, 1_500, 90_000, 120_000, 5_400_000, 7_200_000, 172_800_000].map(show_ms).into();
        assert_eq!(shown, ["0s", "1ms", "1500ms", "90s", "2m", "90m", "2h", "2d"]);
    }

    #[test]
    fn what_has_no_unit_is_refused() {
        for text in ["90", "-90", "00:00:05", "1:30", "1h 00:30:00"] {
            assert_eq!(parse_ms(text), Err("has no unit"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(ms in 0i64..10_000_000_000_000) {
            prop_assert_eq!(parse_ms(&show_ms(ms)), Ok(ms));
        }
    }
}
