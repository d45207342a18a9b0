//! What every partition of both sides uses.

use crate::config::Config;
use crate::emitter::Emitter;
use crate::metrics::ALARMS;
use crate::registry::Schemas;
use crate::tasks::callback::CallbackTopics;
use crate::turn::{Stop, Turn};
use protocol::route::RouteTable;
use runtime::kafka::{Admin, Cluster, OutRecord};
use runtime::store::position::Fences;
use runtime::store::tasks::{self, NearRow};
use runtime::store::{Backoff, Db, PendingRow, position};
use schemas::due::DueRecord;
use schemas::ids::{RowId, SourceId};
use schemas::topics::Names;
use std::sync::Arc;
use tokio::sync::watch;

/// Connections, and what was found when the world was checked.
pub struct Deps {
    /// Configuration.
    pub cfg: Arc<Config>,
    /// Names of the pipeline.
    pub names: Names,
    /// MySQL.
    pub db: Db,
    /// Pauses between tries.
    pub backoff: Backoff,
    /// Kafka.
    pub cluster: Cluster,
    /// Questions to Kafka.
    pub admin: Admin,
    /// What is sent.
    pub emitter: Emitter,
    /// Schemas with which commands may be written.
    pub schemas: Schemas,
    /// Which callback topics there are.
    pub callbacks: CallbackTopics,
    /// Number of shards.
    pub shards: u16,
    /// Slot of a row.
    pub routes: RouteTable,
    /// Number of the journal; `None` while the journal is not the registered one, for then there are no fences.
    pub journal: watch::Receiver<Option<SourceId>>,
    due_topic: Arc<str>,
}

impl Deps {
    #[expect(clippy::too_many_arguments, reason = "called once")]
    pub(crate) fn new(
        cfg: Arc<Config>,
        names: Names,
        db: Db,
        cluster: Cluster,
        admin: Admin,
        schemas: Schemas,
        shards: u16,
        routes: RouteTable,
        journal: watch::Receiver<Option<SourceId>>,
    ) -> Deps {
        Deps {
            backoff: Backoff::of(&cfg.mysql),
            emitter: Emitter::new(cluster.clone()),
            callbacks: CallbackTopics::new(admin.clone(), cfg.callback.cache.get()),
            due_topic: names.due().into(),
            cfg,
            names,
            db,
            cluster,
            admin,
            schemas,
            shards,
            routes,
            journal,
        }
    }

    /// Number of the journal, waited for while there is none.
    pub async fn journal(&self, turn: &Turn) -> Result<SourceId, Stop> {
        let mut journal = self.journal.clone();
        let known = async { journal.wait_for(Option::is_some).await.ok().and_then(|found| *found) };
        // What is known is used also while draining.
        tokio::select! {
            biased;
            () = turn.gone.cancelled() => Err(Stop::Gone),
            found = known => found.ok_or(Stop::Gone),
            () = turn.stop.cancelled() => Err(Stop::Gone),
        }
    }

    /// Fences of all slots, as they stand now.
    pub async fn fences(&self, turn: &Turn) -> Result<Fences, Stop> {
        let journal = self.journal(turn).await?;
        turn.store(|| async {
            let mut session = turn.db().session().await?;
            position::fences(&mut session, journal).await
        })
        .await
    }

    /// What is put on `due` for a row that waits. The fences were read before the row was read, or committed.
    pub fn emission(&self, row: PendingRow, withdraw: bool, fences: &Fences) -> Option<OutRecord> {
        let slot = self.routes.slot_at(row.shard, row.due_at);
        let id = row.id;
        let Some(fence) = fences.of(slot) else {
            tracing::error!(row = %id, slot = slot.0, "no position for the journal of this slot: run `duectl init`");
            return None;
        };
        let record: DueRecord = if withdraw {
            row.withdraw_record(fence)
        } else {
            match row.due_record(fence) {
                Ok(record) => record,
                Err(error) => {
                    tracing::error!(row = %id, "a row of `pending` cannot be read and is not emitted: {error}");
                    return None;
                }
            }
        };
        let record = OutRecord::to(self.due_topic.clone())
            .partition(i32::from(slot.0))
            .key(id.to_string())
            .value(record.encode());
        Some(record)
    }

    /// What to emit of these rows by who cannot know whether it was emitted: whatever still is pending at or below
    /// its cursor, as it stands now.
    pub async fn emit_again(&self, ids: &[RowId], turn: &Turn) -> Result<Vec<OutRecord>, Stop> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        // The fences first: what is read as pending after them has no fate below them.
        let fences = self.fences(turn).await?;
        let near = turn
            .store(|| async {
                let mut session = turn.db().session().await?;
                tasks::pending_near(&mut session, ids.iter().copied()).await
            })
            .await?;
        let emission = |NearRow { row, intent }| self.emission(row, intent, &fences);
        Ok(near.into_iter().filter_map(emission).collect())
    }

    /// Puts records on `due` and waits for their acks.
    pub async fn emit(&self, emissions: Vec<OutRecord>, turn: &Turn) -> Result<(), Stop> {
        for (record, fault) in self.emitter.send_all(emissions, turn).await? {
            // Validation keeps the body so small that this cannot be; the row stays pending, for people to see.
            ALARMS.with(&["emission_refused"]).increment(1);
            let row = record.key.as_deref().map(String::from_utf8_lossy);
            tracing::error!(row = ?row, "Kafka refuses a due record: {fault}");
        }
        Ok(())
    }
}
