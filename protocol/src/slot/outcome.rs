//! One transaction from its launch to its end: what is sent, what the reports lead to, what a commit settles.

use super::delivery::{AfterSend, Batch, after_send};
use super::event::{Alarm, Cause, Event};
use super::io::{Action, Lane, SendOutcome, Target, TxnEnd};
use super::running::{Context, Running, Work, credit};
use super::settled::Fate;
use super::steps::After;
use crate::slot_store::{Entry, Topic};
use schemas::journal::{JournalEntry, JournalKind, JournalRecord};
use std::collections::HashSet;

impl Running {
    pub(super) fn launch(&mut self, cx: &mut Context<'_>, batch: Batch) {
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

    pub(super) fn sent(
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
    pub(super) fn committed(
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

    pub(super) fn settled_in_redis(&mut self, batch: &Batch) {
        self.agenda = None;
        for flight in &batch.flights {
            self.flying.remove(&flight.row_gen());
        }
        for entry in &batch.leftovers {
            self.flying.remove(&entry.member);
        }
    }
}

/// Finds who is to blame; the take-over brings everything back to store.
pub(super) fn aborted(cx: &mut Context<'_>, batch: &Batch, outcome: &SendOutcome, end: &TxnEnd) -> After {
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
