//! The dispatcher: owns the slots of its `due` partitions, preloads due records into Redis, sleeps until the next due time,
//! and delivers in Kafka transactions.
//!
//! ```text
//! group `dispatcher` ─▶ group.rs ─▶ one OS thread per slot: driver.rs ⇄ protocol::slot (all decisions)
//!                                        │
//!              Redis scripts ◀── redis.rs ┼ lanes.rs ──▶ callback topics, dead, journal (transactions)
//!                                        ├ journal.rs ──▶ reads journal[s] at a take-over
//!                                        └ strays.rs ──▶ rejected (what is no due record)
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;
pub mod metrics;

mod catalogue;
mod driver;
mod group;
mod journal;
mod lanes;
mod records;
mod redis;
mod strays;
mod tell;
mod world;

use config::Config;
use runtime::lifecycle::Lifecycle;
use std::sync::Arc;

/// Checks the world, joins the group, and returns; the frame waits.
pub async fn run(cfg: Arc<Config>, life: Lifecycle) -> anyhow::Result<()> {
    let world = Arc::new(world::World::see(&cfg, &life).await?);
    group::join(cfg, world, &life)
}
