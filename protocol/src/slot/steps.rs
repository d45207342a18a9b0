//! What each reply leads to while the slot runs: intake, claim, send, commit, settle.

use super::delivery::{AfterSend, Batch, Flight, after_send};
use super::event::{Alarm, Cause, Event};
use super::io::{Action, Input, JournalChunk, Lane, SendOutcome, Target, TxnEnd};
use super::precheck::{Check, Lookup, check};
use super::running::{Context, Gather, Quarantined, Running, Work, credit};
use super::settled::Fate;
use super::takeover::{cause_of, fates_of};
use crate::slot_store::{Claims, Entry, SlotState, Topic};
use schemas::delivery::DeadReason;
use schemas::due::{Deliver, DueKind, DueRecord};
use schemas::journal::{JournalEntry, JournalKind, JournalRecord};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Claims per transaction, at most.
const CLAIM_ROUNDS: u32 = 4;
/// Commit that must be called again and again is given up after so long: the journal decides then.
const COMMIT_PATIENCE_MS: i64 = 20_000;
/// Members that cannot be sent just now rest for so long.
const NOT_NOW_MS: i64 = 1_000;
/// How long *does not fit below low* is believed.
const GIVE_UP_MS: i64 = 60_000;

/// Where a reply leads.
#[derive(Debug)]
pub(super) enum After {
    /// On with `choose`.
    Go,
    /// Doubt.
    TakeOver(Cause, String),
    /// Newer fates than this build can read.
    HaltNewer(String),
}

fn doubt(fault: super::io::ScriptFault) -> After {
    let (cause, text) = cause_of(fault);
    After::TakeOver(cause, text)
}

impl Running {
    /// Takes the reply of the last action.
    pub(super) fn reply(&mut self, cx: &mut Context<'_>, input: Input) -> After {
        match (std::mem::replace(&mut self.work, Work::Idle), input) {
            (Work::Pausing(pause), Input::Done) => {
                self.paused = pause;
                cx.events.push(Event::Paused(pause));
                After::Go
            }
            (Work::Pausing(_), Input::Failed(text)) => After::TakeOver(Cause::Kafka, text),

            (Work::ReadBelow { below, wanted }, Input::Journal(Ok(chunk))) => {
                self.read_below(cx, below, wanted, &chunk)
            }
            (Work::ReadBelow { .. }, Input::Journal(Err(text))) => After::TakeOver(Cause::Kafka, text),

            (Work::Preload(plan), Input::Preloaded(Ok((outcomes, state)))) => {
                self.saw(state, cx.now);
                self.intake.carried_out(plan, &outcomes, cx.events);
                self.agenda = None;
                After::Go
            }
            (Work::Preload(plan), Input::Preloaded(Err(super::io::ScriptFault::OutOfMemory))) => {
                self.intake.put_back(plan);
                self.rest_until_ms = cx.now.mono_ms + cx.config.memory_rest_ms;
                cx.events.push(Event::OutOfMemory);
                After::Go
            }

            (Work::Agenda, Input::Agenda(Ok((agenda, state)))) => {
                self.saw(state, cx.now);
                self.agenda = Some(agenda);
                After::Go
            }

            (Work::Claim(gather), Input::Claimed(Ok((claims, state)))) => {
                self.claimed(cx, gather, claims, state)
            }
            (Work::LookUp(gather), Input::Facts(facts)) => self.prepare(cx, gather, facts),
            (Work::GiveBack { entries, batch }, Input::Scripted(Ok(state))) => {
                self.saw(state, cx.now);
                cx.events.push(Event::Released(entries.len()));
                self.given_back(&entries);
                self.launch(cx, batch);
                After::Go
            }

            (Work::StartQuarantine { topic, batch }, Input::Done) => {
                self.quarantine = Some(Quarantined { topic, batch, outcome: None });
                After::Go
            }
            (Work::StartQuarantine { topic, batch }, Input::Sent(outcome)) => {
                self.quarantine = Some(Quarantined { topic, batch, outcome: Some(outcome) });
                After::Go
            }

            (Work::Send { batch, parts }, Input::Sent(outcome)) => self.sent(cx, batch, parts, outcome),
            (Work::Commit { batch, parts, offsets, since_mono_ms }, Input::Ended(end)) => match end {
                TxnEnd::Ok => {
                    self.committed(cx, batch, parts, &offsets);
                    After::Go
                }
                TxnEnd::Retry(_) if cx.now.mono_ms - since_mono_ms < COMMIT_PATIENCE_MS => {
                    let batch = Batch { retried: true, ..batch };
                    let action = Action::Commit { lane: batch.lane };
                    self.go_later(Work::Commit { batch, parts, offsets, since_mono_ms }, action, cx.now);
                    After::Go
                }
                TxnEnd::Retry(text) | TxnEnd::Unknown(text) => After::TakeOver(Cause::OutcomeUnknown, text),
            },
            (Work::Settle { batch, renew }, Input::Scripted(Ok(state))) => {
                self.saw(state, cx.now);
                self.settled_in_redis(&batch);
                if renew { After::TakeOver(Cause::SlowTransaction, String::new()) } else { After::Go }
            }
            // Whatever abort says, a take-over follows (R6), whose `init_transactions` proves the abort.
            (Work::Abort { batch, outcome }, Input::Ended(end)) => aborted(cx, &batch, &outcome, &end),
            (Work::Forget(text), Input::Scripted(_)) => After::TakeOver(Cause::Lost, text),

            (Work::Preload(_), Input::Preloaded(Err(fault)))
            | (Work::Agenda, Input::Agenda(Err(fault)))
            | (Work::Claim(_), Input::Claimed(Err(fault)))
            | (Work::GiveBack { .. } | Work::Settle { .. }, Input::Scripted(Err(fault))) => doubt(fault),
            (work, input) => {
                let text = format!("{work:?} got {input:?}");
                cx.events.push(Event::Alarm(Alarm::UnexpectedReply, text.chars().take(300).collect()));
                After::TakeOver(Cause::Invariant, "unexpected reply".into())
            }
        }
    }

    fn read_below(
        &mut self,
        cx: &mut Context<'_>,
        mut below: super::settled::Below,
        wanted: i64,
        chunk: &JournalChunk,
    ) -> After {
        if chunk.start > below.from && below.fates.is_empty() {
            below.from = chunk.start;
        }
        let low = self.settled.low();
        for (offset, item) in chunk.records.iter().filter(|(offset, _)| *offset < low) {
            match fates_of(*offset, item, cx.events) {
                Ok(fates) => fates.into_iter().for_each(|fate| below.push(fate)),
                Err(text) => return After::HaltNewer(text),
            }
        }
        if !chunk.done {
            let action = Action::ReadJournal { from: chunk.next, to: low - 1 };
            self.go(Work::ReadBelow { below, wanted }, action);
            return After::Go;
        }
        let from = below.from.min(low);
        self.settled.extend_below(from, below.fates.make_contiguous());
        if from > wanted {
            self.intake.give_up_below(from, cx.now.mono_ms + GIVE_UP_MS);
        }
        After::Go
    }

    fn claimed(
        &mut self,
        cx: &mut Context<'_>,
        mut gather: Gather,
        claims: Claims,
        state: SlotState,
    ) -> After {
        self.saw(state, cx.now);
        self.agenda = None;
        if claims.dropped > 0 {
            cx.events.push(Event::Alarm(Alarm::BrokenMembers, format!("{} members", claims.dropped)));
        }
        let clock = cx.now.local_at.min(state.redis_at);
        let mut taken: HashMap<Topic, u32> = HashMap::new();
        for claimed in claims.claimed {
            *taken.entry(Topic::clone(&claimed.topic)).or_default() += 1;
            gather.bytes += claimed.body.as_bytes().len();
            let record = match DueRecord::decode(claimed.body.record()) {
                Ok(record) if record.row_gen() == claimed.member => record,
                Ok(_) | Err(_) => return self.forget(format!("body of {:?}", claimed.member)),
            };
            if !self.flying.insert(claimed.member) {
                return After::TakeOver(Cause::Invariant, format!("{:?} claimed twice", claimed.member));
            }
            if record.due_at > clock {
                let text = format!("{:?} due at {}, clock {clock}", claimed.member, record.due_at);
                cx.events.push(Event::Alarm(Alarm::ClaimedEarly, text));
                gather.early.push(Entry { topic: claimed.topic, member: claimed.member });
            } else {
                gather.claimed.push((claimed.topic, Arc::new(record)));
            }
        }
        let still: HashSet<Topic> = claims.due.into_iter().map(|due| due.topic).collect();
        if gather.lane == Lane::Main {
            cx.robin.served(&gather.quotas, &taken, &still);
            if let Some(action) = claim_more(cx, &mut gather, &taken, &still) {
                self.go(Work::Claim(gather), action);
                return After::Go;
            }
        }
        if gather.claimed.is_empty() && gather.early.is_empty() {
            // The clocks disagree by a moment, or somebody else was faster than our look at what is due.
            self.claim_not_before_ms = cx.now.mono_ms + 1;
            return After::Go;
        }
        let mut topics: Vec<Topic> = gather.claimed.iter().map(|(topic, _)| Topic::clone(topic)).collect();
        topics.sort();
        topics.dedup();
        self.go(Work::LookUp(gather), Action::LookUp { topics });
        After::Go
    }

    fn forget(&mut self, text: String) -> After {
        self.go(Work::Forget(text), Action::Forget);
        After::Go
    }

    /// Everything claimed finds its way: out, to `dead`, back to store, or away because it is settled already.
    fn prepare(&mut self, cx: &mut Context<'_>, gather: Gather, facts: Vec<(Topic, Lookup)>) -> After {
        let facts: HashMap<Topic, Lookup> = facts.into_iter().collect();
        let mut batch = Batch::new(gather.lane, cx.now.local_at, cx.now.mono_ms);
        let mut back = gather.early;
        self.sticky = self.sticky.wrapping_add(1);
        for (topic, record) in gather.claimed {
            let entry = Entry { topic: Topic::clone(&topic), member: record.row_gen() };
            if self.settled.contains(entry.member) {
                self.leftovers.push(entry);
                continue;
            }
            let lookup = facts.get(&topic).unwrap_or(&Lookup::Unavailable);
            let target = match target_of(cx, &topic, &record, lookup, self.sticky) {
                Some(target) => target,
                None => {
                    back.push(entry);
                    continue;
                }
            };
            let to_dead = matches!(target, Target::Dead { .. });
            let flight = Flight { topic, record, target };
            // Burials need no quarantine: their records go to `dead`.
            if to_dead && batch.lane == Lane::Quarantine {
                self.carry.push(flight)
            } else {
                batch.flights.push(flight)
            }
        }
        if back.is_empty() {
            self.launch(cx, batch);
        } else {
            let action = Action::Release { entries: back.clone(), delay_ms: NOT_NOW_MS };
            self.go(Work::GiveBack { entries: back, batch }, action);
        }
        After::Go
    }

    fn given_back(&mut self, entries: &[Entry]) {
        self.agenda = None;
        for entry in entries {
            self.flying.remove(&entry.member);
            self.intake.outcome_released(entry.member);
        }
    }

    fn launch(&mut self, cx: &mut Context<'_>, batch: Batch) {
        match batch.lane {
            Lane::Main => self.launch_main(cx, batch),
            Lane::Quarantine => self.launch_quarantine(batch),
        }
    }

    /// Callback records first, alone: the journal record waits for their reports.
    fn launch_quarantine(&mut self, batch: Batch) {
        let Some(topic) = batch.flights.first().map(|flight| Topic::clone(&flight.topic)) else { return };
        let action = Action::Send {
            lane: Lane::Quarantine,
            begin: true,
            records: batch.outgoing(),
            journal: Vec::new(),
            wait: false,
        };
        self.go(Work::StartQuarantine { topic, batch }, action);
    }

    /// One transaction of the main lane with everything that waits for one.
    pub(super) fn launch_main(&mut self, cx: &mut Context<'_>, mut batch: Batch) {
        batch.flights.append(&mut self.carry);
        batch.leftovers.append(&mut self.leftovers);
        let (intents, stales) = self.intake.take_entries(cx.config.batch_entries);
        for intent in intents {
            if self.settled.contains(intent.row_gen) {
                self.intake.intent_settled(&intent);
                batch.leftovers.push(Entry { topic: intent.topic, member: intent.row_gen });
            } else {
                batch.intents.push(intent);
            }
        }
        batch.stales = stales;
        let parts = batch.journal(cx.config.journal_record_bytes);
        let action = Action::Send {
            lane: Lane::Main,
            begin: true,
            records: batch.outgoing(),
            journal: self.journal_records(cx, &parts),
            wait: true,
        };
        self.go(Work::Send { batch, parts }, action);
    }

    fn journal_records(&self, cx: &Context<'_>, parts: &[Vec<JournalEntry>]) -> Vec<JournalRecord> {
        let record = |entries: &Vec<JournalEntry>| JournalRecord {
            token: self.token,
            kind: JournalKind::Batch,
            cold: false,
            backlog: self.state.members.cast_signed(),
            credit: credit(cx.config, &self.state),
            local_at: cx.now.local_at,
            redis_at: self.redis_at(cx.now),
            entries: entries.clone(),
        };
        parts.iter().map(record).collect()
    }

    /// All reports of the quarantine lane are in: enter the exclusive section, or give up.
    pub(super) fn end_quarantine(&mut self, cx: &mut Context<'_>, batch: Batch, outcome: SendOutcome) {
        if let Some(flight) = batch.flights.iter().find(|flight| self.settled.contains(flight.row_gen())) {
            cx.events.push(Event::Alarm(Alarm::SettledInFlight, format!("{:?}", flight.row_gen())));
            self.abort(batch, outcome);
            return;
        }
        match after_send(&outcome) {
            AfterSend::Commit => {
                let parts = batch.journal(cx.config.journal_record_bytes);
                let journal = self.journal_records(cx, &parts);
                let action = Action::Send {
                    lane: Lane::Quarantine,
                    begin: false,
                    records: Vec::new(),
                    journal,
                    wait: true,
                };
                self.go(Work::Send { batch, parts }, action);
            }
            AfterSend::Abort | AfterSend::GiveUp => self.abort(batch, outcome),
        }
    }

    fn abort(&mut self, batch: Batch, outcome: SendOutcome) {
        let action = Action::Abort { lane: batch.lane };
        self.go(Work::Abort { batch, outcome }, action);
    }

    fn sent(
        &mut self,
        cx: &mut Context<'_>,
        batch: Batch,
        parts: Vec<Vec<JournalEntry>>,
        outcome: SendOutcome,
    ) -> After {
        match (after_send(&outcome), &outcome.journal) {
            (AfterSend::Commit, Ok(offsets)) if offsets.len() == parts.len() => {
                let action = Action::Commit { lane: batch.lane };
                let (offsets, since_mono_ms) = (offsets.clone(), cx.now.mono_ms);
                self.go(Work::Commit { batch, parts, offsets, since_mono_ms }, action);
                After::Go
            }
            (AfterSend::Commit, _) => {
                After::TakeOver(Cause::Invariant, "a journal record without an offset".into())
            }
            (AfterSend::Abort, _) => {
                self.abort(batch, outcome);
                After::Go
            }
            (AfterSend::GiveUp, _) => {
                aborted(cx, &batch, &outcome, &TxnEnd::Unknown("the producer is broken".into()))
            }
        }
    }

    /// Proved: the fates stand in the journal. Memory knows them before Redis does.
    fn committed(
        &mut self,
        cx: &mut Context<'_>,
        batch: Batch,
        parts: Vec<Vec<JournalEntry>>,
        offsets: &[i64],
    ) {
        let took_ms = cx.now.mono_ms - batch.began_mono_ms;
        self.journal_mono_ms = cx.now.mono_ms;
        for (offset, part) in offsets.iter().zip(parts) {
            for entry in part.into_iter().filter(|entry| entry.kind.is_fate()) {
                let row_gen = entry.row_gen();
                if !self.settled.record(Fate { offset: *offset, at: entry.at, row_gen }) {
                    cx.events.push(Event::Alarm(Alarm::FateTwice, format!("{row_gen:?}")));
                }
            }
            self.jpos = self.jpos.max(offset + 1);
        }
        batch.intents.iter().for_each(|intent| self.intake.intent_settled(intent));
        batch.stales.iter().for_each(|stale| self.intake.stale_settled(stale));
        self.tell(cx, &batch, took_ms);
        self.prune(cx);
        let entries = batch.to_settle();
        for entry in &entries {
            self.intake.outcome_settled(entry.member);
        }
        let renew = batch.retried || took_ms > cx.config.slow_transaction_ms;
        let action = Action::Settle { entries, jpos: self.jpos, due_pos: self.intake.due_pos() };
        self.go(Work::Settle { batch, renew }, action);
    }

    fn tell(&self, cx: &mut Context<'_>, batch: &Batch, took_ms: i64) {
        let (mut lateness_ms, mut buried) = (Vec::new(), Vec::new());
        let mut topics: HashSet<&Topic> = HashSet::new();
        for flight in &batch.flights {
            cx.lanes.settled(flight.row_gen());
            match &flight.target {
                Target::Callback { .. } => {
                    topics.insert(&flight.topic);
                    lateness_ms.push((cx.now.local_at - flight.record.due_at).max(0));
                }
                Target::Dead { reason } => buried.push(reason.clone()),
            }
        }
        topics.into_iter().for_each(|topic| cx.lanes.succeeded(batch.lane, topic));
        cx.events.push(Event::Committed {
            lane: batch.lane,
            lateness_ms,
            buried,
            withdrawn: batch.intents.len(),
            stale: batch.stales.len(),
            took_ms,
        });
    }

    fn settled_in_redis(&mut self, batch: &Batch) {
        self.agenda = None;
        for flight in &batch.flights {
            self.flying.remove(&flight.row_gen());
        }
        for entry in &batch.leftovers {
            self.flying.remove(&entry.member);
        }
    }
}

/// More of the topics that were served in full, if there is room.
fn claim_more(
    cx: &mut Context<'_>,
    gather: &mut Gather,
    taken: &HashMap<Topic, u32>,
    still: &HashSet<Topic>,
) -> Option<Action> {
    let room = cx.config.batch_entries.saturating_sub(gather.claimed.len() + gather.early.len());
    let bytes = cx.config.batch_bytes.saturating_sub(gather.bytes);
    gather.topics.retain(|topic| still.contains(topic));
    if room == 0
        || bytes == 0
        || gather.rounds >= CLAIM_ROUNDS
        || taken.is_empty()
        || gather.topics.is_empty()
    {
        return None;
    }
    gather.rounds += 1;
    gather.quotas = cx.robin.quotas(&gather.topics, room);
    cap(&mut gather.quotas, room);
    Some(Action::Claim { now_at: cx.now.local_at, quotas: gather.quotas.clone(), max_bytes: bytes })
}

/// The script's own cap is that of a whole batch: here less is left.
fn cap(quotas: &mut Vec<crate::slot_store::Quota>, room: usize) {
    let mut left = u32::try_from(room).unwrap_or(u32::MAX);
    for quota in quotas.iter_mut() {
        quota.limit = quota.limit.min(left);
        left -= quota.limit;
    }
    quotas.retain(|quota| quota.limit > 0);
}

fn target_of(
    cx: &Context<'_>,
    topic: &Topic,
    record: &DueRecord,
    lookup: &Lookup,
    sticky: usize,
) -> Option<Target> {
    let dead = |reason: &str| Some(Target::Dead { reason: reason.to_owned() });
    let DueKind::Deliver(deliver) = &record.kind else { return dead(DeadReason::InvalidRecord.as_str()) };
    if let Some(why) = bury_at(deliver, cx.now.local_at) {
        return dead(why);
    }
    if let Some(why) = cx.lanes.doomed(topic, record.row_gen(), cx.now.mono_ms) {
        return dead(why.as_str());
    }
    match check(deliver, lookup, sticky) {
        Check::Write(partition, batch_bytes) => Some(Target::Callback { partition, batch_bytes }),
        Check::Never(why) => dead(why.as_str()),
        Check::NotNow => None,
    }
}

fn bury_at(deliver: &Deliver, now_at: i64) -> Option<&str> {
    let expired = deliver.expires_at.is_some_and(|expires_at| expires_at <= now_at);
    deliver.bury.as_deref().or(expired.then_some(DeadReason::Expired.as_str()))
}

/// Finds who is to blame; the take-over brings everything back to store.
fn aborted(cx: &mut Context<'_>, batch: &Batch, outcome: &SendOutcome, end: &TxnEnd) -> After {
    let blame = cx.lanes.blame(batch.lane, &batch.senders(), outcome, cx.now.mono_ms);
    let mut detail = blame.general.clone().unwrap_or_default();
    let proved = matches!(end, TxnEnd::Ok);
    if let TxnEnd::Retry(text) | TxnEnd::Unknown(text) = end {
        detail = format!("{detail} {text}").trim().to_owned();
    }
    cx.events.push(Event::Aborted { lane: batch.lane, culprits: blame.culprits, detail: detail.clone() });
    let cause = if proved && blame.general.is_none() { Cause::Aborted } else { Cause::OutcomeUnknown };
    After::TakeOver(cause, detail)
}
