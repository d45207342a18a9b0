//! What the journal entry of a `(row, gen)` means for its open intents: folded in command order (PROTOCOL §1, H2).

use super::{Answer, Intent, Refused, answer_of};
use crate::life::{Ended, Held, Life, Open, Place, Waiting, What};
use crate::state::{Event, TaskState};
use schemas::ids::{Generation, RowId};

/// How a gen ended, as far as intents are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It will not be delivered: the intents decide.
    Withdrawn,
    /// It was delivered.
    Delivered,
    /// It is on `dead`.
    Buried,
}

/// What the intents of a delivered gen want of the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// A cancel came too late: no further attempts.
    pub stop: bool,
    /// The consumer had finished before.
    pub finish: bool,
}

/// Answers the intents of a row up to a generation, and closes them. `Withdrawn`: the row moves on as they say, with one
/// new generation, or ends. `generation`: that of the entry; `at`: when it was decided.
pub(crate) fn settle(life: &mut Life, row: &Held, generation: Generation, fate: Fate, at: i64) -> Settled {
    let intents: Vec<(RowId, Intent)> =
        life.open(row.id).filter_map(|open| intent(open, generation)).collect();
    let mut settled = Settled::default();
    let Place::Pending(waiting) = &row.place else {
        intents.iter().for_each(|(command, intent)| {
            let answer = late(*intent, fate, &mut settled);
            life.close(row.id, *command, answer);
        });
        return settled;
    };
    if fate != Fate::Withdrawn {
        for (command, intent) in intents {
            let answer = late(intent, fate, &mut settled);
            life.close(row.id, command, answer);
        }
        return settled;
    }
    let mut folding = Folding { waiting: waiting.clone(), ended: None };
    for (command, intent) in intents {
        let answer = folding.fold(intent);
        life.close(row.id, command, answer);
    }
    let Folding { waiting, ended } = folding;
    let row = Held { generation, ..row.clone() };
    match ended {
        None => {
            life.enter(Event::Rescheduled, row.next(Place::Pending(Waiting { noted: false, ..waiting })));
        }
        Some((event, state)) => {
            let ended = Ended { state, finished_at: at, shard: waiting.key.shard };
            life.enter(event, row.at(Place::Final(ended)));
        }
    }
    settled
}

fn intent(open: &Open, generation: Generation) -> Option<(RowId, Intent)> {
    match &open.what {
        What::Intent(intent) if open.generation <= generation => Some((open.command, *intent)),
        What::Intent(_) | What::Parked(_) => None,
    }
}

/// The answer where the gen was not withdrawn. A finish asks for none.
fn late(intent: Intent, fate: Fate, settled: &mut Settled) -> Option<Answer> {
    let answer = match fate {
        Fate::Buried => Answer::Rejected(Refused::Dead),
        Fate::Delivered | Fate::Withdrawn => Answer::AlreadySent,
    };
    match intent {
        Intent::Cancel => settled.stop = true,
        Intent::Reschedule(_) => {}
        Intent::Finish => {
            settled.finish = true;
            return None;
        }
    }
    Some(answer)
}

/// A withdrawn row while its intents are folded.
struct Folding {
    waiting: Waiting,
    ended: Option<(Event, TaskState)>,
}

impl Folding {
    fn fold(&mut self, intent: Intent) -> Option<Answer> {
        match (intent, self.ended) {
            (Intent::Finish, None) => {
                self.ended = Some((Event::Finished, TaskState::Done));
                None
            }
            (Intent::Finish, Some(_)) => None,
            (Intent::Cancel, None) => {
                self.ended = Some((Event::Cancelled, TaskState::Cancelled));
                Some(Answer::Cancelled)
            }
            (Intent::Cancel | Intent::Reschedule(_), Some((_, state))) => Some(answer_of(state)),
            (Intent::Reschedule(_), None) if self.waiting.bury.is_some() => {
                Some(Answer::Rejected(Refused::Dead))
            }
            (Intent::Reschedule(reschedule), None) if reschedule.expires_first(&self.waiting.live) => {
                Some(Answer::Rejected(Refused::ExpiresBeforeDue))
            }
            (Intent::Reschedule(reschedule), None) => {
                self.waiting = reschedule.moved(&self.waiting);
                Some(Answer::Accepted)
            }
        }
    }
}

/// What the compensator does about an intent that has waited too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranded {
    /// Its row still is pending with its generation: the withdraw is emitted again, with a fresh fence.
    Withdraw,
    /// Its row went on without it (a restored backup): it is answered from the row.
    Answer(Answer),
    /// Nobody waits for it.
    Drop,
}

/// Judges an open intent by its row, as found under lock.
pub fn stranded(intent: Intent, generation: Generation, row: Option<&Held>) -> Stranded {
    let answer = match row {
        None => Answer::NotFound,
        Some(row) => match &row.place {
            Place::Pending(_) if row.generation == generation => return Stranded::Withdraw,
            Place::Pending(_) | Place::Running(_) | Place::Bodiless(_) => Answer::AlreadySent,
            Place::Final(ended) => answer_of(ended.state),
        },
    };
    match intent {
        Intent::Finish => Stranded::Drop,
        Intent::Cancel | Intent::Reschedule(_) => Stranded::Answer(answer),
    }
}
