//! What the entries of the journal do to the rows in MySQL, and what its heartbeats say.
//!
//! The journal is the linearisation point: exactly one fate stands in it for every `(row, gen)`, and MySQL follows.
//! `gen` never changes while `(row, gen)` may be alive outside MySQL, so applying by `(row, gen)` is exact; whatever
//! does not match is either a restored backup (applied forward, or waited for) or an invariant that broke (alarm).

mod beat;

pub use beat::Beat;

use crate::ack;
use crate::change::{self, Fate};
use crate::life::{Cursors, Ended, Held, Life, Place, Waiting, What, Working};
use crate::retry::RetryPolicy;
use crate::state::{Event, TaskState};
use schemas::due::Completion;
use schemas::ids::{Generation, RowId, SourceId};
use schemas::journal::{EntryKind, JournalEntry};
use std::collections::HashMap;

pub use crate::life::{Alarm, HandedBack, RowKey};

/// Why a batch cannot be applied now. Nothing of it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// The row's command has not been applied: MySQL was restored to an older state, and its source catches up.
    #[error(
        "row {id} comes from source {} partition {} offset {}, which is not applied yet (MySQL restored from a backup?)",
        .id.source().0, .id.partition(), .id.offset()
    )]
    SourceBehind {
        /// The row.
        id: RowId,
    },
}

/// Where each input partition stands; a partition that is not in it has not been read at all.
pub type Nexts = HashMap<(SourceId, i32), i64>;

/// Decides entries in their order, each seeing what the earlier ones did. `life` holds every row that the entries name
/// and MySQL has, as found under lock, with its open intents and parked acks; `nexts` the positions of the sources of
/// those it does not have. Where the batch has to wait, nothing of `life` is written.
pub fn decide<'a>(
    entries: impl IntoIterator<Item = &'a JournalEntry>,
    life: &mut Life,
    nexts: &Nexts,
) -> Result<(), Hold> {
    for entry in entries {
        let Some(row) = life.get(entry.id).cloned() else {
            without_row(life, entry, nexts)?;
            continue;
        };
        match &row.place {
            Place::Pending(waiting) => pending(life, entry, &row, waiting),
            Place::Running(working) => running(life, entry, &row, working),
            Place::Bodiless(_) => bodiless(life, entry, &row),
            Place::Final(ended) => over(life, entry, &row, *ended),
        }
    }
    Ok(())
}

fn without_row(life: &mut Life, entry: &JournalEntry, nexts: &Nexts) -> Result<(), Hold> {
    let id = entry.id;
    if !entry.kind.is_fate() {
        return Ok(()); // a late copy of a record whose task is long over
    }
    let next = nexts.get(&(id.source(), id.partition())).copied().unwrap_or(0);
    if id.offset() >= next {
        return Err(Hold::SourceBehind { id });
    }
    life.alarm(Alarm::UnknownRow { id, generation: entry.generation });
    Ok(())
}

fn pending(life: &mut Life, entry: &JournalEntry, row: &Held, waiting: &Waiting) {
    let id = entry.id;
    if entry.generation < row.generation {
        return went_by(life, entry, row.generation);
    }
    match entry.kind {
        EntryKind::Delivered => delivered(life, entry, row, waiting),
        EntryKind::Buried => buried(life, entry, row),
        EntryKind::Withdrawn => {
            change::settle(life, row, entry.generation, Fate::Withdrawn, entry.at);
            drop_parked(life, entry);
        }
        EntryKind::Stale if entry.generation > row.generation => {
            life.alarm(Alarm::FromAhead { id, said: entry.generation, found: row.generation });
        }
        EntryKind::Stale => life.hand_back(id),
    }
}

/// The callback record is visible. What the consumer said of it before this entry was applied counts from now on.
fn delivered(life: &mut Life, entry: &JournalEntry, row: &Held, waiting: &Waiting) {
    let settled = change::settle(life, row, entry.generation, Fate::Delivered, entry.at);
    let row = Held { generation: entry.generation, ..row.clone() };
    let Waiting { key, ref live, .. } = *waiting;
    let event = match live.options.completion {
        Completion::OnAck if settled.finish => Event::Finished,
        completion => Event::Delivered(completion),
    };
    match TaskState::Scheduled.after(event) {
        Ok(TaskState::Running) => {
            let deadline_at = entry.at.saturating_add(RetryPolicy::of(&live.options).ack_timeout_ms);
            let working = Working {
                key: RowKey { due_at: deadline_at, ..key },
                due_at: key.due_at,
                progress: None,
                stop: settled.stop,
                live: live.clone(),
            };
            if life.enter(event, row.at(Place::Running(working))) {
                apply_parked(life, entry);
            }
        }
        _ => {
            let ended = Ended { state: TaskState::Done, finished_at: entry.at, shard: key.shard };
            life.enter(event, row.at(Place::Final(ended)));
            drop_parked(life, entry);
        }
    }
}

fn buried(life: &mut Life, entry: &JournalEntry, row: &Held) {
    change::settle(life, row, entry.generation, Fate::Buried, entry.at);
    let shard = row.pending_key().map_or(entry.shard, |key| key.shard);
    let ended = Ended { state: TaskState::Dead, finished_at: entry.at, shard };
    let row = Held { generation: entry.generation, ..row.clone() };
    life.enter(Event::Buried, row.at(Place::Final(ended)));
    drop_parked(life, entry);
}

/// Acks that came before their delivery was applied, in their order.
fn apply_parked(life: &mut Life, entry: &JournalEntry) {
    let parked: Vec<ack::Ack> = parked(life, entry).collect();
    for ack in parked {
        if ack.generation == entry.generation {
            // The row is running: no cursor is asked for.
            ack::decide(life, &ack, &Cursors::new());
        }
        life.close(ack.id, ack.command, None);
    }
}

/// The attempt that they speak of was never visible, or is over.
fn drop_parked(life: &mut Life, entry: &JournalEntry) {
    let parked: Vec<RowId> = parked(life, entry).map(|ack| ack.command).collect();
    for command in parked {
        life.close(entry.id, command, None);
    }
}

fn parked(life: &Life, entry: &JournalEntry) -> impl Iterator<Item = ack::Ack> {
    let open = life.open(entry.id).filter(|open| open.generation <= entry.generation);
    open.filter_map(|open| match &open.what {
        What::Parked(ack) => Some(ack.clone()),
        What::Intent(_) => None,
    })
}

fn running(life: &mut Life, entry: &JournalEntry, row: &Held, working: &Working) {
    if entry.generation <= row.generation || !entry.kind.is_fate() {
        return went_by(life, entry, row.generation);
    }
    // From a backup older than the attempt after this one: it was tried again, and the journal knows how that ended.
    let key = RowKey { shard: working.key.shard, due_at: entry.due_at, id: row.id };
    let waiting = Waiting { key, bury: None, noted: false, live: working.live.clone() };
    let mut next = row.at(Place::Pending(waiting.clone()));
    (next.generation, next.attempt) = (entry.generation, row.attempt.saturating_add(1));
    if life.enter(Event::NextAttempt, next.clone()) {
        pending(life, entry, &next, &waiting);
    }
}

/// The journal knows how it ended; there is nothing left of it that could be delivered twice.
fn bodiless(life: &mut Life, entry: &JournalEntry, row: &Held) {
    life.alarm(Alarm::Bodiless { id: entry.id });
    let scheduled = row.state() == TaskState::Scheduled;
    if entry.generation < row.generation || !scheduled {
        return;
    }
    match entry.kind {
        EntryKind::Delivered => done(life, entry, row),
        EntryKind::Buried => buried(life, entry, row),
        EntryKind::Withdrawn | EntryKind::Stale => {}
    }
}

fn over(life: &mut Life, entry: &JournalEntry, row: &Held, ended: Ended) {
    if entry.generation <= row.generation {
        return went_by(life, entry, row.generation);
    }
    // From a backup older than a replay: the journal knows better how it ended.
    let again = row.at(Place::Bodiless(TaskState::Scheduled));
    let replayed = ended.state == TaskState::Dead;
    match entry.kind {
        EntryKind::Delivered if replayed && life.enter(Event::Replayed, again.clone()) => {
            done(life, entry, &again);
        }
        EntryKind::Buried if replayed && life.enter(Event::Replayed, again.clone()) => {
            buried(life, entry, &again);
        }
        EntryKind::Delivered | EntryKind::Buried | EntryKind::Withdrawn | EntryKind::Stale => {
            life.alarm(Alarm::FromAhead { id: entry.id, said: entry.generation, found: row.generation });
        }
    }
}

/// A row without a body cannot wait for its consumer: it could never be tried again.
fn done(life: &mut Life, entry: &JournalEntry, row: &Held) {
    change::settle(life, row, entry.generation, Fate::Delivered, entry.at);
    let ended = Ended { state: TaskState::Done, finished_at: entry.at, shard: entry.shard };
    let row = Held { generation: entry.generation, ..row.clone() };
    life.enter(Event::Delivered(Completion::OnDelivery), row.at(Place::Final(ended)));
    drop_parked(life, entry);
}

fn went_by(life: &mut Life, entry: &JournalEntry, found: Generation) {
    if entry.kind.is_fate() {
        life.alarm(Alarm::SettledTwice { id: entry.id, settled: entry.generation, found });
    }
}

#[cfg(test)]
mod tests;
