//! The compensator of one slot: look after look at what should have been settled by now, in the order of steps of
//! `compensator::reemit`.

use super::Did;
use crate::mysql::{Db, JOURNAL, Waiting};
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use protocol::apply::RowKey;
use protocol::cursor::ScanPoint;
use protocol::reemit::{Candidate, Gate, SlotHealth};
use schemas::due::DueRecord;
use schemas::ids::{RowId, Shard, Slot};
use std::collections::{BTreeMap, VecDeque};

const PAUSE_MS: i64 = 400;
/// Rows looked at in one go, and emitted in one pass.
const EXAMINE: usize = 4;
const PER_PASS: usize = 6;
const START: ScanPoint = ScanPoint { due_at: i64::MIN, id: RowId(0) };

type Rows = Vec<(RowKey, Candidate)>;

/// A compensator that has a slot.
#[derive(Debug)]
pub struct Compensator {
    pub name: String,
    pub slot: Slot,
    stage: Stage,
    shards: VecDeque<Shard>,
    first: usize,
    now: i64,
    health: SlotHealth,
    left: usize,
    noted_after: BTreeMap<Shard, ScanPoint>,
    stalled_after: BTreeMap<Shard, ScanPoint>,
}

#[derive(Debug)]
enum Stage {
    Rest {
        until: i64,
    },
    Health,
    Cursors,
    Noted {
        cursors: BTreeMap<Shard, i64>,
    },
    Stalled {
        shard: Shard,
        cursors: BTreeMap<Shard, i64>,
        noted: BTreeMap<RowKey, Candidate>,
    },
    Fence {
        cursors: BTreeMap<Shard, i64>,
        rows: Rows,
    },
    Rows {
        cursors: BTreeMap<Shard, i64>,
        rows: Rows,
        fence: Option<i64>,
    },
    /// Mistake: the fence after the rows.
    FenceLast {
        cursors: BTreeMap<Shard, i64>,
        taken: Rows,
        rows: Vec<Waiting>,
    },
    Note {
        cursors: BTreeMap<Shard, i64>,
        taken: Rows,
        records: VecDeque<DueRecord>,
    },
    Emit {
        cursors: BTreeMap<Shard, i64>,
        records: VecDeque<DueRecord>,
    },
}

impl Compensator {
    pub fn new(w: &mut World, slot: Slot) -> Compensator {
        let process = w.name();
        Compensator {
            name: format!("compensator {process}"),
            slot,
            stage: Stage::Rest { until: w.now },
            shards: VecDeque::new(),
            first: 0,
            now: 0,
            health: SlotHealth::default(),
            left: 0,
            noted_after: BTreeMap::new(),
            stalled_after: BTreeMap::new(),
        }
    }

    /// Whether rows are read and not emitted; `early`: the last moment before they are made into records.
    pub fn has_read(&self, early: bool) -> bool {
        match &self.stage {
            Stage::Note { records, .. } | Stage::Emit { records, .. } => !records.is_empty() && !early,
            Stage::FenceLast { rows, .. } => !rows.is_empty() && early,
            _ => false,
        }
    }

    /// One step.
    pub fn step(&mut self, w: &mut World) -> Did {
        let stage = std::mem::replace(&mut self.stage, Stage::Health);
        match stage {
            Stage::Rest { until } if w.now < until => {
                self.stage = Stage::Rest { until };
                return Did::Idle(Some(until));
            }
            Stage::Rest { .. } => {}
            stage => self.stage = self.go(w, stage),
        }
        Did::Work
    }

    fn rest(w: &World) -> Stage {
        Stage::Rest { until: w.now + PAUSE_MS }
    }

    fn go(&mut self, w: &mut World, stage: Stage) -> Stage {
        let rule = w.setup.reemit;
        match stage {
            Stage::Rest { until } => Stage::Rest { until },
            Stage::Health => {
                if w.db_mishap("health", false) != Mishap::None {
                    return Self::rest(w);
                }
                self.now = w.now;
                self.health = w.db.position[&(JOURNAL, i32::from(self.slot.0))].health;
                if rule.gate(self.now, &self.health) == Gate::Open { Stage::Cursors } else { Self::rest(w) }
            }
            Stage::Cursors => {
                if w.db_mishap("cursor", false) != Mishap::None {
                    return Self::rest(w);
                }
                let mut shards: VecDeque<Shard> = w.routes.scanned_by(self.slot).into();
                shards.rotate_left(self.first % shards.len().max(1));
                self.shards = shards;
                self.left = PER_PASS;
                Stage::Noted { cursors: w.db.cursors().into_iter().collect() }
            }
            Stage::Noted { cursors } => self.noted(w, cursors),
            Stage::Stalled { shard, cursors, noted } => self.stalled(w, shard, cursors, noted),
            Stage::Fence { cursors, rows } => {
                let fence = (!w.has(Mutation::FenceAfterRow)).then(|| w.db.fence(self.slot.0));
                Stage::Rows { cursors, rows, fence }
            }
            Stage::Rows { cursors, rows, fence } => {
                if w.db_mishap("reemit_rows", false) != Mishap::None {
                    return Self::rest(w);
                }
                let there = |(key, row): &(RowKey, Candidate)| {
                    let found = *w.db.pending.get(key)?;
                    (found.generation == row.generation).then_some((*row, Waiting { key: *key, row: found }))
                };
                let found: Vec<(Candidate, Waiting)> = rows.iter().filter_map(there).collect();
                let taken = found.iter().map(|(row, waiting)| (waiting.key, *row)).collect();
                let Some(fence) = fence else {
                    return Stage::FenceLast {
                        cursors,
                        taken,
                        rows: found.into_iter().map(|(_, row)| row).collect(),
                    };
                };
                let records = found.iter().map(|(_, row)| w.due_record(row, fence, false)).collect();
                Stage::Note { cursors, taken, records }
            }
            Stage::FenceLast { cursors, taken, rows } => {
                let fence = w.db.fence(self.slot.0);
                let records = rows.iter().map(|row| w.due_record(row, fence, false)).collect();
                Stage::Note { cursors, taken, records }
            }
            Stage::Note { cursors, taken, records } => {
                if w.db_mishap("note", false) != Mishap::None {
                    return Self::rest(w);
                }
                for (_, row) in &taken {
                    let cold = self.health.cold_upto.is_some_and(|upto| row.point.due_at <= upto);
                    let why = match (row.again, cold) {
                        (Some(again), _) if again.n == 0 => "emitted again: handed back",
                        (_, true) => "emitted again: cold",
                        (_, false) => "emitted again: stalled",
                    };
                    w.saw(why);
                }
                for (key, row) in &taken {
                    w.db.note(*key, rule.next(self.now, row));
                }
                Stage::Emit { cursors, records }
            }
            Stage::Emit { cursors, mut records } => {
                let Some(record) = records.front().cloned() else { return Stage::Noted { cursors } };
                if !w.emit(&self.name, record) {
                    // The pass is over; the notes say when the rows come up again.
                    return Self::rest(w);
                }
                records.pop_front();
                Stage::Emit { cursors, records }
            }
        }
    }

    fn noted(&mut self, w: &mut World, cursors: BTreeMap<Shard, i64>) -> Stage {
        if self.left > 0 {
            self.first = 0;
        }
        let Some(shard) = self.shards.pop_front().filter(|_| self.left > 0) else { return Self::rest(w) };
        if w.db_mishap("noted", false) != Mishap::None {
            return Self::rest(w);
        }
        let after = self.noted_after.get(&shard).copied().unwrap_or(START);
        let notes: Vec<_> = Db::page(&w.db.reemit, shard, after, cursors[&shard]).take(EXAMINE).collect();
        sweep(&mut self.noted_after, shard, notes.iter().map(|(key, _)| *key));
        let mut noted = BTreeMap::new();
        for (key, again) in notes {
            let candidate = w.db.candidate(key);
            if candidate.is_none_or(|row| row.generation != again.generation) {
                w.db.reemit.remove(&key);
            }
            noted.extend(candidate.map(|row| (key, row)));
        }
        Stage::Stalled { shard, cursors, noted }
    }

    fn stalled(
        &mut self,
        w: &mut World,
        shard: Shard,
        cursors: BTreeMap<Shard, i64>,
        mut rows: BTreeMap<RowKey, Candidate>,
    ) -> Stage {
        if w.db_mishap("stalled", false) != Mishap::None {
            return Self::rest(w);
        }
        let rule = w.setup.reemit;
        let cursor_at = cursors[&shard];
        let upto_at = rule.upto_at(self.now, cursor_at, &self.health);
        let after =
            self.stalled_after.get(&shard).copied().filter(|after| after.due_at <= upto_at).unwrap_or(START);
        let keys: Vec<RowKey> =
            Db::page(&w.db.pending, shard, after, upto_at).map(|(key, _)| key).take(EXAMINE).collect();
        sweep(&mut self.stalled_after, shard, keys.iter().copied());
        rows.extend(keys.into_iter().filter_map(|key| Some((key, w.db.candidate(key)?))));
        let eligible = |row: &Candidate| rule.is_eligible(self.now, cursor_at, &self.health, row);
        let mut rows: Rows = rows.into_iter().filter(|(_, row)| eligible(row)).collect();
        if rows.len() > self.left {
            rows.truncate(self.left);
            self.first += 1;
        }
        self.left -= rows.len();
        if rows.is_empty() { Stage::Noted { cursors } } else { Stage::Fence { cursors, rows } }
    }
}

/// Remembers where a sweep goes on; one that has reached its end begins anew.
fn sweep(sweeps: &mut BTreeMap<Shard, ScanPoint>, shard: Shard, keys: impl ExactSizeIterator<Item = RowKey>) {
    let at_end = keys.len() < EXAMINE;
    match keys.last().filter(|_| !at_end) {
        Some(key) => sweeps.insert(shard, ScanPoint { due_at: key.due_at, id: key.id }),
        None => sweeps.remove(&shard),
    };
}
