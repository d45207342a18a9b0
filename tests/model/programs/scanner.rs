//! The scanner of one slot: jobs around the state machine of its scan, in the order of steps of `scanner::slot`.

use super::Did;
use crate::mysql::{Db, JOURNAL, Pending, Waiting};
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use protocol::apply::RowKey;
use protocol::cursor::{
    Advance, AfterPage, Confirm, PageRead, PageRequest, ScanPoint, SlotLoad, SlotScan, Start,
};
use schemas::due::DueRecord;
use schemas::ids::{Shard, Slot};
use std::collections::{BTreeMap, VecDeque};

/// A scanner that has, or believes to have, a slot.
#[derive(Debug)]
pub struct Scanner {
    pub name: String,
    pub slot: Slot,
    scan: SlotScan,
    jobs: Vec<Job>,
    confirms: Vec<Confirm>,
    confirming: bool,
    starting: bool,
    /// Fenced: somebody else has the slot; not before this time again.
    rests_until: i64,
}

#[derive(Debug)]
enum Job {
    /// The transaction of a start.
    Start {
        start: Start,
        view: Box<SlotScan>,
        snapshot: Option<BTreeMap<RowKey, Pending>>,
    },
    /// What is read after it.
    Load {
        start: Start,
        advances: Vec<Advance>,
        snapshot: Option<BTreeMap<RowKey, Pending>>,
    },
    Fence {
        request: PageRequest,
    },
    Rows {
        request: PageRequest,
        fence: Option<i64>,
    },
    Emit {
        request: PageRequest,
        read: PageRead,
        records: VecDeque<DueRecord>,
    },
    Confirm(Vec<Confirm>),
}

impl Job {
    fn shards(&self) -> Vec<Shard> {
        match self {
            Job::Start { start, .. } | Job::Load { start, .. } => start.shards.clone(),
            Job::Fence { request } | Job::Rows { request, .. } | Job::Emit { request, .. } => {
                vec![request.shard]
            }
            Job::Confirm(confirms) => confirms.iter().map(|confirm| confirm.shard).collect(),
        }
    }
}

/// How a step of a job ended.
enum End {
    Next(Job),
    Over,
    Outage(Vec<Shard>),
    Fenced,
}

impl Scanner {
    pub fn new(w: &mut World, slot: Slot) -> Scanner {
        let process = w.name();
        Scanner {
            name: format!("scanner {process}"),
            slot,
            scan: SlotScan::new(w.setup.scan, w.routes.scanned_by(slot)),
            jobs: Vec::new(),
            confirms: Vec::new(),
            confirming: false,
            starting: false,
            rests_until: i64::MIN,
        }
    }

    /// Whether its cursor is committed, and what lies below it is not all emitted.
    pub fn is_emitting(&self) -> bool {
        self.jobs.iter().any(|job| !matches!(job, Job::Start { .. } | Job::Confirm(_)))
    }

    /// Whether emissions are acked and not confirmed.
    pub fn is_confirming(&self) -> bool {
        !self.confirms.is_empty() || self.jobs.iter().any(|job| matches!(job, Job::Confirm(_)))
    }

    /// One step.
    pub fn step(&mut self, w: &mut World) -> Did {
        if w.now < self.rests_until {
            return Did::Idle(Some(self.rests_until));
        }
        if !self.starting
            && let Some(start) = self.scan.start(w.now)
        {
            self.starting = true;
            w.say(&self.name, || format!("starts {:?}", start.shards));
            self.jobs.push(Job::Start { start, view: Box::new(self.scan.clone()), snapshot: None });
        }
        if !self.confirming && !self.confirms.is_empty() {
            self.confirming = true;
            self.jobs.push(Job::Confirm(std::mem::take(&mut self.confirms)));
        }
        if self.jobs.is_empty() {
            return Did::Idle(self.scan.next_due_at());
        }
        let at = if w.rough { w.dice.roll(self.jobs.len() as u32) as usize } else { 0 };
        let job = self.jobs.remove(at);
        match self.job(w, job) {
            End::Next(job) => self.jobs.push(job),
            End::Over => {}
            End::Outage(shards) => {
                for shard in shards {
                    self.scan.failed(shard, w.now + 20);
                }
            }
            End::Fenced => {
                w.saw("scanner fenced");
                w.say(&self.name, || "is fenced".into());
                let fresh = Scanner::new(w, self.slot);
                *self = Scanner { name: self.name.clone(), rests_until: w.now + 300, ..fresh };
            }
        }
        Did::Work
    }

    fn job(&mut self, w: &mut World, job: Job) -> End {
        let shards = job.shards();
        match job {
            Job::Start { start, view, snapshot: None } if w.has(Mutation::PageBeforeCursor) => {
                let snapshot = Some(w.db.pending.clone());
                End::Next(Job::Start { start, view, snapshot })
            }
            Job::Start { start, view, snapshot } => {
                let mishap = w.db_mishap("scan_start", true);
                let now = w.now;
                let advances = match mishap {
                    Mishap::Refused => None,
                    _ => Some(w.db.start_scan(&start.shards, |rows| view.advance(now, rows))),
                };
                w.say(&self.name, || format!("commits its start: {advances:?} ({mishap:?})"));
                match advances {
                    Some(Ok(advances)) if mishap == Mishap::None => {
                        End::Next(Job::Load { start, advances, snapshot })
                    }
                    Some(Err(_)) => {
                        self.starting = false;
                        End::Fenced
                    }
                    None | Some(Ok(_)) => {
                        self.starting = false;
                        End::Outage(shards)
                    }
                }
            }
            Job::Load { advances, snapshot, .. } => {
                self.starting = false;
                if w.db_mishap("scan_load", false) != Mishap::None {
                    return End::Outage(shards);
                }
                let position = w.db.position[&(JOURNAL, i32::from(self.slot.0))];
                self.scan.set_load(SlotLoad { backlog: position.health.backlog, credit: position.credit });
                self.scan.advanced(&advances);
                for advance in advances {
                    self.read_page(w, advance.shard, snapshot.as_ref());
                }
                End::Over
            }
            Job::Fence { request } => {
                if w.has(Mutation::FenceAfterRow) {
                    return End::Next(Job::Rows { request, fence: None });
                }
                if w.db_mishap("scan_fence", false) != Mishap::None {
                    return End::Outage(shards);
                }
                End::Next(Job::Rows { request, fence: Some(w.db.fence(request.slot.0)) })
            }
            Job::Rows { request, fence } => {
                if w.db_mishap("scan_page", false) != Mishap::None {
                    return End::Outage(shards);
                }
                let (rows, read) = page(&w.db.pending, &request, w.setup.scan.page_bytes);
                self.page_read(w, request, fence, &rows, read)
            }
            Job::Emit { request, read, mut records } => {
                let Some(record) = records.front().cloned() else { return self.emitted(w, request, read) };
                if !w.emit(&self.name, record) {
                    return End::Outage(shards);
                }
                records.pop_front();
                if records.is_empty() {
                    self.emitted(w, request, read)
                } else {
                    End::Next(Job::Emit { request, read, records })
                }
            }
            Job::Confirm(confirms) => {
                self.confirming = false;
                let mishap = w.db_mishap("scan_confirm", true);
                if mishap == Mishap::Refused {
                    return End::Outage(shards);
                }
                let any_epoch = w.has(Mutation::EpochIgnored);
                for confirm in &confirms {
                    let written = w.db.confirm_scan(confirm, any_epoch);
                    w.say(&self.name, || format!("confirms {:?}: {written:?} ({mishap:?})", confirm.upto));
                    if written.is_err() {
                        return End::Fenced;
                    }
                }
                if mishap == Mishap::AnswerLost {
                    return End::Outage(shards);
                }
                for confirm in confirms {
                    let after = self.scan.confirmed(confirm.shard);
                    self.go_on(w, confirm.shard, after);
                }
                End::Over
            }
        }
    }

    fn read_page(&mut self, w: &World, shard: Shard, snapshot: Option<&BTreeMap<RowKey, Pending>>) {
        let Some(request) = self.scan.page(shard, &w.routes) else { return };
        let job = match snapshot {
            None => Job::Fence { request },
            Some(rows) => {
                // Mistake: the rows as they were before the cursor moved.
                let (rows, read) = page(rows, &PageRequest { limit: u32::MAX, ..request }, u64::MAX);
                let fence = w.db.fence(request.slot.0);
                let records = rows.iter().map(|row| w.due_record(row, fence, false)).collect();
                let _after = self.scan.page_read(&request, read);
                Job::Emit { request, read, records }
            }
        };
        self.jobs.push(job);
    }

    fn page_read(
        &mut self,
        w: &mut World,
        request: PageRequest,
        fence: Option<i64>,
        rows: &[Waiting],
        read: PageRead,
    ) -> End {
        // Mistake: the fence comes after the rows.
        let fence = fence.unwrap_or_else(|| w.db.fence(request.slot.0));
        let records: VecDeque<DueRecord> = rows.iter().map(|row| w.due_record(row, fence, false)).collect();
        w.say(&self.name, || format!("reads {} rows up to {}, fence {fence}", rows.len(), request.upto_at));
        if records.is_empty() {
            let after = self.scan.page_read(&request, read);
            self.go_on(w, request.shard, after);
            return End::Over;
        }
        if w.has(Mutation::ScanConfirmBeforeAcks) {
            let after = self.scan.page_read(&request, read);
            self.go_on(w, request.shard, after);
        }
        End::Next(Job::Emit { request, read, records })
    }

    fn emitted(&mut self, w: &mut World, request: PageRequest, read: PageRead) -> End {
        if w.has(Mutation::ScanConfirmBeforeAcks) {
            return End::Over;
        }
        let after = if w.has(Mutation::PageBeforeCursor) {
            AfterPage::Emit
        } else {
            self.scan.page_read(&request, read)
        };
        self.go_on(w, request.shard, after);
        End::Over
    }

    fn go_on(&mut self, w: &World, shard: Shard, after: AfterPage) {
        match after {
            AfterPage::Emit => self.confirms.extend(self.scan.acked(shard)),
            AfterPage::Read => self.read_page(w, shard, None),
            AfterPage::Rest { .. } => {}
        }
    }
}

/// A page of rows; each counts as one byte.
fn page(
    pending: &BTreeMap<RowKey, Pending>,
    request: &PageRequest,
    page_bytes: u64,
) -> (Vec<Waiting>, PageRead) {
    let all = Db::page(pending, request.shard, request.after, request.upto_at);
    let rows: Vec<Waiting> =
        all.take(request.limit as usize).map(|(key, row)| Waiting { key, row }).collect();
    let fitting = usize::try_from(page_bytes).unwrap_or(usize::MAX).min(rows.len());
    let cut = fitting > 0 && fitting as u64 == page_bytes;
    let rows = rows[..fitting].to_vec();
    let last = rows.last().map(|row| ScanPoint { due_at: row.key.due_at, id: row.key.id });
    let read = PageRead { rows: rows.len() as u32, bytes: rows.len() as u64, last, cut };
    (rows, read)
}
