//! A slot that runs: what it does next. Every path through [`super::steps`] ends here again or in a take-over.

use super::config::SlotConfig;
use super::delivery::{Batch, Flight};
use super::event::{Alarm, Cause, Event};
use super::fairness::RoundRobin;
use super::floor::FenceFloor;
use super::intake::{Intake, Plan, Planned};
use super::io::{Action, Lane, Now, SendOutcome};
use super::lanes::Lanes;
use super::logs::DueItem;
use super::outlook::Outlook;
use super::precheck::Lookup;
use super::settled::{Below, Settled};
use super::takeover::Taken;
use crate::slot_store::{DueTopic, Entry, Quota, SlotState, Topic};
use schemas::due::DueRecord;
use schemas::ids::RowGen;
use schemas::journal::{JournalEntry, OwnerToken};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Topics in one look at what is due.
pub(super) const AGENDA: usize = 1_000;
/// Pause before a commit or abort is called again.
const RETRY_MS: i64 = 50;

/// What every step may use besides the slot's own state.
pub(super) struct Context<'a> {
    pub(super) config: &'a SlotConfig,
    pub(super) lanes: &'a mut Lanes,
    pub(super) robin: &'a mut RoundRobin,
    pub(super) events: &'a mut Vec<Event>,
    pub(super) now: Now,
}

/// Where a step leads.
#[derive(Debug)]
pub(super) enum Next {
    Do(Action),
    Wait(Option<i64>),
    TakeOver(Cause, String),
    Stopped,
}

/// What awaits a reply.
#[derive(Debug)]
pub(super) enum Work {
    Idle,
    Pausing(bool),
    ReadBelow { below: Below, wanted: i64 },
    Preload(Plan),
    Agenda,
    Claim(Gather),
    LookUp(Gather),
    GiveBack { entries: Vec<Entry>, batch: Batch },
    StartQuarantine { topic: Topic, batch: Batch },
    Send { batch: Batch, parts: Vec<Vec<JournalEntry>> },
    Commit { batch: Batch, parts: Vec<Vec<JournalEntry>>, offsets: Vec<i64>, since_mono_ms: i64 },
    Settle { batch: Batch, renew: bool },
    Abort { batch: Batch, outcome: SendOutcome },
    Forget(String),
    KeepStrays,
}

/// Members claimed for one transaction so far.
#[derive(Debug)]
pub(super) struct Gather {
    pub(super) lane: Lane,
    pub(super) topics: Vec<Topic>,
    pub(super) quotas: Vec<Quota>,
    pub(super) claimed: Vec<(Topic, Arc<DueRecord>)>,
    /// Handed out too early by a clock that jumped.
    pub(super) early: Vec<Entry>,
    pub(super) bytes: usize,
    pub(super) rounds: u32,
    /// What is known of their topics.
    pub(super) facts: HashMap<Topic, Lookup>,
    /// What some are to be buried for was asked anew.
    pub(super) confirmed: bool,
}

/// A transaction of the quarantine lane whose callback records are on their way.
#[derive(Debug)]
pub(super) struct Quarantined {
    pub(super) topic: Topic,
    pub(super) batch: Batch,
    pub(super) outcome: Option<SendOutcome>,
}

/// State of a slot that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) token: OwnerToken,
    pub(super) settled: Settled,
    pub(super) intake: Intake,
    /// Claimed and not settled, of both lanes.
    pub(super) flying: HashSet<RowGen>,
    /// Claimed by the quarantine lane, but to be buried: goes with the main lane's next transaction.
    pub(super) carry: Vec<Flight>,
    /// Settled already, still in Redis.
    pub(super) leftovers: Vec<Entry>,
    pub(super) quarantine: Option<Quarantined>,
    pub(super) work: Work,
    pub(super) todo: Option<(i64, Action)>,
    pub(super) state: SlotState,
    state_mono_ms: i64,
    /// Largest fence preloaded.
    pub(super) fence: i64,
    floor: FenceFloor,
    pub(super) jpos: i64,
    pub(super) agenda: Option<Vec<DueTopic>>,
    pub(super) paused: bool,
    /// No preload before.
    pub(super) rest_until_ms: i64,
    /// No claim before.
    pub(super) claim_not_before_ms: i64,
    pub(super) journal_mono_ms: i64,
    /// Intake and delivery take turns.
    intake_turn: bool,
    pub(super) sticky: usize,
    aborted_for_stop: bool,
}

/// How many more members the scanner may send.
pub(super) fn credit(config: &SlotConfig, state: &SlotState) -> i64 {
    if state.bytes >= config.soft_bytes {
        0
    } else {
        config.soft_members.saturating_sub(state.members).cast_signed()
    }
}

impl Running {
    pub(super) fn new(taken: Taken, now: Now) -> Running {
        Running {
            token: taken.token,
            settled: taken.settled,
            intake: taken.intake,
            flying: HashSet::new(),
            carry: Vec::new(),
            leftovers: Vec::new(),
            quarantine: None,
            work: Work::Idle,
            todo: None,
            state: taken.state,
            state_mono_ms: now.mono_ms,
            fence: taken.fence,
            floor: FenceFloor::new(now.mono_ms),
            jpos: taken.jpos,
            agenda: None,
            paused: false,
            rest_until_ms: i64::MIN,
            claim_not_before_ms: i64::MIN,
            journal_mono_ms: now.mono_ms,
            intake_turn: true,
            sticky: 0,
            aborted_for_stop: false,
        }
    }

    pub(super) fn saw(&mut self, state: SlotState, now: Now) {
        self.state = state;
        self.state_mono_ms = now.mono_ms;
    }

    pub(super) fn take_in(&mut self, items: Vec<DueItem>) {
        for fence in items.iter().filter_map(|item| item.record.as_ref().ok()).map(|record| record.fence) {
            self.floor.observe(fence);
        }
        self.intake.push(items);
    }

    /// Redis TIME by now, never ahead of it.
    pub(super) fn redis_at(&self, now: Now) -> i64 {
        self.state.redis_at + (now.mono_ms - self.state_mono_ms)
    }

    /// Due means due at or before this (R38).
    pub(super) fn clock(&self, now: Now) -> i64 {
        now.local_at.min(self.redis_at(now))
    }

    pub(super) fn go(&mut self, work: Work, action: Action) {
        self.work = work;
        self.todo = Some((i64::MIN, action));
    }

    pub(super) fn go_later(&mut self, work: Work, action: Action, now: Now) {
        self.work = work;
        self.todo = Some((now.mono_ms + RETRY_MS, action));
    }

    /// Forgets fates that nobody can ask for any more.
    pub(super) fn prune(&mut self, cx: &mut Context<'_>) {
        let fence = self.fence.min(self.floor.floor(cx.now.mono_ms));
        self.settled.prune(cx.now.local_at - cx.config.window_ms, fence);
        let forgotten = self.settled.keep_cap(cx.config.settled_bytes);
        if forgotten > 0 {
            cx.events.push(Event::Alarm(Alarm::SettledCap, format!("{forgotten} fates forgotten")));
        }
    }

    /// Whether more due records may come in.
    pub(super) fn wants_due(&self) -> bool {
        const INBOX: usize = 1_000;
        !self.paused && self.intake.waiting() < INBOX
    }

    /// The next thing to do. Only called when nothing awaits a reply.
    pub(super) fn choose(&mut self, cx: &mut Context<'_>, stopping: bool) -> Next {
        if let Some((not_before, action)) = self.todo.take() {
            if cx.now.mono_ms >= not_before {
                return Next::Do(action);
            }
            self.todo = Some((not_before, action));
            return Next::Wait(Some(not_before));
        }
        if !matches!(self.work, Work::Idle) {
            return Next::Wait(None);
        }
        if let Some(next) = self.choose_quarantine_end(cx, stopping) {
            return next;
        }
        if stopping {
            return Next::Stopped;
        }
        let pause = self.should_pause(cx);
        if pause != self.paused {
            let action = if pause { Action::PauseDue } else { Action::ResumeDue };
            return self.start(Work::Pausing(pause), action);
        }
        let outlook = self.outlook(cx);
        self.choose_work(cx, outlook)
    }

    fn start(&mut self, work: Work, action: Action) -> Next {
        self.work = work;
        Next::Do(action)
    }

    fn choose_work(&mut self, cx: &mut Context<'_>, mut outlook: Outlook) -> Next {
        let now = cx.now;
        let hard = self.state.members >= cx.config.hard_members || self.state.bytes >= cx.config.hard_bytes;
        let intake = !self.intake.is_empty() && now.mono_ms >= self.rest_until_ms && !hard;
        let entries = self.intake.has_entries() || !self.carry.is_empty() || !self.leftovers.is_empty();
        let delivery =
            outlook.need_agenda || !outlook.main.is_empty() || outlook.quarantine.is_some() || entries;
        let turn = self.intake_turn;
        self.intake_turn = !turn;
        if intake && (turn || !delivery) {
            return self.take_in_head(cx);
        }
        let strays_at = self.intake.strays.wake_mono_ms();
        if strays_at.is_some_and(|at| at <= now.mono_ms) {
            let strays = self.intake.strays.take();
            return self.start(Work::KeepStrays, Action::KeepStrays(strays));
        }
        if outlook.need_agenda {
            return self.start(Work::Agenda, Action::Agenda { limit: AGENDA });
        }
        if let Some(topic) = outlook.quarantine.take() {
            let limit = cx.lanes.limit(&topic);
            let quotas =
                vec![Quota { topic: Topic::clone(&topic), limit: u32::try_from(limit).unwrap_or(u32::MAX) }];
            return self.claim(cx, Lane::Quarantine, vec![topic], quotas);
        }
        if !outlook.main.is_empty() {
            let quotas = cx.robin.quotas(&outlook.main, cx.config.batch_entries);
            return self.claim(cx, Lane::Main, outlook.main, quotas);
        }
        let beat_at = self.journal_mono_ms + cx.config.heartbeat_ms;
        if entries || now.mono_ms >= beat_at {
            let batch = Batch::new(Lane::Main, now.local_at, now.mono_ms);
            self.launch_main(cx, batch);
            return match self.todo.take() {
                Some((_, action)) => Next::Do(action),
                None => Next::Wait(Some(beat_at)),
            };
        }
        outlook.wake(beat_at);
        strays_at.into_iter().for_each(|at| outlook.wake(at));
        if !self.intake.is_empty() && !hard {
            outlook.wake(self.rest_until_ms);
        }
        if let Some(quarantine) = &self.quarantine {
            outlook.wake(quarantine.batch.began_mono_ms + cx.config.report_timeout_ms);
        }
        Next::Wait(outlook.wake_mono_ms)
    }

    /// The quarantine lane's transaction, where its reports are in, or late, or the slot stops.
    fn choose_quarantine_end(&mut self, cx: &mut Context<'_>, stopping: bool) -> Option<Next> {
        let quarantine = self.quarantine.as_ref()?;
        if quarantine.outcome.is_some() {
            let Quarantined { batch, outcome, .. } = self.quarantine.take()?;
            self.end_quarantine(cx, batch, outcome?);
            return self.todo.take().map(|(_, action)| Next::Do(action));
        }
        if stopping && !self.aborted_for_stop {
            self.aborted_for_stop = true;
            let Quarantined { batch, .. } = self.quarantine.take()?;
            let outcome = SendOutcome { reports: Vec::new(), journal: Ok(Vec::new()) };
            return Some(
                self.start(Work::Abort { batch, outcome }, Action::Abort { lane: Lane::Quarantine }),
            );
        }
        let late = cx.now.mono_ms >= quarantine.batch.began_mono_ms + cx.config.report_timeout_ms;
        late.then(|| {
            // Whoever keeps the reports waiting must not do so at every turn.
            let fault = super::io::Fault { kind: super::io::FaultKind::Transient, text: "no report".into() };
            let senders = quarantine.batch.senders();
            let outcome = SendOutcome { reports: vec![Err(fault); senders.len()], journal: Ok(Vec::new()) };
            cx.lanes.blame(Lane::Quarantine, &senders, &outcome, cx.now.mono_ms);
            Next::TakeOver(Cause::ReportsTimeout, quarantine.topic.to_string())
        })
    }

    fn should_pause(&self, cx: &Context<'_>) -> bool {
        let (members, bytes) = (self.state.members, self.state.bytes);
        let config = cx.config;
        // Resumed only when a tenth is free again, so that it does not flap.
        let low = |cap: u64| if self.paused { cap - cap / 10 } else { cap };
        members >= low(config.hard_members)
            || bytes >= low(config.hard_bytes)
            || self.intake.unsettled() >= config.unsettled_max
            || self.intake.strays.bytes() >= config.stray_bytes
            || cx.now.mono_ms < self.rest_until_ms
    }

    fn take_in_head(&mut self, cx: &mut Context<'_>) -> Next {
        match self.intake.plan(&self.settled, &self.flying, cx.now.mono_ms) {
            Planned::ReadBelow(wanted) => {
                let room = cx.config.settled_bytes.saturating_sub(self.settled.bytes());
                let below = Below::new(wanted, room);
                let action = Action::ReadJournal { from: wanted, to: self.settled.low() - 1 };
                self.start(Work::ReadBelow { below, wanted }, action)
            }
            Planned::Ready(plan) if plan.records.is_empty() => {
                self.intake.carried_out(plan, &[], cx.events);
                self.choose(cx, false)
            }
            Planned::Ready(mut plan) => {
                let due_pos = plan.due_pos();
                let records = std::mem::take(&mut plan.records);
                let fence = records.iter().map(|record| record.fence).max().unwrap_or(self.fence);
                self.fence = self.fence.max(fence);
                self.start(Work::Preload(plan), Action::Preload { records, due_pos })
            }
        }
    }

    fn claim(&mut self, cx: &Context<'_>, lane: Lane, topics: Vec<Topic>, quotas: Vec<Quota>) -> Next {
        let gather = Gather {
            lane,
            topics,
            quotas: quotas.clone(),
            claimed: Vec::new(),
            early: Vec::new(),
            bytes: 0,
            rounds: 1,
            facts: HashMap::new(),
            confirmed: false,
        };
        let action = Action::Claim { now_at: cx.now.local_at, quotas, max_bytes: cx.config.batch_bytes };
        self.start(Work::Claim(gather), action)
    }
}
