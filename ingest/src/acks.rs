//! The side of `acks`: what consumers report reaches the rows that wait for it, and ticks say how far it has come.

mod decode;
mod tick;

use crate::after::RESEND_AFTER_MS;
use crate::deps::Deps;
use crate::metrics::{ACKS, EMITTED, RECORDS, REJECTED};
use crate::partition::{Applied, Commit, Input, Limits};
use crate::side;
use crate::tasks::rejection;
use crate::turn::{Stop, Turn};
use decode::Decoded;
use protocol::ack::{self, Outcome, Report};
use protocol::life::{Cursors, Effects as Written, Life, Place};
use protocol::position::BatchLimits;
use protocol::state::TaskState;
use runtime::kafka::{KafkaFault, OutRecord, Record, TopicId};
use runtime::store::intents::Telling;
use runtime::store::{StoreError, held, life as rows, position, shard, source};
use schemas::ids::{RowId, Shard, SourceId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Registers the topic, and sees to it that every partition has a position.
pub struct Side {
    deps: Arc<Deps>,
}

impl Side {
    /// The side.
    pub fn new(deps: Arc<Deps>) -> Side {
        Side { deps }
    }

    /// Positions of all partitions, so that a partition that nobody reads yet is known to be unread: the compensator
    /// judges nothing while one of them has no tick.
    async fn positions(&self, source: SourceId) -> Result<(), String> {
        let topic = self.deps.names.acks();
        let info = self.deps.admin.topic(&topic).await.map_err(|fault| fault.to_string())?;
        for partition in 0..info.map_or(0, |info| info.partition_count()) {
            let start =
                self.deps.admin.watermarks(&topic, partition).await.map_err(|fault| fault.to_string())?.0;
            let created = async {
                let mut session = self.deps.db.session().await?;
                position::create(&mut session, source, partition, start).await
            };
            created.await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl side::Side for Side {
    type Input = Acks;
    const STREAM: &'static str = "acks";

    fn topic(&self) -> String {
        self.deps.names.acks()
    }

    fn group(&self) -> String {
        self.deps.names.group("ingest-acks")
    }

    fn making_of(&self) -> String {
        "run `duectl init`".to_owned()
    }

    /// A deadline counts from the record's timestamp: it must be the broker's.
    async fn unfit(&self) -> Result<Option<String>, KafkaFault> {
        side::unless_log_append_time(&self.deps, &self.topic()).await
    }

    /// A topic that was created again gets a new number, so that acks of the old one are never taken for new ones.
    async fn open(&self, id: TopicId) -> Result<Acks, String> {
        let topic = self.topic();
        let registered = async {
            let mut session = self.deps.db.session().await?;
            source::register(&mut session, &topic, *id.as_bytes()).await
        };
        let source = registered.await.map_err(|error| error.to_string())?;
        self.positions(source).await?;
        Ok(Acks { deps: self.deps.clone(), source })
    }
}

/// The registered topic.
pub struct Acks {
    deps: Arc<Deps>,
    source: SourceId,
}

/// What is left to do for a batch.
pub struct Effects {
    /// Rows to look at: the next attempt, or the withdrawal of one that is not needed any more.
    look: BTreeSet<RowId>,
    /// Bytes that are no ack.
    rejected: Vec<OutRecord>,
}

impl Input for Acks {
    type Effects = Effects;

    fn source(&self) -> SourceId {
        self.source
    }

    fn limits(&self) -> Limits {
        let cfg = &self.deps.cfg.acks;
        let batch = BatchLimits { records: cfg.batch, bytes: cfg.batch_bytes };
        Limits::new(batch, cfg.linger, cfg.in_flight, &self.deps.cfg.confirm)
    }

    fn makes_positions(&self) -> bool {
        true
    }

    fn assigned(self: &Arc<Self>, turn: &Arc<Turn>) {
        tokio::spawn(tick::run(self.deps.clone(), turn.clone()));
    }

    async fn apply(
        &self,
        batch: &[Record],
        commit: &Commit,
        refused: Option<&StoreError>,
        turn: &Turn,
    ) -> Result<Applied<Effects>, Stop> {
        let mut decoded = Decoded::of(self.source, batch);
        if let Some(error) = refused {
            decoded.refuse(batch, error);
        }
        let (outcomes, written) = loop {
            if let Some(done) = turn.store(|| self.write(&decoded, commit, turn)).await? {
                break done;
            }
            // A row came back into `pending` between two looks: the next one finds it there.
        };
        self.count(&decoded, &outcomes, &written, turn);
        let rejected = decoded.rejections(&self.deps.names);
        Ok(applied(written.look, rejected))
    }

    /// Whatever came of these acks, it stands in the rows.
    async fn recall(&self, batch: &[Record], turn: &Turn) -> Result<Applied<Effects>, Stop> {
        RECORDS.with(&["acks", &turn.source, "repeated"]).increment(batch.len() as u64);
        let decoded = Decoded::of(self.source, batch);
        let rejected = decoded.rejections(&self.deps.names);
        Ok(applied(decoded.ids(), rejected))
    }

    async fn carry_out(self: Arc<Self>, effects: Effects, turn: Arc<Turn>) -> Result<(), Stop> {
        let emitted = self.deps.look_at(&effects.look, &turn).await?;
        EMITTED.with(&["ack"]).increment(emitted);
        rejection::send(&self.deps, effects.rejected, &turn).await
    }
}

impl Acks {
    /// One transaction: positions, cursors, rows under lock, what was decided, the tick. `None`: a row has moved into a
    /// shard whose cursor is not locked; nothing was written.
    async fn write(
        &self,
        decoded: &Decoded<'_>,
        commit: &Commit,
        turn: &Turn,
    ) -> Result<Option<(Vec<Outcome>, Written)>, StoreError> {
        let finishing: Vec<RowId> = decoded.finishing().collect();
        let mut session = turn.db().session().await?;
        let waiting = held::places(&mut session, &finishing).await?;
        drop(session);
        let shards: BTreeSet<Shard> = waiting
            .into_iter()
            .filter(|row| row.state == Some(TaskState::Scheduled))
            .map(|row| row.shard)
            .collect();
        let mut tx = turn.db().begin("acks_apply").await?;
        commit.advance(&mut tx).await?;
        let locked =
            if shards.is_empty() { Vec::new() } else { shard::lock_shared(&mut tx, &shards).await? };
        let cursors: Cursors = locked.into_iter().map(|row| (row.shard, row.cursor_at)).collect();
        let mut life = rows::hold(&mut tx, &decoded.ids()).await?;
        if finishing.iter().any(|id| !is_judged(&life, *id, &cursors)) {
            tx.rollback().await?;
            return Ok(None);
        }
        let outcomes = decoded.acks.iter().map(|ack| ack::decide(&mut life, ack, &cursors)).collect();
        let written = life.into_effects();
        let received_at = runtime::clock::now_ms();
        // Nobody asks for an answer to an ack.
        let nobody = HashMap::new();
        let telling = Telling { received_at, resend_at: received_at + RESEND_AFTER_MS, asked: &nobody };
        rows::write(&mut tx, &written, telling).await?;
        if let Some(at) = decoded.last_at {
            position::tick(&mut tx, self.source, commit.partition, at).await?;
        }
        tx.commit().await?;
        Ok(Some((outcomes, written)))
    }

    fn count(&self, decoded: &Decoded<'_>, outcomes: &[Outcome], written: &Written, turn: &Turn) {
        RECORDS.with(&["acks", &turn.source, "applied"]).increment(decoded.acks.len() as u64);
        for (_, refusal) in &decoded.refused {
            RECORDS.with(&["acks", &turn.source, "rejected"]).increment(1);
            REJECTED.with(&[&turn.source, refusal.code.as_str()]).increment(1);
        }
        for (ack, outcome) in decoded.acks.iter().zip(outcomes) {
            ACKS.with(&[report(&ack.report), outcome.as_str()]).increment(1);
        }
        crate::journal::count_alarms(&written.alarms);
    }
}

/// Whether the cursor of a row is known, as far as it matters.
fn is_judged(life: &Life, id: RowId, cursors: &Cursors) -> bool {
    match life.get(id).map(|row| &row.place) {
        Some(Place::Pending(waiting)) => cursors.contains_key(&waiting.key.shard),
        Some(Place::Running(_) | Place::Bodiless(_) | Place::Final(_)) | None => true,
    }
}

fn report(report: &Report) -> &'static str {
    match report {
        Report::Progress => "progress",
        Report::Succeeded => "succeeded",
        Report::Failed { .. } => "failed",
    }
}

fn applied(look: BTreeSet<RowId>, rejected: Vec<OutRecord>) -> Applied<Effects> {
    let nothing = look.is_empty() && rejected.is_empty();
    // The bytes of garbage are read again after a crash, and found to be garbage again: nothing is owed in MySQL.
    Applied { effects: (!nothing).then_some(Effects { look, rejected }), answers: false }
}
