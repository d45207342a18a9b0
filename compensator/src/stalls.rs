//! Ends the attempts of one slot whose consumers have been silent for too long: the next attempt, a burial, or, after a
//! cancel, the end. Decided in `protocol::stall`.

use crate::{Deps, metrics, near};
use protocol::life::{Effects, RowKey};
use protocol::reemit::{Gate, ReemitRule};
use protocol::stall;
use runtime::store::intents::Telling;
use runtime::store::running::{self, Stalled};
use runtime::store::{Session, StoreError, life, reemit, source};
use schemas::ids::{RowGen, RowId, Shard, Slot};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Rows of one transaction: it holds their locks.
const CHUNK: usize = 100;

/// The looks at one slot.
pub struct Staller {
    deps: Arc<Deps>,
    slot: Slot,
    rule: ReemitRule,
    /// Where the last look at a shard ended, if it did not reach its end.
    after: BTreeMap<Shard, RowKey>,
    /// The shard to begin with: the cap of a pass must not always hit the same shards.
    first: usize,
}

impl Staller {
    /// Nothing looked at yet.
    pub fn new(deps: Arc<Deps>, slot: Slot) -> Staller {
        let rule = deps.reemit.rule();
        Staller { deps, slot, rule, after: BTreeMap::new(), first: 0 }
    }

    /// One look. Answers how many attempts it ended.
    pub async fn pass(&mut self) -> anyhow::Result<u64> {
        let routes = self.deps.routes().await?;
        let mut session = self.deps.db.session().await?;
        let now = runtime::store::now(&mut session).await?;
        // The same gate: what is tried again is emitted, and a stuck journal hides acks as well as deliveries.
        let health = reemit::health_of(&mut session, self.deps.journal, self.slot).await?;
        if self.rule.gate(now, &health) != Gate::Open {
            return Ok(0);
        }
        let Some(upto_at) = self.judged_upto(&mut session, now).await? else { return Ok(0) };
        let shards = routes.scanned_by(self.slot);
        let mut left = self.deps.stalls.rows_per_pass as usize;
        let mut ended = 0;
        for offset in 0..shards.len() {
            let at = (self.first + offset) % shards.len();
            let found = self.page(&mut session, shards[at], upto_at, left).await?;
            metrics::STALLS_EXAMINED.with(&[]).increment(found.len() as u64);
            left -= found.len();
            for chunk in found.chunks(CHUNK) {
                let (effects, n) = self.end(chunk, now, upto_at).await?;
                ended += n;
                near::emit(&self.deps, &mut session, &routes, &effects.look, |_| true).await?;
            }
            if left == 0 {
                self.first = at;
                return Ok(ended);
            }
        }
        self.first = 0;
        Ok(ended)
    }

    /// Deadlines up to here are judged. `None`: nobody knows how far the acks of some partition are applied.
    async fn judged_upto(&self, session: &mut Session, now: i64) -> anyhow::Result<Option<i64>> {
        let topic = self.deps.names.acks();
        let registered = source::all(session).await?;
        let Some(acks) = registered.into_iter().rfind(|source| source.topic == topic) else {
            return Ok(None);
        };
        // A partition that was added and that nobody reads yet may hold acks: it has no tick, so nothing is judged.
        let Some(info) = self.deps.admin.topic(&topic).await? else { return Ok(None) };
        let applied = running::acks_applied(session, acks.id, info.partition_count()).await?;
        let upto_at = stall::judged_upto(now, applied);
        metrics::ACKS_BEHIND
            .with(&[])
            .set(upto_at.map_or(f64::INFINITY, |upto| (now - upto) as f64 / 1_000.0));
        Ok(upto_at)
    }

    async fn page(
        &mut self,
        session: &mut Session,
        shard: Shard,
        upto_at: i64,
        limit: usize,
    ) -> Result<Vec<Stalled>, StoreError> {
        let start = RowKey { shard, due_at: i64::MIN, id: RowId(0) };
        let after = self.after.remove(&shard).unwrap_or(start);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let found = running::stalled(session, after, upto_at, limit).await?;
        if found.len() == limit as usize
            && let Some(last) = found.last()
        {
            self.after.insert(shard, last.key);
        }
        Ok(found)
    }

    /// One transaction: rows under lock, looked at again, and what becomes of them.
    async fn end(&self, rows: &[Stalled], now: i64, upto_at: i64) -> anyhow::Result<(Effects, u64)> {
        let ids: BTreeSet<RowId> = rows.iter().map(|row| row.key.id).collect();
        let mut tx = self.deps.db.begin("stalled_end").await?;
        let mut life = life::hold(&mut tx, &ids).await?;
        let mut outcomes = Vec::new();
        for row in rows {
            let row_gen = RowGen { id: row.key.id, generation: row.generation };
            outcomes.extend(stall::decide(&mut life, row_gen, now, upto_at));
        }
        let effects = life.into_effects();
        let nobody = HashMap::new();
        let telling = Telling { received_at: now, resend_at: now, asked: &nobody };
        life::write(&mut tx, &effects, telling).await?;
        tx.commit().await?;
        for outcome in &outcomes {
            metrics::STALLED.with(&[outcome.as_str()]).increment(1);
        }
        for alarm in &effects.alarms {
            tracing::error!("invariant broken: {alarm}");
        }
        Ok((effects, outcomes.len() as u64))
    }
}
