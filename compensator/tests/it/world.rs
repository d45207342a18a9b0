//! A pipeline, what a compensator needs of it, and the words of programs that are not there.

use compensator::Deps;
use compensator::config::Config;
use protocol::cursor::Advance;
use runtime::config::load_from;
use runtime::emission::Emission;
use runtime::kafka::{BatchProducer, BatchSettings};
use runtime::probes::Readiness;
use runtime::store::position::Heartbeat;
use runtime::store::{Backoff, position, scan};
use runtime::testing::TestPipeline;
use schemas::ids::{Shard, Slot};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};
use std::collections::BTreeSet;
use std::sync::Arc;

/// With the configuration's defaults but for what `file` says.
pub(crate) fn deps(pipeline: &TestPipeline, file: &str) -> Arc<Deps> {
    let config = load_from::<Config>(Some(file), std::iter::empty()).unwrap().config;
    let producer = BatchProducer::new(&pipeline.cluster, &BatchSettings::new("test")).unwrap();
    Arc::new(Deps {
        db: pipeline.db.db.clone(),
        emission: Emission::new(Arc::new(producer), pipeline.names.due()),
        journal: pipeline.journal,
        shards: pipeline.shards,
        slots: pipeline.slots,
        reemit: config.reemit,
        purge: config.purge,
        backoff: Backoff::default(),
        servers: Readiness::default().gate("servers", "test"),
    })
}

/// What ingest writes when it applies a record of a slot's journal.
pub(crate) async fn heartbeat(
    pipeline: &TestPipeline,
    slot: u16,
    hb_at: i64,
    backlog: i64,
    cold_upto: Option<i64>,
) {
    let beat = Heartbeat { hb_at, backlog: Some(backlog), credit: Some(1_000), cold_upto };
    let mut tx = pipeline.db.db.begin("test").await.unwrap();
    position::heartbeat(&mut tx, pipeline.journal, Slot(slot), &beat).await.unwrap();
    tx.commit().await.unwrap();
}

/// What the scanner does: all shards' cursors go to `cursor_at`.
pub(crate) async fn move_cursors(pipeline: &TestPipeline, cursor_at: i64) {
    let shards: BTreeSet<Shard> = (0..pipeline.shards).map(Shard).collect();
    let moved = scan::start(&pipeline.db.db, &shards, |_, rows| {
        let advance = |row: &protocol::cursor::ShardRow| Advance {
            shard: row.shard,
            epoch: row.epoch + 1,
            cursor_at,
            confirmed: row.confirmed,
            covered_ms: 0,
        };
        Ok(rows.iter().map(advance).collect())
    });
    moved.await.unwrap();
}

/// Anything else that has to stand in the database.
pub(crate) async fn sql(pipeline: &TestPipeline, text: String) {
    let mut raw = MySqlConnection::connect(&pipeline.db.url).await.unwrap();
    raw.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
}

/// The first column of the rows, which holds numbers.
pub(crate) async fn numbers(pipeline: &TestPipeline, text: String) -> Vec<u64> {
    let mut raw = MySqlConnection::connect(&pipeline.db.url).await.unwrap();
    let rows: Vec<(u64,)> = sqlx::query_as(AssertSqlSafe(text)).fetch_all(&mut raw).await.unwrap();
    rows.into_iter().map(|(number,)| number).collect()
}
