//! The compensator: of the slots that the group hands it, it emits stalled rows again, ends attempts whose consumers stalled,
//! takes care of changes that were not answered, and purges final rows (PROTOCOL §3). Decisions are made in
//! `protocol::{reemit, stall, change, retention}`; here they are carried out.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod changes;
pub mod config;
pub mod metrics;
mod near;
mod purge;
mod reemit;
mod stalls;

pub use changes::Resender;
pub use purge::Sweeper;
pub use reemit::Reemitter;
pub use stalls::Staller;

use anyhow::Context as _;
use config::{Changes, Config, Purge, Reemit, Stalls};
use protocol::route::RouteTable;
use runtime::emission::Emission;
use runtime::kafka::{Admin, BatchProducer, BatchSettings, Member, MemberSettings};
use runtime::lifecycle::Lifecycle;
use runtime::probes::Gate;
use runtime::store::{Backoff, Db};
use runtime::world::{World, is_outage};
use schemas::ids::{Slot, SourceId};
use schemas::topics::Names;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What every worker needs.
pub struct Deps {
    /// Database.
    pub db: Db,
    /// Where emissions go.
    pub emission: Emission,
    /// Where answers go.
    pub producer: Arc<BatchProducer>,
    /// Questions to the brokers.
    pub admin: Admin,
    /// Names of topics.
    pub names: Names,
    /// Number of the journal.
    pub journal: SourceId,
    /// Base shards.
    pub shards: u16,
    /// Slots.
    pub slots: u16,
    /// `[reemit]`.
    pub reemit: Reemit,
    /// `[stalls]`.
    pub stalls: Stalls,
    /// `[changes]`.
    pub changes: Changes,
    /// `[purge]`.
    pub purge: Purge,
    /// Pauses after failures.
    pub backoff: Backoff,
    /// Ready as far as MySQL and Kafka are concerned.
    pub servers: Gate,
}

impl Deps {
    async fn routes(&self) -> anyhow::Result<RouteTable> {
        runtime::world::routes(&self.db, self.shards, self.slots).await
    }
}

/// Connects, checks the world, joins the group, and leaves the rest to the workers.
pub async fn run(cfg: Arc<Config>, life: Lifecycle) -> anyhow::Result<()> {
    let world = World::connect("compensator", &cfg.kafka, &cfg.topics, &cfg.mysql, &life).await?;
    let producer = BatchProducer::new(&world.cluster, &BatchSettings::new("reemit")).context("producer")?;
    let producer = Arc::new(producer);
    let mut group = MemberSettings::new(world.names.group("compensator"), [world.names.slots()]);
    group.session_timeout = cfg.kafka.session_timeout.get();
    let member = Member::join(&world.cluster, &group).context("group")?;
    let deps = Arc::new(Deps {
        db: world.db,
        emission: Emission::new(producer.clone(), world.names.due()),
        producer,
        admin: world.admin,
        names: world.names,
        journal: world.journal,
        shards: world.shards,
        slots: world.slots,
        reemit: cfg.reemit.clone(),
        stalls: cfg.stalls.clone(),
        changes: cfg.changes.clone(),
        purge: cfg.purge.clone(),
        backoff: Backoff::of(&cfg.mysql),
        servers: life.readiness().gate("servers", "connecting"),
    });
    deps.servers.open();
    let gate = life.readiness().gate("slots", "waiting for the group");
    let stop = life.token();
    life.spawn("slots", async move {
        runtime::slot_group::run(member, gate, stop, move |slot, stop| work(deps.clone(), slot, stop)).await
    });
    Ok(())
}

/// All that is done for one slot, until `stop`. What is under way then is finished: each step is short.
pub async fn work(deps: Arc<Deps>, slot: Slot, stop: CancellationToken) -> anyhow::Result<()> {
    let mut reemitter = Reemitter::new(deps.clone(), slot);
    let mut staller = Staller::new(deps.clone(), slot);
    let mut resender = Resender::new(deps.clone(), slot);
    let mut sweeper = Sweeper::new(deps.clone(), slot);
    let reemitting = async {
        let mut failures = 0;
        while pause(&stop, deps.reemit.every.get(), failures, &deps.backoff).await {
            let outcome = reemitter.pass().await;
            judge(&deps, slot, "reemit", outcome, &mut failures)?;
        }
        Ok(())
    };
    let ending = async {
        let mut failures = 0;
        while pause(&stop, deps.stalls.every.get(), failures, &deps.backoff).await {
            let outcome = staller.pass().await;
            judge(&deps, slot, "stalls", outcome, &mut failures)?;
        }
        Ok(())
    };
    let resending = async {
        let mut failures = 0;
        while pause(&stop, deps.changes.every.get(), failures, &deps.backoff).await {
            let outcome = resender.pass().await;
            judge(&deps, slot, "changes", outcome, &mut failures)?;
        }
        Ok(())
    };
    let purging = async {
        let mut failures = 0;
        // The first sweep comes with the first assignment, for a process may not live as long as the pause.
        loop {
            let outcome = sweeper.sweep(&stop).await;
            judge(&deps, slot, "purge", outcome, &mut failures)?;
            if !pause(&stop, deps.purge.every.get(), failures, &deps.backoff).await {
                return Ok(());
            }
        }
    };
    let all = async { tokio::try_join!(reemitting, ending, resending, purging) };
    let done: anyhow::Result<((), (), (), ())> = Box::pin(all).await;
    metrics::GATE.with(&[&slot.to_string()]).set(0.0);
    done.map(|_| ())
}

/// Waits for the next turn, or, after a failure, less long. `false`: stopped.
async fn pause(stop: &CancellationToken, every: Duration, failures: u32, backoff: &Backoff) -> bool {
    let pause = if failures == 0 { every } else { backoff.pause(failures, Duration::ZERO, 0.5).min(every) };
    stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some()
}

/// An outage is waited out; anything else ends the program.
fn judge<T>(
    deps: &Deps,
    slot: Slot,
    step: &'static str,
    outcome: anyhow::Result<T>,
    failures: &mut u32,
) -> anyhow::Result<()> {
    match outcome {
        Ok(_) => {
            *failures = 0;
            deps.servers.open();
            Ok(())
        }
        Err(error) if is_outage(&error) => {
            *failures += 1;
            metrics::FAILURES.with(&[step]).increment(1);
            deps.servers.close(format!("{error:#}"));
            if failures.is_power_of_two() {
                tracing::warn!(slot = slot.0, step, failures, "trying again: {error:#}");
            }
            Ok(())
        }
        Err(error) => Err(error.context(step)),
    }
}
