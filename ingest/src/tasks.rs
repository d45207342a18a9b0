//! The side of a source, of which there may be several: commands become rows, and what is due soon is emitted at once.

mod admit;
mod answer;
pub mod callback;
pub mod rejection;
mod validate;

use crate::config::SourceRules;
use crate::deps::Deps;
use crate::metrics::{EMITTED, RECORDS};
use crate::partition::{Applied, Commit, Input, Limits};
use crate::side;
use crate::turn::{Stop, Turn};
use admit::{Accepted, Parsed};
use protocol::admission::{self, Placed};
use protocol::position::BatchLimits;
use runtime::kafka::{KafkaFault, OutRecord, Record, TopicId};
use runtime::store::{Disposition, StoreError, change, source, tasks};
use schemas::ids::{RowId, SourceId};
use std::collections::HashMap;
use std::sync::Arc;

/// Finds the number of the topic, or gives it one.
pub struct Side {
    deps: Arc<Deps>,
    source: Arc<SourceRules>,
}

impl Side {
    /// The side.
    pub fn new(deps: Arc<Deps>, source: SourceRules) -> Side {
        Side { deps, source: Arc::new(source) }
    }
}

impl side::Side for Side {
    type Input = Tasks;
    const STREAM: &'static str = "tasks";

    fn topic(&self) -> String {
        self.source.topic.clone()
    }

    /// A group for each source, so that trouble with one is none of the others'.
    fn group(&self) -> String {
        let names = &self.deps.names;
        if self.source.topic == names.tasks() {
            return names.group("ingest");
        }
        format!("{}-{}", names.group("ingest-source"), self.source.topic)
    }

    fn making_of(&self) -> String {
        format!("`duectl init --source {}` makes it", self.source.topic)
    }

    /// Delays count from the record's timestamp and its age decides whether it is too old: it must be the broker's.
    async fn unfit(&self) -> Result<Option<String>, KafkaFault> {
        let topic = &self.source.topic;
        let config = self.deps.admin.topic_config(topic).await?.unwrap_or_default();
        let info = self.deps.admin.topic(topic).await?;
        let partitions = info.map_or(0, |info| info.partition_count());
        let kind = config.get(TIMESTAMP_TYPE).map_or("not known", String::as_str);
        Ok(if kind != LOG_APPEND_TIME {
            Some(format!(
                "topic {topic}: {TIMESTAMP_TYPE} is {kind}, must be {LOG_APPEND_TIME}; kafka-configs.sh --alter --entity-type \
                 topics --entity-name {topic} --add-config {TIMESTAMP_TYPE}={LOG_APPEND_TIME}"
            ))
        } else if partitions > RowId::MAX_PARTITION + 1 {
            Some(format!(
                "topic {topic} has {partitions} partitions, at most {} can be read; use another topic",
                RowId::MAX_PARTITION + 1
            ))
        } else {
            None
        })
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
        Ok(Tasks { deps: self.deps.clone(), source, rules: self.source.clone() })
    }
}

/// One topic of commands.
pub struct Tasks {
    deps: Arc<Deps>,
    source: SourceId,
    rules: Arc<SourceRules>,
}

const TIMESTAMP_TYPE: &str = "message.timestamp.type";
const LOG_APPEND_TIME: &str = "LogAppendTime";

/// What is left to do for a batch.
pub enum Effects {
    /// It was just committed.
    Fresh {
        /// What was accepted, with the fences read before the commit.
        accepted: Accepted,
        /// Rejections and replies.
        said: Vec<OutRecord>,
    },
    /// It was committed by an earlier owner.
    Again {
        /// Its commands.
        ids: Vec<RowId>,
        /// Rejections and replies that were not acked.
        said: Vec<OutRecord>,
    },
}

impl Input for Tasks {
    type Effects = Effects;

    fn source(&self) -> SourceId {
        self.source
    }

    fn limits(&self) -> Limits {
        let cfg = &self.deps.cfg.tasks;
        let batch = BatchLimits { records: cfg.batch, bytes: cfg.batch_bytes };
        Limits::new(batch, cfg.linger, cfg.in_flight, &self.deps.cfg.confirm)
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
        let mut parsed: Vec<Parsed> = validate::batch(self, batch, turn).await?;
        if let Some(error) = refused {
            parsed = parsed.into_iter().map(|parsed| parsed.refused(error)).collect();
        }
        let admitted = admit::batch(&self.deps, parsed, commit, turn).await?;
        admitted.count(&turn.source);
        let said = answer::records(&self.deps, &admitted.owed, &self.by_id(batch));
        let answers = !said.is_empty();
        let nothing = said.is_empty() && admitted.accepted.is_empty();
        let effects = Effects::Fresh { accepted: admitted.accepted, said };
        Ok(Applied { effects: (!nothing).then_some(effects), answers })
    }

    async fn recall(&self, batch: &[Record], turn: &Turn) -> Result<Applied<Effects>, Stop> {
        RECORDS.with(&["tasks", &turn.source, "repeated"]).increment(batch.len() as u64);
        let ids: Vec<RowId> = batch.iter().map(|record| admit::row_id(self.source, record)).collect();
        let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
            return Ok(Applied { effects: None, answers: false });
        };
        let owed = turn
            .store(|| async {
                let mut session = turn.db().session().await?;
                change::owed(&mut session, first, last).await
            })
            .await?;
        let said = answer::records(&self.deps, &owed, &self.by_id(batch));
        let answers = !said.is_empty();
        Ok(Applied { effects: Some(Effects::Again { ids, said }), answers })
    }

    async fn carry_out(self: Arc<Self>, effects: Effects, turn: Arc<Turn>) -> Result<(), Stop> {
        let (emissions, said, cause) = match effects {
            Effects::Fresh { accepted, said } => (self.near(accepted, &turn).await?, said, "near"),
            Effects::Again { ids, said } => (self.deps.emit_again(&ids, &turn).await?, said, "repeated"),
        };
        let count = emissions.len() as u64;
        self.deps.emit(emissions, &turn).await?;
        EMITTED.with(&[cause]).increment(count);
        // Behind the emissions: what is due must not wait for what is only said.
        rejection::send(&self.deps, said, &turn).await
    }
}

impl Tasks {
    fn by_id<'r>(&self, batch: &'r [Record]) -> HashMap<RowId, &'r Record> {
        batch.iter().map(|record| (admit::row_id(self.source, record), record)).collect()
    }

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
