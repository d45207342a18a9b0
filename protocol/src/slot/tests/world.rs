//! One slot with everything around it: Redis, two logs with transactions, MySQL's part in two lines, any number of owners.

use super::redis::{FakeRedis, Grip};
use crate::slot::{
    Action, DueItem, Event, Facts, Fault, FaultKind, Input, JournalChunk, JournalItem, Lane, LogBounds,
    Lookup, Now, Outgoing, ScriptFault, SendOutcome, Slot, SlotConfig, Step, StrayEnd, Target, TxnEnd,
};
use crate::slot_store::{Entry, Topic};
use schemas::due::{Completion, Deliver, DueKind, DueRecord};
use schemas::ids::{Generation, RowGen, RowId, Shard};
use schemas::journal::{EntryKind, JournalRecord, OwnerToken};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub(in crate::slot) fn row_gen(id: u64) -> RowGen {
    RowGen { id: RowId(id), generation: Generation(1) }
}

pub(in crate::slot) fn deliver_record(id: u64, topic: &str, due_at: i64, fence: i64) -> DueRecord {
    let deliver = Deliver {
        attempt: 1,
        task_id: format!("task-{id}"),
        shard_key: None,
        partition: None,
        key: Some(b"key".to_vec()),
        headers: vec![],
        value: Some(b"value".to_vec()),
        expires_at: None,
        asked_at: None,
        completion: Completion::OnDelivery,
        progress: None,
        history: vec![],
        bury: None,
    };
    let kind = DueKind::Deliver(Box::new(deliver));
    DueRecord {
        id: RowId(id),
        generation: Generation(1),
        shard: Shard(0),
        due_at,
        fence,
        callback_topic: topic.into(),
        kind,
    }
}

pub(in crate::slot) fn withdraw_record(of: &DueRecord, fence: i64) -> DueRecord {
    DueRecord { fence, kind: DueKind::Withdraw, ..of.clone() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Txn {
    Open,
    Committed,
    Aborted,
}

/// How the next action of an owner goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::slot) enum Mishap {
    None,
    /// It fails and has no effect.
    Refused,
    /// It has its effect, the answer is lost.
    AnswerLost,
}

#[derive(Debug, Default)]
pub(in crate::slot) struct World {
    pub(in crate::slot) now_ms: i64,
    pub(in crate::slot) redis: FakeRedis,
    pub(in crate::slot) due: Vec<DueRecord>,
    /// Offsets of `due` at which something else stands.
    pub(in crate::slot) garbage: BTreeSet<usize>,
    /// Offsets of `due` that were copied to `rejected`.
    pub(in crate::slot) rejected: Vec<i64>,
    /// How copies to `rejected` end, if not well.
    pub(in crate::slot) rejected_fault: Option<StrayEnd>,
    /// What is remembered of topics where it is out of date; `lookups` says what is true.
    pub(in crate::slot) stale_lookups: HashMap<Topic, Lookup>,
    /// Offset = index; `None`: a commit marker.
    journal: Vec<Option<(JournalRecord, usize)>>,
    txns: Vec<Option<Txn>>,
    pub(in crate::slot) callbacks: Vec<(RowGen, Topic, usize)>,
    epochs: [u64; 2],
    /// Topics that answer with this fault.
    pub(in crate::slot) faults: HashMap<Topic, FaultKind>,
    pub(in crate::slot) lookups: HashMap<Topic, Lookup>,
    /// Reports of the quarantine lane wait for [`World::release_reports`].
    pub(in crate::slot) hold_reports: bool,
    pub(in crate::slot) journal_start: usize,
    /// How many offsets lie within W.
    pub(in crate::slot) window: usize,
    /// MySQL: what is still pending, and up to where the journal is applied.
    pub(in crate::slot) pending: BTreeMap<RowGen, DueRecord>,
    pub(in crate::slot) next: i64,
    pub(in crate::slot) stale: BTreeSet<RowGen>,
    tokens: u128,
}

/// One program that believes it owns the slot.
#[derive(Debug)]
pub(in crate::slot) struct Owner {
    pub(in crate::slot) slot: Slot,
    grip: Option<Grip>,
    epochs: [u64; 2],
    open: [Option<usize>; 2],
    read_from: usize,
    reports: Option<SendOutcome>,
    strays: Option<Vec<StrayEnd>>,
    pub(in crate::slot) events: Vec<Event>,
    pub(in crate::slot) stopped: bool,
}

impl World {
    pub(in crate::slot) fn at(now_ms: i64, window: usize) -> World {
        World { now_ms, window, ..World::default() }
    }

    pub(in crate::slot) fn now(&self) -> Now {
        Now { local_at: self.now_ms, mono_ms: self.now_ms }
    }

    pub(in crate::slot) fn owner(&self, config: SlotConfig) -> Owner {
        Owner {
            slot: Slot::assigned(config, self.now()),
            grip: None,
            epochs: [0; 2],
            open: [None; 2],
            read_from: 0,
            reports: None,
            strays: None,
            events: Vec::new(),
            stopped: false,
        }
    }

    /// A row comes to be, and is emitted under the fence rule.
    pub(in crate::slot) fn schedule(&mut self, id: u64, topic: &str, due_at: i64) {
        let record = deliver_record(id, topic, due_at, self.next);
        self.pending.insert(record.row_gen(), record.clone());
        self.due.push(record);
    }

    /// Emits again what still is pending.
    pub(in crate::slot) fn emit_again(&mut self, row_gen: RowGen) {
        if let Some(record) = self.pending.get(&row_gen) {
            self.due.push(DueRecord { fence: self.next, ..record.clone() });
        }
    }

    /// Somebody else writes to `due`.
    pub(in crate::slot) fn litter(&mut self) {
        self.garbage.insert(self.due.len());
        self.due.push(deliver_record(0, "garbage", 0, 0));
    }

    pub(in crate::slot) fn withdraw(&mut self, row_gen: RowGen) {
        if let Some(record) = self.pending.get(&row_gen) {
            self.due.push(withdraw_record(record, self.next));
        }
    }

    /// Ingest applies the journal as far as it is decided.
    pub(in crate::slot) fn apply(&mut self) {
        let stable = self.stable_end();
        for offset in self.next as usize..stable {
            if let Some((record, txn)) = &self.journal[offset]
                && self.txns[*txn] == Some(Txn::Committed)
            {
                for entry in &record.entries {
                    if entry.kind.is_fate() {
                        self.pending.remove(&entry.row_gen());
                    } else {
                        self.stale.insert(entry.row_gen());
                    }
                }
            }
        }
        self.next = self.next.max(stable as i64);
    }

    /// The journal is deleted and made anew under the same name.
    pub(in crate::slot) fn truncate_journal(&mut self) {
        self.journal.clear();
    }

    fn stable_end(&self) -> usize {
        let open = |entry: &Option<(JournalRecord, usize)>| {
            entry.as_ref().is_some_and(|(_, txn)| self.txns[*txn] == Some(Txn::Open))
        };
        self.journal.iter().position(open).unwrap_or(self.journal.len())
    }

    /// Fates that read-committed readers see, in order.
    pub(in crate::slot) fn fates(&self) -> Vec<(RowGen, EntryKind)> {
        let committed =
            self.journal.iter().flatten().filter(|(_, txn)| self.txns[*txn] == Some(Txn::Committed));
        let entries = committed.flat_map(|(record, _)| &record.entries);
        entries.map(|entry| (entry.row_gen(), entry.kind)).collect()
    }

    /// Callback records that read-committed consumers see, in order.
    pub(in crate::slot) fn delivered(&self) -> Vec<RowGen> {
        let visible = self.callbacks.iter().filter(|(_, _, txn)| self.txns[*txn] == Some(Txn::Committed));
        visible.map(|(row_gen, _, _)| *row_gen).collect()
    }

    /// What must hold at every moment.
    pub(in crate::slot) fn check(&self) {
        let mut fates = HashMap::new();
        for (row_gen, kind) in self.fates().into_iter().filter(|(_, kind)| kind.is_fate()) {
            assert_eq!(fates.insert(row_gen, kind), None, "two fates of {row_gen:?}");
        }
        let delivered = self.delivered();
        let distinct: HashSet<RowGen> = delivered.iter().copied().collect();
        assert_eq!(distinct.len(), delivered.len(), "something is visible twice");
        for row_gen in distinct {
            assert_eq!(
                fates.get(&row_gen),
                Some(&EntryKind::Delivered),
                "{row_gen:?} is visible without a fate"
            );
        }
    }

    fn recent(&self) -> i64 {
        (self.journal.len().saturating_sub(self.window).max(self.journal_start)) as i64
    }

    fn lane(lane: Lane) -> usize {
        match lane {
            Lane::Main => 0,
            Lane::Quarantine => 1,
        }
    }

    fn init(&mut self, owner: &mut Owner) -> OwnerToken {
        for lane in 0..2 {
            self.epochs[lane] += 1;
            owner.epochs[lane] = self.epochs[lane];
            owner.open[lane] = None;
        }
        for txn in self.txns.iter_mut().filter(|txn| **txn == Some(Txn::Open)) {
            *txn = Some(Txn::Aborted);
        }
        self.tokens += 1;
        OwnerToken(self.tokens)
    }

    fn begin(&mut self, owner: &mut Owner, lane: Lane) {
        self.txns.push(Some(Txn::Open));
        owner.open[World::lane(lane)] = Some(self.txns.len() - 1);
    }

    fn fenced(&self, owner: &Owner, lane: Lane) -> bool {
        owner.epochs[World::lane(lane)] != self.epochs[World::lane(lane)]
    }

    fn send(
        &mut self,
        owner: &Owner,
        lane: Lane,
        records: &[Outgoing],
        journal: &[JournalRecord],
    ) -> SendOutcome {
        let Some(txn) = owner.open[World::lane(lane)].filter(|_| !self.fenced(owner, lane)) else {
            let fault = Fault { kind: FaultKind::Fatal, text: "fenced".into() };
            return SendOutcome::failed(&fault, records.len());
        };
        let mut reports = Vec::new();
        for outgoing in records {
            let topic = Topic::from(outgoing.record.callback_topic.as_str());
            assert!(outgoing.record.due_at <= self.now_ms, "early");
            let to_callback = matches!(outgoing.target, Target::Callback { .. });
            match self.faults.get(&topic).filter(|_| to_callback) {
                Some(kind) => reports.push(Err(Fault { kind: *kind, text: format!("{topic}") })),
                None => {
                    if to_callback {
                        self.callbacks.push((outgoing.record.row_gen(), topic, txn));
                    }
                    reports.push(Ok(()));
                }
            }
        }
        let mut offsets = Vec::new();
        for record in journal {
            offsets.push(self.journal.len() as i64);
            self.journal.push(Some((record.clone(), txn)));
        }
        SendOutcome { reports, journal: Ok(offsets) }
    }

    fn end(&mut self, owner: &mut Owner, lane: Lane, how: Txn) -> TxnEnd {
        let fenced = self.fenced(owner, lane);
        match owner.open[World::lane(lane)] {
            Some(txn) if !fenced && self.txns[txn] == Some(Txn::Open) => {
                self.txns[txn] = Some(how);
                owner.open[World::lane(lane)] = None;
                self.journal.push(None);
                TxnEnd::Ok
            }
            _ => TxnEnd::Unknown("fenced".into()),
        }
    }

    /// Lets an owner do one thing. Hands it due records when it wants some.
    /// True where there was nothing to do.
    pub(in crate::slot) fn turn(&mut self, owner: &mut Owner, mishap: Mishap) -> bool {
        let mut idle = true;
        let now = self.now();
        if owner.slot.wants_due() && owner.read_from < self.due.len() {
            let end = self.due.len().min(owner.read_from + 7);
            let bytes = |n: usize| {
                if self.garbage.contains(&n) { b"garbage".to_vec() } else { self.due[n].encode() }
            };
            let items = (owner.read_from..end).map(|n| DueItem::read(n as i64, bytes(n))).collect();
            owner.read_from = end;
            idle = false;
            owner.slot.handle(now, Input::Due(items));
        }
        if !self.hold_reports
            && let Some(outcome) = owner.reports.take()
        {
            idle = false;
            owner.slot.handle(now, Input::Reports(outcome));
        }
        if let Some(ends) = owner.strays.take() {
            idle = false;
            owner.slot.handle(now, Input::Strays(ends));
        }
        match owner.slot.step(now) {
            Step::Do(action) => {
                idle = false;
                let reply = match mishap {
                    Mishap::None => self.carry_out(owner, action),
                    Mishap::Refused => broken(&action, &mut owner.grip),
                    Mishap::AnswerLost => {
                        let kept = action.clone();
                        self.carry_out(owner, action);
                        broken(&kept, &mut owner.grip)
                    }
                };
                owner.slot.handle(now, reply);
            }
            Step::Wait { .. } => {}
            Step::Stopped => owner.stopped = true,
        }
        owner.events.extend(owner.slot.take_events());
        idle
    }

    fn carry_out(&mut self, owner: &mut Owner, action: Action) -> Input {
        let now = self.now_ms;
        let redis = &mut self.redis;
        let grip = &mut owner.grip;
        let scripted = |answer: Result<((), _), ScriptFault>| Input::Scripted(answer.map(|(_, state)| state));
        match action {
            Action::InitLanes => Input::LanesReady { token: self.init(owner) },
            Action::TakeOver { token } => Input::TakenOver(redis.take_over(token, grip, now)),
            Action::InspectLogs { .. } => Input::Logs(Ok(LogBounds {
                same_journal: true,
                journal_start: self.journal_start as i64,
                journal_end: self.journal.len() as i64,
                journal_window: self.recent(),
                journal_recent: self.recent(),
                due_start: 0,
                due_end: self.due.len() as i64,
                due_recent: 0,
            })),
            Action::StartCold(positions) => scripted(redis.start_cold(positions, grip, now)),
            Action::CommitBarrier(record) => {
                self.begin(owner, Lane::Main);
                let sent = self.send(owner, Lane::Main, &[], &[*record]);
                match (sent.journal, self.end(owner, Lane::Main, Txn::Committed)) {
                    (Ok(offsets), TxnEnd::Ok) => Input::Barrier(Ok(offsets[0])),
                    _ => Input::Barrier(Err("fenced".into())),
                }
            }
            Action::ReadJournal { from, to } => Input::Journal(self.read(from, to)),
            Action::SettleFates { fates, jpos, rebuilt } => {
                scripted(redis.settle(&fates, jpos, None, rebuilt, grip, now))
            }
            Action::ReturnPrepared => Input::Returned(redis.return_prepared(grip, now)),
            Action::SeekDue { offset } => {
                owner.read_from = offset as usize;
                owner.reports = None;
                owner.strays = None;
                Input::Done
            }
            Action::KeepStrays(strays) => {
                let end = self.rejected_fault.clone().unwrap_or(StrayEnd::Kept);
                if end == StrayEnd::Kept {
                    self.rejected.extend(strays.iter().map(|stray| stray.offset));
                }
                owner.strays = Some(vec![end; strays.len()]);
                Input::Done
            }
            Action::PauseDue | Action::ResumeDue => Input::Done,
            Action::Preload { records, due_pos } => {
                Input::Preloaded(redis.preload(&records, due_pos, grip, now))
            }
            Action::Agenda { .. } => Input::Agenda(redis.topics(grip, now)),
            Action::Claim { now_at, quotas, .. } => {
                Input::Claimed(redis.claim(now_at.min(now), &quotas, grip))
            }
            Action::LookUp { topics, fresh } => {
                let facts =
                    Facts { partitions: 4, leaderless: vec![], max_message_bytes: 1 << 20, compacted: false };
                let known = |topic: Topic| {
                    let remembered = if fresh { None } else { self.stale_lookups.get(&topic) };
                    let lookup = remembered.or(self.lookups.get(&topic)).cloned();
                    (topic, lookup.unwrap_or(Lookup::Known(facts.clone())))
                };
                Input::Facts(topics.into_iter().map(known).collect())
            }
            Action::Release { entries, delay_ms } => scripted(redis.release(&entries, delay_ms, grip, now)),
            Action::Settle { entries, jpos, due_pos } => {
                let members: Vec<RowGen> = entries.iter().map(|entry: &Entry| entry.member).collect();
                scripted(redis.settle(&members, jpos, Some(due_pos), false, grip, now))
            }
            Action::Forget => {
                redis.delete_bodies();
                Input::Scripted(Err(ScriptFault::Lost))
            }
            Action::Send { lane, begin, records, journal, wait } => {
                if begin {
                    self.begin(owner, lane);
                }
                let outcome = self.send(owner, lane, &records, &journal);
                if wait {
                    return Input::Sent(outcome);
                }
                owner.reports = Some(outcome);
                Input::Done
            }
            Action::Commit { lane } => Input::Ended(self.end(owner, lane, Txn::Committed)),
            Action::Abort { lane } => Input::Ended(self.end(owner, lane, Txn::Aborted)),
        }
    }

    fn read(&self, from: i64, to: i64) -> Result<JournalChunk, String> {
        if (self.stable_end() as i64) <= to {
            return Err("an open transaction holds the journal".into());
        }
        let start = from.max(self.journal_start as i64);
        // Short stretches, so that take-overs are interrupted within.
        let next = (start + 5).min(to + 1).max(start);
        let committed = |offset: &i64| match &self.journal[*offset as usize] {
            Some((record, txn)) if self.txns[*txn] == Some(Txn::Committed) => {
                Some((*offset, JournalItem::Known(Box::new(record.clone()))))
            }
            _ => None,
        };
        let records = (start..next).filter_map(|offset| committed(&offset)).collect();
        Ok(JournalChunk { start, records, next, done: next > to })
    }

    /// Turns without mishaps until nothing moves, at the present time.
    pub(in crate::slot) fn settle_down(&mut self, owner: &mut Owner) {
        for _ in 0..10_000 {
            if self.turn(owner, Mishap::None) {
                return;
            }
        }
        panic!("does not settle down: {:?}", owner.events.iter().rev().take(20).collect::<Vec<_>>());
    }

    /// Moves time on, letting the owner work at each step.
    pub(in crate::slot) fn pass(&mut self, owner: &mut Owner, ms: i64, step_ms: i64) {
        for _ in 0..ms / step_ms {
            self.now_ms += step_ms;
            self.settle_down(owner);
        }
    }
}

/// The reply to an action that failed or whose answer is lost.
fn broken(action: &Action, grip: &mut Option<Grip>) -> Input {
    let fault = || ScriptFault::TimedOut;
    let text = || "mishap".to_owned();
    match action {
        // Only begins something, which cannot fail.
        Action::KeepStrays(_) => Input::Done,
        Action::InitLanes | Action::SeekDue { .. } | Action::PauseDue | Action::ResumeDue => {
            Input::Failed(text())
        }
        Action::InspectLogs { .. } => Input::Logs(Err(text())),
        Action::CommitBarrier(_) => Input::Barrier(Err(text())),
        Action::ReadJournal { .. } => Input::Journal(Err(text())),
        Action::LookUp { topics, .. } => {
            Input::Facts(topics.iter().map(|topic| (topic.clone(), Lookup::Unavailable)).collect())
        }
        Action::Send { records, .. } => {
            let fault = Fault { kind: FaultKind::Transient, text: text() };
            Input::Sent(SendOutcome::failed(&fault, records.len()))
        }
        Action::Commit { .. } | Action::Abort { .. } => Input::Ended(TxnEnd::Unknown(text())),
        script => {
            *grip = None;
            match script {
                Action::TakeOver { .. } => Input::TakenOver(Err(fault())),
                Action::ReturnPrepared => Input::Returned(Err(fault())),
                Action::Preload { .. } => Input::Preloaded(Err(fault())),
                Action::Agenda { .. } => Input::Agenda(Err(fault())),
                Action::Claim { .. } => Input::Claimed(Err(fault())),
                _ => Input::Scripted(Err(fault())),
            }
        }
    }
}
