//! The scan of one slot's shards as a state machine: what to do next, never how.

use super::bucket::{Pace, ScanRule, SlotLoad};
use super::{ScanPoint, ShardRow};
use crate::route::RouteTable;
use schemas::ids::{Shard, Slot};
use std::collections::BTreeMap;

/// Shards whose scan is to be started now, in one transaction, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Shards to lock, ascending: the lock order of everybody.
    pub shards: Vec<Shard>,
}

/// What the transaction of a start writes into one shard's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The shard.
    pub shard: Shard,
    /// One more than it was: whoever scanned before is fenced.
    pub epoch: u64,
    /// Never less than it was.
    pub cursor_at: i64,
    /// Never less than it was.
    pub confirmed: ScanPoint,
    /// How far the cursor moves.
    pub covered_ms: i64,
}

/// The epoch of a shard has moved on: somebody else scans it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the epoch of shard {shard} has moved on: another scanner has it")]
pub struct Fenced {
    /// The shard.
    pub shard: Shard,
}

/// One page to be read: rows behind `after`, due at or before `upto_at`, in the order of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The shard.
    pub shard: Shard,
    /// All rows of the page have it: its journal gives the fence, its partition of `due` takes the records.
    pub slot: Slot,
    /// The page begins behind it.
    pub after: ScanPoint,
    /// Cursor or route boundary.
    pub upto_at: i64,
    /// Most rows.
    pub limit: u32,
}

/// What reading a page found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRead {
    /// Rows taken.
    pub rows: u32,
    /// Their size.
    pub bytes: u64,
    /// Place of the last row taken.
    pub last: Option<ScanPoint>,
    /// Reading stopped at the page's size in bytes, although there may be more.
    pub cut: bool,
}

/// What follows a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPage {
    /// Emit its rows, await every ack, then call [`SlotScan::acked`].
    Emit,
    /// Nothing in it; read the next one.
    Read,
    /// The cursor is reached: a scan is over that found so many rows. A last page that was empty is confirmed by the
    /// next start.
    Rest {
        /// Rows found by the whole scan; a bucket with none is a miss.
        rows: u64,
    },
}

/// Answer to a call that does not fit the phase: there is nothing to do.
const REST: AfterPage = AfterPage::Rest { rows: 0 };

/// Emissions up to `upto` are acked: to be written under the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// The shard.
    pub shard: Shard,
    /// Only while the row still has it.
    pub epoch: u64,
    /// New `confirmed`.
    pub upto: ScanPoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing to do before the cursor is no more than the horizon ahead, and not before `not_before`.
    Rest { cursor_at: Option<i64>, not_before: i64 },
    /// The transaction of the start is under way.
    Advancing,
    /// A page behind `after` is to be read.
    Read { after: ScanPoint, cursor_at: i64 },
    /// A page was read: its records are to be acked.
    Emit { upto: ScanPoint, cursor_at: i64 },
    /// They are: `confirmed` is to be written.
    Confirm { upto: ScanPoint, cursor_at: i64 },
}

#[derive(Clone, Debug)]
struct ShardScan {
    /// `None`: not ours yet, or in doubt; the next start takes whatever is there.
    epoch: Option<u64>,
    pace: Pace,
    phase: Phase,
    /// Emitted and acked as far as this scanner knows; written by a confirm or, after an empty scan, by the next start.
    done: Option<ScanPoint>,
    /// Everything due up to here is emitted and acked, as far as is known.
    reached_at: Option<i64>,
    covered_ms: i64,
    rows: u64,
}

/// The scan of all shards of one slot, from one assignment of the slot to its end.
#[derive(Clone, Debug)]
pub struct SlotScan {
    rule: ScanRule,
    load: SlotLoad,
    shards: BTreeMap<Shard, ShardScan>,
}

impl SlotScan {
    /// Nothing is known of the shards yet: all of them are due.
    pub fn new(rule: ScanRule, shards: impl IntoIterator<Item = Shard>) -> SlotScan {
        let mut scan = SlotScan { rule, load: SlotLoad::default(), shards: BTreeMap::new() };
        scan.set_shards(shards);
        scan
    }

    /// The routing table was read again: shards that left the slot are forgotten, new ones are due at once.
    pub fn set_shards(&mut self, shards: impl IntoIterator<Item = Shard>) {
        let mut old = std::mem::take(&mut self.shards);
        for shard in shards {
            let fresh = || ShardScan {
                epoch: None,
                pace: Pace::new(&self.rule),
                phase: Phase::Rest { cursor_at: None, not_before: i64::MIN },
                done: None,
                reached_at: None,
                covered_ms: 0,
                rows: 0,
            };
            self.shards.insert(shard, old.remove(&shard).unwrap_or_else(fresh));
        }
    }

    /// The shards of the slot, ascending.
    pub fn shards(&self) -> impl Iterator<Item = Shard> + '_ {
        self.shards.keys().copied()
    }

    /// The load that the slot's last heartbeat reported.
    pub fn set_load(&mut self, load: SlotLoad) {
        self.load = load;
    }

    /// The load in use.
    pub fn load(&self) -> SlotLoad {
        self.load
    }

    /// Width of a shard's next bucket.
    pub fn bucket_ms(&self, shard: Shard) -> Option<i64> {
        self.shards.get(&shard).map(|scan| scan.pace.bucket(&self.rule, self.load))
    }

    /// How far the shards are behind: what is due within the horizon and not emitted yet spans this much due time.
    pub fn lag_ms(&self, now: i64) -> i64 {
        let wanted = now.saturating_add(self.rule.horizon(self.load));
        let reached = self.shards.values().filter_map(|scan| scan.reached_at).min();
        reached.map_or(0, |at| wanted.saturating_sub(at).max(0))
    }

    fn due_at(&self, scan: &ShardScan) -> Option<i64> {
        match scan.phase {
            Phase::Rest { cursor_at, not_before } => {
                let wanted = cursor_at.map_or(i64::MIN, |at| at.saturating_sub(self.rule.horizon(self.load)));
                Some(wanted.max(not_before))
            }
            Phase::Advancing | Phase::Read { .. } | Phase::Emit { .. } | Phase::Confirm { .. } => None,
        }
    }

    /// When the next scan is due, by the database's clock. `None`: all shards are at work.
    pub fn next_due_at(&self) -> Option<i64> {
        self.shards.values().filter_map(|scan| self.due_at(scan)).min()
    }

    /// Starts every scan that is due, and takes along those that are due within half of the narrowest bucket, so that
    /// dense shards share a transaction. `None`: nothing is due.
    pub fn start(&mut self, now: i64) -> Option<Start> {
        self.next_due_at().filter(|due_at| *due_at <= now)?;
        let soon = now.saturating_add(self.rule.bucket_min_ms / 2);
        let due = |scan: &ShardScan| match scan.phase {
            // A shard that backs off is not pulled forward.
            Phase::Rest { not_before, .. } => {
                not_before <= now && self.due_at(scan).is_some_and(|at| at <= soon)
            }
            _ => false,
        };
        let shards: Vec<Shard> =
            self.shards.iter().filter(|(_, scan)| due(scan)).map(|(shard, _)| *shard).collect();
        for shard in &shards {
            if let Some(scan) = self.shards.get_mut(shard) {
                scan.phase = Phase::Advancing;
            }
        }
        Some(Start { shards })
    }

    /// Decides inside the transaction of a start, from the rows it has locked and the database's clock. The first start
    /// of an assignment takes the shards over; every other one finds its own epoch, or somebody else's.
    pub fn advance(&self, now: i64, rows: &[ShardRow]) -> Result<Vec<Advance>, Fenced> {
        rows.iter().map(|row| self.advance_one(now, row)).collect()
    }

    fn advance_one(&self, now: i64, row: &ShardRow) -> Result<Advance, Fenced> {
        let scan = self.shards.get(&row.shard).ok_or(Fenced { shard: row.shard })?;
        if scan.epoch.is_some_and(|epoch| epoch != row.epoch) {
            return Err(Fenced { shard: row.shard });
        }
        let bucket = scan.pace.bucket(&self.rule, self.load);
        let wanted = now.saturating_add(self.rule.horizon(self.load)).saturating_add(bucket);
        let cursor_at = row.cursor_at.max(wanted);
        // `done` is what this scanner got acked under the epoch that still stands.
        let confirmed = scan.done.map_or(row.confirmed, |done| done.max(row.confirmed));
        let covered_ms = cursor_at.saturating_sub(row.cursor_at);
        Ok(Advance { shard: row.shard, epoch: row.epoch + 1, cursor_at, confirmed, covered_ms })
    }

    /// The transaction of a start has committed.
    pub fn advanced(&mut self, advances: &[Advance]) {
        for advance in advances {
            let Some(scan) = self.shards.get_mut(&advance.shard) else { continue };
            scan.epoch = Some(advance.epoch);
            scan.phase = Phase::Read { after: advance.confirmed, cursor_at: advance.cursor_at };
            scan.covered_ms = advance.covered_ms;
            // A shard that was never scanned has nothing to say yet.
            scan.reached_at = Some(advance.confirmed.due_at).filter(|at| *at > 0);
            scan.rows = 0;
            scan.done = None;
        }
    }

    /// The next page of a shard. Routes must have been read after the start's commit. `None`: it is not at reading.
    pub fn page(&self, shard: Shard, routes: &RouteTable) -> Option<PageRequest> {
        let scan = self.shards.get(&shard)?;
        let Phase::Read { after, cursor_at } = scan.phase else { return None };
        let first_at = if after == ScanPoint::end_of(after.due_at) { after.due_at + 1 } else { after.due_at };
        let upto_at = cursor_at.min(routes.last_with_slot_of(shard, first_at));
        Some(PageRequest {
            shard,
            slot: routes.slot_at(shard, first_at),
            after,
            upto_at,
            limit: scan.pace.page_rows,
        })
    }

    /// A page was read.
    pub fn page_read(&mut self, request: &PageRequest, read: PageRead) -> AfterPage {
        let rule = self.rule;
        let Some(scan) = self.shards.get_mut(&request.shard) else { return REST };
        let Phase::Read { cursor_at, .. } = scan.phase else { return REST };
        scan.pace.paged(&rule, read.rows, read.bytes);
        scan.rows += u64::from(read.rows);
        // Nothing more up to the page's end: whoever commits a row there from now on sees the cursor and emits it.
        let exhausted = !read.cut && read.rows < request.limit;
        let upto = match read.last {
            Some(last) if !exhausted => last,
            _ => ScanPoint::end_of(request.upto_at),
        };
        if read.rows > 0 {
            scan.phase = Phase::Emit { upto, cursor_at };
            return AfterPage::Emit;
        }
        scan.done = Some(upto);
        Self::go_on(&rule, scan, upto, cursor_at)
    }

    /// Every record of the page is acked: what to write.
    pub fn acked(&mut self, shard: Shard) -> Option<Confirm> {
        let scan = self.shards.get_mut(&shard)?;
        let Phase::Emit { upto, cursor_at } = scan.phase else { return None };
        scan.done = Some(upto);
        scan.phase = Phase::Confirm { upto, cursor_at };
        Some(Confirm { shard, epoch: scan.epoch?, upto })
    }

    /// `confirmed` is written.
    pub fn confirmed(&mut self, shard: Shard) -> AfterPage {
        let rule = self.rule;
        let Some(scan) = self.shards.get_mut(&shard) else { return REST };
        let Phase::Confirm { upto, cursor_at } = scan.phase else { return REST };
        Self::go_on(&rule, scan, upto, cursor_at)
    }

    fn go_on(rule: &ScanRule, scan: &mut ShardScan, upto: ScanPoint, cursor_at: i64) -> AfterPage {
        scan.reached_at = Some(upto.due_at);
        if upto < ScanPoint::end_of(cursor_at) {
            scan.phase = Phase::Read { after: upto, cursor_at };
            return AfterPage::Read;
        }
        scan.pace.scanned(rule, scan.covered_ms, scan.rows);
        scan.phase = Phase::Rest { cursor_at: Some(cursor_at), not_before: i64::MIN };
        AfterPage::Rest { rows: scan.rows }
    }

    /// A step of a shard failed, or its outcome is unknown: start again from the table, not before `not_before`. What
    /// the epoch is by now is not known either, so the next start takes the shard like a new owner.
    pub fn failed(&mut self, shard: Shard, not_before: i64) {
        if let Some(scan) = self.shards.get_mut(&shard) {
            scan.epoch = None;
            scan.done = None;
            scan.phase = Phase::Rest { cursor_at: None, not_before };
        }
    }
}
