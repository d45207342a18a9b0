//! Looks at one slot for rows that should be settled and are not, and emits them again.

use crate::{Deps, metrics};
use protocol::cursor::ScanPoint;
use protocol::reemit::{Again, Candidate, Gate, ReemitRule, SlotHealth};
use protocol::route::Segment;
use runtime::store::reemit::{self, Stretch};
use runtime::store::{Session, shard};
use schemas::ids::{Generation, RowId, Shard, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rows that are read, noted and emitted in one go.
const CHUNK: usize = 200;
/// Bytes of the same.
const CHUNK_BYTES: u64 = 4 << 20;

/// The looks at one slot.
pub struct Reemitter {
    deps: Arc<Deps>,
    slot: Slot,
    rule: ReemitRule,
    /// Where the last look at a segment ended, if it did not reach the end: among the stalled rows, and among the notes.
    stalled_after: BTreeMap<Stop, ScanPoint>,
    noted_after: BTreeMap<Stop, ScanPoint>,
    /// The shard to begin with: the cap of a pass must not always hit the same shards.
    first: usize,
    gate: Option<Gate>,
}

/// A segment by its shard and its first due time: as long as this, routes do not change.
type Stop = (Shard, i64);

/// Where a stretch of `due_at` begins.
fn before(due_at: i64) -> ScanPoint {
    match due_at.checked_sub(1) {
        Some(before) => ScanPoint::end_of(before),
        None => ScanPoint { due_at: i64::MIN, id: RowId(0) },
    }
}

impl Reemitter {
    /// Nothing looked at yet.
    pub fn new(deps: Arc<Deps>, slot: Slot) -> Reemitter {
        let rule = deps.reemit.rule();
        let none = BTreeMap::new();
        Reemitter { deps, slot, rule, stalled_after: none.clone(), noted_after: none, first: 0, gate: None }
    }

    /// One look. Answers how many rows it emitted.
    pub async fn pass(&mut self) -> anyhow::Result<u64> {
        let routes = self.deps.routes().await?;
        let segments = routes.segments_of(self.slot);
        let mut session = self.deps.db.session().await?;
        let now = runtime::store::now(&mut session).await?;
        let health = reemit::health_of(&mut session, self.deps.journal, self.slot).await?;
        let gate = self.rule.gate(now, &health);
        self.say(gate, &health);
        if gate != Gate::Open || segments.is_empty() {
            return Ok(0);
        }
        // Before the rows: what lies beyond these cursors may be cancelled at once, and is not touched.
        let shards: BTreeSet<Shard> = segments.iter().map(|segment| segment.shard).collect();
        let cursors: BTreeMap<Shard, i64> = shard::read(&mut session, &shards)
            .await?
            .into_iter()
            .map(|row| (row.shard, row.cursor_at))
            .collect();
        let mut left = self.deps.reemit.rows_per_pass as usize;
        let mut emitted = 0;
        for offset in 0..segments.len() {
            let at = (self.first + offset) % segments.len();
            let segment = segments[at];
            let Some(cursor_at) = cursors.get(&segment.shard).copied() else { continue };
            let mut rows = self.candidates(&mut session, &segment, now, cursor_at, &health).await?;
            rows.retain(|row| self.rule.is_eligible(now, cursor_at, &health, row));
            if rows.len() > left {
                rows.truncate(left);
                self.first = at;
            }
            left -= rows.len();
            emitted += self.emit(&mut session, segment.shard, now, &rows).await?;
            if left == 0 {
                break;
            }
        }
        if left > 0 {
            self.first = 0;
        }
        Ok(emitted)
    }

    fn say(&mut self, gate: Gate, health: &SlotHealth) {
        let label = match gate {
            Gate::Open => "open",
            Gate::Silent => "silent",
            Gate::Drowning => "drowning",
        };
        metrics::PASSES.with(&[label]).increment(1);
        metrics::GATE.with(&[&self.slot.to_string()]).set(if gate == Gate::Open { 1.0 } else { 0.0 });
        if self.gate != Some(gate) {
            tracing::info!(
                slot = self.slot.0,
                gate = label,
                hb_at = health.hb_at,
                backlog = health.backlog,
                "gate of the re-emission"
            );
            self.gate = Some(gate);
        }
    }

    /// Rows of a segment that may have to be emitted again, in the order of the key: noted ones up to the cursor, and
    /// whatever else is pending although its time is over. Notes without a row are deleted on the way.
    async fn candidates(
        &mut self,
        session: &mut Session,
        segment: &Segment,
        now: i64,
        cursor_at: i64,
        health: &SlotHealth,
    ) -> anyhow::Result<Vec<Candidate>> {
        let (shard, start) = (segment.shard, before(segment.from_due_at));
        let stop = (shard, segment.from_due_at);
        let limit = self.deps.reemit.examine_per_pass;
        let within = |after: Option<&ScanPoint>, upto_at: i64| Stretch {
            shard,
            after: after
                .copied()
                .filter(|after| after.due_at <= upto_at)
                .map_or(start, |after| after.max(start)),
            upto_at: upto_at.min(segment.upto_due_at),
            limit,
        };

        let stretch = within(self.noted_after.get(&stop), cursor_at);
        let noted = reemit::noted(session, &stretch).await?;
        metrics::EXAMINED.with(&[]).increment(noted.len() as u64);
        go_on_behind(
            &mut self.noted_after,
            stop,
            noted.last().map(|row| row.point),
            noted.len() < limit as usize,
        );
        let orphans: Vec<(ScanPoint, Generation)> = noted
            .iter()
            .filter(|row| row.candidate.is_none_or(|candidate| candidate.generation != row.again.generation))
            .map(|row| (row.point, row.again.generation))
            .collect();
        reemit::forget(session, shard, &orphans).await?;
        metrics::FORGOTTEN.with(&[]).increment(orphans.len() as u64);
        let mut rows: BTreeMap<ScanPoint, Candidate> =
            noted.iter().filter_map(|row| Some((row.point, row.candidate?))).collect();

        let stretch = within(self.stalled_after.get(&stop), self.rule.upto_at(now, cursor_at, health));
        let stalled = reemit::stalled(session, &stretch).await?;
        metrics::EXAMINED.with(&[]).increment(stalled.len() as u64);
        go_on_behind(
            &mut self.stalled_after,
            stop,
            stalled.last().map(|row| row.point),
            stalled.len() < limit as usize,
        );
        rows.extend(stalled.into_iter().map(|row| (row.point, row)));
        Ok(rows.into_values().collect())
    }

    /// Reads the rows with a fresh fence, notes when each may be next, emits.
    async fn emit(
        &self,
        session: &mut Session,
        shard: Shard,
        now: i64,
        candidates: &[Candidate],
    ) -> anyhow::Result<u64> {
        let mut emitted = 0;
        for chunk in candidates.chunks(CHUNK) {
            let mut waiting: BTreeMap<ScanPoint, &Candidate> =
                chunk.iter().map(|row| (row.point, row)).collect();
            while !waiting.is_empty() {
                let keys: Vec<_> = waiting.iter().map(|(point, row)| (*point, row.generation)).collect();
                let (fence, rows, cut) =
                    reemit::rows(session, self.deps.journal, self.slot, shard, &keys, CHUNK_BYTES).await?;
                let point = |row: &runtime::store::PendingRow| ScanPoint { due_at: row.due_at, id: row.id };
                let taken: Vec<&Candidate> =
                    rows.iter().filter_map(|row| waiting.remove(&point(row))).collect();
                let notes: Vec<(ScanPoint, Again)> =
                    taken.iter().map(|row| (row.point, self.rule.next(now, row))).collect();
                reemit::note(session, shard, &notes).await?;
                let done = self.deps.emission.emit(self.slot, fence, rows).await?;
                emitted += done.acked;
                metrics::UNEMITTABLE.with(&[]).increment(done.unemittable.len() as u64);
                for (row_gen, why) in done.unemittable {
                    tracing::error!(row.id = %row_gen.id, row.gen = row_gen.generation.0, %shard, "a row cannot be emitted and stays pending: {why}");
                }
                for row in taken {
                    metrics::EMITTED.with(&[cause(row)]).increment(1);
                }
                if !cut {
                    // What was not found is settled by now.
                    break;
                }
            }
        }
        Ok(emitted)
    }
}

fn cause(row: &Candidate) -> &'static str {
    match row.again.filter(|again| again.generation == row.generation) {
        None => "stalled",
        Some(again) if again.at == 0 => "handed_back",
        Some(_) => "again",
    }
}

/// Remembers where a sweep goes on; one that has reached its end begins anew.
fn go_on_behind(sweeps: &mut BTreeMap<Stop, ScanPoint>, stop: Stop, last: Option<ScanPoint>, at_end: bool) {
    match last.filter(|_| !at_end) {
        Some(last) => drop(sweeps.insert(stop, last)),
        None => drop(sweeps.remove(&stop)),
    }
}
