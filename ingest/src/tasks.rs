//! The tasks' side: commands become rows, and what is due soon is emitted at once.

mod admit;
pub mod callback;
pub mod rejection;
mod validate;

use crate::deps::Deps;
use crate::metrics::{EMITTED, RECORDS};
use crate::partition::{Applied, Commit, Input, Limits};
use crate::side;
use crate::turn::{Stop, Turn};
use admit::{Accepted, Parsed};
use protocol::admission::{self, Placed};
use protocol::position::BatchLimits;
use runtime::kafka::{OutRecord, Record, TopicId};
use runtime::store::{Disposition, StoreError, change, source, tasks};
use schemas::ids::{RowId, SourceId};
use std::collections::HashMap;
use std::sync::Arc;

/// Finds the number of the topic, or gives it one.
pub struct Side {
    deps: Arc<Deps>,
}

impl Side {
    /// The side.
    pub fn new(deps: Arc<Deps>) -> Side {
        Side { deps }
    }
}

impl side::Side for Side {
    type Input = Tasks;
    const STREAM: &'static str = "tasks";

    fn topic(&self) -> String {
        self.deps.names.tasks()
    }

    fn group(&self) -> String {
        self.deps.names.group("ingest")
    }

    /// A topic that was created again gets a new number, so that row ids never collide.
    async fn open(&self, id: TopicId) -> Result<Tasks, String> {
        let topic = self.topic();
        let registered = async {
            let mut session = self.deps.db.session().await?;
            source::register(&mut session, &topic, *id.as_bytes()).await
        };
        let source = registered.await.map_err(|error| match error.disposition() {
            Disposition::Retry { .. } => format!("waiting for MySQL: {error}"),
            Disposition::Poison | Disposition::Fenced | Disposition::Fatal => error.to_string(),
        })?;
        Ok(Tasks { deps: self.deps.clone(), source })
    }
}

/// One topic of commands.
pub struct Tasks {
    deps: Arc<Deps>,
    source: SourceId,
}

/// What is left to do for a batch.
pub enum Effects {
    /// It was just committed.
    Fresh {
        /// What was accepted, with the fences read before the commit.
        accepted: Accepted,
        /// What was refused.
        rejected: Vec<OutRecord>,
    },
    /// It was committed by an earlier owner.
    Again {
        /// Its commands.
        ids: Vec<RowId>,
        /// What was refused and not acked.
        rejected: Vec<OutRecord>,
    },
}

impl Input for Tasks {
    type Effects = Effects;

    fn source(&self) -> SourceId {
        self.source
    }

    fn limits(&self) -> Limits {
        let cfg = &self.deps.cfg.tasks;
        Limits {
            batch: BatchLimits { records: cfg.batch, bytes: cfg.batch_bytes },
            linger: cfg.linger.get(),
            in_flight: cfg.in_flight,
            confirm_idle: self.deps.cfg.confirm.idle.get(),
        }
    }

    fn makes_positions(&self) -> bool {
        true
    }

    async fn apply(
        &self,
        batch: &[Record],
        commit: &Commit,
        refused: Option<&StoreError>,
        turn: &Turn,
    ) -> Result<Applied<Effects>, Stop> {
        let parsed: Vec<Parsed> = match refused {
            Some(error) => batch.iter().map(|record| admit::refused(self.source, record, error)).collect(),
            None => validate::batch(&self.deps, self.source, batch, turn).await?,
        };
        let admitted = admit::batch(&self.deps, parsed, commit, turn).await?;
        admitted.count();
        let by_offset: HashMap<i64, &Record> = batch.iter().map(|record| (record.offset, record)).collect();
        let rejected: Vec<OutRecord> = admitted
            .refused
            .iter()
            .filter_map(|refused| {
                let record = by_offset.get(&refused.command.offset())?;
                Some(rejection::of(record, &refused.refusal, &self.deps.names))
            })
            .collect();
        let answers = !rejected.is_empty();
        let nothing = rejected.is_empty() && admitted.accepted.is_empty();
        let effects = Effects::Fresh { accepted: admitted.accepted, rejected };
        Ok(Applied { effects: (!nothing).then_some(effects), answers })
    }

    async fn recall(&self, batch: &[Record], turn: &Turn) -> Result<Applied<Effects>, Stop> {
        RECORDS.with(&["tasks", "repeated"]).increment(batch.len() as u64);
        let id = |record: &Record| RowId::pack(self.source, record.partition, record.offset);
        let records: HashMap<RowId, &Record> =
            batch.iter().filter_map(|record| Some((id(record)?, record))).collect();
        let ids: Vec<RowId> = batch.iter().filter_map(id).collect();
        let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
            return Ok(Applied { effects: None, answers: false });
        };
        let owed = turn
            .store(|| async {
                let mut session = turn.db().session().await?;
                change::owed_rejections(&mut session, first, last).await
            })
            .await?;
        let rejected: Vec<OutRecord> = owed
            .iter()
            .filter_map(|(id, refusal)| Some(rejection::of(records.get(id)?, refusal, &self.deps.names)))
            .collect();
        let answers = !rejected.is_empty();
        Ok(Applied { effects: Some(Effects::Again { ids, rejected }), answers })
    }

    async fn carry_out(self: Arc<Self>, effects: Effects, turn: Arc<Turn>) -> Result<(), Stop> {
        let (emissions, cause) = match effects {
            Effects::Fresh { accepted, rejected } => {
                rejection::send(&self.deps, rejected, &turn).await?;
                (self.near(accepted, &turn).await?, "near")
            }
            Effects::Again { ids, rejected } => {
                rejection::send(&self.deps, rejected, &turn).await?;
                (self.deps.emit_again(&ids, &turn).await?, "repeated")
            }
        };
        let count = emissions.len() as u64;
        self.deps.emit(emissions, &turn).await?;
        EMITTED.with(&[cause]).increment(count);
        Ok(())
    }
}

impl Tasks {
    /// Of the rows that were just committed, what the scanner may have passed already: read the cursors, then look
    /// again which of the rows at or below them still are there.
    async fn near(&self, accepted: Accepted, turn: &Turn) -> Result<Vec<OutRecord>, Stop> {
        let Accepted { tasks: rows, again, fences } = accepted;
        let mut emissions = self.deps.emit_again(&again, turn).await?;
        if rows.is_empty() {
            return Ok(emissions);
        }
        let placed: Vec<Placed> = rows.iter().map(tasks::NewTask::placed).collect();
        let emitted = turn
            .store(|| async {
                let mut session = turn.db().session().await?;
                let cursors = tasks::cursors(&mut session, &placed).await?;
                let near = admission::near(&placed, &cursors);
                let found =
                    tasks::second_look(&mut session, near.iter().map(|index| &placed[*index])).await?;
                Ok(admission::still_there(&placed, &near, &found))
            })
            .await?;
        let mut rows: Vec<Option<tasks::NewTask>> = rows.into_iter().map(Some).collect();
        let chosen = emitted.into_iter().filter_map(|index| rows[index].take());
        emissions.extend(chosen.filter_map(|task| self.deps.emission(task.row, false, &fences)));
        Ok(emissions)
    }
}
