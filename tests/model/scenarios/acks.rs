//! Acks, retries and stalls: case 20 of PROTOCOL §9.

use super::{Case, OWNER, SLOT, second_owner};
use crate::kafka::{AckRecord, Op, Wanted};
use crate::model::{Program, Role};
use crate::world::Mishap;
use protocol::ack::Report;
use protocol::change::Answer;
use protocol::life::Place;
use protocol::state::TaskState;
use schemas::ids::{Generation, RowGen, RowId};

const ACKS: Role = Role::Acks(0);
const JOURNAL: Role = Role::Journal(SLOT);

fn failed() -> Report {
    Report::Failed { reason: None, permanent: false }
}

fn permanent() -> Report {
    Report::Failed { reason: None, permanent: true }
}

impl Case {
    pub fn schedule(&mut self, wanted: Wanted) -> RowId {
        let task = self.m.w.submitted;
        self.m.w.submitted += 1;
        let id = self.m.w.schedule(task, wanted);
        self.m.tasks.push(id);
        id
    }

    /// A task that completes on ack, and whose consumers say what the case says.
    pub fn submit_on_ack(&mut self, due_in: i64) -> RowId {
        self.hush(true);
        let due_at = self.m.w.now + due_in;
        self.schedule(Wanted { on_ack: true, ..Wanted::at(due_at, 0) })
    }

    /// Whether consumers only say what they are told.
    pub fn hush(&mut self, quiet: bool) {
        if let Program::Consumer(consumer) = &mut self.actor(Role::Consumer, 0).program {
            consumer.quiet = quiet;
        }
    }

    pub fn say(&mut self, row_gen: RowGen, report: Report) {
        let progress = (report == Report::Progress).then(|| vec![7]);
        self.m.w.append_ack(0, AckRecord::Ack { row_gen, report, progress });
    }

    pub fn say_of(&mut self, id: RowId, generation: u32, report: Report) {
        self.say(RowGen { id, generation: Generation(generation) }, report);
    }

    /// The last visible attempt failed.
    pub fn fail_last(&mut self, id: RowId) {
        let (_, row_gen) = self.m.w.oracle.delivered[&id];
        self.say(row_gen, failed());
    }

    /// Time passes until an attempt is visible.
    fn await_attempt(&mut self, id: RowId, attempt: u16) {
        for _ in 0..100 {
            if self.attempt(id) == attempt {
                return;
            }
            self.pass(100);
        }
        panic!("attempt {attempt} is never visible\n{}", self.story());
    }

    pub fn attempt(&self, id: RowId) -> u16 {
        self.m.w.oracle.delivered.get(&id).map_or(0, |(attempt, _)| *attempt)
    }

    /// Consumers do their work again, and the task ends so.
    pub fn end(mut self, id: RowId, state: TaskState) {
        self.hush(false);
        let case = self.finish();
        assert_eq!(case.state(id), state, "{}", case.story());
    }
}

#[test]
fn case_20_a_task_is_done_when_its_consumer_says_so() {
    let mut case = Case::started(|_| {});
    let id = case.submit_on_ack(0);
    case.pass(300);
    assert_eq!((case.attempt(id), case.state(id)), (1, TaskState::Running));
    case.say_of(id, 1, Report::Succeeded);
    case.pass(50);
    assert_eq!(case.state(id), TaskState::Done);
    case.end(id, TaskState::Done);
}

#[test]
fn case_20_failures_are_tried_again_and_the_last_one_is_buried() {
    let mut case = Case::started(|_| {});
    let id = case.submit_on_ack(0);
    for attempt in 1..=3 {
        case.pass(1_000);
        assert_eq!(case.attempt(id), attempt, "{}", case.story());
        case.fail_last(id);
    }
    case.pass(1_000);
    assert_eq!((case.attempt(id), case.state(id)), (3, TaskState::Dead));
    case.end(id, TaskState::Dead);
}

#[test]
fn case_20_acks_before_the_entry_of_their_delivery_wait_for_it() {
    for (report, state, attempts) in [
        (Report::Succeeded, TaskState::Done, 1),
        (failed(), TaskState::Done, 2),
        (permanent(), TaskState::Dead, 1),
        (Report::Progress, TaskState::Done, 1),
    ] {
        let mut case = Case::started(|setup| setup.options.ack_timeout_ms = Some(60_000));
        let id = case.submit_on_ack(0);
        case.stop(JOURNAL, 0);
        case.pass(300);
        assert_eq!((case.attempt(id), case.state(id)), (1, TaskState::Scheduled));
        case.say_of(id, 1, report.clone());
        case.pass(300);
        assert_eq!(case.state(id), TaskState::Scheduled, "nothing is decided before the journal is applied");
        // Whatever the entry does is done once, whoever applies it.
        case.kill(JOURNAL, 0);
        case.m.spawn(JOURNAL);
        case.pass(1_000);
        assert_eq!(case.attempt(id), attempts, "{report:?}: {}", case.story());
        case.end(id, state);
    }
}

#[test]
fn case_20_late_success_ends_whatever_attempt_waits_or_runs() {
    // Beyond the cursor, below it, running again.
    for (step_ms, wait_ms) in [(60_000, 100), (500, 100), (1, 900)] {
        let mut case = Case::started(|setup| {
            setup.options.backoff = setup.options.backoff.map(|b| schemas::options::Backoff { step_ms, ..b });
            setup.options.ack_timeout_ms = Some(60_000);
        });
        let id = case.submit_on_ack(0);
        case.pass(300);
        case.fail_last(id);
        case.pass(wait_ms);
        let before = case.attempt(id);
        case.say_of(id, 1, Report::Succeeded);
        case.pass(200);
        assert_eq!((case.attempt(id), case.state(id)), (before, TaskState::Done), "{}", case.story());
        // And neither an old failure nor a second success changes that.
        case.say_of(id, 1, failed());
        case.say_of(id, 2, Report::Succeeded);
        case.pass(70_000);
        assert_eq!(case.attempt(id), before);
        case.end(id, TaskState::Done);
    }
}

#[test]
fn case_20_old_failures_and_old_progress_are_nothing() {
    let mut case = Case::started(|setup| setup.options.ack_timeout_ms = Some(5_000));
    let id = case.submit_on_ack(0);
    case.pass(300);
    case.fail_last(id);
    case.pass(1_000);
    assert_eq!(case.attempt(id), 2);
    for report in [failed(), permanent(), Report::Progress] {
        case.say_of(id, 1, report);
    }
    case.pass(1_000);
    let Place::Running(working) = &case.m.w.db.task[&id].place else { panic!("{}", case.story()) };
    assert_eq!((working.live.failures, working.progress.as_ref()), (1, None));
    case.end(id, TaskState::Done);
}

#[test]
fn case_20_an_ack_for_an_aborted_delivery_counts_for_the_one_that_is_visible() {
    for (report, state, attempts) in [
        (Report::Succeeded, TaskState::Done, 0),
        (failed(), TaskState::Done, 2),
        (permanent(), TaskState::Dead, 1),
    ] {
        let mut case = Case::started(|_| {});
        let id = case.submit_on_ack(100);
        case.owner_until_all("commit");
        // A consumer that reads uncommitted has seen it; the owner dies, its transaction is aborted.
        case.kill(OWNER, 0);
        let now = case.m.w.now;
        case.m.w.kafka.time_out(0, now);
        case.m.w.kafka.mark_all(now);
        case.say_of(id, 1, report.clone());
        case.pass(50);
        assert_eq!((case.attempt(id), case.state(id)), (0, TaskState::Scheduled));
        second_owner(&mut case);
        case.pass(1_500);
        // With a success, the withdraw may or may not come before the delivery.
        assert!(case.attempt(id) == attempts || report == Report::Succeeded, "{}", case.story());
        case.end(id, state);
    }
}

#[test]
fn case_20_silent_consumers_stall_and_the_last_stall_is_buried() {
    let mut case = Case::started(|setup| {
        setup.by_time = true;
        setup.reemit.grace_ms = 3_000;
    });
    let id = case.submit_on_ack(0);
    for attempt in 1..=3 {
        case.await_attempt(id, attempt);
        case.pass(1_500);
        assert_eq!((case.attempt(id), case.state(id)), (attempt, TaskState::Running));
    }
    case.pass(5_000);
    assert_eq!((case.attempt(id), case.state(id)), (3, TaskState::Dead), "{}", case.story());
    case.end(id, TaskState::Dead);
}

#[test]
fn case_20_progress_keeps_a_consumer_from_stalling_and_is_carried_on() {
    let mut case = Case::started(|setup| {
        setup.by_time = true;
        setup.reemit.grace_ms = 3_000;
    });
    let id = case.submit_on_ack(0);
    for _ in 0..10 {
        case.pass(1_500);
        case.say_of(id, 1, Report::Progress);
    }
    assert_eq!(case.attempt(id), 1, "{}", case.story());
    case.pass(4_000);
    assert_eq!(case.attempt(id), 2, "{}", case.story());
    let Place::Running(working) = &case.m.w.db.task[&id].place else { panic!("{}", case.story()) };
    assert_eq!(working.live.options.progress, Some(vec![7]));
    case.end(id, TaskState::Done);
}

#[test]
fn case_20_an_ingest_that_is_behind_by_ten_minutes_never_looks_like_stalled_consumers() {
    let mut case = Case::started(|setup| {
        setup.by_time = true;
        setup.reemit.grace_ms = 3_000;
    });
    let id = case.submit_on_ack(0);
    case.pass(300);
    case.stop(ACKS, 0);
    case.say_of(id, 1, Report::Succeeded);
    case.pass(600_000);
    assert_eq!((case.attempt(id), case.state(id)), (1, TaskState::Running));
    case.go_on(ACKS, 0);
    case.pass(2_000);
    assert_eq!((case.attempt(id), case.state(id)), (1, TaskState::Done), "{}", case.story());
    case.end(id, TaskState::Done);
}

#[test]
fn case_20_a_running_task_that_is_cancelled_has_no_further_attempt() {
    for stalls in [false, true] {
        let mut case = Case::started(|setup| {
            setup.by_time = true;
            setup.reemit.grace_ms = 3_000;
        });
        let id = case.submit_on_ack(0);
        case.pass(300);
        let cancel = case.change(id, Op::Cancel);
        case.pass(100);
        case.assert_answer(cancel, Answer::AlreadySent);
        if !stalls {
            case.fail_last(id);
        }
        case.pass(4_000);
        assert_eq!((case.attempt(id), case.state(id)), (1, TaskState::Cancelled), "{}", case.story());
        case.end(id, TaskState::Cancelled);
    }
}

#[test]
fn case_20_every_step_of_the_acks_side_may_die() {
    for mishap in [Mishap::None, Mishap::AnswerLost, Mishap::Refused] {
        for steps in 0..30 {
            let mut case = Case::started(|setup| {
                setup.options.backoff = setup.options.backoff.map(|b| schemas::options::Backoff {
                    step_ms: 1,
                    jitter_ms: 0,
                    ..b
                });
                setup.options.ack_timeout_ms = Some(60_000);
            });
            let (first, second) = (case.submit_on_ack(0), case.submit_on_ack(0));
            case.pass(300);
            case.plan("acks", mishap);
            case.fail_last(first);
            case.say_of(second, 1, Report::Succeeded);
            for _ in 0..steps {
                case.everybody_steps();
            }
            case.kill(ACKS, 0);
            case.m.spawn(ACKS);
            case.pass(1_000);
            assert_eq!((case.attempt(first), case.attempt(second)), (2, 1), "{}", case.story());
            case.end(first, TaskState::Done);
        }
    }
}
