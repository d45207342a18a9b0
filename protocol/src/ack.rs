//! What a consumer's ack does to its row (PROTOCOL §4).
//!
//! | ack | row still pending, same gen | row pending, later gen | running, same gen | running, later gen | final |
//! |---|---|---|---|---|---|
//! | succeeded | finish intent¹ | finish intent¹ | DONE | DONE | dropped |
//! | failed | parked | dropped | next attempt, burial or CANCELLED | dropped | dropped |
//! | progress | parked | dropped | deadline moves | dropped | dropped |
//!
//! ¹ beyond the cursor: DONE at once.

use crate::change::{Intent, is_beyond};
use crate::life::{Cursors, Ended, Held, Life, Open, Place, RowKey, Waiting, What, Working};
use crate::retry::{self, RetryPolicy};
use crate::state::{Event, TaskState};
use schemas::delivery::DeadReason;
use schemas::due::{Completion, Made, PastAttempt};
use schemas::ids::{Generation, RowId};

/// A consumer's ack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Row id form of its record.
    pub command: RowId,
    /// When its record was appended.
    pub at: i64,
    /// The row that was delivered …
    pub id: RowId,
    /// … in this generation.
    pub generation: Generation,
    /// What the consumer says.
    pub report: Report,
    /// How far it got. `None`: what it said before stands.
    pub progress: Option<Vec<u8>>,
}

/// What a consumer says of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It is at it.
    Progress,
    /// It is done.
    Succeeded,
    /// It could not.
    Failed {
        /// Why.
        reason: Option<String>,
        /// Another attempt would be of no use.
        permanent: bool,
    },
}

/// What became of an ack, for metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The task is done.
    Finished,
    /// The task is done once its journal entry has come.
    FinishIntended,
    /// There will be another attempt.
    Retried,
    /// There will be none: the dispatcher buries it.
    ToBury,
    /// It had been cancelled while it ran: it is over.
    Cancelled,
    /// Its deadline moved.
    Progressed,
    /// It waits for the journal entry of its delivery.
    Parked,
    /// It says nothing about how things stand.
    Dropped(Dropped),
}

impl Outcome {
    /// Label of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::FinishIntended => "finish_intended",
            Outcome::Retried => "retried",
            Outcome::ToBury => "to_bury",
            Outcome::Cancelled => "cancelled",
            Outcome::Progressed => "progressed",
            Outcome::Parked => "parked",
            Outcome::Dropped(Dropped::Unknown) => "unknown",
            Outcome::Dropped(Dropped::Over) => "over",
            Outcome::Dropped(Dropped::Old) => "old",
            Outcome::Dropped(Dropped::Doubled) => "doubled",
            Outcome::Dropped(Dropped::FromAhead) => "from_ahead",
            Outcome::Dropped(Dropped::NotWanted) => "not_wanted",
        }
    }
}

/// Why an ack is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dropped {
    /// MySQL has no such row: purged, or another row of the same identity by now.
    Unknown,
    /// The task is over.
    Over,
    /// A later attempt is on its way.
    Old,
    /// It was said before.
    Doubled,
    /// It speaks of a generation that does not exist.
    FromAhead,
    /// The task is done by its delivery: nobody waits for an ack.
    NotWanted,
}

/// Decides an ack. Acks come in their order; `cursors` were read under the shared locks of the rows' shards.
pub fn decide(life: &mut Life, ack: &Ack, cursors: &Cursors) -> Outcome {
    let Some(row) = life.get(ack.id).cloned() else { return Outcome::Dropped(Dropped::Unknown) };
    match &row.place {
        Place::Final(_) => Outcome::Dropped(Dropped::Over),
        Place::Bodiless(_) => Outcome::Dropped(Dropped::Unknown),
        Place::Pending(_) | Place::Running(_) if ack.generation > row.generation => {
            Outcome::Dropped(Dropped::FromAhead)
        }
        Place::Pending(waiting) => pending(life, ack, cursors, &row, waiting),
        Place::Running(working) => running(life, ack, &row, working),
    }
}

fn pending(life: &mut Life, ack: &Ack, cursors: &Cursors, row: &Held, waiting: &Waiting) -> Outcome {
    if waiting.live.options.completion == Completion::OnDelivery {
        return Outcome::Dropped(Dropped::NotWanted);
    }
    match &ack.report {
        Report::Succeeded => {
            if life.is_fresh(row.id) || is_beyond(waiting.key, cursors) {
                return finish(life, ack, row, waiting.key.shard);
            }
            if life.has_open(row.row_gen(), |what| *what == What::Intent(Intent::Finish)) {
                return Outcome::Dropped(Dropped::Doubled);
            }
            let (command, id, generation) = (ack.command, row.id, row.generation);
            life.open_one(Open { command, id, generation, what: What::Intent(Intent::Finish) });
            Outcome::FinishIntended
        }
        Report::Progress | Report::Failed { .. } if ack.generation < row.generation => {
            Outcome::Dropped(Dropped::Old)
        }
        Report::Progress | Report::Failed { .. } => park(life, ack, row),
    }
}

/// Keeps an ack until the entry of its delivery is applied. Of progress the newest is enough, and after a failure nothing
/// more is to be said: so the rows that wait for one delivery are few, however long its entry takes.
fn park(life: &mut Life, ack: &Ack, row: &Held) -> Outcome {
    let parked = life.open(row.id).filter(|open| open.generation == ack.generation);
    let parked = parked.filter_map(|open| match &open.what {
        What::Parked(parked) => Some((open.command, matches!(parked.report, Report::Progress))),
        What::Intent(_) => None,
    });
    let parked: Vec<(RowId, bool)> = parked.collect();
    if parked.iter().any(|(_, progress)| !progress) {
        return Outcome::Dropped(Dropped::Doubled);
    }
    if matches!(ack.report, Report::Progress) {
        for (command, _) in parked {
            life.close(row.id, command, None);
        }
    }
    let (command, id, generation) = (ack.command, row.id, ack.generation);
    life.open_one(Open { command, id, generation, what: What::Parked(ack.clone()) });
    Outcome::Parked
}

fn running(life: &mut Life, ack: &Ack, row: &Held, working: &Working) -> Outcome {
    match &ack.report {
        Report::Succeeded => finish(life, ack, row, working.key.shard),
        Report::Progress | Report::Failed { .. } if ack.generation < row.generation => {
            Outcome::Dropped(Dropped::Old)
        }
        Report::Progress => {
            let policy = RetryPolicy::of(&working.live.options);
            let deadline_at = ack.at.saturating_add(policy.ack_timeout_ms);
            let mut working = working.clone();
            working.key.due_at = working.key.due_at.max(deadline_at);
            working.progress = ack.progress.clone().or(working.progress);
            life.put(row.at(Place::Running(working)), false);
            Outcome::Progressed
        }
        Report::Failed { reason, permanent } => {
            let failures = working.live.failures.saturating_add(1);
            let policy = RetryPolicy::of(&working.live.options);
            let end = match (working.stop, permanent) {
                (true, _) => AttemptEnd::Stop,
                (false, true) => AttemptEnd::Bury(DeadReason::Failed),
                (false, false) if policy.is_exhausted(failures) => {
                    AttemptEnd::Bury(DeadReason::AttemptsExhausted)
                }
                (false, false) => {
                    AttemptEnd::Again { after_ms: retry::delay_ms(&policy.backoff, failures, row.row_gen()) }
                }
            };
            let mut working = working.clone();
            working.live.failures = failures;
            working.progress = ack.progress.clone().or(working.progress);
            let told = Told { outcome: "failed", reason: reason.clone(), ack: Some(ack.command) };
            end_attempt(life, row, working, end, told, ack.at)
        }
    }
}

fn finish(life: &mut Life, ack: &Ack, row: &Held, shard: schemas::ids::Shard) -> Outcome {
    let ended = Ended { state: TaskState::Done, finished_at: ack.at, shard };
    life.enter(Event::Finished, row.at(Place::Final(ended)));
    Outcome::Finished
}

/// How an attempt that failed or stalled goes on.
#[derive(Clone, Copy)]
pub(crate) enum AttemptEnd {
    /// It had been cancelled.
    Stop,
    /// It is given up.
    Bury(DeadReason),
    /// Another attempt, after this pause.
    Again {
        /// The pause.
        after_ms: i64,
    },
}

/// What the history keeps of how an attempt ended.
pub(crate) struct Told {
    /// In a word.
    pub(crate) outcome: &'static str,
    /// Why, in the words of the consumer.
    pub(crate) reason: Option<String>,
    /// The ack that ended it.
    pub(crate) ack: Option<RowId>,
}

/// Ends the attempt of a running row at a time. Its failures or stalls are counted already.
pub(crate) fn end_attempt(
    life: &mut Life,
    row: &Held,
    working: Working,
    end: AttemptEnd,
    told: Told,
    at: i64,
) -> Outcome {
    let made = Some(Made { generation: row.generation, due_at: working.due_at });
    let Working { key, progress, mut live, .. } = working;
    let (bury, due_at) = match end {
        AttemptEnd::Stop => {
            let ended = Ended { state: TaskState::Cancelled, finished_at: at, shard: key.shard };
            life.enter(Event::Stopped, row.at(Place::Final(ended)));
            return Outcome::Cancelled;
        }
        AttemptEnd::Bury(reason) => (Some(reason), at),
        AttemptEnd::Again { after_ms } => (None, at.saturating_add(after_ms)),
    };
    let Told { outcome, reason, ack } = told;
    let past = PastAttempt { attempt: row.attempt, at, outcome: outcome.to_owned(), reason, made, ack };
    retry::remember(&mut live.history, past);
    live.options.progress = progress.or(live.options.progress);
    let key = RowKey { due_at, ..key };
    let mut next = row.next(Place::Pending(Waiting { key, bury, noted: false, live }));
    if bury.is_none() {
        next.attempt = row.attempt.saturating_add(1);
    }
    life.enter(Event::NextAttempt, next);
    if bury.is_some() { Outcome::ToBury } else { Outcome::Retried }
}

#[cfg(test)]
mod tests;
