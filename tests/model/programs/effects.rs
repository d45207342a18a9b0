//! What ingest does after a commit: find out what to emit and what to answer, do it, and know that it is acked.

use crate::mysql::{Kind, Row, placed};
use crate::oracle::Reply;
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use protocol::admission::{self, Identity, Placed};
use protocol::life::Held;
use schemas::due::DueRecord;
use schemas::ids::{Generation, RowGen, RowId, Shard};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// Fences of all slots.
pub type Fences = Vec<i64>;

/// Reads them.
pub fn fences(w: &World) -> Fences {
    (0..w.setup.slots).map(|slot| w.db.fence(slot)).collect()
}

/// Effects of one batch: stage after stage, step by step.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    stages: VecDeque<Stage>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Rows that were just committed: read the cursors …
    Cursors { rows: Vec<Row>, fences: Fences },
    /// … and look again at what lies below them.
    Look { rows: Vec<Row>, fences: Fences, cursors: HashMap<Shard, i64> },
    /// Tasks that commands name: find their rows.
    LookUp(Vec<Identity>),
    /// Whatever of these still is pending at or below the cursor: read the fences …
    Fences(Vec<RowId>),
    /// … and then the rows.
    Rows { ids: Vec<RowId>, fences: Option<Fences> },
    /// Mistake: the fences last.
    FencesLast(Vec<Row>),
    /// Emit these, each until it is acked.
    Emit(VecDeque<DueRecord>),
    /// Answers that are owed for the commands of a stretch.
    Owed { first: RowId, end: RowId },
    /// Answers that are owed for intents of these.
    OwedLate(HashSet<RowGen>),
    /// Send these, each until it is acked.
    Tell(VecDeque<(RowId, Reply)>),
    /// Those of the journal's side are forgotten one by one.
    Forget(Vec<RowId>),
    /// Mistake: these get another generation although they may be alive outside.
    Renew(Vec<RowId>),
}

impl Effect {
    /// Rows that this very batch inserted.
    pub fn fresh(&mut self, rows: Vec<Row>, fences: Fences, cursors: Option<HashMap<Shard, i64>>) {
        if rows.is_empty() {
            return;
        }
        self.stages.push_back(match cursors {
            None => Stage::Cursors { rows, fences },
            Some(cursors) => Stage::Look { rows, fences, cursors },
        });
    }

    /// What somebody committed, or what has a new generation or an intent.
    pub fn look(&mut self, ids: Vec<RowId>) {
        if !ids.is_empty() {
            self.stages.push_back(Stage::Fences(ids));
        }
    }

    /// The same for the tasks that commands name.
    pub fn look_up(&mut self, identities: Vec<Identity>) {
        self.stages.push_back(Stage::LookUp(identities));
    }

    /// Answers to commands, which their row of `change` outlives.
    pub fn tell(&mut self, replies: impl IntoIterator<Item = (RowId, Reply)>) {
        let replies: VecDeque<_> = replies.into_iter().collect();
        if !replies.is_empty() {
            self.stages.push_back(Stage::Tell(replies));
        }
    }

    /// Answers to intents, which are forgotten one by one.
    pub fn tell_late(&mut self, replies: Vec<(RowId, Reply)>) {
        if !replies.is_empty() {
            let commands = replies.iter().map(|(command, _)| *command).collect();
            self.stages.push_back(Stage::Tell(replies.into()));
            self.stages.push_back(Stage::Forget(commands));
        }
    }

    /// Whatever answers are owed to the commands of a stretch.
    pub fn owed(&mut self, first: RowId, end: RowId) {
        self.stages.push_back(Stage::Owed { first, end });
    }

    /// Whatever answers are owed for intents of these.
    pub fn owed_late(&mut self, of: HashSet<RowGen>) {
        self.stages.push_back(Stage::OwedLate(of));
    }

    /// Mistake: another generation in the end.
    pub fn renew(&mut self, ids: Vec<RowId>) {
        if !ids.is_empty() {
            self.stages.push_back(Stage::Renew(ids));
        }
    }

    /// Answers first, emissions later.
    pub fn answers_first(&mut self) {
        self.stages
            .make_contiguous()
            .sort_by_key(|stage| !matches!(stage, Stage::Tell(_) | Stage::Forget(_)));
    }

    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// One step. `None`: all is acked.
    pub fn step(mut self, w: &mut World, who: &str) -> Option<Effect> {
        let stage = self.stages.pop_front()?;
        for next in stage.step(w, who).into_iter().rev() {
            self.stages.push_front(next);
        }
        (!self.stages.is_empty()).then_some(self)
    }
}

impl Stage {
    /// What is left to do instead.
    fn step(self, w: &mut World, who: &str) -> Vec<Stage> {
        match self {
            Stage::Cursors { rows, fences } => {
                if w.db_mishap("cursors", false) != Mishap::None {
                    return vec![Stage::Cursors { rows, fences }];
                }
                let cursors = w.db.cursors();
                w.say(who, || format!("reads cursors {cursors:?}"));
                vec![Stage::Look { rows, fences, cursors }]
            }
            Stage::Look { rows, fences, cursors } => {
                if w.db_mishap("second_look", false) != Mishap::None {
                    return vec![Stage::Cursors { rows, fences }];
                }
                let placed: Vec<Placed> = rows.iter().map(placed).collect();
                let near = admission::near(&placed, &cursors);
                let looked_at: Vec<Placed> = near.iter().map(|index| placed[*index]).collect();
                let found = w.db.second_look(&looked_at);
                let chosen = if w.has(Mutation::NoSecondLook) {
                    near
                } else {
                    admission::still_there(&placed, &near, &found)
                };
                let fences = if w.has(Mutation::FenceAfterRow) { self::fences(w) } else { fences };
                emit(chosen.into_iter().map(|index| record(w, &rows[index], &fences)))
            }
            Stage::LookUp(identities) => {
                if w.db_mishap("look_up", false) != Mishap::None {
                    return vec![Stage::LookUp(identities)];
                }
                let known = w.db.lookup(identities.into_iter());
                let mut ids: Vec<RowId> = known.into_values().map(|known| known.id).collect();
                ids.sort_unstable();
                vec![Stage::Fences(ids)]
            }
            Stage::Fences(ids) => {
                if w.has(Mutation::FenceAfterRow) {
                    return vec![Stage::Rows { ids, fences: None }];
                }
                if w.db_mishap("fences", false) != Mishap::None {
                    return vec![Stage::Fences(ids)];
                }
                let fences = Some(self::fences(w));
                vec![Stage::Rows { ids, fences }]
            }
            Stage::Rows { ids, fences } => {
                if w.db_mishap("rows", false) != Mishap::None {
                    return vec![Stage::Rows { ids, fences }];
                }
                let rows = w.db.pending_near(&ids);
                w.say(who, || format!("of {ids:?} still are pending below the cursor: {}", rows.len()));
                match fences {
                    None => vec![Stage::FencesLast(rows)],
                    Some(fences) => emit(rows.iter().map(|row| record(w, row, &fences))),
                }
            }
            Stage::FencesLast(rows) => {
                let fences = self::fences(w);
                emit(rows.iter().map(|row| record(w, row, &fences)))
            }
            Stage::Emit(mut records) => {
                let Some(record) = records.front().cloned() else { return Vec::new() };
                if w.emit(who, record) {
                    records.pop_front();
                }
                emit(records)
            }
            Stage::Owed { first, end } => {
                if w.db_mishap("owed", false) != Mishap::None {
                    return vec![Stage::Owed { first, end }];
                }
                let owed = w.db.change.range(first..end);
                let owed = owed.filter_map(|(command, change)| match change.kind {
                    Kind::Owed(reply) => Some((*command, reply)),
                    Kind::OwedLate(_) | Kind::Open(_) => None,
                });
                vec![Stage::Tell(owed.collect())]
            }
            Stage::OwedLate(of) => {
                if w.db_mishap("owed", false) != Mishap::None {
                    return vec![Stage::OwedLate(of)];
                }
                let mut late = Effect::default();
                late.tell_late(owed_late(w, |change| of.contains(&change.row_gen)));
                late.stages.into()
            }
            Stage::Tell(mut replies) => {
                let Some((command, reply)) = replies.front().copied() else { return Vec::new() };
                if w.reply(who, command, reply) {
                    replies.pop_front();
                }
                if replies.is_empty() { Vec::new() } else { vec![Stage::Tell(replies)] }
            }
            Stage::Forget(commands) => {
                if w.db_mishap("forget", false) != Mishap::None {
                    return vec![Stage::Forget(commands)];
                }
                for command in commands {
                    if w.db.change.get(&command).is_some_and(|row| matches!(row.kind, Kind::OwedLate(_))) {
                        w.db.change.remove(&command);
                    }
                }
                Vec::new()
            }
            Stage::Renew(ids) => {
                for row in w.db.pending_near(&ids) {
                    let generation = Generation(row.generation.0 + 1);
                    w.db.set(Held { generation, ..Held::clone(&row) });
                }
                vec![Stage::Fences(ids)]
            }
        }
    }
}

/// Answers that the journal's side owes.
pub fn owed_late(w: &World, wanted: impl Fn(&crate::mysql::Change) -> bool) -> Vec<(RowId, Reply)> {
    let owed = w.db.change.iter().filter(|(_, change)| wanted(change));
    let owed = owed.filter_map(|(command, change)| match change.kind {
        Kind::OwedLate(answer) => Some((*command, Reply::Change(answer))),
        Kind::Owed(_) | Kind::Open(_) => None,
    });
    owed.collect()
}

fn emit(records: impl IntoIterator<Item = DueRecord>) -> Vec<Stage> {
    let records: VecDeque<DueRecord> = records.into_iter().collect();
    if records.is_empty() { Vec::new() } else { vec![Stage::Emit(records)] }
}

/// The record of a row: with an open intent, its withdrawal.
fn record(w: &World, row: &Rc<Held>, fences: &Fences) -> DueRecord {
    let slot = w.slot_of(row);
    let withdraw = w.db.is_intended(row.row_gen());
    w.due_record(row, fences[usize::from(slot.0)], withdraw)
}
