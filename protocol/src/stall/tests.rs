use super::*;
use crate::life::testing::{ack, ended, failed, life, only_row, parked, row_id, running, working};
use crate::life::{Effects, Held};
use crate::state::TaskState;
use schemas::ids::Generation;

const DEADLINE: i64 = 5_000;
const NOW: i64 = 9_000;

fn decided(row: &Held, upto: i64) -> (Option<Outcome>, Effects) {
    let mut life = life(std::slice::from_ref(row), &[]);
    let outcome = decide(&mut life, row.row_gen(), NOW, upto);
    (outcome, life.into_effects())
}

#[test]
fn a_stalled_attempt_is_followed_by_the_next_with_its_progress() {
    let id = row_id(5);
    let row = working(running(id, 2, DEADLINE), |working| {
        working.live.options.backoff = Some("linear:10s".parse().unwrap());
        (working.live.failures, working.live.stalls) = (5, 1);
        working.progress = Some(b"half".to_vec());
    });
    let (outcome, effects) = decided(&row, NOW);
    assert_eq!(outcome, Some(Outcome::Retried));
    let next = only_row(&effects);
    let Place::Pending(waiting) = &next.place else { panic!("{next:?}") };
    assert_eq!((next.generation, next.attempt), (Generation(3), 2));
    assert_eq!((waiting.live.failures, waiting.live.stalls), (5, 2), "counted apart");
    assert_eq!(waiting.key.due_at, NOW + 20_000, "the pause grows with the stalls");
    assert_eq!(waiting.live.options.progress.as_deref(), Some(&b"half"[..]));
    assert_eq!(waiting.live.history.attempts[0].outcome, "stalled");
    assert!(effects.look.contains(&id));
}

#[test]
fn a_task_that_stalled_too_often_is_buried_and_one_that_was_cancelled_is_over() {
    let id = row_id(5);
    let row = working(running(id, 2, DEADLINE), |working| working.live.stalls = 3);
    let (outcome, effects) = decided(&row, NOW);
    assert_eq!(outcome, Some(Outcome::ToBury));
    let Place::Pending(waiting) = &only_row(&effects).place else { panic!() };
    assert_eq!((waiting.bury, waiting.key.due_at), (Some(DeadReason::AttemptsExhausted), NOW));
    let stopped = working(row, |working| working.stop = true);
    let (outcome, effects) = decided(&stopped, NOW);
    assert_eq!(outcome, Some(Outcome::Cancelled));
    assert_eq!(only_row(&effects), &ended(id, 2, TaskState::Cancelled, NOW));
}

#[test]
fn no_stall_is_forgiven_where_none_is_allowed() {
    let row = working(running(row_id(5), 1, DEADLINE), |working| working.live.options.max_stalls = Some(0));
    assert_eq!(decided(&row, NOW).0, Some(Outcome::ToBury));
}

#[test]
fn a_deadline_is_judged_only_up_to_the_oldest_tick_that_was_applied() {
    let row = running(row_id(5), 1, DEADLINE);
    assert_eq!(decided(&row, DEADLINE - 1), (None, Effects::default()));
    assert!(decided(&row, DEADLINE).0.is_some());
    assert_eq!(judged_upto(NOW, [Some(7), Some(5), Some(6)]), Some(5));
    assert_eq!(judged_upto(NOW, [Some(NOW + 7)]), Some(NOW), "a broker's clock may be ahead");
    assert_eq!(judged_upto(NOW, [Some(7), None]), None, "one that was never applied says nothing");
    assert_eq!(judged_upto(NOW, []), None);
}

#[test]
fn what_moved_since_it_was_found_is_left_alone() {
    let id = row_id(5);
    let found = running(id, 1, DEADLINE).row_gen();
    for row in [running(id, 1, NOW + 1), running(id, 2, DEADLINE), ended(id, 1, TaskState::Done, 7)] {
        let mut life = life(&[row], &[]);
        assert_eq!(decide(&mut life, found, NOW, NOW), None);
    }
    let mut gone = life(&[], &[]);
    assert_eq!(decide(&mut gone, found, NOW, NOW), None);
}

#[test]
fn a_parked_ack_keeps_its_row_from_being_judged() {
    let id = row_id(5);
    let mut life = life(&[running(id, 1, DEADLINE)], &[parked(ack(1, 7, id, 1, failed()))]);
    assert_eq!(decide(&mut life, running(id, 1, DEADLINE).row_gen(), NOW, NOW), None);
}
