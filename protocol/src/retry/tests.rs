use super::*;
use proptest::prelude::*;
use schemas::ids::{Generation, RowId};

const OF: RowGen = RowGen { id: RowId(7), generation: Generation(1) };

fn backoff(text: &str) -> Backoff {
    text.parse().unwrap()
}

#[test]
fn the_standard_pause_grows_by_two_minutes_up_to_twenty_and_up_to_thirty_seconds_more() {
    for n in 1..=30 {
        let pause_ms = delay_ms(&Backoff::STANDARD, n, RowGen { generation: Generation(n.into()), ..OF });
        let least = i64::from(n.min(10)) * 120_000;
        assert!((least..=least + 30_000).contains(&pause_ms), "{n}: {pause_ms}");
    }
}

#[test]
fn a_pause_is_fixed_linear_or_doubles() {
    let pauses = |text: &str| [1, 2, 3, 4].map(|n| delay_ms(&backoff(text), n, OF) / 1_000);
    assert_eq!(pauses("fixed:5s"), [5, 5, 5, 5]);
    assert_eq!(pauses("linear:5s"), [5, 10, 15, 20]);
    assert_eq!(pauses("exponential:5s"), [5, 10, 20, 40]);
    assert_eq!(pauses("exponential:5s,cap=15s"), [5, 10, 15, 15]);
    assert_eq!(delay_ms(&backoff("exponential:1ms"), u16::MAX, OF), MAX_DURATION_MS);
}

#[test]
fn jitter_differs_from_row_to_row_and_from_attempt_to_attempt() {
    let jittered = |id, generation| {
        delay_ms(
            &backoff("fixed:0s,jitter=1h"),
            1,
            RowGen { id: RowId(id), generation: Generation(generation) },
        )
    };
    let mut seen: Vec<i64> = (0..50).flat_map(|id| (1..5).map(move |n| jittered(id, n))).collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 195, "{} of 200 differ", seen.len());
    assert!(seen[0] < 120_000 && seen[seen.len() - 1] > 3_480_000, "all of the hour is used");
}

#[test]
fn what_a_row_does_not_say_is_the_default() {
    let policy = RetryPolicy::of(&RowOptions::default());
    assert_eq!((policy.max_attempts, policy.max_stalls, policy.ack_timeout_ms), (10, 3, 900_000));
    assert_eq!(policy.backoff, Backoff::STANDARD);
    assert!(!policy.is_exhausted(9) && policy.is_exhausted(10));
    assert!(!policy.is_stalled_out(3) && policy.is_stalled_out(4));
}

fn past(attempt: u16, reason: String) -> PastAttempt {
    PastAttempt { attempt, at: 1, outcome: "failed".into(), reason: Some(reason), ..PastAttempt::default() }
}

#[test]
fn a_history_that_is_full_forgets_its_oldest_attempts() {
    let mut history = RowHistory::default();
    for attempt in 1..=100 {
        remember(&mut history, past(attempt, "x".repeat(300)));
    }
    assert_eq!(history.attempts.last().map(|past| past.attempt), Some(100));
    assert!((10..=13).contains(&history.attempts.len()), "{}", history.attempts.len());
    assert!(history.encode().len() <= MAX_HISTORY_BYTES);
}

#[test]
fn one_attempt_always_fits_whatever_its_reason() {
    let mut history = RowHistory::default();
    remember(&mut history, past(1, "ä\u{1d11e}".repeat(10_000)));
    assert_eq!(history.attempts.len(), 1);
    assert!(history.encode().len() <= MAX_HISTORY_BYTES);
}

fn any_backoff() -> impl Strategy<Value = Backoff> {
    // Also what no text can say: a newer version may have written it.
    let ms = prop_oneof![any::<i64>(), 0i64..10_000_000];
    (prop::sample::select(Growth::ALL.to_vec()), ms.clone(), proptest::option::of(ms.clone()), ms)
        .prop_map(|(growth, step_ms, cap_ms, jitter_ms)| Backoff { growth, step_ms, cap_ms, jitter_ms })
}

proptest! {
    #[test]
    fn a_pause_is_never_negative_is_bounded_and_repeatable(
        backoff in any_backoff(), n in any::<u16>(), id in any::<u64>(), generation in any::<u32>(),
    ) {
        let of = RowGen { id: RowId(id), generation: Generation(generation) };
        let pause_ms = delay_ms(&backoff, n, of);
        prop_assert!((0..=MAX_DURATION_MS).contains(&pause_ms));
        prop_assert_eq!(pause_ms, delay_ms(&backoff, n, of));
        if let Some(cap_ms) = backoff.cap_ms {
            prop_assert!(pause_ms <= cap_ms.max(0).saturating_add(backoff.jitter_ms.max(0)));
        }
        // Without its jitter a pause never shrinks from one attempt to the next.
        let bare = Backoff { jitter_ms: 0, ..backoff };
        prop_assert!(delay_ms(&bare, n, of) <= delay_ms(&bare, n.saturating_add(1), of));
        prop_assert!(delay_ms(&bare, n, of) <= pause_ms);
    }

    #[test]
    fn a_history_never_exceeds_its_column(reasons in proptest::collection::vec(".{0,900}", 0..30)) {
        let mut history = RowHistory::default();
        for (n, reason) in reasons.into_iter().enumerate() {
            remember(&mut history, past(n as u16, reason));
            prop_assert!(history.encode().len() <= MAX_HISTORY_BYTES);
            prop_assert_eq!(history.attempts.last().map(|past| past.attempt), Some(n as u16));
        }
    }
}
