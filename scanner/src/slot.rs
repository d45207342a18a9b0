//! One slot: drives the state machine of its scan from one task, with the waiting done by jobs.

use crate::jobs::{Deps, Done, Failure, Started};
use crate::metrics::{Meters, Step};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use protocol::cursor::{AfterPage, Confirm, SlotScan};
use protocol::route::RouteTable;
use schemas::ids::{Shard, Slot};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A slot under pressure is asked for its load this often: heartbeats come as often.
const LOOK_AT_LOAD_MS: i64 = 2_000;
/// One page in so many is a sample.
const SAMPLE: u64 = 64;

/// Scans the shards of a slot until `stop`; then what is under way is finished and confirmed. Outages are waited out.
pub async fn scan_slot(deps: Arc<Deps>, slot: Slot, stop: CancellationToken) -> anyhow::Result<()> {
    let meters = Arc::new(Meters::new(slot, deps.shards));
    while !stop.is_cancelled() {
        let fresh = Box::pin(Scanning::begin(&deps, &meters, slot));
        let Some(scanning) = stop.run_until_cancelled(fresh).await else { break };
        match scanning?.run(&stop).await? {
            Ended::Stopped => break,
            // The new owner was quicker than the word that the slot is gone.
            Ended::Fenced(_) if stop.is_cancelled() => break,
            Ended::Fenced(by) => {
                meters.fenced.increment(1);
                tracing::warn!(
                    slot = slot.0,
                    "another scanner has taken the slot, waiting for the group: {by}"
                );
                if stop.run_until_cancelled(tokio::time::sleep(deps.fenced_pause)).await.is_none() {
                    break;
                }
            }
        }
    }
    meters.lag.set(0.0);
    Ok(())
}

enum Ended {
    Stopped,
    Fenced(String),
}

struct Scanning {
    deps: Arc<Deps>,
    meters: Arc<Meters>,
    slot: Slot,
    scan: SlotScan,
    routes: RouteTable,
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    starting: bool,
    /// Acked, to be written with the next confirm: while one is under way others gather.
    confirms: Vec<Confirm>,
    confirming: bool,
    /// The database's clock, and when it was read.
    clock: (i64, Instant),
    /// Failures in a row of each step: while Kafka is away, starts still succeed.
    failures: BTreeMap<Step, u32>,
    pages: u64,
    began: BTreeMap<Shard, Instant>,
}

impl Scanning {
    /// Reads routes and the database's clock. Outages are waited out.
    async fn begin(deps: &Arc<Deps>, meters: &Arc<Meters>, slot: Slot) -> anyhow::Result<Scanning> {
        let say = |why| deps.mysql.close(why);
        let (routes, now) = runtime::world::wait_out(&deps.backoff, say, || async {
            let routes = runtime::world::routes(&deps.db, deps.shards, deps.slots).await?;
            Ok((routes, deps.db.now().await?))
        })
        .await?;
        deps.mysql.open();
        Ok(Scanning {
            deps: deps.clone(),
            meters: meters.clone(),
            slot,
            scan: SlotScan::new(deps.rule, routes.scanned_by(slot)),
            routes,
            jobs: FuturesUnordered::new(),
            starting: false,
            confirms: Vec::new(),
            confirming: false,
            clock: (now, Instant::now()),
            failures: BTreeMap::new(),
            pages: 0,
            began: BTreeMap::new(),
        })
    }

    fn now(&self) -> i64 {
        let (at, read) = self.clock;
        at.saturating_add(i64::try_from(read.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// `stop` is looked at first; ends of jobs come before the timer, and neither can starve the other, because a job
    /// that has ended starts at most one other of its shard and the timer only says that a start may be due.
    async fn run(mut self, stop: &CancellationToken) -> anyhow::Result<Ended> {
        loop {
            let stopping = stop.is_cancelled();
            if !stopping {
                self.start_what_is_due();
            }
            self.write_confirms();
            if stopping && self.jobs.is_empty() {
                return Ok(Ended::Stopped);
            }
            let timer = tokio::time::sleep(self.pause());
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopping => {}
                Some(done) = self.jobs.next() => {
                    if let Some(by) = self.take(done, stop)? {
                        return Ok(Ended::Fenced(by));
                    }
                }
                () = timer, if !stopping => {}
            }
            self.meters.lag.set(self.scan.lag_ms(self.now()) as f64 / 1000.0);
        }
    }

    /// Until the next start is due. While one is under way there is nothing to be started.
    fn pause(&self) -> Duration {
        let Some(due_at) = self.scan.next_due_at().filter(|_| !self.starting) else {
            return Duration::from_secs(3600);
        };
        let pause_ms = due_at.saturating_sub(self.now()).clamp(0, 3_600_000);
        let pressed = self.scan.load().is_pressed();
        let pause_ms = if pressed { pause_ms.min(LOOK_AT_LOAD_MS) } else { pause_ms };
        Duration::from_millis(pause_ms.unsigned_abs())
    }

    fn start_what_is_due(&mut self) {
        if self.starting {
            return;
        }
        let now = self.now();
        let Some(start) = self.scan.start(now) else { return };
        self.starting = true;
        let (deps, meters, slot, view) =
            (self.deps.clone(), self.meters.clone(), self.slot, self.scan.clone());
        self.jobs.push(Box::pin(async move { deps.start(slot, start, view, &meters).await }));
    }

    fn read_page(&mut self, shard: Shard) {
        let Some(request) = self.scan.page(shard, &self.routes) else { return };
        self.pages += 1;
        let sample = self.pages % SAMPLE == 1;
        let (deps, meters) = (self.deps.clone(), self.meters.clone());
        self.jobs.push(Box::pin(async move { deps.page(request, sample, &meters).await }));
    }

    fn write_confirms(&mut self) {
        if self.confirming || self.confirms.is_empty() {
            return;
        }
        self.confirming = true;
        let confirms = std::mem::take(&mut self.confirms);
        let (deps, meters) = (self.deps.clone(), self.meters.clone());
        self.jobs.push(Box::pin(async move { deps.confirm(confirms, &meters).await }));
    }

    /// What a job that has ended means. `Some`: fenced, by whom.
    fn take(&mut self, done: Done, stop: &CancellationToken) -> anyhow::Result<Option<String>> {
        let shards = done.shards();
        let steps: &[Step] = match &done {
            Done::Start(..) => &[Step::Start],
            Done::Page(..) => &[Step::Page, Step::Emit],
            Done::Confirm(..) => &[Step::Confirm],
        };
        let outcome = match done {
            Done::Start(_, outcome) => {
                self.starting = false;
                outcome.map(|started| self.started(started))
            }
            Done::Page(request, outcome) => outcome.map(|read| {
                let after = self.scan.page_read(&request, read);
                self.go_on(request.shard, after, stop);
            }),
            Done::Confirm(confirms, outcome) => {
                self.confirming = false;
                outcome.map(|()| {
                    for confirm in confirms {
                        let after = self.scan.confirmed(confirm.shard);
                        self.go_on(confirm.shard, after, stop);
                    }
                })
            }
        };
        match outcome {
            Ok(()) => {
                self.failures.retain(|step, _| !steps.contains(step));
                Ok(None)
            }
            Err(Failure::Fenced(by)) => Ok(Some(by)),
            Err(Failure::Fatal(error)) => Err(error),
            Err(Failure::Outage(step, why)) => {
                let failures = self.failures.entry(step).or_default();
                *failures += 1;
                let failures = *failures;
                self.meters.failures(step).increment(1);
                let pause = self.deps.backoff.pause(failures, Duration::ZERO, 0.5);
                if failures.is_power_of_two() {
                    tracing::warn!(
                        slot = self.slot.0,
                        step = step.as_str(),
                        failures,
                        "scan: starting again in {pause:?}: {why}"
                    );
                }
                let not_before =
                    self.now().saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
                for shard in shards {
                    self.scan.failed(shard, not_before);
                }
                Ok(None)
            }
        }
    }

    fn started(&mut self, started: Started) {
        let Started { advances, now, routes, load } = started;
        self.clock = (now, Instant::now());
        self.scan.set_load(load);
        self.meters.horizon.set(self.deps.rule.horizon(load) as f64 / 1000.0);
        self.scan.advanced(&advances);
        if routes != self.routes {
            self.scan.set_shards(routes.scanned_by(self.slot));
            self.routes = routes;
        }
        for advance in advances {
            if self.scan.bucket_ms(advance.shard).is_some() {
                // The first scan of a shard covers all of the past.
                let covered_ms =
                    advance.covered_ms.min(self.deps.rule.horizon_ms + self.deps.rule.bucket_max_ms);
                self.meters.bucket_seconds.record(covered_ms as f64 / 1000.0);
                self.began.insert(advance.shard, Instant::now());
                self.read_page(advance.shard);
            }
        }
    }

    fn go_on(&mut self, shard: Shard, after: AfterPage, stop: &CancellationToken) {
        match after {
            // Its page is acked: the job waited for that.
            AfterPage::Emit => self.confirms.extend(self.scan.acked(shard)),
            AfterPage::Read if stop.is_cancelled() => {}
            AfterPage::Read => self.read_page(shard),
            AfterPage::Rest { rows } => {
                if let Some(began) = self.began.remove(&shard) {
                    self.meters.scan_seconds(shard).record(began.elapsed());
                    if rows > 0 { self.meters.hits.increment(1) } else { self.meters.misses.increment(1) }
                }
            }
        }
    }
}
