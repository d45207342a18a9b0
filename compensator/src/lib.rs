//! The compensator: of the slots that the group hands it, it emits stalled rows again and purges final ones (PROTOCOL §3).
//! Decisions are made in `protocol::reemit` and `protocol::retention`; here they are carried out.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;
pub mod metrics;
mod purge;
mod reemit;

pub use purge::Sweeper;
pub use reemit::Reemitter;

use anyhow::Context as _;
use config::{Config, Purge, Reemit};
use protocol::route::RouteTable;
use runtime::emission::Emission;
use runtime::kafka::{BatchProducer, BatchSettings, Member, MemberSettings};
use runtime::lifecycle::Lifecycle;
use runtime::probes::Gate;
use runtime::store::{Backoff, Db};
use runtime::world::{World, is_outage};
use schemas::ids::{Slot, SourceId};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What every worker needs.
pub struct Deps {
    /// Database.
    pub db: Db,
    /// Where emissions go.
    pub emission: Emission,
    /// Number of the journal.
    pub journal: SourceId,
    /// Base shards.
    pub shards: u16,
    /// Slots.
    pub slots: u16,
    /// `[reemit]`.
    pub reemit: Reemit,
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
    let mut group = MemberSettings::new(world.names.group("compensator"), [world.names.slots()]);
    group.session_timeout = cfg.kafka.session_timeout.get();
    let member = Member::join(&world.cluster, &group).context("group")?;
    let deps = Arc::new(Deps {
        db: world.db,
        emission: Emission::new(Arc::new(producer), world.names.due()),
        journal: world.journal,
        shards: world.shards,
        slots: world.slots,
        reemit: cfg.reemit.clone(),
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
    let mut sweeper = Sweeper::new(deps.clone(), slot);
    let reemitting = async {
        let mut failures = 0;
        while pause(&stop, deps.reemit.every.get(), failures, &deps.backoff).await {
            let outcome = reemitter.pass().await;
            judge(&deps, slot, "reemit", outcome, &mut failures)?;
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
    let done: anyhow::Result<((), ())> = Box::pin(async { tokio::try_join!(reemitting, purging) }).await;
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
