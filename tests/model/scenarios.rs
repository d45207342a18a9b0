//! The faults of PROTOCOL §9 marked M, as named cases. The numbers are those of §9.

use crate::dice::Dice;
use crate::kafka::Command;
use crate::model::{Actor, Model, Program, Role};
use crate::programs::Did;
use crate::programs::dispatcher::Dispatcher;
use crate::setup::{Mutation, Setup};
use crate::trace::Trace;
use crate::world::Mishap;
use protocol::slot::Event;
use protocol::slot_store::model::Damage;
use protocol::state::TaskState;
use schemas::ids::{RowId, Slot};

pub const SLOT: Slot = Slot(0);
pub const OWNER: Role = Role::Dispatcher(SLOT);
const NEVER: u64 = u64::MAX;

/// A model that does what it is told.
pub struct Case {
    pub m: Model,
}

impl Case {
    pub fn new(change: impl FnOnce(&mut Setup)) -> Case {
        let mut setup = Setup::calm();
        setup.switch_off_by_time();
        change(&mut setup);
        let strict = setup.mutation.is_none();
        let mut m = Model::new(setup, Dice::seeded(1), Trace::on());
        m.w.rough = false;
        m.w.oracle.strict = strict;
        Case { m }
    }

    /// Everything has started, and the topics have proved to work.
    pub fn started(change: impl FnOnce(&mut Setup)) -> Case {
        let mut case = Case::new(change);
        case.submit(0, 0);
        case.submit(0, 1);
        case.pass(2_000);
        case
    }

    /// A task that is due in so many ms.
    pub fn submit(&mut self, due_in: i64, topic: u8) -> RowId {
        let w = &mut self.m.w;
        let task = w.submitted;
        w.submitted += 1;
        let due_at = w.now + due_in;
        let id = w.submit(Command { task, content: 0, topic, due_at, expires_at: None });
        self.m.tasks.push(id);
        id
    }

    pub fn pass(&mut self, ms: i64) {
        self.m.pass(ms);
        self.check();
    }

    pub fn check(&self) {
        assert!(self.m.w.oracle.is_fine(), "{}", self.story());
    }

    /// The end of the trace, and what is wrong.
    pub fn story(&self) -> String {
        let lines = self.m.w.trace.clone().into_lines();
        let from = lines.len().saturating_sub(120);
        format!("{}\n{}", lines[from..].join("\n"), self.m.w.oracle.violations.join("\n"))
    }

    /// The n-th living process of a role, by age.
    pub fn index(&self, role: Role, nth: usize) -> usize {
        let mut of = self.m.actors.iter().enumerate().filter(|(_, actor)| actor.role == role);
        of.nth(nth).map(|(at, _)| at).expect("there is such a process")
    }

    pub fn actor(&mut self, role: Role, nth: usize) -> &mut Actor {
        let at = self.index(role, nth);
        &mut self.m.actors[at]
    }

    pub fn owner(&self, nth: usize) -> &Dispatcher {
        match &self.m.actors[self.index(OWNER, nth)].program {
            Program::Dispatcher(dispatcher) => dispatcher,
            other => panic!("{other:?} is no dispatcher"),
        }
    }

    /// SIGSTOP.
    pub fn stop(&mut self, role: Role, nth: usize) {
        self.actor(role, nth).frozen_until = NEVER;
    }

    /// SIGCONT.
    pub fn go_on(&mut self, role: Role, nth: usize) {
        self.actor(role, nth).frozen_until = 0;
    }

    /// kill −9.
    pub fn kill(&mut self, role: Role, nth: usize) {
        let at = self.index(role, nth);
        self.m.actors.remove(at);
    }

    /// One step of one process.
    pub fn step(&mut self, role: Role, nth: usize) -> Did {
        let at = self.index(role, nth);
        self.m.step(at)
    }

    /// Only this process works, until something holds of it.
    pub fn step_until(&mut self, role: Role, nth: usize, holds: impl Fn(&Program) -> bool) {
        for _ in 0..500 {
            let at = self.index(role, nth);
            if holds(&self.m.actors[at].program) {
                return;
            }
            if self.m.step(at) != Did::Work {
                self.m.w.now += 1;
            }
        }
        panic!("it never comes to that\n{}", self.story());
    }

    /// The next call of this name goes wrong.
    pub fn plan(&mut self, call: &'static str, mishap: Mishap) {
        self.m.w.planned.push_back((call, mishap));
    }

    /// Whether anything is wrong once all is over.
    pub fn ends_well(mut self) -> bool {
        self.m.drain();
        self.m.w.oracle.is_fine()
    }

    /// All is over, and all is well.
    pub fn finish(mut self) -> Case {
        self.m.drain();
        self.check();
        self
    }

    pub fn delivered(&self) -> usize {
        self.m.w.oracle.delivered.len()
    }

    pub fn state(&self, id: RowId) -> TaskState {
        self.m.w.db.task[&id].state
    }
}

/// Moves the slot: a new owner, while the old one is still there.
fn second_owner(case: &mut Case) {
    case.m.spawn(OWNER);
}

#[test]
fn case_1_an_owner_stopped_after_its_claim_comes_back_to_a_slot_that_moved() {
    for moment in ["look_up", "send", "commit", "settle"] {
        let mut case = Case::started(|_| {});
        case.submit(100, 0);
        case.pass(100);
        case.submit(0, 0);
        case.step_until(
            Role::Tasks(0),
            0,
            |program| matches!(program, Program::Ingest(ingest) if ingest.has_effects()),
        );
        case.owner_until_all(moment);
        case.stop(OWNER, 0);
        second_owner(&mut case);
        case.pass(5_000);
        case.go_on(OWNER, 0);
        case.pass(5_000);
        case.actor(OWNER, 0).told_at = Some(0);
        case.finish();
    }
}

impl Case {
    /// Everybody works until the owner is about to do this.
    pub fn owner_until_all(&mut self, action: &str) {
        for _ in 0..3_000 {
            if self.owner(0).at() == Some(action) {
                return;
            }
            let mut worked = false;
            let mut at = 0;
            while at < self.m.actors.len() {
                worked |= self.m.actors[at].frozen_until == 0 && self.m.step(at) == Did::Work;
                if self.owner(0).at() == Some(action) {
                    return;
                }
                at += 1;
            }
            if !worked {
                self.m.w.now += 5;
            }
        }
        panic!("it never comes to {action}\n{}", self.story());
    }
}

#[test]
fn case_2_an_owner_stopped_around_its_commit_for_longer_than_every_time_out() {
    for (moment, timed_out) in [("commit", true), ("commit", false), ("settle", true), ("settle", false)] {
        let mut case = Case::started(|_| {});
        case.submit(0, 0);
        case.submit(0, 1);
        case.owner_until_all(moment);
        case.stop(OWNER, 0);
        if timed_out {
            case.pass(12_000);
            let now = case.m.w.now;
            case.m.w.kafka.time_out(10_000, now);
        }
        second_owner(&mut case);
        case.pass(3_000);
        case.go_on(OWNER, 0);
        case.pass(3_000);
        case.finish();
    }
}

#[test]
fn case_3_the_answer_to_a_commit_is_lost_and_the_slot_moves() {
    for mishap in [Mishap::AnswerLost, Mishap::Refused, Mishap::Later] {
        for moves in [false, true] {
            let mut case = Case::started(|_| {});
            case.submit(0, 0);
            case.owner_until_all("commit");
            case.plan("commit", mishap);
            case.step(OWNER, 0);
            if moves {
                case.stop(OWNER, 0);
                second_owner(&mut case);
            }
            case.pass(1_000);
            // What was under way arrives at last.
            while !case.m.w.network.is_empty() {
                case.m.w.arrive(0);
            }
            case.pass(3_000);
            case.finish();
        }
    }
}

#[test]
fn case_4_an_owner_killed_at_every_step_twice_in_a_row() {
    for first in 0..45 {
        for second in [0, 3, 5, 8, 11, 14, 17, 20, 25, 30] {
            let mut case = Case::started(|_| {});
            case.submit(0, 0);
            case.submit(0, 1);
            case.submit(50, 0);
            for _ in 0..first {
                case.everybody_steps();
            }
            case.kill(OWNER, 0);
            second_owner(&mut case);
            for _ in 0..second {
                case.everybody_steps();
            }
            case.kill(OWNER, 0);
            second_owner(&mut case);
            case.finish();
        }
    }
}

impl Case {
    pub fn everybody_steps(&mut self) {
        let mut at = 0;
        let mut worked = false;
        while at < self.m.actors.len() {
            if self.m.actors[at].frozen_until == 0 {
                worked |= self.m.step(at) == Did::Work;
            }
            at += 1;
        }
        if !worked {
            self.m.w.now += 5;
        }
        self.check();
    }
}

#[test]
fn case_4_two_take_overs_interleaved_in_every_pattern() {
    for pattern in 0..1_024_u32 {
        let mut case = Case::started(|_| {});
        case.submit(0, 0);
        case.submit(30, 1);
        second_owner(&mut case);
        second_owner(&mut case);
        for bit in 0..40 {
            let nth = if pattern >> (bit % 10) & 1 == 0 { 1 } else { 2 };
            case.step(OWNER, nth);
        }
        case.pass(500);
        case.finish();
    }
}

#[test]
fn case_5_redis_goes_back_to_an_older_snapshot() {
    for steps in 0..40 {
        for all_down in [false, true] {
            let mut case = Case::started(|_| {});
            case.submit(0, 0);
            let snapshot = case.m.w.redis[0].store.clone();
            case.submit(40, 1);
            case.submit(3_000, 0);
            for _ in 0..steps {
                case.everybody_steps();
            }
            if all_down {
                case.kill(OWNER, 0);
            }
            case.m.w.redis[0].store = snapshot;
            if all_down {
                second_owner(&mut case);
            }
            case.finish();
        }
    }
}

#[test]
fn case_6_redis_loses_each_of_its_keys_at_every_step() {
    let topic = crate::world::topic;
    let damages = [
        Damage::All,
        Damage::Meta,
        Damage::Body,
        Damage::Topics,
        Damage::Store(topic(0)),
        Damage::Prepare(topic(0)),
        Damage::Unanswered,
    ];
    for damage in damages {
        for steps in 0..40 {
            let mut case = Case::started(|_| {});
            for due_in in [0, 10, 60, 1_500, 4_000] {
                case.submit(due_in, 0);
            }
            for _ in 0..steps {
                case.everybody_steps();
            }
            case.m.w.redis[0].store.damage(&damage);
            case.finish();
        }
    }
}

#[test]
fn case_8_a_scanner_killed_between_its_cursor_and_its_confirm_with_a_cancel_in_between() {
    type Moment = fn(&Program) -> bool;
    let moments: [Moment; 2] = [
        |program| matches!(program, Program::Scanner(scanner) if scanner.is_emitting()),
        |program| matches!(program, Program::Scanner(scanner) if scanner.is_confirming()),
    ];
    for moment in moments {
        for mishap in [Mishap::None, Mishap::AnswerLost, Mishap::Later] {
            let mut case = Case::started(|_| {});
            let first = case.submit(6_000, 0);
            let second = case.submit(6_050, 1);
            case.submit(6_100, 0);
            case.pass(1_000);
            case.plan("emit", mishap);
            case.stop(Role::Scanner(SLOT), 0);
            case.pass(1_400);
            case.go_on(Role::Scanner(SLOT), 0);
            case.step_until(Role::Scanner(SLOT), 0, moment);
            case.kill(Role::Scanner(SLOT), 0);
            case.m.want_change(first);
            case.m.want_change(second);
            case.pass(200);
            case.m.spawn(Role::Scanner(SLOT));
            while !case.m.w.network.is_empty() {
                case.m.w.arrive(0);
            }
            case.finish();
        }
    }
}

#[test]
fn case_9_a_due_record_held_back_past_delivery_application_and_low() {
    for cap in [1 << 20, 200] {
        let mut case = Case::started(|setup| {
            setup.slot.window_ms = 0;
            setup.slot.settled_bytes = cap;
        });
        case.submit(0, 0);
        case.pass(100);
        let held = case.m.w.kafka.due[0].last().map(|(_, item)| item.clone()).expect("it was emitted");
        for _ in 0..6 {
            case.submit(0, 0);
            case.pass(2_000);
        }
        case.kill(OWNER, 0);
        second_owner(&mut case);
        case.submit(0, 0);
        case.pass(2_000);
        let before = case.delivered();
        case.m.w.append_due(SLOT, held);
        case.pass(5_000);
        assert_eq!(case.delivered(), before);
        case.finish();
    }
}

#[test]
fn case_10_ingest_killed_after_its_emission_restarts_on_the_same_batch_with_the_journal_unapplied() {
    let mut case = Case::started(|_| {});
    case.stop(Role::Journal(SLOT), 0);
    let id = case.submit(0, 0);
    let tasks = Role::Tasks(0);
    case.step_until(tasks, 0, |program| matches!(program, Program::Ingest(ingest) if ingest.has_effects()));
    case.step_until(tasks, 0, |program| matches!(program, Program::Ingest(ingest) if !ingest.has_effects()));
    case.kill(tasks, 0);
    case.pass(30_000);
    case.m.spawn(tasks);
    case.pass(5_000);
    assert_eq!(case.state(id), TaskState::Scheduled);
    case.go_on(Role::Journal(SLOT), 0);
    let case = case.finish();
    assert_eq!(case.state(id), TaskState::Done);
}

#[test]
fn case_11_a_withdraw_races_the_due_time_a_doubled_emission_and_a_take_over() {
    for steps in 0..60 {
        for moves in [false, true] {
            let mut case = Case::started(|_| {});
            let id = case.submit(20, 0);
            for step in 0..60 {
                if step == steps {
                    case.m.want_change(id);
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
            case.finish();
        }
    }
}

#[test]
fn case_12_a_withdraw_overtakes_its_own_deliver_record() {
    let mut case = Case::started(|_| {});
    let id = case.submit(1_000, 0);
    case.plan("emit", Mishap::Later);
    case.stop(OWNER, 0);
    case.step_until(
        Role::Tasks(0),
        0,
        |program| matches!(program, Program::Ingest(ingest) if ingest.has_effects()),
    );
    // The record stays on its way, and its sender is gone.
    for _ in 0..3 {
        case.step(Role::Tasks(0), 0);
    }
    assert_eq!(case.m.w.network.len(), 1, "{}", case.story());
    case.kill(Role::Tasks(0), 0);
    case.m.want_change(id);
    case.go_on(OWNER, 0);
    case.pass(300);
    case.m.w.arrive(0);
    case.m.spawn(Role::Tasks(0));
    let case = case.finish();
    assert_eq!(case.m.w.db.task[&id].generation.0, 2);
}

#[test]
fn case_14_mysql_is_down_for_half_a_minute_across_due_times() {
    let mut case = Case::started(|_| {});
    for n in 0..10 {
        case.submit(100 * n, 0);
    }
    case.pass(50);
    case.m.w.db_down = true;
    case.pass(30_000);
    assert_eq!(case.delivered(), 12, "what lay within the horizon is not late");
    case.m.w.db_down = false;
    case.finish();
}

#[test]
fn case_14_the_answer_to_every_transaction_is_lost_once() {
    let calls =
        ["insert", "apply", "confirm", "scan_start", "scan_confirm", "positions", "fences", "second_look"];
    for call in calls {
        for mishap in [Mishap::AnswerLost, Mishap::Refused] {
            let mut case = Case::started(|_| {});
            case.plan(call, mishap);
            for due_in in [0, 500, 5_000] {
                case.submit(due_in, 0);
            }
            case.finish();
        }
    }
}

#[test]
fn case_15_a_strangers_transaction_holds_the_journal() {
    let mut case = Case::started(|setup| setup.reemit.grace_ms = 3_000);
    let record = case.m.w.foreign_record();
    let now = case.m.w.now;
    case.m.w.kafka.open_foreign(SLOT, record, now);
    for _ in 0..4 {
        case.submit(0, 0);
    }
    case.pass(40_000);
    assert_eq!(case.delivered(), 6, "deliveries go on");
    let emitted = case.m.w.kafka.due[0].len();
    case.pass(20_000);
    assert_eq!(case.m.w.kafka.due[0].len(), emitted, "the gate is shut: nothing is emitted again");
    case.finish();
}

#[test]
fn case_24_duplicates_within_a_batch_and_across_batches() {
    let mut case = Case::started(|_| {});
    case.submit(200, 0);
    let command = case.m.w.kafka.tasks[0].last().map(|(_, command)| *command).expect("just submitted");
    case.m.w.submit(command);
    case.m.w.submit(Command { content: 1, ..command });
    case.pass(1_000);
    case.m.w.submit(command);
    let case = case.finish();
    assert_eq!(case.delivered(), 3);
}

/// Deliveries while the journal is not applied for an hour; how many there are at its end.
fn an_hour_without_the_journals_side(cap: usize) -> usize {
    let mut case = Case::started(|setup| {
        setup.slot.settled_bytes = cap;
        setup.slot.window_ms = 5_000;
    });
    case.stop(Role::Journal(SLOT), 0);
    for n in 0..36 {
        if n == 12 {
            // A cold start in between: all fences stand still.
            case.m.w.redis[0].store.damage(&Damage::All);
        }
        if n == 24 {
            case.kill(OWNER, 0);
            second_owner(&mut case);
        }
        case.submit(0, 0);
        case.pass(100_000);
    }
    case.delivered()
}

#[test]
fn case_27_with_the_journals_side_dead_for_an_hour_deliveries_go_on() {
    assert_eq!(an_hour_without_the_journals_side(1 << 20), 38);
}

#[test]
fn mutation_low_raised_above_the_fence_is_caught() {
    // A cap that holds no fate raises `low` above every fence.
    assert!(an_hour_without_the_journals_side(0) < 38);
}

/// A row is read by the compensator, delivered, applied and forgotten, and only then is its record written.
fn a_compensator_sleeps_over_a_delivery(mutation: Option<Mutation>) -> bool {
    let mut case = Case::started(|setup| {
        setup.slot.window_ms = 0;
        setup.reemit.grace_ms = 0;
        setup.mutation = mutation;
    });
    let compensator = Role::Compensator(SLOT);
    case.stop(compensator, 0);
    case.stop(OWNER, 0);
    case.submit(0, 0);
    case.pass(500);
    let before_fence = mutation == Some(Mutation::FenceAfterRow);
    case.step_until(
        compensator,
        0,
        |program| matches!(program, Program::Compensator(compensator) if compensator.has_read(before_fence)),
    );
    case.go_on(OWNER, 0);
    case.m.pass(1_000);
    // Time and other tasks go by, until nobody remembers.
    for _ in 0..3 {
        case.submit(0, 0);
        case.m.pass(2_000);
    }
    case.kill(OWNER, 0);
    second_owner(&mut case);
    case.m.pass(1_000);
    case.go_on(compensator, 0);
    case.m.pass(2_000);
    case.ends_well()
}

#[test]
fn a_record_written_long_after_its_row_was_read_is_not_delivered_again() {
    assert!(a_compensator_sleeps_over_a_delivery(None));
}

#[test]
fn mutation_fence_read_after_the_row_is_caught() {
    assert!(!a_compensator_sleeps_over_a_delivery(Some(Mutation::FenceAfterRow)));
}

#[test]
fn an_owner_that_stays_in_charge_takes_over_once() {
    let mut case = Case::started(|_| {});
    for n in 0..20 {
        case.submit(100 * n, (n % 2) as u8);
    }
    case.pass(10_000);
    assert_eq!(case.owner(0).runs, 1);
    let cold = case
        .owner(0)
        .events
        .iter()
        .filter(|event| matches!(event, Event::Running { cold: true, .. }))
        .count();
    assert_eq!(cold, 1);
    case.finish();
}
