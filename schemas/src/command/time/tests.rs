use super::*;

fn time(text: &str) -> Result<i64, ReasonCode> {
    parse_time("due_at", text).map_err(|refusal| refusal.code)
}

fn delay(text: &str) -> Result<i64, ReasonCode> {
    parse_delay("delay", text).map_err(|refusal| refusal.code)
}

#[test]
fn a_time_is_epoch_milliseconds_or_rfc_3339() {
    let at = 1_769_850_000_000;
    for text in [
        "1769850000000",
        "2026-01-31T09:00:00Z",
        "2026-01-31t09:00:00z",
        "2026-01-31 09:00:00Z",
        "2026-01-31T10:00:00+01:00",
        "2026-01-31T03:30:00-05:30",
        "2026-01-31T09:00:00.000Z",
        "2026-01-31T09:00:00.000000000Z",
    ] {
        assert_eq!(time(text), Ok(at), "{text}");
    }
    assert_eq!(time("2026-01-31T09:00:00.123Z"), Ok(at + 123));
}

#[test]
fn what_is_finer_than_a_millisecond_is_rounded_up() {
    assert_eq!(time("2026-01-31T09:00:00.000000001Z"), Ok(1_769_850_000_001));
    assert_eq!(time("2026-01-31T09:00:00.123456Z"), Ok(1_769_850_000_124));
}

#[test]
fn a_time_without_zone_is_refused() {
    for text in ["2026-01-31T09:00:00", "2026-01-31 09:00", "2026-01-31"] {
        assert_eq!(time(text), Err(ReasonCode::TimeWithoutZone), "{text}");
    }
}

#[test]
fn a_leap_second_is_refused_because_it_could_only_be_read_as_another() {
    for text in [
        "2016-12-31T23:59:60Z",
        "2016-12-31T23:59:60.5Z",
        "2017-01-01T00:59:60+01:00",
        "2017-01-01 00:59:60+01:00",
        "20161231T235960Z",
        "2026-01-31T09:00:60Z",
    ] {
        assert_eq!(time(text), Err(ReasonCode::LeapSecond), "{text}");
    }
    assert_eq!(time("2016-12-31T23:59:59Z"), Ok(1_483_228_799_000));
    assert_eq!(time("2016-12-31T23:59:61Z"), Err(ReasonCode::InvalidTime));
    assert_eq!(time("2026-01-31T09:60:00Z"), Err(ReasonCode::InvalidTime));
    // 60 elsewhere is no second.
    assert_eq!(time("2026-01-31T09:00:00.60Z"), Ok(1_769_850_000_600));
    assert_eq!(time("2060-01-31T09:06:06Z"), Ok(2_842_765_566_000));
}

#[test]
fn an_offset_names_one_instant_also_in_the_night_of_a_clock_change() {
    // Berlin put the clock back at 03:00+02:00: 02:30 came twice.
    assert_eq!(time("2026-10-25T02:30:00+02:00"), Ok(1_792_888_200_000));
    assert_eq!(time("2026-10-25T02:30:00+01:00"), Ok(1_792_891_800_000));
    // 02:30+01:00 did not exist there on 2026-03-29, and still is an instant.
    assert_eq!(time("2026-03-29T02:30:00+01:00"), Ok(1_774_747_800_000));
    assert_eq!(time("2026-10-25T02:30:00"), Err(ReasonCode::TimeWithoutZone));
}

#[test]
fn the_name_of_a_zone_is_not_evaluated() {
    for text in [
        "2026-10-25T02:30+01:00[Europe/Berlin]",
        "2026-07-01T09:00:00+01:00[Europe/Berlin]",
        "2026-01-31T09:00:00Z[UTC]",
        "2026-01-31T09:00:00Z[!Europe/Berlin]",
        "2026-01-31T09:00:00Z[u-ca=gregory]",
        "2026-01-31T09:00:00Z[",
    ] {
        assert_eq!(time(text), Err(ReasonCode::InvalidTime), "{text}");
    }
    for text in ["2026-10-25T02:30:00[Europe/Berlin]", "2026-10-25T02:30:00[+01:00]"] {
        assert_eq!(time(text), Err(ReasonCode::TimeWithoutZone), "{text}");
    }
    for text in ["[Europe/Berlin]", "tomorrow[Europe/Berlin]", "["] {
        assert_eq!(time(text), Err(ReasonCode::InvalidTime), "{text}");
    }
}

#[test]
fn what_is_no_time_is_refused() {
    for text in [
        "",
        " ",
        "-",
        "tomorrow",
        "1769850000000.0",
        "1.7e12",
        "0x10",
        "+1769850000000",
        " 1769850000000",
        "1769850000000 ",
        "2026-02-30T09:00:00Z",
        "2026-01-31T25:00:00Z",
        "09:00Z",
        "90s",
        "\0",
        "１７",
    ] {
        assert_eq!(time(text), Err(ReasonCode::InvalidTime), "{text:?}");
    }
}

#[test]
fn a_mistake_of_unit_is_named() {
    for (text, hint) in [
        ("1769850000", "2026-01-21"),
        ("1769850000", "it looks like seconds"),
        ("1769850000000000", "it looks like microseconds"),
        ("1769850000000000000", "it looks like nanoseconds"),
        ("99999999999999999999999", "far outside"),
        ("-1", "1969-12-31T23:59:59.999Z, outside 2001 to 2200;"),
        ("0", "1970-01-01T00:00:00Z, outside 2001 to 2200;"),
        ("20260131", "outside 2001 to 2200;"),
        ("2000-12-31T23:59:59.999Z", "outside"),
        ("2201-01-01T00:00:00Z", "outside"),
    ] {
        let refusal = parse_time("due_at", text).unwrap_err();
        assert_eq!(refusal.code, ReasonCode::TimeOutOfRange, "{text}");
        if hint != "2026-01-21" {
            assert!(refusal.message.contains(hint), "{text}: {}", refusal.message);
        }
    }
    assert_eq!(time("2001-01-01T00:00:00Z"), Ok(EARLIEST_AT));
    assert_eq!(time("2200-12-31T23:59:59.999Z"), Ok(LATEST_AT - 1));
}

#[test]
fn a_delay_has_a_unit() {
    let (second, minute, hour) = (1_000, 60_000, 3_600_000);
    for (text, delay_ms) in [
        ("90s", 90 * second),
        ("15m", 15 * minute),
        ("1h30m", hour + 30 * minute),
        ("1h 30m", hour + 30 * minute),
        ("2d", 48 * hour),
        ("1w", 7 * 24 * hour),
        ("250ms", 250),
        ("1.5h", 90 * minute),
        ("0s", 0),
        ("90 seconds", 90 * second),
        ("PT90S", 90 * second),
        ("PT1H30M", 90 * minute),
        ("P1DT1H", 25 * hour),
        ("P1W", 7 * 24 * hour),
        ("PT0.25S", 250),
        ("+90s", 90 * second),
    ] {
        assert_eq!(delay(text), Ok(delay_ms), "{text}");
    }
}

#[test]
fn what_is_no_delay_of_fixed_length_is_refused() {
    for text in [
        "",
        "90",
        "-90",
        "90x",
        "-90s",
        "90s ago",
        "-PT90S",
        "P1M",
        "1mo",
        "1y",
        "P1Y",
        "1us",
        "1.0005s",
        "s",
        "PT",
        "P",
        "1e3s",
        "99999999999999999999s",
        "15:00",
        "2026-01-31T09:00:00Z",
        "\0",
    ] {
        assert_eq!(delay(text), Err(ReasonCode::InvalidDelay), "{text:?}");
    }
}

#[test]
fn a_delay_that_leads_out_of_range_is_refused() {
    let error = |from_at, delay_ms| after("delay", "1d", from_at, delay_ms).unwrap_err().code;
    assert_eq!(error(i64::MAX, 1), ReasonCode::TimeOutOfRange);
    assert_eq!(error(-1, 0), ReasonCode::TimeOutOfRange);
    assert_eq!(after("delay", "1s", EARLIEST_AT, 1_000), Ok(EARLIEST_AT + 1_000));
}
