//! A run: the world and the programs in it, one step at a time.

use crate::dice::{Choices, Dice};
use crate::programs::Did;
use crate::programs::canceller::Canceller;
use crate::programs::compensator::Compensator;
use crate::programs::dispatcher::Dispatcher;
use crate::programs::ingest::{Ingest, Stream};
use crate::programs::scanner::Scanner;
use crate::setup::Setup;
use crate::trace::Trace;
use crate::world::World;
use schemas::ids::{RowId, Slot, SourceId};
use std::collections::BTreeMap;

/// What a process is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Dispatcher(Slot),
    Tasks(i32),
    Journal(Slot),
    Scanner(Slot),
    Compensator(Slot),
    Canceller,
}

/// A process.
#[derive(Debug)]
pub enum Program {
    Dispatcher(Box<Dispatcher>),
    Ingest(Box<Ingest>),
    Scanner(Box<Scanner>),
    Compensator(Box<Compensator>),
    Canceller(Box<Canceller>),
}

/// A process as the scheduler sees it.
#[derive(Debug)]
pub struct Actor {
    pub role: Role,
    pub program: Program,
    /// Stopped by SIGSTOP until this step.
    pub frozen_until: u64,
    /// It has lost its role and hears of it at this step.
    pub told_at: Option<u64>,
}

impl Actor {
    fn new(w: &mut World, role: Role) -> Actor {
        let program = match role {
            Role::Dispatcher(slot) => Program::Dispatcher(Box::new(Dispatcher::new(w, slot))),
            Role::Tasks(partition) => Program::Ingest(Box::new(Ingest::new(w, Stream::Tasks(partition)))),
            Role::Journal(slot) => Program::Ingest(Box::new(Ingest::new(w, Stream::Journal(slot)))),
            Role::Scanner(slot) => Program::Scanner(Box::new(Scanner::new(w, slot))),
            Role::Compensator(slot) => Program::Compensator(Box::new(Compensator::new(w, slot))),
            Role::Canceller => Program::Canceller(Box::new(Canceller::new(w))),
        };
        Actor { role, program, frozen_until: 0, told_at: None }
    }

    pub fn step(&mut self, w: &mut World) -> Did {
        match &mut self.program {
            Program::Dispatcher(program) => program.step(w),
            Program::Ingest(program) => program.step(w),
            Program::Scanner(program) => program.step(w),
            Program::Compensator(program) => program.step(w),
            Program::Canceller(program) => program.step(w),
        }
    }
}

/// A run.
#[derive(Debug)]
pub struct Model {
    pub w: World,
    pub actors: Vec<Actor>,
    /// Roles that nobody has until a step.
    pub vacant: Vec<(Role, u64)>,
    pub steps: u64,
    /// Tasks submitted, each identity once.
    pub tasks: Vec<RowId>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    pub violations: Vec<String>,
    pub steps: u64,
    pub choices: Vec<Choices>,
    pub trace: Vec<String>,
    /// What came to pass, and how often.
    pub seen: BTreeMap<String, u64>,
}

impl Model {
    /// One process for each role.
    pub fn new(setup: Setup, dice: Dice, trace: Trace) -> Model {
        let mut w = World::new(setup, dice, trace);
        let mut roles = Vec::new();
        for slot in (0..w.setup.slots).map(Slot) {
            roles.extend([
                Role::Dispatcher(slot),
                Role::Journal(slot),
                Role::Scanner(slot),
                Role::Compensator(slot),
            ]);
        }
        roles.extend((0..w.setup.partitions).map(Role::Tasks));
        roles.push(Role::Canceller);
        let actors = roles.into_iter().map(|role| Actor::new(&mut w, role)).collect();
        Model { w, actors, vacant: Vec::new(), steps: 0, tasks: Vec::new() }
    }

    /// A new process takes a role.
    pub fn spawn(&mut self, role: Role) -> usize {
        let actor = Actor::new(&mut self.w, role);
        self.actors.push(actor);
        self.actors.len() - 1
    }

    /// One step of one process. `None`: it is gone.
    pub fn step(&mut self, at: usize) -> Did {
        let did = self.actors[at].step(&mut self.w);
        if !self.w.rough {
            self.w.kafka.mark_all(self.w.now);
        }
        self.w.judge();
        if did == Did::Gone {
            self.actors.remove(at);
        }
        did
    }

    /// Everything works from now on: one process for each role, nothing on its way, nobody stopped.
    pub fn calm_down(&mut self) {
        self.w.rough = false;
        self.w.planned.clear();
        self.w.network.clear();
        self.w.faults.clear();
        self.w.lookups.clear();
        self.w.db_down = false;
        self.w.kafka.close_foreign(self.w.now);
        self.w.redis.iter_mut().for_each(|redis| redis.full = false);
        let mut kept: Vec<Role> = Vec::new();
        let mut at = self.actors.len();
        // The youngest of each role stays.
        while at > 0 {
            at -= 1;
            let role = self.actors[at].role;
            let stale =
                matches!(&self.actors[at].program, Program::Dispatcher(dispatcher) if dispatcher.lost);
            if kept.contains(&role) || self.actors[at].told_at.is_some() || stale {
                self.actors.remove(at);
            } else {
                kept.push(role);
                self.actors[at].frozen_until = 0;
            }
        }
        let mut missing: Vec<Role> = Model::roles(&self.w.setup);
        missing.retain(|role| !kept.contains(role));
        self.vacant.clear();
        for role in missing {
            self.spawn(role);
        }
        // An open transaction of a process that is gone ends by its time-out at the latest.
        self.w.kafka.time_out(0, self.w.now);
        self.w.kafka.mark_all(self.w.now);
        self.w.judge();
    }

    fn roles(setup: &Setup) -> Vec<Role> {
        let mut roles = Vec::new();
        for slot in (0..setup.slots).map(Slot) {
            roles.extend([
                Role::Dispatcher(slot),
                Role::Journal(slot),
                Role::Scanner(slot),
                Role::Compensator(slot),
            ]);
        }
        roles.extend((0..setup.partitions).map(Role::Tasks));
        roles.push(Role::Canceller);
        roles
    }

    /// Lets everybody work until nobody has anything to do at this moment. The next time at which somebody has.
    pub fn settle(&mut self) -> Option<i64> {
        for _ in 0..20_000 {
            let (mut worked, mut wake): (bool, Option<i64>) = (false, None);
            let mut at = 0;
            while at < self.actors.len() {
                // Who needs MySQL and does not reach it only waits.
                let waits = self.w.db_down && !matches!(self.actors[at].role, Role::Dispatcher(_));
                if waits || self.actors[at].frozen_until > self.steps {
                    at += 1;
                    continue;
                }
                match self.step(at) {
                    Did::Work => {
                        self.steps += 1;
                        worked = true;
                        at += 1;
                    }
                    Did::Idle(until) => {
                        wake = until.into_iter().chain(wake).min();
                        at += 1;
                    }
                    Did::Gone => {}
                }
            }
            if !worked || !self.w.oracle.is_fine() {
                return wake;
            }
        }
        self.w.oracle.fail(|| "liveness: the programs never come to rest".into());
        None
    }

    /// Moves time on by so much, letting everybody work whenever there is something to do.
    pub fn pass(&mut self, ms: i64) {
        let until = self.w.now + ms;
        loop {
            let wake = self.settle();
            if !self.w.oracle.is_fine() {
                return;
            }
            let next = wake.map_or(until, |at| at.max(self.w.now + 1).min(until));
            if self.w.now >= until {
                return;
            }
            self.w.now = next;
        }
    }

    /// All faults are over: whatever was accepted comes to its end.
    pub fn drain(&mut self) {
        self.calm_down();
        let quiet = |m: &Model| {
            let read = |stream: &(SourceId, i32), end: usize| {
                m.w.db.position[stream].confirmed == m.w.db.position[stream].next
                    && (stream.0 == crate::mysql::JOURNAL || m.w.db.position[stream].next == end as i64)
            };
            let ends = m.w.db.position.keys().all(|stream| {
                let end = if stream.0 == crate::mysql::TASKS {
                    m.w.kafka.tasks[stream.1 as usize].len()
                } else {
                    0
                };
                read(stream, end)
            });
            ends && m.w.db.pending.is_empty()
        };
        for _ in 0..400 {
            self.pass(250);
            if !self.w.oracle.is_fine() || quiet(self) {
                break;
            }
        }
        // A little longer, for what should not come any more.
        self.pass(3_000);
        if self.w.oracle.is_fine() {
            self.w.oracle.drained(&self.w.db, self.tasks.len());
        }
    }

    /// The end of a run.
    pub fn into_outcome(self) -> Outcome {
        Outcome {
            violations: self.w.oracle.violations,
            steps: self.steps,
            choices: self.w.dice.into_log(),
            trace: self.w.trace.into_lines(),
            seen: self.w.seen,
        }
    }
}
