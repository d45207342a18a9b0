//! Random schedules: who takes the next step, what fails, when time moves.

use crate::dice::{Choices, Dice};
use crate::kafka::Command;
use crate::model::{Model, Outcome, Program, Role};
use crate::programs::Did;
use crate::redis::Redis;
use crate::setup::{Mutation, Setup};
use crate::trace::Trace;
use crate::world::topic;
use protocol::slot::{DueItem, FaultKind, Lookup};
use protocol::slot_store::model::Damage;
use schemas::ids::{RowId, Slot};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A run from a seed.
pub fn run(seed: u64, steps: u64, mutation: Option<Mutation>) -> Outcome {
    play(Dice::seeded(seed), steps, mutation, Trace::off())
}

/// A run from the choices of an earlier one.
pub fn replay(choices: Vec<Choices>, mutation: Option<Mutation>, trace: Trace) -> Outcome {
    play(Dice::replay(choices), u64::MAX, mutation, trace)
}

fn play(mut dice: Dice, steps: u64, mutation: Option<Mutation>, trace: Trace) -> Outcome {
    dice.next_step();
    let mut setup = Setup::random(&mut dice);
    setup.mutation = mutation;
    let strict = mutation.is_none();
    let mut model = Model::new(setup, dice, trace);
    model.w.oracle.strict = strict;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut count = 0;
        while count < steps && model.w.oracle.is_fine() && model.w.dice.next_step() {
            model.random_step();
            count += 1;
        }
        if model.w.oracle.is_fine() {
            model.drain();
        }
    }));
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        model.w.oracle.violations.push(format!("panic: {}", text.unwrap_or_default()));
    }
    model.into_outcome()
}

impl Model {
    fn random_step(&mut self) {
        self.steps += 1;
        self.come_and_go();
        let faults = self.w.setup.faults;
        match self.w.dice.roll(1_000) {
            0..780 => self.somebody_works(),
            780..820 => self.submit(),
            820..890 => self.time_passes(),
            890..920 => self.a_marker_is_written(),
            920..945 => self.something_arrives(),
            945..960 => self.a_change_is_wanted(),
            960..965 => self.a_record_is_doubled(),
            _ if self.w.dice.chance(faults * 25) => self.a_fault(),
            _ => self.somebody_works(),
        }
        self.w.judge();
    }

    fn somebody_works(&mut self) {
        let count = self.actors.len() as u32;
        let first = self.w.dice.roll(count) as usize;
        let mut wake: Option<i64> = None;
        for n in 0..count as usize {
            if self.actors.is_empty() {
                return;
            }
            let at = (first + n) % self.actors.len();
            if self.actors[at].frozen_until > self.steps {
                continue;
            }
            match self.step(at) {
                Did::Work | Did::Gone => return,
                Did::Idle(until) => wake = until.into_iter().chain(wake).min(),
            }
        }
        // Nobody has anything to do: time moves to where somebody has.
        let next = wake.unwrap_or(self.w.now + 100);
        self.w.now = next.clamp(self.w.now + 1, self.w.now + 500);
    }

    fn time_passes(&mut self) {
        let ms = match self.w.dice.roll(40) {
            0..30 => 1 + self.w.dice.roll(20),
            30..38 => 20 + self.w.dice.roll(300),
            38 => 1_500 + self.w.dice.roll(1_000),
            _ => 12_000,
        };
        self.w.now += i64::from(ms);
    }

    fn submit(&mut self) {
        if self.tasks.len() >= self.w.setup.tasks {
            return self.somebody_works();
        }
        let w = &mut self.w;
        if w.dice.roll(12) == 11 && w.submitted > 0 {
            // Once more, perhaps with another content, perhaps on the partition of another producer.
            let recent = w.submitted.min(3);
            let task = w.submitted - 1 - w.dice.roll(recent);
            let content = w.dice.roll(2) as u8;
            let partition = task as usize + w.dice.roll(2) as usize;
            let command = Command { task, content, topic: 0, due_at: w.now, expires_at: None };
            w.submit_to(partition, command);
            return;
        }
        let task = w.submitted;
        w.submitted += 1;
        let due_at = w.now
            + match w.dice.roll(10) {
                0..4 => i64::from(w.dice.roll(3_000)),
                4..6 => 2_000 + i64::from(w.dice.roll(6_000)),
                6..8 => i64::from(w.dice.roll(30)),
                8 => 2_500,
                _ => -i64::from(w.dice.roll(5_000)),
            };
        let topics = w.setup.topics;
        let topic = w.dice.roll(topics) as u8;
        let expires_at = w.dice.chance(40).then_some(due_at + 300);
        if expires_at.is_some() {
            w.oracle.deaths += 1;
        }
        let id = w.submit(Command { task, content: 0, topic, due_at, expires_at });
        self.tasks.push(id);
    }

    fn a_marker_is_written(&mut self) {
        match self.w.kafka.unmarked().first() {
            Some(id) => {
                let id = *id;
                self.w.kafka.mark(id, self.w.now);
                self.w.say("coordinator", || format!("writes the markers of {id:?}"));
            }
            None => self.somebody_works(),
        }
    }

    fn something_arrives(&mut self) {
        let waiting = self.w.network.len() as u32;
        if waiting == 0 {
            return self.somebody_works();
        }
        let at = self.w.dice.roll(waiting) as usize;
        if self.w.dice.roll(4) == 3 {
            self.w.network.swap_remove(at);
        } else {
            self.w.arrive(at);
        }
    }

    fn a_change_is_wanted(&mut self) {
        if !self.w.setup.changes || self.tasks.is_empty() {
            return self.somebody_works();
        }
        let recent = self.tasks.len().min(12) as u32;
        let back = self.w.dice.roll(recent) as usize;
        let id = self.tasks[self.tasks.len() - 1 - back];
        self.want_change(id);
    }

    /// The canceller is asked to cancel or withdraw a row.
    pub fn want_change(&mut self, id: RowId) {
        for actor in &mut self.actors {
            if let Program::Canceller(canceller) = &mut actor.program {
                canceller.wanted.push(id);
            }
        }
    }

    fn a_record_is_doubled(&mut self) {
        let slot = Slot(self.w.dice.roll(u32::from(self.w.setup.slots)) as u16);
        let log = &self.w.kafka.due[usize::from(slot.0)];
        let count = log.len() as u32;
        if count == 0 || self.w.setup.mishaps == 0 {
            return self.somebody_works();
        }
        let item = log[self.w.dice.roll(count) as usize].1.clone();
        if self.w.dice.roll(6) == 5 {
            self.w.say("a stranger", || "writes to due".into());
            return self.w.append_due(slot, DueItem::read(0, b"garbage".to_vec()));
        }
        self.w.say("network", || format!("doubles the record at {} of due", item.offset));
        self.w.append_due(slot, item);
    }

    /// Vacant roles are filled, and losers hear of it.
    fn come_and_go(&mut self) {
        let steps = self.steps;
        while let Some(at) = self.vacant.iter().position(|(_, step)| *step <= steps) {
            let (role, _) = self.vacant.swap_remove(at);
            self.spawn(role);
        }
        let told = |actor: &crate::model::Actor| actor.told_at.is_some_and(|step| step <= steps);
        while let Some(at) = self.actors.iter().position(told) {
            match &mut self.actors[at].program {
                // It hears of it when it next runs.
                Program::Dispatcher(dispatcher) => {
                    dispatcher.lost = true;
                    self.actors[at].told_at = None;
                }
                _ => {
                    self.actors.remove(at);
                }
            }
        }
    }

    fn a_fault(&mut self) {
        let redis = self.w.setup.redis;
        if self.w.dice.chance(redis) {
            return self.a_fault_of_redis();
        }
        let count = self.actors.len() as u32;
        let at = self.w.dice.roll(count) as usize;
        let Some(actor) = self.actors.get(at) else { return };
        let role = actor.role;
        match self.w.dice.roll(12) {
            0..3 => {
                let pause = self.w.dice.pick(&[0, 20, 200, 600]);
                self.kill(at, pause);
            }
            3..6 => {
                let steps = self.w.dice.pick(&[20, 100, 400, 1_000]);
                self.w.say("fault", || format!("{role:?} is stopped for {steps} steps"));
                self.actors[at].frozen_until = self.steps + steps;
            }
            6 if matches!(role, Role::Dispatcher(_)) && self.w.dice.roll(3) == 2 => self.stop_gently(at),
            6..8 => {
                let told = self.steps + self.w.dice.pick(&[10, 50, 300]);
                self.second(at, told);
            }
            8 if self.w.setup.bad_topics => self.a_bad_topic(),
            9 => {
                let now = self.w.now;
                if self.w.dice.roll(2) == 0 {
                    self.w.kafka.time_out(1_000, now);
                    self.w.say("fault", || "open transactions time out".into());
                } else if !self.w.kafka.close_foreign(now) {
                    let record = self.w.foreign_record();
                    self.w.say("fault", || "a stranger's transaction holds the journal".into());
                    self.w.kafka.open_foreign(Slot(0), record, now);
                }
            }
            10 => {
                self.w.db_down = !self.w.db_down;
                let down = self.w.db_down;
                self.w.say("fault", || format!("MySQL is down: {down}"));
            }
            _ => self.a_clock(),
        }
    }

    fn kill(&mut self, at: usize, pause: u64) {
        let role = self.actors[at].role;
        if role == Role::Canceller {
            return;
        }
        self.w.say("fault", || format!("{role:?} is killed, back in {pause} steps"));
        self.actors.remove(at);
        if !self.actors.iter().any(|actor| actor.role == role && actor.told_at.is_none()) {
            self.vacant.push((role, self.steps + pause));
        }
    }

    /// The process is told to stop, finishes what it has begun, and is replaced.
    fn stop_gently(&mut self, at: usize) {
        let role = self.actors[at].role;
        if let Program::Dispatcher(dispatcher) = &mut self.actors[at].program {
            dispatcher.stop = true;
        }
        if self.actors[at].told_at.is_none() {
            self.actors[at].told_at = Some(self.steps + 400);
            self.vacant.push((role, self.steps + 30));
        }
    }

    /// Another process takes the role; the first one hears of it later.
    pub fn second(&mut self, at: usize, told_at: u64) {
        let role = self.actors[at].role;
        if role == Role::Canceller || self.actors.iter().filter(|actor| actor.role == role).count() > 2 {
            return;
        }
        self.w.say("fault", || format!("{role:?} moves to another process"));
        self.actors[at].told_at = Some(told_at);
        self.spawn(role);
    }

    fn a_bad_topic(&mut self) {
        let topics = self.w.setup.topics;
        let number = self.w.dice.roll(topics) as u8;
        self.w.faults.clear();
        self.w.lookups.clear();
        match self.w.dice.roll(8) {
            0..3 => {}
            3 => self.w.faults.extend([(number, FaultKind::Transient)]),
            4 => self.w.faults.extend([(number, FaultKind::TooLarge)]),
            5 => self.w.faults.extend([(number, FaultKind::NotAuthorised)]),
            6 => self.w.lookups.extend([(number, Lookup::Unavailable)]),
            _ => self.w.lookups.extend([(number, Lookup::Unknown)]),
        }
        self.w.oracle.deaths += 1;
        let (faults, lookups) = (self.w.faults.clone(), self.w.lookups.clone());
        self.w.say("fault", || format!("topics: {faults:?} {lookups:?}"));
    }

    /// Either local clocks or Redis may be off, in either direction, but never both ahead.
    fn a_clock(&mut self) {
        let behind = -i64::from(self.w.dice.roll(3_000));
        let ahead = i64::from(self.w.dice.roll(3_000));
        let redis_ahead = self.w.dice.roll(2) == 1;
        let (redis_ms, local_ms) = if redis_ahead { (ahead, behind) } else { (behind, ahead) };
        self.w.redis.iter_mut().for_each(|redis| redis.skew_ms = redis_ms);
        for actor in &mut self.actors {
            if let Program::Dispatcher(dispatcher) = &mut actor.program {
                dispatcher.skew_ms = local_ms;
            }
        }
        self.w.oracle.clocks_jumped = true;
        self.w.say("fault", || format!("Redis is {redis_ms} ms, dispatchers are {local_ms} ms ahead"));
    }

    fn a_fault_of_redis(&mut self) {
        let slot = self.w.dice.roll(u32::from(self.w.setup.slots)) as usize;
        let kind = self.w.dice.roll(14);
        let which = topic(self.w.dice.roll(self.w.setup.topics) as u8);
        let nth = self.w.dice.roll(8) as usize;
        let Redis { store, snapshots, full, .. } = &mut self.w.redis[slot];
        let member = |set: Option<&protocol::slot_store::model::ZSet>| {
            let all = set.map(protocol::slot_store::model::ZSet::all).unwrap_or_default();
            all.get(nth % all.len().max(1)).map(|(_, member)| *member)
        };
        let damage = match kind {
            0..3 => {
                snapshots.push(store.clone());
                if snapshots.len() > 3 {
                    snapshots.remove(0);
                }
                None
            }
            3..6 => {
                if let Some(old) = snapshots.get(nth % snapshots.len().max(1)).cloned() {
                    *store = old;
                    self.w.say("fault", || "Redis goes back to a snapshot".into());
                }
                None
            }
            6 => {
                *full = !*full;
                let full = *full;
                self.w.say("fault", || format!("Redis is full: {full}"));
                None
            }
            7 => Some(Damage::All),
            8 => Some(Damage::Meta),
            9 => Some(Damage::Body),
            10 => Some(Damage::Store(which.clone())),
            11 => Some(Damage::Prepare(which.clone())),
            12 => member(store.store.get(&which)).map(|member| Damage::StoreMember(which.clone(), member)),
            _ => Some(Damage::Topics),
        };
        if let Some(damage) = damage {
            self.w.say("fault", || format!("Redis loses {damage:?}"));
            self.w.redis[slot].store.damage(&damage);
        }
    }
}
