//! Cancel and reschedule: cases 11, 12, 13, 24 and 28 of PROTOCOL §9.

use super::{Case, OWNER, SLOT, second_owner};
use crate::kafka::{Command, Op, Wanted};
use crate::model::{Program, Role};
use crate::oracle::Reply;
use crate::programs::Did;
use crate::world::Mishap;
use protocol::change::{Answer, Refused, Reschedule};
use protocol::state::TaskState;
use schemas::ids::RowId;

const TASKS: Role = Role::Tasks(0);

pub fn reschedule(due_at: i64) -> Op {
    Op::Reschedule(Reschedule { due_at, expires_at: None })
}

impl Case {
    /// A command for a task; its answer is asked for.
    pub fn change(&mut self, id: RowId, op: Op) -> RowId {
        self.m.want_change(id, op)
    }

    /// To another due time, so many ms from now.
    pub fn move_to(&mut self, id: RowId, due_in: i64) -> RowId {
        let due_at = self.m.w.now + due_in;
        self.change(id, reschedule(due_at))
    }

    pub fn answer(&self, command: RowId) -> Option<Answer> {
        match self.m.w.oracle.answers.of(command)? {
            Reply::Change(answer) => Some(answer),
            other => panic!("{other:?}"),
        }
    }

    /// The answer that a command has got by now.
    #[track_caller]
    pub fn assert_answer(&self, command: RowId, wanted: Answer) {
        assert_eq!(self.answer(command), Some(wanted), "{}", self.story());
    }

    pub fn generation(&self, id: RowId) -> u32 {
        self.m.w.db.task[&id].generation.0
    }

    pub fn is_delivered(&self, id: RowId) -> bool {
        self.m.w.oracle.delivered.contains_key(&id)
    }

    /// Only this worker works, until it has nothing to do.
    pub fn exhaust(&mut self, role: Role) {
        while self.step(role, 0) == Did::Work {}
    }

    pub fn arrive_all(&mut self) {
        while !self.m.w.network.is_empty() {
            self.m.w.arrive(0);
        }
    }
}

#[test]
fn case_11_a_change_races_the_due_time_a_doubled_emission_and_a_take_over() {
    for kind in 0..4 {
        for steps in 0..60 {
            for moves in [false, true] {
                let mut case = Case::started(|_| {});
                let id = case.submit(20, 0);
                let mut command = None;
                for step in 0..60 {
                    if step == steps {
                        let now = case.m.w.now;
                        let ops =
                            [Op::Cancel, reschedule(now - 5), reschedule(now + 40), reschedule(now + 9_000)];
                        command = Some(case.change(id, ops[kind]));
                    }
                    if step == 25 && moves {
                        second_owner(&mut case);
                    }
                    if step == steps + 7
                        && let Some((_, item)) = case.m.w.kafka.due[0].last().cloned()
                    {
                        case.m.w.append_due(SLOT, item);
                    }
                    case.everybody_steps();
                }
                let case = case.finish();
                let command = command.expect("it was sent");
                let wanted = if kind == 0 { Answer::Cancelled } else { Answer::Accepted };
                let answer = case.answer(command).expect("the oracle wants one");
                assert!(answer == wanted || answer == Answer::AlreadySent, "{answer:?}");
                assert_eq!(case.is_delivered(id), answer != Answer::Cancelled);
            }
        }
    }
}

#[test]
fn case_11_every_answer_survives_the_death_of_whoever_owes_it() {
    for role in [TASKS, Role::Journal(SLOT)] {
        for mishap in [Mishap::None, Mishap::Refused, Mishap::AnswerLost, Mishap::Later] {
            for steps in 0..40 {
                let mut case = Case::started(|_| {});
                let near = case.submit(50, 0);
                let far = case.submit(60_000, 0);
                case.pass(20);
                let commands = [
                    case.change(near, Op::Cancel),
                    case.change(far, Op::Cancel),
                    case.move_to(far, 5),
                    case.change(near, Op::Cancel),
                ];
                case.plan("reply", mishap);
                for _ in 0..steps {
                    case.everybody_steps();
                }
                case.kill(role, 0);
                case.m.spawn(role);
                let case = case.finish();
                commands.iter().for_each(|command| case.assert_answer(*command, Answer::Cancelled));
            }
        }
    }
}

#[test]
fn case_12_a_withdraw_overtakes_its_own_deliver_record() {
    let mut case = Case::started(|_| {});
    let id = case.submit(1_000, 0);
    case.plan("emit", Mishap::Later);
    case.stop(OWNER, 0);
    case.step_until(TASKS, 0, |program| matches!(program, Program::Ingest(ingest) if ingest.has_effects()));
    // The record stays on its way, and its sender is gone.
    for _ in 0..3 {
        case.step(TASKS, 0);
    }
    assert_eq!(case.m.w.network.len(), 1, "{}", case.story());
    case.kill(TASKS, 0);
    let command = case.change(id, Op::Cancel);
    case.m.spawn(TASKS);
    case.go_on(OWNER, 0);
    case.pass(300);
    case.assert_answer(command, Answer::Cancelled);
    case.m.w.arrive(0);
    case.pass(5_000);
    let case = case.finish();
    assert_eq!((case.state(id), case.is_delivered(id)), (TaskState::Cancelled, false));
}

#[test]
fn case_13_a_reschedule_beyond_the_cursor_is_accepted_at_once() {
    for due_in in [-500, 10, 3_000, 200_000] {
        let mut case = Case::started(|_| {});
        let id = case.submit(60_000, 0);
        case.pass(10);
        case.stop(Role::Journal(SLOT), 0);
        let command = case.move_to(id, due_in);
        case.exhaust(TASKS);
        case.assert_answer(command, Answer::Accepted);
        assert_eq!(case.generation(id), 2);
        case.go_on(Role::Journal(SLOT), 0);
        case.pass(due_in.max(0) + 500);
        assert!(case.is_delivered(id), "{}", case.story());
        case.finish();
    }
}

#[test]
fn case_13_a_reschedule_below_the_cursor_is_accepted_once_the_journal_says_so() {
    for due_in in [-500, 10, 3_000, 200_000] {
        let mut case = Case::started(|_| {});
        let id = case.submit(1_500, 0);
        case.pass(100);
        case.stop(Role::Journal(SLOT), 0);
        let command = case.move_to(id, due_in);
        case.pass(300);
        assert_eq!(case.answer(command), None, "the journal is not applied");
        case.go_on(Role::Journal(SLOT), 0);
        case.pass(200);
        case.assert_answer(command, Answer::Accepted);
        case.pass((due_in - 500).max(0) + 500);
        assert!(case.is_delivered(id), "{}", case.story());
        let case = case.finish();
        assert_eq!(case.generation(id), 2);
    }
}

#[test]
fn case_13_rescheduled_again_and_again_a_task_is_due_as_said_last() {
    let mut case = Case::started(|_| {});
    let id = case.submit(60_000, 0);
    for due_in in [5_000, 90_000, 1_000, 1_500, 70_000, 800, 400] {
        let command = case.move_to(id, due_in);
        case.pass(150);
        case.assert_answer(command, Answer::Accepted);
        assert!(!case.is_delivered(id));
    }
    case.pass(300);
    assert!(case.is_delivered(id), "{}", case.story());
    let case = case.finish();
    assert_eq!(case.generation(id), 8, "one generation for each");
}

#[test]
fn case_13_what_is_over_says_how() {
    let mut case = Case::started(|_| {});
    let done = case.submit(0, 0);
    let cancelled = case.submit(50_000, 0);
    case.pass(200);
    case.change(cancelled, Op::Cancel);
    case.m.w.oracle.deaths += 1;
    let wanted = Wanted { expires_at: Some(case.m.w.now - 5), ..Wanted::at(case.m.w.now - 10, 0) };
    let dead = case.schedule(wanted);
    case.pass(300);
    let dead_answer = Answer::Rejected(Refused::Dead);
    for (id, wanted) in [(done, Answer::AlreadySent), (cancelled, Answer::Cancelled), (dead, dead_answer)] {
        for op in [Op::Cancel, reschedule(case.m.w.now + 500)] {
            let command = case.change(id, op);
            case.pass(100);
            case.assert_answer(command, wanted);
        }
    }
    let task = case.m.w.submitted + 7;
    let nobody = case.m.w.submit(Command { task, reply: true, op: Op::Cancel });
    case.pass(100);
    case.assert_answer(nobody, Answer::NotFound);
    case.finish();
}

#[test]
fn case_13_a_task_that_waits_for_its_next_attempt_can_be_moved_and_cancelled() {
    for (step_ms, cancel) in [(400, false), (400, true), (60_000, false), (60_000, true)] {
        let mut case = Case::started(|setup| {
            setup.options.backoff = setup.options.backoff.map(|b| schemas::options::Backoff { step_ms, ..b });
        });
        let id = case.submit_on_ack(0);
        case.pass(200);
        case.fail_last(id);
        case.pass(50);
        assert_eq!(case.state(id), TaskState::Scheduled);
        let command = if cancel { case.change(id, Op::Cancel) } else { case.move_to(id, 20) };
        case.pass(200);
        case.assert_answer(command, if cancel { Answer::Cancelled } else { Answer::Accepted });
        let attempt = case.m.w.oracle.delivered[&id].0;
        assert_eq!(attempt, if cancel { 1 } else { 2 }, "{}", case.story());
        case.end(id, if cancel { TaskState::Cancelled } else { TaskState::Done });
    }
}

#[test]
fn case_13_an_expiry_holds_until_it_is_moved_along() {
    let mut case = Case::started(|_| {});
    let due_at = case.m.w.now + 60_000;
    let id = case.schedule(Wanted { expires_at: Some(due_at + 100), ..Wanted::at(due_at, 0) });
    case.pass(50);
    let refused = case.change(id, reschedule(due_at + 101));
    let moved = Reschedule { due_at: due_at + 101, expires_at: Some(due_at + 900) };
    let accepted = case.change(id, Op::Reschedule(moved));
    case.pass(100);
    case.assert_answer(refused, Answer::Rejected(Refused::ExpiresBeforeDue));
    case.assert_answer(accepted, Answer::Accepted);
    case.finish();
}

#[test]
fn case_24_duplicates_within_a_batch_and_across_batches() {
    let mut case = Case::started(|_| {});
    let id = case.submit(200, 0);
    let command = case.m.w.kafka.tasks[0].last().map(|(_, command)| *command).expect("just submitted");
    case.m.w.submit(command);
    let Op::Schedule(wanted) = command.op else { panic!("{command:?}") };
    case.m.w.submit(Command { op: Op::Schedule(Wanted { content: 1, ..wanted }), ..command });
    case.pass(1_000);
    case.m.w.submit(command);
    case.pass(100);
    let cancel = case.change(id, Op::Cancel);
    case.m.w.submit(command);
    let case = case.finish();
    assert_eq!(case.delivered(), 3);
    case.assert_answer(cancel, Answer::AlreadySent);
    assert!(!case.m.w.seen.contains_key("duplicate key"));
}

#[test]
fn case_24_a_cancelled_task_that_is_submitted_again_stays_cancelled() {
    let mut case = Case::started(|_| {});
    let id = case.submit(200, 0);
    let command = case.m.w.kafka.tasks[0].last().map(|(_, command)| *command).expect("just submitted");
    let cancel = case.change(id, Op::Cancel);
    case.m.w.submit(command);
    case.pass(100);
    case.assert_answer(cancel, Answer::Cancelled);
    let case = case.finish();
    assert!(!case.is_delivered(id));
}

#[test]
fn case_28_two_changes_while_the_first_withdraw_is_in_flight() {
    for (first, second, answers, state) in [
        (true, true, [Answer::Cancelled, Answer::Cancelled], TaskState::Cancelled),
        (true, false, [Answer::Cancelled, Answer::Cancelled], TaskState::Cancelled),
        (false, true, [Answer::Accepted, Answer::Cancelled], TaskState::Cancelled),
        (false, false, [Answer::Accepted, Answer::Accepted], TaskState::Done),
    ] {
        for one_batch in [false, true] {
            for late in [false, true] {
                let mut case = Case::started(|_| {});
                let id = case.submit(1_500, 0);
                case.pass(100);
                case.stop(OWNER, 0);
                let send = |case: &mut Case, cancel, due_in| {
                    if cancel { case.change(id, Op::Cancel) } else { case.move_to(id, due_in) }
                };
                if late {
                    case.plan("emit", Mishap::Later);
                }
                let a = send(&mut case, first, 3_000);
                if !one_batch {
                    case.exhaust(TASKS);
                }
                let b = send(&mut case, second, 700);
                case.exhaust(TASKS);
                assert_eq!((case.answer(a), case.answer(b)), (None, None));
                case.go_on(OWNER, 0);
                case.pass(200);
                case.arrive_all();
                case.pass(100);
                case.assert_answer(a, answers[0]);
                case.assert_answer(b, answers[1]);
                let case = case.finish();
                assert_eq!(case.state(id), state);
                if state == TaskState::Done {
                    assert_eq!(case.generation(id), 2, "one generation for both");
                }
            }
        }
    }
}

#[test]
fn case_28_a_task_made_moved_and_cancelled_in_one_batch_is_never_emitted() {
    let mut case = Case::started(|_| {});
    let emitted = case.m.w.kafka.due[0].len();
    let id = case.submit(100, 0);
    let moved = case.move_to(id, 50);
    let cancelled = case.change(id, Op::Cancel);
    case.exhaust(TASKS);
    case.assert_answer(moved, Answer::Accepted);
    case.assert_answer(cancelled, Answer::Cancelled);
    let case = case.finish();
    assert_eq!(case.m.w.kafka.due[0].len(), emitted);
}

#[test]
fn case_28_a_change_before_its_task_in_one_batch_finds_nothing() {
    let mut case = Case::started(|_| {});
    let task = case.m.w.submitted;
    let early = case.m.w.submit(Command { task, reply: true, op: Op::Cancel });
    let id = case.submit(100, 0);
    case.pass(300);
    case.assert_answer(early, Answer::NotFound);
    assert!(case.is_delivered(id));
    case.finish();
}
