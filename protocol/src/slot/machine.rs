//! The slot as a whole: being taken over, running, standing still, gone.

use super::config::SlotConfig;
use super::event::{Cause, Event, Halt};
use super::fairness::RoundRobin;
use super::io::{Action, Input, Now, Step};
use super::lanes::Lanes;
use super::running::{Context, Next, Running};
use super::steps::After;
use super::takeover::{Progress, TakeOver};

/// One assigned slot. See the module's head for how it is driven.
#[derive(Debug)]
pub struct Slot {
    config: SlotConfig,
    lanes: Lanes,
    robin: RoundRobin,
    events: Vec<Event>,
    phase: Phase,
    awaiting: bool,
    stopping: bool,
    /// Take-overs in a row that led to nothing.
    vain: u32,
}

#[derive(Debug)]
enum Phase {
    /// Before the first action of a take-over.
    Pause {
        until_mono_ms: i64,
    },
    TakingOver {
        take_over: Box<TakeOver>,
        since_mono_ms: i64,
        todo: Option<Action>,
    },
    Running(Box<Running>),
    Halted,
    Stopped,
}

impl Slot {
    /// A slot that was just assigned to us: begins with a take-over.
    pub fn assigned(config: SlotConfig, now: Now) -> Slot {
        let lanes = Lanes::new(&config);
        let cause = Event::TakeOver { cause: Cause::Assigned, detail: String::new(), pause_ms: 0 };
        Slot {
            config,
            lanes,
            robin: RoundRobin::default(),
            events: vec![cause],
            phase: Phase::Pause { until_mono_ms: now.mono_ms },
            awaiting: false,
            stopping: false,
            vain: 0,
        }
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether more records of `due[s]` may be handed in now.
    pub fn wants_due(&self) -> bool {
        match &self.phase {
            Phase::Running(running) => !self.stopping && running.wants_due(),
            Phase::Pause { .. } | Phase::TakingOver { .. } | Phase::Halted | Phase::Stopped => false,
        }
    }

    /// Whether it delivers (not being taken over, not halted).
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// Whether it stands still until an operator decides.
    pub fn is_halted(&self) -> bool {
        matches!(self.phase, Phase::Halted)
    }

    /// Figures for gauges: members and bytes in Redis, fates in memory, bytes of those, topics in quarantine.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures { quarantined_topics: self.lanes.quarantined(), ..Figures::default() };
        if let Phase::Running(running) = &self.phase {
            figures.members = running.state.members;
            figures.bytes = running.state.bytes;
            figures.settled = running.settled.len();
            figures.settled_bytes = running.settled.bytes();
            figures.credit = super::running::credit(&self.config, &running.state);
            figures.paused = running.paused;
        }
        figures
    }

    /// What to do next. Not to be called while an action awaits its reply.
    pub fn step(&mut self, now: Now) -> Step {
        debug_assert!(!self.awaiting, "an action awaits its reply");
        let step = self.next_step(now);
        self.awaiting = matches!(step, Step::Do(_));
        step
    }

    fn next_step(&mut self, now: Now) -> Step {
        match &mut self.phase {
            Phase::Stopped => Step::Stopped,
            Phase::Halted | Phase::Pause { .. } | Phase::TakingOver { .. } if self.stopping => {
                self.phase = Phase::Stopped;
                Step::Stopped
            }
            Phase::Halted => Step::Wait { until_mono_ms: None },
            Phase::Pause { until_mono_ms } if now.mono_ms < *until_mono_ms => {
                Step::Wait { until_mono_ms: Some(*until_mono_ms) }
            }
            Phase::Pause { .. } => {
                let (take_over, action) = TakeOver::begin();
                let take_over = Box::new(take_over);
                self.phase = Phase::TakingOver { take_over, since_mono_ms: now.mono_ms, todo: None };
                Step::Do(action)
            }
            Phase::TakingOver { todo, .. } => {
                todo.take().map_or(Step::Wait { until_mono_ms: None }, Step::Do)
            }
            Phase::Running(running) => {
                let Slot { config, lanes, robin, events, .. } = self;
                let mut cx = Context { config, lanes, robin, events, now };
                match running.choose(&mut cx, self.stopping) {
                    Next::Do(action) => Step::Do(action),
                    Next::Wait(until_mono_ms) => Step::Wait { until_mono_ms },
                    Next::Stopped => {
                        self.phase = Phase::Stopped;
                        Step::Stopped
                    }
                    Next::TakeOver(cause, detail) => {
                        self.doubt(cause, detail, now);
                        self.next_step(now)
                    }
                }
            }
        }
    }

    /// Takes the reply of the last action, or what came by itself.
    pub fn handle(&mut self, now: Now, input: Input) {
        match input {
            Input::AssignmentLost => {
                self.awaiting = false;
                self.phase = Phase::Stopped;
            }
            Input::Stop => self.stopping = true,
            Input::Due(items) => {
                if let Phase::Running(running) = &mut self.phase {
                    running.take_in(items);
                }
            }
            Input::DueTrouble(text) => {
                if self.is_running() {
                    self.awaiting = false;
                    self.doubt(Cause::Kafka, text, now);
                }
            }
            Input::Reports(outcome) => {
                if let Phase::Running(running) = &mut self.phase
                    && let Some(quarantine) = &mut running.quarantine
                {
                    quarantine.outcome = Some(outcome);
                }
            }
            Input::Strays(ends) => {
                if let Phase::Running(running) = &mut self.phase {
                    running.intake.strays_ended(ends, now.mono_ms, &mut self.events);
                }
            }
            reply => {
                self.awaiting = false;
                self.reply(now, reply);
            }
        }
    }

    fn reply(&mut self, now: Now, reply: Input) {
        match &mut self.phase {
            Phase::TakingOver { take_over, since_mono_ms, todo } => {
                let took_ms = now.mono_ms - *since_mono_ms;
                match take_over.reply(&self.config, now, reply, &mut self.events) {
                    Progress::Do(action) => *todo = Some(action),
                    Progress::Through(taken) => {
                        self.events.push(Event::Running {
                            took_ms,
                            cold: taken.cold,
                            fates: taken.settled.len(),
                            due_pos: taken.due_pos,
                        });
                        self.phase = Phase::Running(Box::new(Running::new(*taken, now)));
                    }
                    Progress::Again(cause, detail) => self.doubt(cause, detail, now),
                    Progress::Halt(halt, detail) => self.halt(halt, detail),
                    Progress::Unexpected => self.doubt(Cause::Invariant, "unexpected reply".into(), now),
                }
            }
            Phase::Running(running) => {
                let Slot { config, lanes, robin, events, .. } = self;
                let before = events.len();
                let mut cx = Context { config, lanes, robin, events, now };
                let after = running.reply(&mut cx, reply);
                if events[before..].iter().any(|event| matches!(event, Event::Committed { .. })) {
                    self.vain = 0;
                }
                match after {
                    After::Go => {}
                    After::TakeOver(cause, detail) => self.doubt(cause, detail, now),
                    After::HaltNewer(detail) => self.halt(Halt::JournalNewer, detail),
                }
            }
            // A late reply of a slot that is gone or stands still.
            Phase::Pause { .. } | Phase::Halted | Phase::Stopped => {}
        }
    }

    fn halt(&mut self, halt: Halt, detail: String) {
        self.events.push(Event::Halted(halt, detail));
        self.phase = Phase::Halted;
    }

    /// Any doubt: everything unsettled is dropped, and the journal decides. The first take-over comes at once; those that
    /// follow without a commit in between come later and later.
    fn doubt(&mut self, cause: Cause, detail: String, now: Now) {
        if self.stopping {
            self.phase = Phase::Stopped;
            return;
        }
        let (least, most) = (self.config.backoff_min_ms, self.config.backoff_max_ms);
        let pause_ms = match self.vain {
            0 => 0,
            vain => least.saturating_mul(1 << (vain - 1).min(20)).min(most),
        };
        // Another owner may be right: leave it some time.
        let pause_ms = if cause == Cause::Fenced { pause_ms.max(2 * least) } else { pause_ms };
        // An abort that was proved and blamed on a topic is no failure of ours: healthy topics shall not wait for it.
        if cause != Cause::Aborted {
            self.vain = self.vain.saturating_add(1);
        }
        self.events.push(Event::TakeOver { cause, detail, pause_ms });
        self.phase = Phase::Pause { until_mono_ms: now.mono_ms + pause_ms };
    }
}

/// Gauges of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Members in Redis.
    pub members: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Credit as reported to the scanner.
    pub credit: i64,
    /// Fates in memory.
    pub settled: usize,
    /// What they take.
    pub settled_bytes: usize,
    /// Topics that failed and have not succeeded since.
    pub quarantined_topics: usize,
    /// `due[s]` is paused.
    pub paused: bool,
}
