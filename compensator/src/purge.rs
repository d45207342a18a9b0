//! Forgets final rows past their retention. Each slot's owner sweeps the rows of every `slots`-th input partition, so
//! that the work is shared and no two sweep the same rows.

use crate::{Deps, metrics};
use protocol::retention::{confirmed_rows, is_over, is_young};
use runtime::store::{position, purge, source};
use schemas::ids::{RowId, Slot};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The sweeps of one slot's share.
pub struct Sweeper {
    deps: Arc<Deps>,
    slot: Slot,
}

impl Sweeper {
    /// A sweeper of a slot's share.
    pub fn new(deps: Arc<Deps>, slot: Slot) -> Sweeper {
        Sweeper { deps, slot }
    }

    /// One sweep. Answers how many rows went.
    pub async fn sweep(&mut self, stop: &CancellationToken) -> anyhow::Result<u64> {
        let mut session = self.deps.db.session().await?;
        let mut ranges = Vec::new();
        for source in source::all(&mut session).await? {
            for position in position::read_all(&mut session, source.id).await? {
                if position.partition % i32::from(self.deps.slots.max(1)) == i32::from(self.slot.0) {
                    ranges.extend(confirmed_rows(source.id, position.partition, position.confirmed));
                }
            }
        }
        drop(session);
        let mut purged = 0;
        for (first, end) in ranges {
            purged += self.sweep_range(first, end, stop).await?;
        }
        if purged > 0 {
            tracing::info!(slot = self.slot.0, rows = purged, "final tasks past their retention are purged");
        }
        Ok(purged)
    }

    async fn sweep_range(&self, first: RowId, end: RowId, stop: &CancellationToken) -> anyhow::Result<u64> {
        let retention_ms = self.deps.purge.retention.as_ms();
        let (mut from, mut purged) = (first, 0);
        while !stop.is_cancelled() {
            let mut session = self.deps.db.session().await?;
            let now = runtime::store::now(&mut session).await?;
            let rows = purge::chunk(&mut session, from, end, self.deps.purge.chunk).await?;
            let Some(last) = rows.last() else { break };
            metrics::PURGE_EXAMINED.with(&[]).increment(rows.len() as u64);
            let over: Vec<RowId> =
                rows.iter().filter(|row| is_over(row, now, retention_ms)).map(|row| row.id).collect();
            let gone = purge::delete(&mut session, &over, now - retention_ms).await?;
            drop(session);
            metrics::PURGED.with(&[]).increment(gone);
            purged += gone;
            let at_end = rows.len() < self.deps.purge.chunk as usize || is_young(&rows, now, retention_ms);
            let Some(next) = last.id.0.checked_add(1).filter(|_| !at_end) else { break };
            from = RowId(next);
            let pause = tokio::time::sleep(self.deps.purge.pause.get());
            if stop.run_until_cancelled(pause).await.is_none() {
                break;
            }
        }
        Ok(purged)
    }
}
