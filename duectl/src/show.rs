//! Times, spans and bytes for people.

use jiff::Timestamp;
use std::io::Write as _;

/// Prints text and ends the line. A reader that closed the pipe (`| head`) has seen enough: the command ends well.
pub(crate) fn say(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// RFC 3339 with milliseconds, UTC.
pub(crate) fn time(at: i64) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| format!("{at} ms"), |t| format!("{t:.3}"))
}

/// `3 ms`, `1.500 s`, `2 min 5 s`, `3 d 4 h`.
pub(crate) fn span(ms: i64) -> String {
    let (sign, ms) = (if ms < 0 { "-" } else { "" }, ms.unsigned_abs());
    let (s, min, h) = (ms / 1000, ms / 60_000, ms / 3_600_000);
    sign.to_owned()
        + &match ms {
            0..1_000 => format!("{ms} ms"),
            1_000..60_000 => format!("{s}.{:03} s", ms % 1000),
            60_000..3_600_000 => format!("{min} min {} s", s % 60),
            3_600_000..86_400_000 => format!("{h} h {} min", min % 60),
            _ => format!("{} d {} h", h / 24, h % 24),
        }
}

/// Bytes as text on one line, cut to `limit` characters; what is no text as hex.
pub(crate) fn bytes(bytes: Option<&[u8]>, limit: usize) -> String {
    let Some(bytes) = bytes else { return "null".into() };
    let whole = match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().fold(String::new(), |line, c| {
            if c.is_control() {
                line + &c.escape_debug().to_string()
            } else {
                line + c.encode_utf8(&mut [0; 4])
            }
        }),
        Err(_) => bytes.iter().take(limit).fold("0x".to_owned(), |hex, byte| hex + &format!("{byte:02x}")),
    };
    if whole.chars().count() <= limit {
        return whole;
    }
    let cut: String = whole.chars().take(limit).collect();
    format!("{cut}… ({} bytes)", bytes.len())
}

/// Value at a quantile of sorted numbers (nearest rank).
pub(crate) fn quantile(sorted: &[i64], q: f64) -> i64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_spans_read_well() {
        assert_eq!(time(978_309_900_007), "2001-01-01T00:45:00.007Z");
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_500, "1.500 s"),
            (-1_500, "-1.500 s"),
            (125_000, "2 min 5 s"),
            (3_660_000, "1 h 1 min"),
            (273_600_000, "3 d 4 h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn bytes_stay_on_one_line() {
        assert_eq!(bytes(None, 10), "null");
        assert_eq!(bytes(Some(b""), 10), "");
        assert_eq!(bytes(Some(b"a\n\"b\""), 10), "a\\n\"b\"");
        assert_eq!(bytes(Some(&[0xff, 0x00]), 10), "0xff00");
        assert_eq!(bytes(Some(b"abcdefghijkl"), 10), "abcdefghij… (12 bytes)");
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let sorted = [1, 2, 3, 4];
        assert_eq!((quantile(&sorted, 0.5), quantile(&sorted, 0.99), quantile(&sorted, 0.0)), (2, 4, 1));
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
