//! The dispatcher: carries out what the slot's machine asks for, one call at a time.

use super::Did;
use crate::kafka::{Fate, Init, Kafka, Producer, Sent, TxnId};
use crate::redis::{Grip, Redis};
use crate::setup::Mutation;
use crate::world::{Delayed, Mishap, World, topic, topic_number};
use protocol::slot::{
    Action, Cause, DueItem, Event, Facts, Fault, FaultKind, Input, JournalChunk, Lane, LogBounds, Lookup,
    Now, Outgoing, ScriptFault, SendOutcome, Slot as Machine, Step, StrayEnd, Target, TxnEnd,
};
use protocol::slot_store::{Entry, TakenOver, Topic};
use schemas::due::{DueKind, DueRecord};
use schemas::ids::Slot;
use schemas::journal::{EntryKind, JournalEntry, JournalRecord};

/// How long a reader waits for an open transaction to end.
const PATIENCE_MS: i64 = 5_000;

/// One owner of one slot, or what believes to be one.
#[derive(Debug)]
pub struct Dispatcher {
    pub name: String,
    pub slot: Slot,
    pub machine: Machine,
    /// Number of the process.
    pub process: u32,
    grip: Grip,
    main: Option<Producer>,
    quarantine: Option<Producer>,
    pub doing: Option<Doing>,
    pub read_from: i64,
    paused: bool,
    /// Reports of the quarantine lane that nobody has looked at.
    reports: Option<SendOutcome>,
    /// How copies to `rejected` ended, where nobody has looked yet.
    strays: Option<Vec<StrayEnd>>,
    /// Local clock minus true time.
    pub skew_ms: i64,
    born_at: i64,
    /// The group has taken the slot away.
    pub lost: bool,
    /// SIGTERM.
    pub stop: bool,
    /// Mistake: this take-over is only played.
    played: bool,
    /// Members of the transaction under way, for mistakes.
    flying: Vec<Entry>,
    /// Mistake: withdrawals of flying members, for the next journal record.
    forced: Vec<DueRecord>,
    pub runs: u32,
    pub events: Vec<Event>,
}

/// An action under way.
#[derive(Debug)]
pub struct Doing {
    pub action: Action,
    stage: usize,
    since: i64,
    reports: Vec<Result<(), Fault>>,
    journal: Result<Vec<i64>, Fault>,
    /// It is done; this is the answer that is on its way.
    answer: Option<Input>,
}

impl Doing {
    /// A short name of the action.
    pub fn name(&self) -> &'static str {
        match (&self.action, &self.answer) {
            (_, Some(_)) => "answered",
            (Action::InitLanes, None) => "init",
            (Action::TakeOver { .. }, None) => "take_over",
            (Action::InspectLogs { .. }, None) => "inspect",
            (Action::StartCold(_), None) => "start_cold",
            (Action::CommitBarrier(_), None) => "barrier",
            (Action::ReadJournal { .. }, None) => "read_journal",
            (Action::SettleFates { .. }, None) => "settle_fates",
            (Action::ReturnPrepared, None) => "return_prepared",
            (Action::SeekDue { .. }, None) => "seek",
            (Action::PauseDue, None) => "pause",
            (Action::ResumeDue, None) => "resume",
            (Action::Preload { .. }, None) => "preload",
            (Action::Agenda { .. }, None) => "agenda",
            (Action::Claim { .. }, None) => "claim",
            (Action::LookUp { .. }, None) => "look_up",
            (Action::KeepStrays(_), None) => "keep_strays",
            (Action::Release { .. }, None) => "release",
            (Action::Settle { .. }, None) => "settle",
            (Action::Forget, None) => "forget",
            (Action::Send { .. }, None) => "send",
            (Action::Commit { .. }, None) => "commit",
            (Action::Abort { .. }, None) => "abort",
        }
    }
}

impl Dispatcher {
    pub fn new(w: &mut World, slot: Slot) -> Dispatcher {
        let process = w.name();
        let born_at = w.now;
        let now = Now { local_at: w.now, mono_ms: 0 };
        Dispatcher {
            name: format!("dispatcher {process}"),
            slot,
            machine: Machine::assigned(w.setup.slot.clone(), now),
            process,
            grip: None,
            main: None,
            quarantine: None,
            doing: None,
            read_from: 0,
            paused: false,
            reports: None,
            strays: None,
            skew_ms: 0,
            born_at,
            lost: false,
            stop: false,
            played: false,
            flying: Vec::new(),
            forced: Vec::new(),
            runs: 0,
            events: Vec::new(),
        }
    }

    /// The name of what it does or is about to do.
    pub fn at(&self) -> Option<&'static str> {
        self.doing.as_ref().map(Doing::name)
    }

    fn now(&self, w: &World) -> Now {
        Now { local_at: w.now + self.skew_ms, mono_ms: w.now - self.born_at }
    }

    fn handle(&mut self, w: &mut World, input: Input) {
        let now = self.now(w);
        self.machine.handle(now, input);
        self.tell(w);
    }

    fn tell(&mut self, w: &mut World) {
        for event in self.machine.take_events() {
            w.oracle.event(&event);
            count(w, &event);
            if let Event::TakeOver { cause, .. } = &event {
                self.played = w.has(Mutation::ReleaseAfterUnknown) && *cause == Cause::OutcomeUnknown;
            }
            if matches!(event, Event::Running { .. }) {
                self.runs += 1;
            }
            w.say(&self.name, || format!("    {event:?}").chars().take(200).collect());
            if self.events.len() < 10_000 {
                self.events.push(event);
            }
        }
    }

    /// One step.
    pub fn step(&mut self, w: &mut World) -> Did {
        if self.lost {
            self.handle(w, Input::AssignmentLost);
            return Did::Gone;
        }
        if std::mem::take(&mut self.stop) {
            w.say(&self.name, || "is asked to stop".into());
            self.handle(w, Input::Stop);
        }
        if let Some(doing) = self.doing.take() {
            return self.carry_on(w, doing);
        }
        if self.take_in(w) {
            return Did::Work;
        }
        let now = self.now(w);
        let step = self.machine.step(now);
        self.tell(w);
        match step {
            Step::Do(action) => {
                let doing = Doing {
                    action,
                    stage: 0,
                    since: w.now,
                    reports: Vec::new(),
                    journal: Ok(Vec::new()),
                    answer: None,
                };
                w.say(&self.name, || format!("is about to {}", doing.name()));
                self.doing = Some(doing);
                Did::Work
            }
            Step::Wait { until_mono_ms } => Did::Idle(until_mono_ms.map(|until| until + self.born_at)),
            Step::Stopped => Did::Gone,
        }
    }

    /// Due records and reports come in by themselves.
    fn take_in(&mut self, w: &mut World) -> bool {
        let soon = !w.rough || w.dice.roll(3) == 0;
        if soon && let Some(outcome) = self.reports.take() {
            self.handle(w, Input::Reports(outcome));
            return true;
        }
        if soon && let Some(ends) = self.strays.take() {
            self.handle(w, Input::Strays(ends));
            return true;
        }
        let log = &w.kafka.due[usize::from(self.slot.0)];
        let end = log.len() as i64;
        if self.paused || self.read_from >= end || !self.machine.wants_due() {
            return false;
        }
        let most = if w.rough { 1 + i64::from(w.dice.roll(5)) } else { 50 };
        let to = end.min(self.read_from + most);
        let log = &w.kafka.due[usize::from(self.slot.0)];
        let mut items: Vec<_> =
            log[self.read_from as usize..to as usize].iter().map(|(_, item)| item.clone()).collect();
        if w.has(Mutation::FenceCheckOff) {
            let end = w.kafka.journal_end(self.slot);
            items
                .iter_mut()
                .filter_map(|item| item.record.as_mut().ok())
                .for_each(|record| record.fence = end);
        }
        if w.has(Mutation::WithdrawOverFlying) {
            self.force(&mut items);
        }
        if w.mishap("read_due") != Mishap::None {
            self.handle(w, Input::DueTrouble("the client broke".into()));
            return true;
        }
        w.say(&self.name, || format!("reads due [{}, {to})", self.read_from));
        self.read_from = to;
        self.handle(w, Input::Due(items));
        true
    }

    /// Mistake: withdrawals of what flies do not wait for its outcome.
    fn force(&mut self, items: &mut Vec<DueItem>) {
        let flying = |record: &DueRecord| {
            record.kind == DueKind::Withdraw
                && self.flying.iter().any(|entry| entry.member == record.row_gen())
        };
        let (forced, rest) =
            std::mem::take(items).into_iter().partition(|item| item.record.as_ref().is_ok_and(flying));
        *items = rest;
        let forced: Vec<DueItem> = forced;
        self.forced.extend(forced.into_iter().filter_map(|item| item.record.ok()));
    }

    fn carry_on(&mut self, w: &mut World, mut doing: Doing) -> Did {
        if let Some(answer) = doing.answer.take() {
            self.handle(w, answer);
            return Did::Work;
        }
        let name = doing.name();
        let answer = if Redis::is_script(&doing.action) {
            Some(self.script(w, &doing.action, name))
        } else {
            self.call(w, &mut doing, name)
        };
        match answer {
            None => {
                self.doing = Some(doing);
                Did::Work
            }
            Some(answer) => {
                w.judge();
                w.say(&self.name, || format!("{name}: {}", brief(&answer)));
                // Sometimes the answer takes its time.
                if w.rough && w.dice.chance(30) {
                    self.doing = Some(Doing { answer: Some(answer), ..doing });
                } else {
                    self.handle(w, answer);
                }
                Did::Work
            }
        }
    }

    fn script(&mut self, w: &mut World, action: &Action, name: &'static str) -> Input {
        if self.played
            && let Some(answer) = self.play_script(w, action)
        {
            return answer;
        }
        if matches!(action, Action::Settle { .. } | Action::TakeOver { .. }) {
            self.flying.clear();
        }
        let mut action = action.clone();
        mistakes_of_scripts(w, &mut action, self.read_from);
        let slot = usize::from(self.slot.0);
        if let Action::StartCold(positions) = &action {
            w.kafka.cold_from[slot] = w.kafka.cold_from[slot].max(positions.due_pos);
        }
        match w.mishap(name) {
            Mishap::None => {
                let answer = w.redis[slot].run(&action, &mut self.grip, w.now);
                if let Some(meta) = &w.redis[slot].store.meta {
                    let due_pos = meta.positions.due_pos;
                    w.oracle.passed(&w.kafka, slot, due_pos);
                }
                self.mistaken_answer(w, answer)
            }
            Mishap::Refused => {
                self.grip = None;
                Redis::broken(&action, &ScriptFault::Broken("no connection".into()))
            }
            Mishap::AnswerLost => {
                let _lost = w.redis[slot].run(&action, &mut self.grip, w.now);
                self.grip = None;
                Redis::broken(&action, &ScriptFault::TimedOut)
            }
            Mishap::Later => {
                let grip = self.grip.take();
                w.network.push(Delayed::Script { slot: self.slot, grip, action: Box::new(action.clone()) });
                Redis::broken(&action, &ScriptFault::TimedOut)
            }
        }
    }

    /// A take-over that only pretends: nobody is fenced, no fate is read, and what was claimed goes back.
    fn play_script(&mut self, w: &mut World, action: &Action) -> Option<Input> {
        let slot = usize::from(self.slot.0);
        match action {
            Action::TakeOver { .. } => {
                let meta = w.redis[slot].store.meta.clone()?;
                let mut positions = meta.positions;
                positions.jpos = w.kafka.stable(self.slot);
                let Input::Agenda(Ok((_, state))) =
                    w.redis[slot].run(&Action::Agenda { limit: 0 }, &mut self.grip, w.now)
                else {
                    self.played = false;
                    return None;
                };
                Some(Input::TakenOver(Ok((TakenOver::Warm(positions), state))))
            }
            Action::SettleFates { .. } => {
                let answer = w.redis[slot].run(&Action::Agenda { limit: 0 }, &mut self.grip, w.now);
                match answer {
                    Input::Agenda(answer) => Some(Input::Scripted(answer.map(|(_, state)| state))),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn mistaken_answer(&self, w: &World, answer: Input) -> Input {
        match answer {
            Input::TakenOver(Ok((TakenOver::Warm(mut positions), state)))
                if w.has(Mutation::JposNotReread) =>
            {
                positions.jpos = w.kafka.stable(self.slot);
                positions.fence = positions.jpos;
                Input::TakenOver(Ok((TakenOver::Warm(positions), state)))
            }
            answer => answer,
        }
    }

    fn producer(&self, lane: Lane) -> Option<Producer> {
        match lane {
            Lane::Main => self.main,
            Lane::Quarantine => self.quarantine,
        }
    }

    fn owner_of_ids(&self, w: &World) -> u32 {
        if w.has(Mutation::TransactionalIdPerProcess) { self.process } else { 0 }
    }

    fn call(&mut self, w: &mut World, doing: &mut Doing, name: &'static str) -> Option<Input> {
        match &doing.action {
            Action::InitLanes => self.init(w, &mut doing.stage, name),
            Action::InspectLogs { window_ms } => Some(match w.mishap(name) {
                Mishap::None => Input::Logs(Ok(self.bounds(w, *window_ms))),
                _ => Input::Logs(Err("no answer".into())),
            }),
            Action::CommitBarrier(record) => {
                let record = record.clone();
                self.barrier(w, doing, *record)
            }
            Action::ReadJournal { from, to } => self.read(w, *from, *to, doing.since, name),
            Action::SeekDue { offset } => {
                self.read_from = *offset;
                self.reports = None;
                self.paused = false;
                Some(if w.mishap(name) == Mishap::None { Input::Done } else { Input::Failed("seek".into()) })
            }
            Action::PauseDue | Action::ResumeDue => {
                self.paused = matches!(doing.action, Action::PauseDue);
                Some(if w.mishap(name) == Mishap::None { Input::Done } else { Input::Failed("pause".into()) })
            }
            Action::LookUp { topics, .. } => Some(Input::Facts(look_up(w, topics))),
            Action::KeepStrays(strays) => {
                let strays = strays.clone();
                let end = |mishap| match mishap {
                    Mishap::None => StrayEnd::Kept,
                    Mishap::Refused | Mishap::AnswerLost | Mishap::Later => StrayEnd::Failed("down".into()),
                };
                let ends: Vec<StrayEnd> = strays.iter().map(|_| end(w.mishap(name))).collect();
                for (stray, _) in strays.iter().zip(&ends).filter(|(_, end)| **end == StrayEnd::Kept) {
                    w.kafka.rejected[usize::from(self.slot.0)].insert(stray.offset);
                }
                self.strays = Some(ends);
                Some(Input::Done)
            }
            Action::Send { .. } => self.send(w, doing),
            Action::Commit { lane } => {
                let lane = *lane;
                if w.has(Mutation::SettleBeforeCommit) {
                    self.settle_now(w);
                }
                Some(Input::Ended(self.end(w, lane, Fate::Committed, name)))
            }
            Action::Abort { lane } => Some(Input::Ended(self.end(w, *lane, Fate::Aborted, name))),
            script => unreachable!("{script:?} is a script"),
        }
    }

    fn init(&mut self, w: &mut World, stage: &mut usize, name: &'static str) -> Option<Input> {
        if *stage == 0 {
            self.grip = if self.played { self.grip } else { None };
            self.reports = None;
            self.strays = None;
        }
        if self.played || w.has(Mutation::NoBarrier) {
            // Nobody is fenced: whatever epoch is current is used.
            for lane in [Lane::Main, Lane::Quarantine] {
                if self.producer(lane).is_none() || !self.played {
                    self.set_producer(lane, None);
                }
            }
            let token = match self.grip {
                Some(ticket) if self.played => ticket.token,
                _ => w.token(),
            };
            return Some(Input::LanesReady { token });
        }
        let lane = if *stage == 0 { Lane::Main } else { Lane::Quarantine };
        let id = TxnId::new(self.slot, lane, self.owner_of_ids(w));
        let mishap = w.mishap(name);
        if matches!(mishap, Mishap::Refused | Mishap::Later) {
            return Some(Input::Failed("no coordinator".into()));
        }
        match w.kafka.init(id, w.now) {
            Init::Ready(_) if mishap == Mishap::AnswerLost => return Some(Input::Failed("no answer".into())),
            Init::Ready(epoch) => {
                self.set_producer(lane, Some(Producer { id, epoch }));
                *stage += 1;
            }
            Init::Concurrent => {
                if !w.rough || w.dice.roll(3) == 0 {
                    w.kafka.mark(id, w.now);
                }
            }
        }
        (*stage == 2).then(|| Input::LanesReady { token: w.token() })
    }

    fn set_producer(&mut self, lane: Lane, producer: Option<Producer>) {
        match lane {
            Lane::Main => self.main = producer,
            Lane::Quarantine => self.quarantine = producer,
        }
    }

    fn bounds(&self, w: &World, window_ms: i64) -> LogBounds {
        let journal = &w.kafka.journal[usize::from(self.slot.0)];
        let due = &w.kafka.due[usize::from(self.slot.0)];
        let last_at = journal.last().map_or(w.now, |(at, _)| *at);
        let mut bounds = LogBounds {
            same_journal: true,
            journal_start: 0,
            journal_end: journal.len() as i64,
            journal_window: Kafka::offset_at(journal, last_at - window_ms),
            journal_recent: Kafka::offset_at(journal, w.now - window_ms),
            due_start: 0,
            due_end: due.len() as i64,
            due_recent: Kafka::offset_at(due, w.now - window_ms),
        };
        if w.has(Mutation::JposNotReread) || self.played {
            bounds.journal_window = bounds.journal_end;
        }
        bounds
    }

    fn barrier(&mut self, w: &mut World, doing: &mut Doing, record: JournalRecord) -> Option<Input> {
        if self.played {
            return Some(Input::Barrier(Ok(w.kafka.stable(self.slot))));
        }
        if w.has(Mutation::NoBarrier) {
            return Some(Input::Barrier(Ok(w.kafka.append_plain(self.slot, record, w.now))));
        }
        if doing.stage == 0 {
            doing.stage = 1;
            doing.journal = self.send_journal(w, Lane::Main, record, "barrier").map(|offset| vec![offset]);
            return None;
        }
        Some(Input::Barrier(match &doing.journal {
            Err(fault) => Err(fault.text.clone()),
            Ok(offsets) => {
                let offset = offsets[0];
                match self.end(w, Lane::Main, Fate::Committed, "barrier_commit") {
                    TxnEnd::Ok => Ok(offset),
                    TxnEnd::Retry(text) | TxnEnd::Unknown(text) => Err(text),
                }
            }
        }))
    }

    fn read(&mut self, w: &mut World, from: i64, to: i64, since: i64, name: &'static str) -> Option<Input> {
        if self.played || (w.has(Mutation::NoBarrier) && to >= w.kafka.stable(self.slot)) {
            let to = w.kafka.stable(self.slot);
            let records = if self.played { Vec::new() } else { w.kafka.read_journal(self.slot, from, to) };
            return Some(Input::Journal(Ok(JournalChunk { start: from, records, next: to + 1, done: true })));
        }
        if w.kafka.stable(self.slot) <= to {
            // An open transaction, or a marker that is not written yet.
            let given_up = w.now - since > PATIENCE_MS || (w.rough && w.dice.chance(30));
            return given_up
                .then(|| Input::Journal(Err("the journal is held by an open transaction".into())));
        }
        if w.mishap(name) != Mishap::None {
            return Some(Input::Journal(Err("no answer".into())));
        }
        let stretch = if w.rough { 3 + i64::from(w.dice.roll(20)) } else { 1_000 };
        let next = (to + 1).min(from + stretch).max(from);
        let records = w.kafka.read_journal(self.slot, from, next);
        Some(Input::Journal(Ok(JournalChunk { start: from, records, next, done: next > to })))
    }

    /// One record per step, so that others act in between.
    fn send(&mut self, w: &mut World, doing: &mut Doing) -> Option<Input> {
        let Action::Send { lane, records, journal, wait, .. } = &doing.action else { return None };
        let (lane, wait) = (*lane, *wait);
        let total = records.len() + journal.len();
        if doing.stage < records.len() {
            let report = self.send_record(w, lane, &records[doing.stage]);
            doing.reports.push(report);
        } else if doing.stage < total {
            let mut record = journal[doing.stage - records.len()].clone();
            record.entries.extend(self.forced.drain(..).map(|due| JournalEntry {
                kind: EntryKind::Withdrawn,
                shard: due.shard,
                due_at: due.due_at,
                id: due.id,
                generation: due.generation,
                at: w.now,
                reason: None,
            }));
            match (self.send_journal(w, lane, record, "journal"), &mut doing.journal) {
                (Ok(offset), Ok(offsets)) => offsets.push(offset),
                (Err(fault), journal @ Ok(_)) => *journal = Err(fault),
                (_, Err(_)) => {}
            }
        }
        doing.stage += 1;
        if doing.stage < total {
            return None;
        }
        let sent = records.iter().map(|out| Entry {
            topic: Topic::from(out.record.callback_topic.as_str()),
            member: out.record.row_gen(),
        });
        // The quarantine lane's journal record comes in a second call.
        if !records.is_empty() {
            self.flying = sent.collect();
        }
        let outcome = SendOutcome { reports: doing.reports.clone(), journal: doing.journal.clone() };
        if wait {
            return Some(Input::Sent(outcome));
        }
        self.reports = Some(outcome);
        Some(Input::Done)
    }

    /// Where producers are initialised late (a mistake), this is when.
    fn ready(&mut self, w: &mut World, lane: Lane) -> Option<Producer> {
        if self.producer(lane).is_none() && w.has(Mutation::NoBarrier) {
            let id = TxnId::new(self.slot, lane, 0);
            let epoch = loop {
                match w.kafka.init(id, w.now) {
                    Init::Ready(epoch) => break epoch,
                    Init::Concurrent => w.kafka.mark(id, w.now),
                };
            };
            self.set_producer(lane, Some(Producer { id, epoch }));
        }
        self.producer(lane)
    }

    fn send_record(&mut self, w: &mut World, lane: Lane, out: &Outgoing) -> Result<(), Fault> {
        let number = topic_number(&out.record.callback_topic);
        let dead = matches!(out.target, Target::Dead { .. });
        if let Some(kind) = w.faults.get(&number).filter(|_| !dead) {
            return Err(Fault { kind: *kind, text: format!("topic {}", topic(number)) });
        }
        let (due_at, said_at) = (out.record.due_at, out.at);
        let sent = Sent { row_gen: out.record.row_gen(), dead, due_at, at: w.now, said_at };
        let producer = self.ready(w, lane).ok_or_else(fatal)?;
        match w.mishap("record") {
            Mishap::Refused => return Err(transient()),
            Mishap::Later => {
                w.network.push(Delayed::Record { producer, sent: Some(sent), journal: None });
                return Err(transient());
            }
            mishap => {
                let txn = w.kafka.join(producer, w.now, true).map_err(|_| fatal())?;
                w.kafka.txns[txn].sent.push(sent);
                if mishap == Mishap::AnswerLost {
                    return Err(transient());
                }
            }
        }
        Ok(())
    }

    fn send_journal(
        &mut self,
        w: &mut World,
        lane: Lane,
        record: JournalRecord,
        name: &'static str,
    ) -> Result<i64, Fault> {
        let producer = self.ready(w, lane).ok_or_else(fatal)?;
        match w.mishap(name) {
            Mishap::Refused => Err(transient()),
            Mishap::Later => {
                w.network.push(Delayed::Record { producer, sent: None, journal: Some(Box::new(record)) });
                Err(transient())
            }
            mishap => {
                let txn = w.kafka.join(producer, w.now, true).map_err(|_| fatal())?;
                let offset = w.kafka.append_journal(txn, record, w.now);
                if mishap == Mishap::AnswerLost { Err(transient()) } else { Ok(offset) }
            }
        }
    }

    fn end(&mut self, w: &mut World, lane: Lane, fate: Fate, name: &'static str) -> TxnEnd {
        let Some(producer) = self.producer(lane) else { return TxnEnd::Unknown("no producer".into()) };
        let mishap = w.mishap(name);
        match mishap {
            Mishap::Refused => return TxnEnd::Unknown("no answer".into()),
            Mishap::Later => {
                w.network.push(Delayed::End { producer, fate });
                return TxnEnd::Unknown("no answer".into());
            }
            Mishap::None | Mishap::AnswerLost => {}
        }
        let ended = w.kafka.end(producer, fate, w.now);
        match ended {
            Err(_) => TxnEnd::Unknown("fenced".into()),
            Ok(()) if mishap == Mishap::AnswerLost && w.dice.roll(2) == 0 => {
                TxnEnd::Unknown("no answer".into())
            }
            Ok(()) if mishap == Mishap::AnswerLost => TxnEnd::Retry("timed out".into()),
            Ok(()) => TxnEnd::Ok,
        }
    }

    /// Mistake: Redis forgets what flies before it is known to be committed.
    fn settle_now(&mut self, w: &mut World) {
        let slot = usize::from(self.slot.0);
        let Some(positions) = w.redis[slot].store.meta.as_ref().map(|meta| meta.positions) else { return };
        let entries = std::mem::take(&mut self.flying);
        let action = Action::Settle { entries, jpos: positions.jpos, due_pos: positions.due_pos };
        let _answer = w.redis[slot].run(&action, &mut self.grip, w.now);
    }
}

fn count(w: &mut World, event: &Event) {
    match event {
        Event::TakeOver { cause, .. } => w.saw(&format!("take-over: {}", cause.as_str())),
        Event::Cold(_) => w.saw("cold"),
        Event::Running { cold: false, .. } => w.saw("warm"),
        Event::Committed { buried, withdrawn, stale, lateness_ms, .. } => {
            let some = [
                ("delivered", !lateness_ms.is_empty()),
                ("buried", !buried.is_empty()),
                ("withdrawn", *withdrawn > 0),
                ("stale committed", *stale > 0),
            ];
            some.iter().filter(|(_, there)| *there).for_each(|(what, _)| w.saw(what));
        }
        Event::Aborted { .. } => w.saw("aborted"),
        Event::Released(_) => w.saw("released"),
        Event::Dropped(why, _) => w.saw(&format!("dropped: {why:?}")),
        Event::Stale(_) => w.saw("stale"),
        Event::Held(_) => w.saw("withdraw held"),
        Event::Paused(true) => w.saw("due paused"),
        Event::Strays { kept, .. } if *kept > 0 => w.saw("garbage kept"),
        Event::OutOfMemory => w.saw("out of memory"),
        Event::Alarm(alarm, _) => w.saw(&format!("alarm: {}", alarm.as_str())),
        Event::Running { cold: true, .. }
        | Event::Preloaded(_)
        | Event::Strays { .. }
        | Event::Paused(false)
        | Event::Halted(..) => {}
    }
}

fn mistakes_of_scripts(w: &World, action: &mut Action, read_from: i64) {
    match action {
        Action::SettleFates { fates, .. } if w.has(Mutation::StoreNotReconciled) => fates.clear(),
        Action::Preload { due_pos, .. } | Action::Settle { due_pos, .. }
            if w.has(Mutation::DuePosRunsAhead) =>
        {
            *due_pos = read_from;
        }
        _ => {}
    }
}

fn look_up(w: &World, topics: &[Topic]) -> Vec<(Topic, Lookup)> {
    let facts = Facts { partitions: 2, leaderless: vec![], max_message_bytes: 1 << 20, compacted: false };
    let known = |topic: &Topic| {
        let lookup = w.lookups.get(&topic_number(topic)).cloned();
        (Topic::clone(topic), lookup.unwrap_or_else(|| Lookup::Known(facts.clone())))
    };
    topics.iter().map(known).collect()
}

fn transient() -> Fault {
    Fault { kind: FaultKind::Transient, text: "timed out".into() }
}

fn fatal() -> Fault {
    Fault { kind: FaultKind::Fatal, text: "fenced".into() }
}

/// An answer in a few words.
fn brief(answer: &Input) -> String {
    let text = match answer {
        Input::Claimed(Ok((claims, _))) => {
            let members: Vec<_> =
                claims.claimed.iter().map(|claimed| claimed.member.id.to_string()).collect();
            format!("claimed {members:?}")
        }
        Input::TakenOver(Ok((found, _))) => format!("{found:?}"),
        Input::Scripted(Ok(_)) => "done".into(),
        Input::Preloaded(Ok((outcomes, _))) => format!("{outcomes:?}"),
        Input::Agenda(Ok((topics, _))) => format!("{} topics", topics.len()),
        Input::Journal(Ok(chunk)) => format!("read [{}, {})", chunk.start, chunk.next),
        other => format!("{other:?}"),
    };
    text.chars().take(160).collect()
}
