use super::*;
use proptest::prelude::*;

fn backoff(text: &str) -> Result<Backoff, String> {
    text.parse().map_err(|bad: BadOption| bad.to_string())
}

#[test]
fn standard_is_the_linear_one_of_two_minutes() {
    assert_eq!(backoff("standard"), Ok(Backoff::STANDARD));
    assert_eq!(Backoff::STANDARD.to_string(), "linear:2m,cap=20m,jitter=30s");
    assert_eq!(backoff("linear:2m,cap=20m,jitter=30s"), Ok(Backoff::STANDARD));
}

#[test]
fn however_it_is_written_a_backoff_has_one_text() {
    for (text, canonical) in [
        ("fixed:30s", "fixed:30s"),
        ("fixed:0s", "fixed:0s"),
        ("exponential:PT1S,jitter=1500ms,cap=60m", "exponential:1s,cap=1h,jitter=1500ms"),
        ("linear:120s,cap=20m,jitter=30000ms", "linear:2m,cap=20m,jitter=30s"),
        ("fixed:30s,jitter=0s", "fixed:30s"),
    ] {
        assert_eq!(backoff(text).map(|backoff| backoff.to_string()), Ok(canonical.to_owned()), "{text}");
    }
}

#[test]
fn what_is_no_backoff_is_refused_with_the_part_that_is_wrong() {
    for (text, part) in [
        ("", "\"\" is no backoff"),
        ("30s", "\"30s\" is no backoff"),
        ("cubic:30s", "\"cubic\" is none of fixed, linear, exponential"),
        ("Fixed:30s", "\"Fixed\" is none of"),
        ("fixed:30", "\"30\" has no unit"),
        ("fixed:-30s", "\"-30s\" is negative"),
        ("fixed:400d", "\"400d\" is longer than 366 days"),
        ("fixed:30s,cap", "\"cap\" is none of cap=, jitter="),
        ("fixed:30s,jitter=-1s", "\"-1s\" is negative"),
        ("fixed:30s,jitter=1s,jitter=2s", "\"jitter=2s\" stands more than once"),
        ("linear:30s,cap=10s", "has a cap below its first pause"),
        ("linear:0s", "\"0s\" never grows"),
        ("exponential:1y", "has years or months"),
    ] {
        let error = backoff(text).unwrap_err();
        assert!(error.contains(part) && error.contains("; write "), "{text}: {error}");
    }
}

#[test]
fn however_it_is_written_a_spread_has_one_text() {
    for (text, canonical) in
        [("10x10s+5s", "10x10s+5s"), ("10x10000ms+5s", "10x10s+5s"), ("3x1m", "3x1m"), ("3x60s+0s", "3x1m")]
    {
        assert_eq!(text.parse::<Spread>().unwrap().to_string(), canonical);
    }
    assert_eq!("10x10s+5s".parse::<Spread>().unwrap().longest_ms(), 95_000);
    assert_eq!("300s".parse::<Window>().unwrap().to_string(), "5m");
}

#[test]
fn what_is_no_spread_is_refused() {
    for text in ["", "10s", "0x10s", "x10s", "+1x10s", "10x10", "10x-10s", "10x10s+", "10x10s+5", "400x1d"] {
        assert!(text.parse::<Spread>().is_err(), "{text}");
    }
    for text in ["", "5", "-5m", "367d", "1mo"] {
        assert!(text.parse::<Window>().is_err(), "{text}");
    }
}

#[test]
fn numbers_and_time_outs_are_bounded() {
    assert_eq!(parse_ack_timeout("15m"), Ok(DEFAULT_ACK_TIMEOUT_MS));
    assert!(["0s", "999ms", "367d", "15", ""].iter().all(|text| parse_ack_timeout(text).is_err()));
    assert_eq!((parse_max_attempts("1"), parse_max_attempts("65535")), (Ok(1), Ok(65_535)));
    assert!(["0", "-1", "+1", "65536", "", "1.0"].iter().all(|text| parse_max_attempts(text).is_err()));
    assert_eq!(parse_max_stalls("0"), Ok(0));
    assert!(["-1", "+0", "65536", ""].iter().all(|text| parse_max_stalls(text).is_err()));
}

pub(crate) fn any_backoff() -> impl Strategy<Value = Backoff> {
    let (step, more) = (1..MAX_DURATION_MS / 2, proptest::option::of(0..MAX_DURATION_MS / 2));
    (prop::sample::select(Growth::ALL.to_vec()), step, more, 0..MAX_DURATION_MS).prop_map(
        |(growth, step_ms, more, jitter_ms)| {
            let cap_ms = more.map(|more| step_ms + more);
            Backoff { growth, step_ms, cap_ms, jitter_ms }
        },
    )
}

proptest! {
    #[test]
    fn a_backoff_is_read_back_from_its_text(backoff in any_backoff()) {
        prop_assert_eq!(backoff.to_string().parse::<Backoff>(), Ok(backoff));
    }

    #[test]
    fn a_spread_is_read_back_from_its_text(parts in 1u32..1_000, offset_ms in 0i64..10_000_000, jitter_ms in 0i64..100_000) {
        let spread = Spread { parts, offset_ms, jitter_ms };
        prop_assert_eq!(spread.to_string().parse::<Spread>(), Ok(spread));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in ".{0,40}") {
        // What is taken says in its own words the same.
        if let Ok(backoff) = text.parse::<Backoff>() {
            prop_assert_eq!(backoff.to_string().parse::<Backoff>(), Ok(backoff));
        }
        if let Ok(spread) = text.parse::<Spread>() {
            prop_assert_eq!(spread.to_string().parse::<Spread>(), Ok(spread));
        }
        if let Ok(window) = text.parse::<Window>() {
            prop_assert_eq!(window.to_string().parse::<Window>(), Ok(window));
        }
    }
}
