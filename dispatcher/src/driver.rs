//! Drives one slot on its own OS thread: carries the machine's actions out, one at a time, and hands in what comes by itself.
//!
//! Blocking calls (transactions, the journal reader) happen right here; Redis and the group run on the runtime's threads.

use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::journal::Journal;
use crate::lanes::Lanes;
use crate::records::Addresses;
use crate::redis::Timer;
use crate::strays::{Keeper, Strays};
use crate::tell::Teller;
use crate::world::World;
use protocol::slot::{Action, DueItem, Input, Now, Outgoing, SendOutcome, Slot as Machine, Step, Stray};
use runtime::clock;
use runtime::kafka::{Cut, PartitionStream, Record};
use runtime::probes::Gate;
use schemas::delivery::rejected::WholeValue;
use schemas::ids::Slot;
use schemas::journal::OwnerToken;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Due records handed in at once.
const INTAKE: usize = 500;
/// How often a waiting slot looks whether it still is ours.
const LOOK: Duration = Duration::from_millis(100);
/// How often reports of the quarantine lane are looked for while there are some to come.
const REPORTS: Duration = Duration::from_millis(2);
/// Commit of a barrier.
const BARRIER: Duration = Duration::from_secs(20);

/// One slot and everything it works with.
pub(crate) struct Driver {
    machine: Machine,
    stream: PartitionStream,
    world: Arc<World>,
    catalogue: Catalogue,
    timer: Timer,
    lanes: Lanes,
    /// What the quarantine lane sent and has no reports of yet.
    quarantined: Vec<Outgoing>,
    strays: Strays,
    journal: Journal,
    to: Addresses,
    teller: Teller,
    stop: CancellationToken,
    stop_told: bool,
    started: Instant,
    figures_at: Instant,
    gate: Gate,
    shown: Shown,
}

/// What `/ready` says of the slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    TakingOver,
    Running,
    Halted,
}

impl Driver {
    pub(crate) fn new(
        cfg: &Config,
        world: Arc<World>,
        (catalogue, keeper): (Catalogue, Keeper),
        stream: PartitionStream,
        slot: Slot,
        stop: CancellationToken,
        gate: Gate,
    ) -> anyhow::Result<Driver> {
        let started = Instant::now();
        let now = Now { local_at: clock::now_ms(), mono_ms: 0 };
        Ok(Driver {
            machine: Machine::assigned(cfg.slot(), now),
            stream,
            catalogue,
            timer: Timer::new(cfg.redis.clone(), slot),
            lanes: Lanes::new(cfg, &world, slot),
            quarantined: Vec::new(),
            strays: Strays::new(keeper),
            journal: Journal::new(&world, slot)?,
            to: Addresses::of(&world.names, slot),
            teller: Teller::new(slot),
            world,
            stop,
            stop_told: false,
            started,
            figures_at: started,
            gate,
            shown: Shown::TakingOver,
        })
    }

    fn now(&self) -> Now {
        let mono_ms = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Now { local_at: clock::now_ms(), mono_ms }
    }

    /// Runs until the slot is revoked or the program stops.
    pub(crate) async fn run(mut self) {
        loop {
            self.look_around();
            let step = self.machine.step(self.now());
            match step {
                Step::Do(action) => {
                    let reply = self.carry_out(action).await;
                    self.machine.handle(self.now(), reply);
                }
                Step::Wait { until_mono_ms } => self.wait(until_mono_ms).await,
                Step::Stopped => break,
            }
            self.tell();
        }
        self.tell();
    }

    fn tell(&mut self) {
        let events = self.machine.take_events();
        if !events.is_empty() || self.figures_at.elapsed() > Duration::from_secs(1) {
            self.figures_at = Instant::now();
            self.teller.figures(&self.machine.figures(), self.machine.is_running());
        }
        events.into_iter().for_each(|event| self.teller.tell(event));
        self.show();
    }

    fn show(&mut self) {
        let state = match (self.machine.is_running(), self.machine.is_halted()) {
            (true, _) => Shown::Running,
            (false, true) => Shown::Halted,
            (false, false) => Shown::TakingOver,
        };
        if state != self.shown {
            self.shown = state;
            match state {
                Shown::Running => self.gate.open(),
                Shown::TakingOver => self.gate.close("being taken over"),
                Shown::Halted => {
                    self.gate.close("stands still: its journal was lost, truncated or made anew")
                }
            }
        }
    }

    /// Hands in what is there already, without waiting.
    fn look_around(&mut self) {
        if !self.stream.is_assigned() {
            self.machine.handle(self.now(), Input::AssignmentLost);
        }
        if self.stop.is_cancelled() && !self.stop_told {
            self.stop_told = true;
            self.machine.handle(self.now(), Input::Stop);
        }
        if self.machine.wants_due() {
            let items = self.fetched(Vec::new());
            if !items.is_empty() {
                self.machine.handle(self.now(), Input::Due(items));
            }
        }
        if self.lanes.is_waiting()
            && let Some(outcome) = self.lanes.reports()
        {
            let sent = std::mem::take(&mut self.quarantined);
            self.doubt_topics(&sent, &outcome);
            self.machine.handle(self.now(), Input::Reports(outcome));
        }
        if let Some(ends) = self.strays.ended() {
            self.machine.handle(self.now(), Input::Strays(ends));
        }
    }

    fn fetched(&mut self, mut items: Vec<DueItem>) -> Vec<DueItem> {
        while items.len() < INTAKE
            && let Some(record) = self.stream.recv_now()
        {
            items.push(item(record));
        }
        items
    }

    /// Sleeps on the monotonic clock until something is to be done.
    async fn wait(&mut self, until_mono_ms: Option<i64>) {
        let most = if self.lanes.is_waiting() { REPORTS } else { LOOK };
        let sleep = until_mono_ms.map_or(most, |until| {
            let at = self.started + Duration::from_millis(until.max(0).unsigned_abs());
            at.saturating_duration_since(Instant::now()).min(most)
        });
        let wants_due = self.machine.wants_due();
        let stop_told = self.stop_told;
        tokio::select! {
            biased;
            () = self.stop.cancelled(), if !stop_told => {}
            received = self.stream.recv(), if wants_due => match received {
                Ok(Some(record)) => {
                    let items = self.fetched(vec![item(record)]);
                    self.machine.handle(self.now(), Input::Due(items));
                }
                Ok(None) => self.machine.handle(self.now(), Input::AssignmentLost),
                Err(fault) => self.machine.handle(self.now(), Input::DueTrouble(fault.to_string())),
            },
            () = tokio::time::sleep(sleep) => {}
        }
    }

    async fn carry_out(&mut self, action: Action) -> Input {
        let action = match self.timer.carry_out(action).await {
            Ok(reply) => return reply,
            Err(action) => action,
        };
        match action {
            Action::InitLanes => {
                self.strays.forget();
                let (stream, stop) = (&self.stream, &self.stop);
                match self.lanes.init(&|| stop.is_cancelled() || !stream.is_assigned()) {
                    Ok(()) => Input::LanesReady { token: OwnerToken(rand::random()) },
                    Err(fault) => Input::Failed(fault.to_string()),
                }
            }
            Action::InspectLogs { window_ms } => {
                Input::Logs(self.journal.inspect(&self.world, window_ms).await)
            }
            Action::CommitBarrier(record) => {
                Input::Barrier(self.lanes.commit_barrier(&self.to, &record, BARRIER))
            }
            Action::ReadJournal { from, to } => Input::Journal(self.journal.read(from, to)),
            Action::SeekDue { offset } => match self.stream.start(offset).await {
                Ok(()) => Input::Done,
                Err(fault) => Input::Failed(fault.to_string()),
            },
            // The stream is not read while the machine wants nothing: its own buffer bounds what is fetched ahead.
            Action::PauseDue | Action::ResumeDue => Input::Done,
            Action::LookUp { topics, fresh } => {
                let facts = self.catalogue.look_up(topics, fresh).await;
                self.lanes.learn(&facts);
                Input::Facts(facts)
            }
            Action::KeepStrays(strays) => {
                self.strays.keep(&self.to, &strays);
                Input::Done
            }
            Action::Send { lane, begin, records, journal, wait } => {
                let reply = self.lanes.send(&self.to, lane, begin, &records, &journal, wait);
                match &reply {
                    Input::Sent(outcome) => self.doubt_topics(&records, outcome),
                    // Its reports come later.
                    _ => self.quarantined = records,
                }
                reply
            }
            Action::Commit { lane } => Input::Ended(self.lanes.commit(lane)),
            Action::Abort { lane } => Input::Ended(self.lanes.abort(lane)),
            // All others are scripts and were carried out above.
            other => Input::Failed(format!("nobody carries {other:?} out")),
        }
    }

    /// A record failed: what is known of its topic may be out of date.
    fn doubt_topics(&self, records: &[Outgoing], outcome: &SendOutcome) {
        for (record, _) in records.iter().zip(&outcome.reports).filter(|(_, report)| report.is_err()) {
            self.catalogue.doubt(&record.record.callback_topic);
        }
    }
}

fn item(record: Record) -> DueItem {
    let whole_value = match record.cut {
        Some(Cut::TooLarge { value_bytes, value_sha256, .. }) => {
            Some(WholeValue { bytes: value_bytes, sha256: value_sha256 })
        }
        Some(Cut::Undecodable { .. }) | None => None,
    };
    DueItem::of(Stray {
        offset: record.offset,
        at: record.at,
        key: record.key.map(Into::into),
        value: record.value.map(Into::into),
        headers: record.headers,
        whole_value,
        problem: String::new(),
    })
}
