use super::*;
use crate::life::Effects;
use crate::life::testing::{
    DUE_AT, SHARD, command, cursor, ended, held, intent, key, life, on_ack, only_row, pending, row_id,
    running, waiting, waits, working,
};
use proptest::prelude::*;

const AT: i64 = 777;
const BEYOND: i64 = DUE_AT - 1;

fn change(offset: i64, row: Option<RowId>, op: Op) -> Change {
    Change { command: command(offset), at: AT, row, op }
}

fn to(due_at: i64) -> Op {
    Op::Reschedule(Reschedule { due_at, expires_at: None })
}

fn decided(row: &Held, op: Op, cursor_at: i64) -> (Verdict, Effects) {
    let mut life = life(std::slice::from_ref(row), &[]);
    let verdict = decide(&mut life, &change(1, Some(row.id), op), &cursor(cursor_at), |_| true);
    (verdict, life.into_effects())
}

fn answer(row: &Held, op: Op) -> Answer {
    match decided(row, op, DUE_AT) {
        (Verdict::Answered(answer), _) => answer,
        (Verdict::Intended, effects) => panic!("{effects:?}"),
    }
}

#[test]
fn a_task_beyond_the_cursor_is_cancelled_at_once() {
    let id = row_id(5);
    let (verdict, effects) = decided(&pending(id, 1), Op::Cancel, BEYOND);
    assert_eq!(verdict, Verdict::Answered(Answer::Cancelled));
    assert_eq!(only_row(&effects), &ended(id, 1, TaskState::Cancelled, AT));
    assert!(effects.opened.is_empty() && effects.look.is_empty());
}

#[test]
fn a_task_beyond_the_cursor_moves_at_once_under_a_new_generation() {
    let id = row_id(5);
    for due_at in [DUE_AT - 500, DUE_AT + 500, DUE_AT, -5] {
        let (verdict, effects) = decided(&pending(id, 1), to(due_at), BEYOND);
        assert_eq!(verdict, Verdict::Answered(Answer::Accepted));
        let row = only_row(&effects);
        assert_eq!(
            (row.pending_key(), row.generation, row.attempt),
            (Some(key(id, due_at)), Generation(2), 1)
        );
        assert!(effects.look.contains(&id), "it may lie below the cursor now");
    }
}

#[test]
fn at_or_below_the_cursor_an_intent_waits_for_the_journal() {
    let id = row_id(5);
    for (op, wanted) in [
        (Op::Cancel, Intent::Cancel),
        (to(9), Intent::Reschedule(Reschedule { due_at: 9, expires_at: None })),
    ] {
        let (verdict, effects) = decided(&pending(id, 4), op, DUE_AT);
        assert_eq!(verdict, Verdict::Intended);
        assert_eq!(effects.opened, [intent(command(1), id, 4, wanted)]);
        assert!(effects.moved.is_empty());
        assert!(effects.look.contains(&id), "a withdraw goes out after the commit");
    }
}

#[test]
fn a_cursor_that_is_not_known_counts_as_one_that_has_passed() {
    let mut life = life(&[pending(row_id(5), 1)], &[]);
    let change = change(1, Some(row_id(5)), Op::Cancel);
    assert_eq!(decide(&mut life, &change, &Cursors::new(), |_| true), Verdict::Intended);
}

#[test]
fn a_row_that_the_same_transaction_made_is_changed_at_once_wherever_the_cursor_is() {
    let id = row_id(5);
    let mut life = Life::default();
    life.insert(pending(id, 1));
    let cursors = cursor(DUE_AT + 999);
    for (offset, op, wanted) in [
        (1, to(DUE_AT + 5), Answer::Accepted),
        (2, to(DUE_AT - 5), Answer::Accepted),
        (3, Op::Cancel, Answer::Cancelled),
        (4, to(DUE_AT), Answer::Cancelled),
    ] {
        let verdict = decide(&mut life, &change(offset, Some(id), op), &cursors, |_| true);
        assert_eq!(verdict, Verdict::Answered(wanted));
    }
    let effects = life.into_effects();
    assert_eq!(effects.moved[0].from, pending(id, 1), "as it was inserted");
    assert_eq!(only_row(&effects), &ended(id, 3, TaskState::Cancelled, AT));
}

#[test]
fn a_task_moved_at_once_and_cancelled_behind_it_in_one_batch_is_cancelled_at_once() {
    // Its new place lies below the cursor, but nobody can have emitted it.
    let id = row_id(5);
    let mut life = life(&[pending(id, 1)], &[]);
    let cursors = cursor(BEYOND);
    let moved = decide(&mut life, &change(1, Some(id), to(DUE_AT - 500)), &cursors, |_| true);
    assert_eq!(moved, Verdict::Answered(Answer::Accepted));
    let cancelled = decide(&mut life, &change(2, Some(id), Op::Cancel), &cursors, |_| true);
    assert_eq!(cancelled, Verdict::Answered(Answer::Cancelled));
    assert_eq!(only_row(&life.into_effects()), &ended(id, 2, TaskState::Cancelled, AT));
}

#[test]
fn a_running_task_was_sent_already_and_a_cancel_stops_further_attempts() {
    let id = row_id(5);
    let row = running(id, 1, DUE_AT + 9);
    let (verdict, effects) = decided(&row, Op::Cancel, DUE_AT);
    assert_eq!(verdict, Verdict::Answered(Answer::AlreadySent));
    assert_eq!(only_row(&effects), &working(row.clone(), |working| working.stop = true));
    let (verdict, effects) = decided(&row, to(5), DUE_AT);
    assert_eq!((verdict, effects), (Verdict::Answered(Answer::AlreadySent), Effects::default()));
}

#[test]
fn a_task_that_is_over_says_how() {
    let id = row_id(5);
    for (state, wanted) in [
        (TaskState::Done, Answer::AlreadySent),
        (TaskState::Cancelled, Answer::Cancelled),
        (TaskState::Dead, Answer::Rejected(Refused::Dead)),
    ] {
        assert_eq!(answer(&ended(id, 1, state, 5), Op::Cancel), wanted);
        assert_eq!(answer(&ended(id, 1, state, 5), to(9)), wanted);
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let mut life = life(&[pending(row_id(5), 1)], &[]);
    for row in [None, Some(row_id(6))] {
        let verdict = decide(&mut life, &change(1, row, Op::Cancel), &cursor(DUE_AT), |_| true);
        assert_eq!(verdict, Verdict::Answered(Answer::NotFound));
    }
}

#[test]
fn a_task_of_a_topic_that_the_source_may_not_use_is_not_found() {
    let mut life = life(&[pending(row_id(5), 1)], &[]);
    let verdict = decide(&mut life, &change(1, Some(row_id(5)), Op::Cancel), &cursor(BEYOND), |topic| {
        topic != "orders"
    });
    assert_eq!(verdict, Verdict::Answered(Answer::NotFound));
    assert_eq!(life.into_effects(), Effects::default());
}

#[test]
fn a_task_made_behind_the_command_in_its_partition_is_not_there_yet() {
    let verdict = |row: i64, command: RowId| {
        let mut life = life(&[pending(row_id(row), 1)], &[]);
        let change = Change { command, at: AT, row: Some(row_id(row)), op: Op::Cancel };
        decide(&mut life, &change, &cursor(BEYOND), |_| true)
    };
    assert_eq!(verdict(7, row_id(6)), Verdict::Answered(Answer::NotFound));
    assert_eq!(verdict(7, row_id(8)), Verdict::Answered(Answer::Cancelled));
    assert_eq!(verdict(7, command(6)), Verdict::Answered(Answer::Cancelled), "partitions are in no order");
}

#[test]
fn a_live_task_without_a_row_is_an_alarm() {
    let row = held(row_id(5), 1, Place::Bodiless(TaskState::Scheduled));
    let (verdict, effects) = decided(&row, Op::Cancel, DUE_AT);
    assert_eq!(verdict, Verdict::Answered(Answer::NotFound));
    assert_eq!(effects.alarms, [Alarm::Bodiless { id: row.id }]);
}

#[test]
fn a_task_that_would_expire_before_it_is_due_is_not_moved() {
    let row = waiting(pending(row_id(5), 1), |waiting| waiting.live.options.expires_at = Some(DUE_AT + 100));
    let refused = Verdict::Answered(Answer::Rejected(Refused::ExpiresBeforeDue));
    for cursor_at in [BEYOND, DUE_AT] {
        let (verdict, effects) = decided(&row, to(DUE_AT + 101), cursor_at);
        assert_eq!((verdict, effects), (refused, Effects::default()));
        assert_ne!(decided(&row, to(DUE_AT + 100), cursor_at).0, refused);
        let prolonged = Op::Reschedule(Reschedule { due_at: DUE_AT + 101, expires_at: Some(DUE_AT + 101) });
        assert_ne!(decided(&row, prolonged, cursor_at).0, refused);
    }
    let prolonged = Op::Reschedule(Reschedule { due_at: DUE_AT + 5, expires_at: Some(DUE_AT + 7) });
    let Place::Pending(waiting) = &only_row(&decided(&row, prolonged, BEYOND).1).place.clone() else {
        panic!()
    };
    assert_eq!(waiting.live.options.expires_at, Some(DUE_AT + 7));
}

#[test]
fn behind_an_open_intent_the_fold_judges_the_expiry() {
    let id = row_id(5);
    let row = waiting(pending(id, 1), |waiting| waiting.live.options.expires_at = Some(DUE_AT + 100));
    let mut life = life(&[row], &[intent(command(0), id, 1, Intent::Cancel)]);
    let verdict = decide(&mut life, &change(1, Some(id), to(DUE_AT + 101)), &cursor(DUE_AT), |_| true);
    assert_eq!(verdict, Verdict::Intended);
}

#[test]
fn a_task_on_its_way_to_dead_is_not_moved_but_may_be_cancelled() {
    let bury = Some(schemas::delivery::DeadReason::AttemptsExhausted);
    let row = waiting(waits(row_id(5), 3, on_ack()), |waiting| waiting.bury = bury);
    assert_eq!(answer(&row, to(DUE_AT + 9)), Answer::Rejected(Refused::Dead));
    assert_eq!(decided(&row, Op::Cancel, DUE_AT).0, Verdict::Intended);
}

fn replay(generation: u32) -> Op {
    let mut live = on_ack();
    (live.failures, live.stalls) = (4, 2);
    (live.options.expires_at, live.options.asked_at) = (Some(5), Some(6));
    live.history.attempts.push(schemas::due::PastAttempt {
        attempt: 1,
        at: 5,
        outcome: "failed".into(),
        ..Default::default()
    });
    Op::Replay(Replay { generation: Generation(generation), live })
}

#[test]
fn a_dead_task_that_is_replayed_is_a_new_attempt_with_its_history() {
    let id = row_id(5);
    let (verdict, effects) = decided(&ended(id, 3, TaskState::Dead, 5), replay(3), DUE_AT);
    assert_eq!(verdict, Verdict::Answered(Answer::Accepted));
    let row = only_row(&effects);
    let Place::Pending(waiting) = &row.place else { panic!("{row:?}") };
    assert_eq!((row.generation, row.attempt), (Generation(4), 2));
    assert_eq!(waiting.key, RowKey { shard: SHARD, due_at: AT, id });
    assert_eq!((waiting.live.failures, waiting.live.stalls, waiting.bury), (0, 0, None));
    assert_eq!(waiting.live.history.attempts.len(), 1);
    assert_eq!(waiting.live.options.expires_at, None, "else it would be buried again at once");
    assert!(effects.look.contains(&id));
}

#[test]
fn a_replay_is_accepted_once() {
    let id = row_id(5);
    let not_dead = Verdict::Answered(Answer::Rejected(Refused::NotDead));
    let mut life = life(&[ended(id, 3, TaskState::Dead, 5)], &[]);
    let first = decide(&mut life, &change(1, Some(id), replay(3)), &cursor(0), |_| true);
    assert_eq!(first, Verdict::Answered(Answer::Accepted));
    assert_eq!(decide(&mut life, &change(2, Some(id), replay(3)), &cursor(0), |_| true), not_dead);
    for row in [
        ended(id, 5, TaskState::Dead, 5),
        ended(id, 3, TaskState::Done, 5),
        ended(id, 3, TaskState::Cancelled, 5),
        pending(id, 3),
        running(id, 3, 9),
    ] {
        assert_eq!(decided(&row, replay(3), DUE_AT), (not_dead, Effects::default()), "{row:?}");
    }
}

#[test]
fn an_old_intent_is_withdrawn_again_while_its_row_waits_and_else_answered_from_the_row() {
    let id = row_id(5);
    let judged = |intent, row: Option<Held>| stranded(intent, Generation(2), row.as_ref());
    let answered = |row| judged(Intent::Cancel, row);
    assert_eq!(answered(Some(pending(id, 2))), Stranded::Withdraw);
    assert_eq!(judged(Intent::Finish, Some(pending(id, 2))), Stranded::Withdraw);
    assert_eq!(answered(Some(pending(id, 3))), Stranded::Answer(Answer::AlreadySent));
    assert_eq!(answered(Some(running(id, 2, 9))), Stranded::Answer(Answer::AlreadySent));
    assert_eq!(answered(Some(ended(id, 2, TaskState::Cancelled, 9))), Stranded::Answer(Answer::Cancelled));
    assert_eq!(answered(None), Stranded::Answer(Answer::NotFound));
    assert_eq!(judged(Intent::Finish, None), Stranded::Drop);
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Cancel), (-50i64..50).prop_map(|by| to(DUE_AT + by)), Just(replay(1))]
}

proptest! {
    /// Beyond the cursor, deciding commands one by one or in one batch gives the same answers and the same row.
    #[test]
    fn a_batch_decides_as_its_commands_would_one_by_one(ops in prop::collection::vec(any_op(), 0..8)) {
        let id = row_id(5);
        let cursors = cursor(DUE_AT - 100);
        let (mut one_by_one, mut answers) = (pending(id, 1), vec![]);
        for (op, n) in ops.iter().zip(1..) {
            let mut life = life(&[one_by_one.clone()], &[]);
            answers.push(decide(&mut life, &change(n, Some(id), op.clone()), &cursors, |_| true));
            one_by_one = life.into_effects().moved.pop().map_or(one_by_one, |moved| moved.to);
        }
        let mut life = life(&[pending(id, 1)], &[]);
        let batch: Vec<Verdict> = ops.iter().zip(1..)
            .map(|(op, n)| decide(&mut life, &change(n, Some(id), op.clone()), &cursors, |_| true))
            .collect();
        prop_assert_eq!(batch, answers);
        let row = life.into_effects().moved.pop().map_or(pending(id, 1), |moved| moved.to);
        prop_assert_eq!(row, one_by_one);
    }

    /// At or below the cursor nothing changes but `change`: gen never moves while the row may be alive outside.
    #[test]
    fn a_row_that_may_be_alive_outside_is_never_touched(ops in prop::collection::vec(any_op(), 1..8)) {
        let id = row_id(5);
        let mut life = life(&[pending(id, 1)], &[]);
        for (op, n) in ops.iter().zip(1..) {
            decide(&mut life, &change(n, Some(id), op.clone()), &cursor(DUE_AT), |_| true);
        }
        prop_assert!(life.into_effects().moved.is_empty());
    }
}
