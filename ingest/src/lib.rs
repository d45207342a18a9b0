//! ingest: takes commands in (`tasks` → MySQL, and at once to `due` what is due soon) and applies the journal
//! (`journal` → MySQL).
//!
//! ```text
//! side ── member of a group, one per stream ──▶ partition ── one worker per partition, positions, batches
//!                                                  │
//!                       tasks: validate → admit ───┤
//!                       journal: decode → apply ───┴──▶ effects: emissions and rejections, until acked
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;
mod deps;
mod emitter;
mod journal;
pub mod metrics;
mod partition;
mod registry;
mod side;
mod tasks;
mod turn;
mod world;

use crate::config::Config;
use runtime::lifecycle::Lifecycle;
use std::sync::Arc;

/// Connects, checks the world, and starts the journal's side and one for each source.
///
/// # Errors
/// Where the world is not what `duectl init` makes of it. Servers that are away are waited for.
pub async fn run(cfg: Arc<Config>, life: Lifecycle) -> anyhow::Result<()> {
    let Some((deps, registrar)) = world::establish(cfg, &life).await? else { return Ok(()) };
    let deps = Arc::new(deps);
    side::spawn(journal::Side::new(deps.clone(), registrar), &deps, &life);
    for source in deps.cfg.sources() {
        side::spawn(tasks::Side::new(deps.clone(), source), &deps, &life);
    }
    Ok(())
}
