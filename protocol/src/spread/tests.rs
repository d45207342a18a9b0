use super::*;
use proptest::prelude::*;
use schemas::command::identity;

fn task(n: u32) -> Identity {
    let id = format!("reminder-{n}");
    Identity(identity(&id, &id))
}

fn spread(text: &str) -> Option<Spread> {
    Some(text.parse().unwrap())
}

fn window(text: &str) -> Option<Window> {
    Some(text.parse().unwrap())
}

/// How many of the first hundred tasks fall into each stretch.
fn histogram(spread: Option<Spread>, window: Option<Window>, stretch_ms: i64, stretches: usize) -> Vec<u32> {
    let mut counts = vec![0; stretches];
    for n in 0..100 {
        let shift_ms = shift_ms(&task(n), spread, window);
        counts[usize::try_from(shift_ms / stretch_ms).unwrap()] += 1;
    }
    counts
}

#[test]
fn a_hundred_tasks_of_one_instant_leave_evenly_in_ten_parts() {
    let counts = histogram(spread("10x10s+5s"), None, 10_000, 10);
    assert!(counts.iter().all(|n| (3..=20).contains(n)), "{counts:?}");
    let second_halves = histogram(spread("10x10s+5s"), None, 5_000, 20);
    let late: u32 = second_halves.iter().skip(1).step_by(2).sum();
    assert_eq!(late, 0, "no jitter is longer than 5 s: {second_halves:?}");
}

#[test]
fn a_window_alone_is_used_evenly() {
    let counts = histogram(None, window("100s"), 10_001, 10);
    assert!(counts.iter().all(|n| (3..=20).contains(n)), "{counts:?}");
}

#[test]
fn a_window_bounds_a_spread_without_heaping_tasks_at_its_end() {
    let counts = histogram(spread("10x10s+5s"), window("30s"), 10_000, 4);
    assert!(counts.iter().all(|n| (15..=36).contains(n)), "{counts:?}");
    assert!((0..100).all(|n| shift_ms(&task(n), spread("10x10s+5s"), window("30s")) <= 30_000));
    assert!((0..100).all(|n| shift_ms(&task(n), spread("10x10s+5s"), window("0s")) == 0));
}

#[test]
fn nothing_is_shifted_that_did_not_ask_for_it() {
    assert_eq!(shift_ms(&task(1), None, None), 0);
    assert_eq!(shift_ms(&task(1), spread("1x10s"), None), 0);
}

#[test]
fn part_and_jitter_do_not_follow_each_other() {
    let of_part = |part: i64| {
        let shifts = (0..1_000).map(|n| shift_ms(&task(n), spread("10x10s+9s"), None));
        let jitters: Vec<i64> = shifts.filter(|ms| ms / 10_000 == part).map(|ms| ms % 10_000).collect();
        jitters.iter().sum::<i64>() / jitters.len() as i64
    };
    for part in 0..10 {
        assert!((3_500..=5_500).contains(&of_part(part)), "part {part}: {}", of_part(part));
    }
}

#[test]
fn a_shift_stays_what_it_is_for_ever() {
    // A resubmission after an upgrade must land on the same instant.
    let shifts: Vec<i64> = (0..4).map(|n| shift_ms(&task(n), spread("10x10s+5s"), None)).collect();
    assert_eq!(shifts, GOLDEN);
}

#[test]
fn a_shift_ends_before_the_task_expires_and_uses_what_room_there_is_evenly() {
    let due =
        |n: u32, expires_at, spread: &str| due_at(&task(n), 1_000_000, expires_at, spread.parse().ok(), None);
    assert!((0..100).all(|n| due(n, Some(1_030_000), "10x10s+5s") < 1_030_000));
    let third = (0..100).filter(|n| due(*n, Some(1_030_000), "10x10s+5s") >= 1_020_000).count();
    assert!((20..=50).contains(&third), "{third} of 100 in the last of three parts");
    assert_eq!(due(1, Some(1_000_000), "10x10s+5s"), 1_000_000, "no room");
    assert_eq!(due(1, Some(1_000_001), "10x10s+5s"), 1_000_000, "no room but the instant itself");
    // An expiry alone shifts nothing.
    assert_eq!(due_at(&task(1), 1_000_000, Some(2_000_000), None, None), 1_000_000);
    let alone = due_at(&task(1), 1_000_000, Some(1_000_100), None, window("1h"));
    assert!((1_000_000..1_000_100).contains(&alone));
}

/// One line per stretch: when it begins, and a bar for each of two ways to spread.
fn drawn() -> String {
    let spread = histogram(spread("10x10s+5s"), None, 10_000, 10);
    let window = histogram(None, window("100s"), 10_000, 11);
    let bar = |count: u32| format!("{} {count}", "█".repeat(usize::try_from(count).unwrap()));
    let mut lines = format!("    {:10}{:26}window=100s\n", "", "spread=10x10s+5s");
    for (stretch, (spread, window)) in spread.iter().zip(&window).enumerate() {
        let (minutes, seconds) = (stretch * 10 / 60, stretch * 10 % 60);
        let line = format!("    08:{minutes:02}:{seconds:02}  {:26}{}", bar(*spread), bar(*window));
        lines.push_str(&format!("{line}\n"));
    }
    lines
}

#[test]
fn the_contract_shows_how_a_herd_leaves() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/CONTRACT.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- begin spread histogram -->\n", "<!-- end spread histogram -->");
    let start = text.find(begin).expect("the histogram begins") + begin.len();
    let stop = start + text[start..].find(end).expect("the histogram ends");
    let drawn = format!("\n{}\n", drawn());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, [&text[..start], &drawn, &text[stop..]].concat()).unwrap();
    } else {
        assert_eq!(&text[start..stop], drawn, "docs/CONTRACT.md is behind the code: UPDATE=1 draws it anew");
    }
}

const GOLDEN: [i64; 4] = [33_901, 34_036, 42_116, 50_155];

proptest! {
    #[test]
    fn a_shift_is_never_negative_is_bounded_and_repeatable(
        bytes in any::<[u8; 16]>(), parts in any::<u32>(), offset_ms in any::<i64>(), jitter_ms in any::<i64>(),
        window_ms in proptest::option::of(any::<i64>()), with_spread in any::<bool>(),
    ) {
        let identity = Identity(bytes);
        let spread = with_spread.then_some(Spread { parts, offset_ms, jitter_ms });
        let window = window_ms.map(|window_ms| Window { window_ms });
        let shift = shift_ms(&identity, spread, window);
        prop_assert!(shift >= 0);
        prop_assert_eq!(shift, shift_ms(&identity, spread, window));
        if let Some(window_ms) = window_ms {
            prop_assert!(shift <= window_ms.max(0));
        }
        let (asked_at, expires_at) = (1_769_850_000_000, Some(1_769_850_000_000 + i64::from(parts)));
        let due = due_at(&identity, asked_at, expires_at, spread, window);
        prop_assert!(due >= asked_at && due < expires_at.unwrap().max(asked_at + 1));
        prop_assert_eq!(due, due_at(&identity, asked_at, expires_at, spread, window));
        let free = due_at(&identity, asked_at, None, spread, window);
        prop_assert_eq!(free, asked_at + shift_ms(&identity, spread, window));
        if let Some(spread) = spread.filter(|spread| spread.offset_ms >= 0 && spread.jitter_ms >= 0) {
            prop_assert!(shift <= spread.longest_ms());
        }
    }
}
