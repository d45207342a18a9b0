//! What each reply leads to while the slot runs.

use super::delivery::Batch;
use super::event::{Alarm, Cause, Event};
use super::io::{Action, Input, TxnEnd};
use super::logs::JournalChunk;
use super::outcome::aborted;
use super::running::{Context, Quarantined, Running, Work};
use super::takeover::{cause_of, fates_of};

/// Commit that must be called again and again is given up after so long: the journal decides then.
const COMMIT_PATIENCE_MS: i64 = 20_000;
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

            (Work::KeepStrays, Input::Done) => After::Go,

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

    pub(super) fn forget(&mut self, text: String) -> After {
        self.go(Work::Forget(text), Action::Forget);
        After::Go
    }
}
