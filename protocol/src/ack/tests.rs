use super::*;
use crate::life::Effects;
use crate::life::testing::{
    DUE_AT, Said, ack, ack_id, cursor, ended, failed, held, intent, life, on_ack, only_row, parked, pending,
    permanent, progress, row_id, running, succeeded, waiting, waits, working,
};
use proptest::prelude::*;

const AT: i64 = DUE_AT + 1_000;
const DEADLINE: i64 = DUE_AT + 5_000;

fn decided(row: &Held, open: &[Open], acks: &[Ack]) -> (Vec<Outcome>, Effects) {
    let mut life = life(std::slice::from_ref(row), open);
    let outcomes = acks.iter().map(|ack| decide(&mut life, ack, &cursor(DUE_AT))).collect();
    let effects = life.into_effects();
    assert!(effects.alarms.is_empty(), "{effects:?}");
    (outcomes, effects)
}

fn one(row: &Held, generation: u32, said: Said) -> (Outcome, Effects) {
    let (outcomes, effects) = decided(row, &[], &[ack(1, AT, row.id, generation, said)]);
    (outcomes[0], effects)
}

#[test]
fn success_finishes_a_running_task_whatever_attempt_it_was() {
    let id = row_id(5);
    for generation in [1, 2, 3] {
        let (outcome, effects) = one(&running(id, 3, DEADLINE), generation, succeeded());
        assert_eq!(outcome, Outcome::Finished);
        assert_eq!(only_row(&effects), &ended(id, 3, TaskState::Done, AT));
    }
}

#[test]
fn success_of_an_earlier_attempt_finishes_a_task_that_waits_for_the_next_one() {
    let id = row_id(5);
    let (outcome, effects) = one(&waits(id, 2, on_ack()), 1, succeeded());
    assert_eq!(outcome, Outcome::FinishIntended);
    assert_eq!(effects.opened, [intent(ack_id(1), id, 2, Intent::Finish)], "for the gen that waits");
    assert!(effects.look.contains(&id), "a withdraw goes out");
    let beyond = waiting(waits(id, 2, on_ack()), |waiting| waiting.key.due_at = DUE_AT + 1);
    let (outcome, effects) = one(&beyond, 1, succeeded());
    assert_eq!(outcome, Outcome::Finished);
    assert_eq!(only_row(&effects), &ended(id, 2, TaskState::Done, AT));
}

#[test]
fn success_before_the_delivery_is_applied_waits_for_its_entry() {
    let id = row_id(5);
    let (outcome, effects) = one(&waits(id, 1, on_ack()), 1, succeeded());
    assert_eq!(outcome, Outcome::FinishIntended);
    assert_eq!(effects.opened, [intent(ack_id(1), id, 1, Intent::Finish)]);
}

#[test]
fn success_that_is_said_twice_is_one_intent() {
    let id = row_id(5);
    let said = |n| ack(n, AT, id, 1, succeeded());
    let (outcomes, effects) = decided(&waits(id, 2, on_ack()), &[], &[said(1), said(2)]);
    assert_eq!(outcomes, [Outcome::FinishIntended, Outcome::Dropped(Dropped::Doubled)]);
    assert_eq!(effects.opened.len(), 1);
    let (outcomes, _) = decided(&running(id, 2, DEADLINE), &[], &[said(1), said(2)]);
    assert_eq!(outcomes, [Outcome::Finished, Outcome::Dropped(Dropped::Over)]);
}

#[test]
fn a_failure_is_followed_by_the_next_attempt_after_its_pause() {
    let id = row_id(5);
    let mut row = running(id, 3, DEADLINE);
    row.attempt = 7;
    let row = working(row, |working| {
        working.live.options.backoff = Some("linear:10s".parse().unwrap());
        working.live.failures = 2;
        working.progress = Some(b"page 3".to_vec());
    });
    let (outcome, effects) = one(&row, 3, failed());
    assert_eq!(outcome, Outcome::Retried);
    let next = only_row(&effects);
    let Place::Pending(waiting) = &next.place else { panic!("{next:?}") };
    assert_eq!((next.generation, next.attempt), (Generation(4), 8));
    assert_eq!((waiting.key.due_at, waiting.live.failures, waiting.live.stalls), (AT + 30_000, 3, 0));
    assert_eq!(waiting.live.options.progress.as_deref(), Some(&b"page 3"[..]));
    let past = &waiting.live.history.attempts[0];
    assert_eq!(
        (past.attempt, past.at, past.outcome.as_str(), past.reason.as_deref()),
        (7, AT, "failed", Some("no room"))
    );
    let made = past.made.expect("which delivery it was is known");
    assert_eq!((made.generation, made.due_at), (Generation(3), DUE_AT));
    assert!(past.ack.is_some(), "and which ack ended it");
    assert!(effects.look.contains(&id), "it may be due below the cursor");
}

#[test]
fn a_failure_may_tell_how_far_the_attempt_got() {
    let row = working(running(row_id(5), 1, DEADLINE), |working| working.progress = Some(b"a".to_vec()));
    let (_, effects) = one(&row, 1, (failed().0, Some(b"b".to_vec())));
    let Place::Pending(waiting) = &only_row(&effects).place else { panic!() };
    assert_eq!(waiting.live.options.progress.as_deref(), Some(&b"b"[..]));
}

#[test]
fn a_silent_attempt_keeps_the_progress_of_the_one_before() {
    let row = working(running(row_id(5), 2, DEADLINE), |working| {
        working.live.options.progress = Some(b"old".to_vec());
    });
    let Place::Pending(waiting) = &only_row(&one(&row, 2, failed()).1).place.clone() else { panic!() };
    assert_eq!(waiting.live.options.progress.as_deref(), Some(&b"old"[..]));
}

#[test]
fn the_last_failure_and_a_permanent_one_go_to_the_dispatcher_to_be_buried_at_once() {
    let id = row_id(5);
    let last = working(running(id, 3, DEADLINE), |working| working.live.failures = 9);
    for (row, report, reason) in [
        (&last, failed(), DeadReason::AttemptsExhausted),
        (&running(id, 3, DEADLINE), permanent(), DeadReason::Failed),
        (&last, permanent(), DeadReason::Failed),
    ] {
        let (outcome, effects) = one(row, 3, report);
        assert_eq!(outcome, Outcome::ToBury);
        let next = only_row(&effects);
        let Place::Pending(waiting) = &next.place else { panic!("{next:?}") };
        assert_eq!((waiting.bury, waiting.key.due_at), (Some(reason), AT));
        assert_eq!((next.generation, next.attempt), (Generation(4), 1), "no attempt that anybody sees");
        assert_eq!(waiting.live.history.attempts.len(), 1);
    }
}

#[test]
fn one_attempt_that_fails_is_one_too_many_where_only_one_is_allowed() {
    let row = working(running(row_id(5), 1, DEADLINE), |working| working.live.options.max_attempts = Some(1));
    assert_eq!(one(&row, 1, failed()).0, Outcome::ToBury);
}

#[test]
fn a_failure_after_a_cancel_cancels() {
    let id = row_id(5);
    let row = working(running(id, 1, DEADLINE), |working| working.stop = true);
    for report in [failed(), permanent()] {
        let (outcome, effects) = one(&row, 1, report);
        assert_eq!(outcome, Outcome::Cancelled);
        assert_eq!(only_row(&effects), &ended(id, 1, TaskState::Cancelled, AT));
    }
    assert_eq!(only_row(&one(&row, 1, succeeded()).1), &ended(id, 1, TaskState::Done, AT));
}

#[test]
fn progress_is_kept_and_moves_the_deadline_forward_only() {
    let id = row_id(5);
    let row =
        working(running(id, 1, AT + 7_000), |working| working.live.options.ack_timeout_ms = Some(5_000));
    let at = |at, report: Said| ack(1, at, id, 1, report);
    let (outcomes, effects) = decided(&row, &[], &[at(AT, progress(b"a")), at(AT + 9_000, progress(b"b"))]);
    assert_eq!(outcomes, [Outcome::Progressed; 2]);
    let Place::Running(working) = &only_row(&effects).place else { panic!() };
    assert_eq!((working.key.due_at, working.progress.as_deref()), (AT + 14_000, Some(&b"b"[..])));
    let (_, effects) = decided(&row, &[], &[at(AT, progress(b"a")), at(AT, (Report::Progress, None))]);
    let Place::Running(working) = &only_row(&effects).place else { panic!() };
    assert_eq!((working.key.due_at, working.progress.as_deref()), (AT + 7_000, Some(&b"a"[..])));
}

#[test]
fn failures_and_progress_of_an_older_attempt_are_dropped() {
    let id = row_id(5);
    let old = Outcome::Dropped(Dropped::Old);
    for row in [running(id, 2, DEADLINE), waits(id, 2, on_ack())] {
        for report in [failed(), permanent(), progress(b"x")] {
            assert_eq!(one(&row, 1, report), (old, Effects::default()));
        }
    }
}

#[test]
fn failures_and_progress_before_the_delivery_is_applied_are_parked() {
    let id = row_id(5);
    for report in [failed(), progress(b"x")] {
        let (outcome, effects) = one(&waits(id, 1, on_ack()), 1, report.clone());
        assert_eq!(outcome, Outcome::Parked);
        assert_eq!(effects.opened, [parked(ack(1, AT, id, 1, report))]);
        assert!(effects.moved.is_empty() && effects.look.is_empty(), "nothing is emitted for it");
    }
}

#[test]
fn of_parked_progress_the_newest_is_kept_and_after_a_parked_failure_nothing_more() {
    let id = row_id(5);
    let said = |n, report: Said| ack(n, AT + n, id, 1, report);
    let acks = [
        said(2, progress(b"b")),
        said(3, progress(b"c")),
        said(4, failed()),
        said(5, progress(b"d")),
        said(6, failed()),
    ];
    let open = [parked(said(1, progress(b"a")))];
    let (outcomes, effects) = decided(&waits(id, 1, on_ack()), &open, &acks);
    let doubled = Outcome::Dropped(Dropped::Doubled);
    assert_eq!(outcomes, [Outcome::Parked, Outcome::Parked, Outcome::Parked, doubled, doubled]);
    assert_eq!(effects.opened, [parked(said(3, progress(b"c"))), parked(said(4, failed()))]);
    let closed: Vec<RowId> = effects.closed.iter().map(|closed| closed.command).collect();
    assert_eq!(closed, [ack_id(1)]);
}

#[test]
fn what_nobody_waits_for_is_dropped() {
    let id = row_id(5);
    let states = [TaskState::Done, TaskState::Dead, TaskState::Cancelled];
    for report in [succeeded(), failed(), progress(b"x")] {
        let dropped = |row: &Held, generation| match one(row, generation, report.clone()) {
            (Outcome::Dropped(why), effects) if effects == Effects::default() => why,
            other => panic!("{other:?}"),
        };
        for state in states {
            assert_eq!(dropped(&ended(id, 1, state, 9), 1), Dropped::Over);
        }
        assert_eq!(dropped(&pending(id, 1), 1), Dropped::NotWanted);
        assert_eq!(dropped(&waits(id, 1, on_ack()), 2), Dropped::FromAhead);
        assert_eq!(dropped(&running(id, 1, DEADLINE), 2), Dropped::FromAhead);
        assert_eq!(dropped(&held(id, 1, Place::Bodiless(TaskState::Running)), 1), Dropped::Unknown);
        let other = ack(1, AT, row_id(6), 1, report.clone());
        let (outcomes, _) = decided(&running(id, 1, DEADLINE), &[], &[other]);
        assert_eq!(outcomes, [Outcome::Dropped(Dropped::Unknown)]);
    }
}

fn any_report() -> impl Strategy<Value = Said> {
    prop_oneof![Just(succeeded()), Just(failed()), Just(permanent()), Just(progress(b"x"))]
}

proptest! {
    /// However acks come, the row is in one place, its generation grows by at most one per batch, and a finished task stays.
    #[test]
    fn any_acks_in_any_order_leave_a_row_in_a_legal_place(
        place in 0usize..3, stop in any::<bool>(), reports in prop::collection::vec((any_report(), 1u32..4), 0..10),
    ) {
        let id = row_id(5);
        let row = match place {
            0 => working(running(id, 2, DEADLINE), |working| working.stop = stop),
            1 => waits(id, 2, on_ack()),
            _ => waiting(waits(id, 2, on_ack()), |waiting| waiting.key.due_at = DUE_AT + 9),
        };
        let acks: Vec<Ack> =
            reports.into_iter().zip(1..).map(|((report, generation), n)| ack(n, AT, id, generation, report)).collect();
        let (outcomes, effects) = decided(&row, &[], &acks);
        prop_assert_eq!(outcomes.len(), acks.len());
        for moved in &effects.moved {
            prop_assert!(moved.to.generation.0 - moved.from.generation.0 <= 1);
            // A pending row at or below the cursor may be alive outside.
            prop_assert!(place != 1);
        }
        prop_assert!(effects.opened.len() <= 3, "one finish, one progress, one failure");
    }
}
