//! The scanner: the group hands it slots, and of each it moves the shards' cursors and emits what lies between what is
//! confirmed and the cursor (PROTOCOL §1). Decisions are made in `protocol::cursor`; here they are carried out.
//!
//! ```text
//! group ─▶ worker per slot ─▶ start (transaction) ─▶ pages, several shards at once ─▶ due[slot] ─▶ confirm ─▶ sleep
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;
mod jobs;
pub mod metrics;
mod slot;

pub use jobs::Deps;
pub use slot::scan_slot;

use anyhow::Context as _;
use config::Config;
use runtime::emission::Emission;
use runtime::kafka::{BatchProducer, BatchSettings, Member, MemberSettings};
use runtime::lifecycle::Lifecycle;
use runtime::store::Backoff;
use runtime::world::World;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Connects, checks the world, joins the group, and leaves the rest to the workers.
pub async fn run(cfg: Arc<Config>, life: Lifecycle) -> anyhow::Result<()> {
    let world = World::connect("scanner", &cfg.kafka, &cfg.topics, &cfg.mysql, &life).await?;
    let producer = BatchProducer::new(&world.cluster, &BatchSettings::new("scan")).context("producer")?;
    let mut group = MemberSettings::new(world.names.group("scanner"), [world.names.slots()]);
    group.session_timeout = cfg.kafka.session_timeout.get();
    let member = Member::join(&world.cluster, &group).context("group")?;
    let readiness = life.readiness();
    let deps = Arc::new(Deps {
        db: world.db,
        emission: Emission::new(Arc::new(producer), world.names.due()),
        journal: world.journal,
        shards: world.shards,
        slots: world.slots,
        rule: cfg.scan.rule(),
        pages: Semaphore::new(cfg.scan.pages_at_once as usize),
        backoff: Backoff::of(&cfg.mysql),
        // A member that lost its session hears of it with its next heartbeat.
        fenced_pause: cfg.kafka.session_timeout.get() / 4,
        mysql: readiness.gate("mysql", "connecting"),
        kafka: readiness.gate("kafka", "connecting"),
    });
    deps.mysql.open();
    deps.kafka.open();
    let gate = readiness.gate("slots", "waiting for the group");
    let stop = life.token();
    life.spawn("slots", async move {
        runtime::slot_group::run(member, gate, stop, move |slot, stop| scan_slot(deps.clone(), slot, stop))
            .await
    });
    Ok(())
}
