//! One delivery transaction: what goes into it, and what its reports and its end mean (R5).

use super::io::{Fault, FaultKind, Lane, Outgoing, SendOutcome, Target};
use crate::slot_store::{Entry, Topic};
use schemas::due::DueRecord;
use schemas::ids::{RowGen, Shard};
use schemas::journal::{EntryKind, JournalEntry};
use std::sync::Arc;

/// A claimed member on its way out.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) topic: Topic,
    pub(super) record: Arc<DueRecord>,
    pub(super) target: Target,
}

impl Flight {
    pub(super) fn row_gen(&self) -> RowGen {
        self.record.row_gen()
    }

    pub(super) fn entry(&self) -> Entry {
        Entry { topic: Topic::clone(&self.topic), member: self.row_gen() }
    }
}

/// A withdraw intent that stands in prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Intent {
    pub(super) topic: Topic,
    pub(super) row_gen: RowGen,
    pub(super) shard: Shard,
    pub(super) due_at: i64,
    /// Its record on `due`, where that has been read since the take-over.
    pub(super) offsets: Vec<i64>,
}

/// A due record that could not be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) row_gen: RowGen,
    pub(super) shard: Shard,
    pub(super) due_at: i64,
    pub(super) offset: i64,
}

/// What one transaction settles.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) lane: Lane,
    pub(super) flights: Vec<Flight>,
    pub(super) intents: Vec<Intent>,
    pub(super) stales: Vec<Stale>,
    /// Settled already: only to be removed from Redis.
    pub(super) leftovers: Vec<Entry>,
    /// Clock of the batch: `delivered-at` and `at` of the entries.
    pub(super) at: i64,
    pub(super) began_mono_ms: i64,
    /// Commit had to be called again.
    pub(super) retried: bool,
}

impl Batch {
    pub(super) fn new(lane: Lane, at: i64, mono_ms: i64) -> Batch {
        Batch {
            lane,
            flights: Vec::new(),
            intents: Vec::new(),
            stales: Vec::new(),
            leftovers: Vec::new(),
            at,
            began_mono_ms: mono_ms,
            retried: false,
        }
    }

    /// Records to be produced, in claim order.
    pub(super) fn outgoing(&self) -> Vec<Outgoing> {
        let out = |flight: &Flight| Outgoing {
            record: Arc::clone(&flight.record),
            target: flight.target.clone(),
            at: self.at_of(flight),
        };
        self.flights.iter().map(out).collect()
    }

    /// When a flight leaves. It was due when it was claimed: a clock that stepped back since then is wrong, and nobody
    /// shall read that the task came before its time.
    fn at_of(&self, flight: &Flight) -> i64 {
        self.at.max(flight.record.due_at)
    }

    /// Topic and member of each outgoing record, `None` where it goes to `dead`: for finding culprits.
    pub(super) fn senders(&self) -> Vec<Option<(Topic, RowGen)>> {
        let sender = |flight: &Flight| match flight.target {
            Target::Callback { .. } => Some((Topic::clone(&flight.topic), flight.row_gen())),
            Target::Dead { .. } => None,
        };
        self.flights.iter().map(sender).collect()
    }

    /// Journal entries, split so that no record exceeds the limit; at least one part (empty: a heartbeat).
    pub(super) fn journal(&self, record_bytes: usize) -> Vec<Vec<JournalEntry>> {
        const ENTRY_BYTES: usize = 48;
        let mut parts = vec![Vec::new()];
        let mut used = 0;
        for entry in self.entries() {
            let bytes = ENTRY_BYTES + entry.reason.as_ref().map_or(0, String::len);
            if used + bytes > record_bytes && used > 0 {
                parts.push(Vec::new());
                used = 0;
            }
            used += bytes;
            if let Some(part) = parts.last_mut() {
                part.push(entry);
            }
        }
        parts
    }

    fn entries(&self) -> impl Iterator<Item = JournalEntry> + '_ {
        let at = self.at;
        let entry = move |at, kind, shard, due_at, row_gen: RowGen, reason| JournalEntry {
            kind,
            shard,
            due_at,
            id: row_gen.id,
            generation: row_gen.generation,
            at,
            reason,
        };
        let flights = self.flights.iter().map(move |flight| {
            let (kind, reason) = match &flight.target {
                Target::Callback { .. } => (EntryKind::Delivered, None),
                Target::Dead { reason } => (EntryKind::Buried, Some(reason.clone())),
            };
            entry(
                self.at_of(flight),
                kind,
                flight.record.shard,
                flight.record.due_at,
                flight.row_gen(),
                reason,
            )
        });
        let intents = self.intents.iter();
        let intents =
            intents.map(move |i| entry(at, EntryKind::Withdrawn, i.shard, i.due_at, i.row_gen, None));
        let stales = self.stales.iter();
        let stales = stales.map(move |s| entry(at, EntryKind::Stale, s.shard, s.due_at, s.row_gen, None));
        flights.chain(intents).chain(stales)
    }

    /// What `settle` removes from Redis once the transaction is committed.
    pub(super) fn to_settle(&self) -> Vec<Entry> {
        let intents = self.intents.iter().map(|i| Entry { topic: Topic::clone(&i.topic), member: i.row_gen });
        self.flights.iter().map(Flight::entry).chain(intents).chain(self.leftovers.iter().cloned()).collect()
    }
}

/// What the reports of a batch lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterSend {
    /// Every report is Ok.
    Commit,
    /// At least one is not.
    Abort,
    /// The producer is of no use any more: only a take-over tells.
    GiveUp,
}

/// Commit only when every single report is Ok.
pub(super) fn after_send(outcome: &SendOutcome) -> AfterSend {
    let faults = outcome.reports.iter().filter_map(|report| report.as_ref().err());
    let mut faults = faults.chain(outcome.journal.as_ref().err()).peekable();
    if faults.peek().is_none() {
        return AfterSend::Commit;
    }
    let fatal = |fault: &Fault| fault.kind == FaultKind::Fatal;
    if faults.any(fatal) { AfterSend::GiveUp } else { AfterSend::Abort }
}
