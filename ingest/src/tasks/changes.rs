//! Cancels, reschedules and replays: decided in the transaction of their batch, with the rows that they speak of under lock.
//!
//! ```text
//! identities ─▶ rows and their shards (no lock) ─▶ shards locked shared ─▶ new rows inserted ─▶ rows FOR UPDATE
//!      ▲                                                                                            │
//!      └──────────────── a row has moved to a shard that is not locked ────────────────────────────┤
//!                                                                                                   ▼
//!                        decided in command order: at once, or an intent that the journal decides ──▶ written
//! ```

use super::replay::{self, Letter};
use crate::after::RESEND_AFTER_MS;
use crate::metrics::CHANGES;
use protocol::admission::{Identity, Known};
use protocol::change::{self, Answer, Change, Op, Reschedule, Verdict};
use protocol::life::{Cursors, Effects, Held, Life, Live, Place, RowKey, Waiting};
use protocol::state::TaskState;
use runtime::store::change::{Owed, OwedReply};
use runtime::store::intents::Telling;
use runtime::store::tasks::{self, NewTask};
use runtime::store::{Session, StoreError, Tx, held, life};
use schemas::command::{Asked, ChangeOp, Rules};
use schemas::ids::{RowId, Shard};
use schemas::row::{RowHistory, RowOptions};
use std::collections::{BTreeSet, HashMap};

/// A valid command that wants a task changed.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The command.
    pub command: RowId,
    /// When its record was appended.
    pub at: i64,
    /// Which task: the first of these that there is.
    pub identities: Vec<Identity>,
    /// What.
    pub op: Op,
    /// The reply that it asks for, with the identity complete.
    pub reply: Option<Asked>,
    /// Of a replay: the dead letter.
    pub letter: Option<Letter>,
}

/// The changes of a batch once they are decided.
#[derive(Debug, Default)]
pub struct Decided {
    /// What was written for the rows.
    pub effects: Effects,
    /// Answers that are true with the commit, and rows that were moved to where they have to be emitted at once.
    pub owed: Vec<Owed>,
    verdicts: Vec<(&'static str, &'static str)>,
}

impl Wanted {
    /// What a cancel or reschedule wants.
    pub fn of_change(command: RowId, at: i64, change: &schemas::command::Change) -> Wanted {
        let op = match change.op {
            ChangeOp::Cancel => Op::Cancel,
            ChangeOp::Reschedule { due_at, expires_at } => Op::Reschedule(Reschedule { due_at, expires_at }),
        };
        let identities = change.identities().into_iter().map(Identity).collect();
        let reply = complete(change.reply.clone(), change.shard_key());
        Wanted { command, at, identities, op, reply, letter: None }
    }

    /// What a replay wants.
    pub fn of_replay(command: RowId, at: i64, mut replay: schemas::command::Replay) -> Wanted {
        let identities = replay.identities().into_iter().map(Identity).collect();
        let reply = complete(replay.reply.take(), replay.shard_key());
        let (op, letter) = Letter::open(replay);
        Wanted { command, at, identities, op: Op::Replay(op), reply, letter: Some(letter) }
    }

    /// The row that it speaks of: of a replay only the very one that was buried. Another of that identity, or one that
    /// delivers elsewhere, is another task.
    fn speaks_of(&self, row: &Held) -> bool {
        self.letter.as_ref().is_none_or(|letter| letter.speaks_of(row))
    }

    fn label(&self) -> &'static str {
        match self.op {
            Op::Cancel => "cancel",
            Op::Reschedule(_) => "reschedule",
            Op::Replay(_) => "replay",
        }
    }
}

impl Decided {
    /// Counts the outcomes.
    pub fn count(&self, source: &str) {
        for (op, answer) in &self.verdicts {
            CHANGES.with(&[source, op, answer]).increment(1);
        }
        crate::journal::count_alarms(&self.effects.alarms);
    }
}

/// The rows that were there before the batch, by what a look found.
pub fn rows_of(wanted: &[Wanted], known: &HashMap<Identity, Known>) -> BTreeSet<RowId> {
    let of = |wanted: &Wanted| {
        wanted.identities.iter().find_map(|identity| known.get(identity)).map(|known| known.id)
    };
    wanted.iter().filter_map(of).collect()
}

/// Shards whose cursors decide: of those rows that are pending now.
pub async fn shards_of(session: &mut Session, rows: &BTreeSet<RowId>) -> Result<BTreeSet<Shard>, StoreError> {
    let rows: Vec<RowId> = rows.iter().copied().collect();
    let places = held::places(session, &rows).await?;
    let pending = places.into_iter().filter(|row| row.state == Some(TaskState::Scheduled));
    Ok(pending.map(|row| row.shard).collect())
}

/// Decides and writes the changes of a batch whose new rows are inserted. `None`: a row lies in a shard that is not
/// locked; roll back and look again.
pub async fn apply(
    tx: &mut Tx,
    wanted: &[Wanted],
    known: &HashMap<Identity, Known>,
    inserted: &[&NewTask],
    cursors: &Cursors,
    rules: &Rules,
    received_at: i64,
) -> Result<Option<Decided>, StoreError> {
    let rows = rows_of(wanted, known);
    let mut life = life::hold(tx, &rows).await?;
    if rows.iter().any(|id| !is_judged(&life, *id, cursors)) {
        return Ok(None);
    }
    let fresh: HashMap<Identity, &NewTask> = inserted.iter().map(|task| (task.identity, *task)).collect();
    let mut decided = Decided::default();
    let mut asked: HashMap<RowId, Asked> = HashMap::new();
    let mut letters: HashMap<RowId, &Letter> = HashMap::new();
    for wanted in wanted {
        let found = wanted.identities.iter().find_map(|identity| {
            let known = known.get(identity).map(|known| (known.id, None));
            known.or_else(|| fresh.get(identity).map(|task| (task.row.id, Some(*task))))
        });
        if let Some((id, Some(task))) = found
            && life.get(id).is_none()
        {
            life.insert(inserted_row(task)?);
        }
        let row = found.map(|(id, _)| id);
        let row = row.filter(|id| life.get(*id).is_none_or(|row| wanted.speaks_of(row)));
        let change = Change { command: wanted.command, at: wanted.at, row, op: wanted.op.clone() };
        let verdict =
            change::decide(&mut life, &change, cursors, |topic| rules.check_topic("topic", topic).is_ok());
        let label = match verdict {
            Verdict::Answered(answer) => {
                if let (Answer::Accepted, Some(letter), Some(row)) = (answer, &wanted.letter, row) {
                    letters.insert(row, letter);
                }
                decided.owed.extend(owed_for(wanted, answer, row, &life, cursors, received_at));
                answer.told().0.as_str()
            }
            Verdict::Intended => {
                asked.extend(wanted.reply.clone().map(|reply| (wanted.command, reply)));
                "intended"
            }
        };
        decided.verdicts.push((wanted.label(), label));
    }
    decided.effects = life.into_effects();
    let telling = Telling { received_at, resend_at: received_at + RESEND_AFTER_MS, asked: &asked };
    life::write(tx, &decided.effects, telling).await?;
    tasks::put_back(tx, &replay::rows(&decided.effects, &letters)).await?;
    Ok(Some(decided))
}

/// Whoever asked, with the identity complete.
fn complete(asked: Option<Asked>, shard_key: &str) -> Option<Asked> {
    asked.map(|asked| Asked { shard_key: Some(shard_key.to_owned()), ..asked })
}

/// Whether the cursor of a row is known, as far as it matters.
fn is_judged(life: &Life, id: RowId, cursors: &Cursors) -> bool {
    match life.get(id).map(|row| &row.place) {
        Some(Place::Pending(waiting)) => cursors.contains_key(&waiting.key.shard),
        Some(Place::Running(_) | Place::Bodiless(_) | Place::Final(_)) | None => true,
    }
}

/// A row that this very transaction has inserted.
fn inserted_row(task: &NewTask) -> Result<Held, StoreError> {
    let row = &task.row;
    let unreadable = |what: schemas::avro::DecodeError| StoreError::Invariant {
        op: "tasks_apply",
        what: format!("row {} was made unreadable: {what}", row.id),
    };
    let live = Live {
        failures: row.failures,
        stalls: row.stalls,
        options: RowOptions::decode(&row.options).map_err(unreadable)?,
        history: RowHistory::decode(&row.history).map_err(unreadable)?,
    };
    let key = RowKey { shard: row.shard, due_at: row.due_at, id: row.id };
    Ok(Held {
        id: row.id,
        generation: row.generation,
        attempt: row.attempt,
        callback_topic: row.callback_topic.clone(),
        place: Place::Pending(Waiting { key, bury: None, noted: false, live }),
    })
}

/// What is owed for a change that was decided at once: the answer to whoever asked, and, should the program die now, the
/// emission of a row that was moved to where the scanner has been.
fn owed_for(
    wanted: &Wanted,
    answer: Answer,
    row: Option<RowId>,
    life: &Life,
    cursors: &Cursors,
    received_at: i64,
) -> Option<Owed> {
    let moved = row.filter(|_| answer == Answer::Accepted).and_then(|id| life.get(id)?.pending_key());
    let near = moved.filter(|key| cursors.get(&key.shard).is_none_or(|cursor_at| key.due_at <= *cursor_at));
    let (told, refusal) = answer.told();
    let reply = wanted.reply.as_ref().map(|asked| OwedReply {
        answer: told,
        task_id: asked.task_id.clone(),
        shard_key: asked.shard_key.clone(),
        due_at: moved.map(|key| key.due_at),
        correlation: asked.correlation.clone(),
        as_avro: asked.as_avro,
    });
    if reply.is_none() && near.is_none() {
        return None;
    }
    Some(Owed::new(wanted.command, received_at, refusal, reply).of_change(near.map(|key| key.id)))
}

/// Identities of the tasks.
pub fn identities(wanted: &[Wanted]) -> impl Iterator<Item = Identity> + '_ {
    wanted.iter().flat_map(|wanted| wanted.identities.iter().copied())
}
