//! Cancel, reschedule and replay: what a command does to a row, and what is answered (PROTOCOL §1, J3).
//!
//! ```text
//!                     ┌─ beyond its cursor, or made by this very transaction ─▶ at once, answered after the commit
//!  command ──▶ row ───┼─ at or below ─▶ intent ─▶ withdraw ─▶ journal ─▶ `settle`: folded in command order, answered
//!                     └─ running, final, unknown ─▶ answered
//! ```

mod fold;

pub(crate) use fold::{Fate, settle};
pub use fold::{Settled, Stranded, stranded};

use crate::life::{Alarm, Cursors, Ended, Held, Life, Live, Open, Place, RowKey, Waiting, What, Working};
use crate::state::{Event, TaskState};
use schemas::command::{ReasonCode, Refusal};
use schemas::ids::{Generation, RowId};
use schemas::reply;

/// A command that changes a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Row id form of its record.
    pub command: RowId,
    /// When its record was appended.
    pub at: i64,
    /// The row of the identity that it names; `None`: there is none.
    pub row: Option<RowId>,
    /// What it wants.
    pub op: Op,
}

/// What a command wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// No delivery any more.
    Cancel,
    /// Another due time.
    Reschedule(Reschedule),
    /// A dead task is delivered once more.
    Replay(Replay),
}

/// Another due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reschedule {
    /// The new due time; in the past: now.
    pub due_at: i64,
    /// The new time of expiry. `None`: as it was.
    pub expires_at: Option<i64>,
}

/// A dead letter that is to be delivered after all. Whoever carries it out writes the body from the dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The generation that was buried: a letter that was replayed before says nothing any more.
    pub generation: Generation,
    /// What the dead letter tells of options and history. Times that belong to the old due time are left out.
    pub live: Live,
}

/// What an intent wants once the fate of its `(row, gen)` is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Of a cancel.
    Cancel,
    /// Of a reschedule.
    Reschedule(Reschedule),
    /// Of an ack: the task is done, whatever attempt waits.
    Finish,
}

/// What a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// A reschedule or replay was carried out.
    Accepted,
    /// There will be no delivery any more.
    Cancelled,
    /// It was, or is being, delivered. (A running task gets no further attempts after a cancel.)
    AlreadySent,
    /// No such task.
    NotFound,
    /// It cannot be.
    Rejected(Refused),
}

/// Why a change is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refused {
    /// The task was given up; it can be replayed.
    Dead,
    /// It would expire before it is due.
    ExpiresBeforeDue,
    /// A replay of a task that is not dead, or was buried again since.
    NotDead,
}

impl Refused {
    /// The stable reason code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Refused::Dead => "dead",
            Refused::ExpiresBeforeDue => "expires_before_due",
            Refused::NotDead => "not_dead",
        }
    }

    fn refusal(self) -> Refusal {
        // A code that `schemas` does not have is excluded by a test.
        let code = ReasonCode::ALL.iter().copied().find(|code| code.as_str() == self.as_str());
        Refusal::of_record(code.unwrap_or(ReasonCode::Conflict), self.problem())
    }

    const fn problem(self) -> &'static str {
        match self {
            Refused::Dead => "the task was given up",
            Refused::ExpiresBeforeDue => "the task would expire before it is due",
            Refused::NotDead => "the task is not dead, or was buried again since",
        }
    }
}

impl Answer {
    /// As it stands in a reply, and why, where it is rejected.
    pub fn told(self) -> (reply::Answer, Option<Refusal>) {
        let answer = match self {
            Answer::Accepted => reply::Answer::Accepted,
            Answer::Cancelled => reply::Answer::Cancelled,
            Answer::AlreadySent => reply::Answer::AlreadySent,
            Answer::NotFound => reply::Answer::NotFound,
            Answer::Rejected(_) => reply::Answer::Rejected,
        };
        let refusal = match self {
            Answer::Rejected(refused) => Some(refused.refusal()),
            Answer::Accepted | Answer::Cancelled | Answer::AlreadySent | Answer::NotFound => None,
        };
        (answer, refusal)
    }
}

/// What became of a command for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is decided: the answer is true once the transaction has committed.
    Answered(Answer),
    /// An intent stands in `change`, and a withdraw goes out after the commit; the journal decides.
    Intended,
}

/// Decides a command. Commands come in their order; `cursors` were read under the shared locks of the rows' shards, so
/// that none of them moves meanwhile. `allows`: whether the command's source may deliver to a callback topic at all, for
/// otherwise the task is none of its business.
pub fn decide(
    life: &mut Life,
    change: &Change,
    cursors: &Cursors,
    allows: impl FnOnce(&str) -> bool,
) -> Verdict {
    let row = change.row.and_then(|id| life.get(id)).filter(|row| !is_later(row.id, change.command));
    let Some(row) = row.filter(|row| allows(&row.callback_topic)).cloned() else {
        return Verdict::Answered(Answer::NotFound);
    };
    match &row.place {
        Place::Pending(waiting) => pending(life, change, cursors, &row, waiting),
        Place::Running(working) => Verdict::Answered(running(life, change, &row, working)),
        Place::Final(ended) => Verdict::Answered(over(life, change, &row, *ended)),
        Place::Bodiless(_) => {
            life.alarm(Alarm::Bodiless { id: row.id });
            Verdict::Answered(Answer::NotFound)
        }
    }
}

/// Whether a row was made by a command behind this one in the same partition: it is not there yet.
fn is_later(row: RowId, command: RowId) -> bool {
    row.source() == command.source() && row.partition() == command.partition() && row > command
}

fn pending(life: &mut Life, change: &Change, cursors: &Cursors, row: &Held, waiting: &Waiting) -> Verdict {
    let intent = match &change.op {
        Op::Cancel => Intent::Cancel,
        Op::Reschedule(reschedule) => Intent::Reschedule(*reschedule),
        Op::Replay(_) => return Verdict::Answered(Answer::Rejected(Refused::NotDead)),
    };
    let untouched = life.open(row.id).all(|open| !open.is_intent());
    if let Intent::Reschedule(reschedule) = &intent {
        // It is on its way to `dead`: another due time is no other fate.
        if waiting.bury.is_some() {
            return Verdict::Answered(Answer::Rejected(Refused::Dead));
        }
        // Behind an open intent the expiry may be another by then: the fold judges.
        if untouched && reschedule.expires_first(&waiting.live) {
            return Verdict::Answered(Answer::Rejected(Refused::ExpiresBeforeDue));
        }
    }
    if !life.is_fresh(row.id) && !is_beyond(waiting.key, cursors) {
        let (command, id, generation) = (change.command, row.id, row.generation);
        life.open_one(Open { command, id, generation, what: What::Intent(intent) });
        return Verdict::Intended;
    }
    Verdict::Answered(match intent {
        Intent::Cancel => {
            let shard = waiting.key.shard;
            let ended = Ended { state: TaskState::Cancelled, finished_at: change.at, shard };
            life.enter(Event::Cancelled, row.at(Place::Final(ended)));
            Answer::Cancelled
        }
        Intent::Reschedule(reschedule) => {
            life.enter(Event::Rescheduled, row.next(Place::Pending(reschedule.moved(waiting))));
            Answer::Accepted
        }
        Intent::Finish => Answer::AlreadySent, // not wanted by a command
    })
}

/// Whether a row was never emitted with its generation. What is not known counts as emitted.
pub(crate) fn is_beyond(key: RowKey, cursors: &Cursors) -> bool {
    cursors.get(&key.shard).is_some_and(|cursor_at| key.due_at > *cursor_at)
}

fn running(life: &mut Life, change: &Change, row: &Held, working: &Working) -> Answer {
    match change.op {
        Op::Cancel => {
            life.put(row.at(Place::Running(Working { stop: true, ..working.clone() })), false);
            Answer::AlreadySent
        }
        Op::Reschedule(_) => Answer::AlreadySent,
        Op::Replay(_) => Answer::Rejected(Refused::NotDead),
    }
}

fn over(life: &mut Life, change: &Change, row: &Held, ended: Ended) -> Answer {
    match (&change.op, ended.state) {
        (Op::Replay(replay), TaskState::Dead) if replay.generation == row.generation => {
            let mut live = Live { failures: 0, stalls: 0, ..replay.live.clone() };
            (live.options.expires_at, live.options.asked_at) = (None, None);
            let key = RowKey { shard: ended.shard, due_at: change.at, id: row.id };
            let mut again = row.next(Place::Pending(Waiting { key, bury: None, noted: false, live }));
            again.attempt = row.attempt.saturating_add(1);
            life.enter(Event::Replayed, again);
            Answer::Accepted
        }
        (Op::Replay(_), _) => Answer::Rejected(Refused::NotDead),
        (Op::Cancel | Op::Reschedule(_), state) => answer_of(state),
    }
}

/// What a cancel or reschedule of a task that is over is answered.
fn answer_of(state: TaskState) -> Answer {
    match state {
        TaskState::Done | TaskState::Scheduled | TaskState::Running => Answer::AlreadySent,
        TaskState::Cancelled => Answer::Cancelled,
        TaskState::Dead => Answer::Rejected(Refused::Dead),
    }
}

impl Reschedule {
    /// Whether the task would expire before it is due.
    fn expires_first(&self, live: &Live) -> bool {
        self.expires_at.or(live.options.expires_at).is_some_and(|expires_at| expires_at < self.due_at)
    }

    /// The row with its new times. A spread is not applied again, so nothing else was asked for than what is due.
    fn moved(&self, waiting: &Waiting) -> Waiting {
        let mut moved = waiting.clone();
        moved.key.due_at = self.due_at;
        moved.noted = false;
        moved.live.options.expires_at = self.expires_at.or(moved.live.options.expires_at);
        moved.live.options.asked_at = None;
        moved
    }
}

#[cfg(test)]
mod tests;
