//! Rows that a transaction of this program has moved: what of them lies at or below its cursor is emitted by whoever
//! committed it, under the same rule as everybody's (PROTOCOL §1).

use crate::{Deps, metrics};
use protocol::route::RouteTable;
use runtime::store::tasks::NearRow;
use runtime::store::{Session, position, tasks};
use schemas::ids::{RowId, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// Rows whose bodies are in memory at the same time, …
const ROWS: usize = 200;
/// … and about the most that they weigh.
const BYTES: u64 = 4 << 20;

/// Emits of these rows what is pending at or below its cursor, as it stands now; where an intent is open, a withdrawal.
/// Slots that `open` says no to are left out. Answers how many.
pub async fn emit(
    deps: &Deps,
    session: &mut Session,
    routes: &RouteTable,
    ids: &BTreeSet<RowId>,
    open: impl Fn(Slot) -> bool,
) -> anyhow::Result<u64> {
    let ids: Vec<RowId> = ids.iter().copied().collect();
    let (mut rest, mut emitted) = (&ids[..], 0);
    while !rest.is_empty() {
        let chunk = &rest[..rest.len().min(ROWS)];
        // The fences first: what is read as pending after them has no fate below them.
        let fences = position::fences(session, deps.journal).await?;
        let (near, cut) = tasks::pending_near_within(session, chunk.iter().copied(), BYTES).await?;
        let last = near.last().map(|near| near.row.id).filter(|_| cut);
        let done =
            last.and_then(|last| chunk.iter().position(|id| *id == last)).map_or(chunk.len(), |at| at + 1);
        let mut by_slot: BTreeMap<Slot, Vec<NearRow>> = BTreeMap::new();
        for near in near {
            by_slot.entry(routes.slot_at(near.row.shard, near.row.due_at)).or_default().push(near);
        }
        for (slot, rows) in by_slot.into_iter().filter(|(slot, _)| open(*slot)) {
            let Some(fence) = fences.of(slot) else { continue };
            let sent = deps.emission.emit_near(slot, fence, rows).await?;
            emitted += sent.acked;
            metrics::UNEMITTABLE.with(&[]).increment(sent.unemittable.len() as u64);
            for (row_gen, why) in sent.unemittable {
                tracing::error!(row.id = %row_gen.id, row.gen = row_gen.generation.0, "a row cannot be emitted and stays pending: {why}");
            }
        }
        rest = &rest[done..];
    }
    Ok(emitted)
}
