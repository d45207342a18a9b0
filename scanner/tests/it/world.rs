//! A pipeline, and scanners of it that a test starts and stops.

use protocol::cursor::ScanRule;
use runtime::emission::Emission;
use runtime::kafka::{BatchProducer, BatchSettings};
use runtime::probes::Readiness;
use runtime::store::{Backoff, Db, Options};
use runtime::testing::TestPipeline;
use scanner::{Deps, scan_slot};
use schemas::ids::Slot;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Narrow enough for a test, wide enough for a busy machine.
pub(crate) const RULE: ScanRule = ScanRule {
    horizon_ms: 10_000,
    horizon_min_ms: 1_000,
    batch: 100,
    bucket_min_ms: 1_000,
    bucket_max_ms: 4_000,
    page_bytes: 4 << 20,
};

/// What a scanner needs, with a pool of its own.
pub(crate) async fn deps(pipeline: &TestPipeline, rule: ScanRule) -> Arc<Deps> {
    deps_at(pipeline, rule, &pipeline.db.url).await
}

/// The same, with another way to the database.
pub(crate) async fn deps_at(pipeline: &TestPipeline, rule: ScanRule, url: &str) -> Arc<Deps> {
    let db = Db::connect(&Options::new(url)).await.unwrap();
    let producer = BatchProducer::new(&pipeline.cluster, &BatchSettings::new("test")).unwrap();
    let readiness = Readiness::default();
    Arc::new(Deps {
        db,
        emission: Emission::new(Arc::new(producer), pipeline.names.due()),
        journal: pipeline.journal,
        shards: pipeline.shards,
        slots: pipeline.slots,
        rule,
        pages: Semaphore::new(4),
        backoff: Backoff { give_up_after: None, ..Backoff::default() },
        fenced_pause: Duration::from_secs(3600),
        mysql: readiness.gate("mysql", "test"),
        kafka: readiness.gate("kafka", "test"),
    })
}

/// A scanner of one slot that runs until it is stopped.
pub(crate) struct Scanner {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Scanner {
    pub(crate) async fn start(pipeline: &TestPipeline, slot: u16, rule: ScanRule) -> Scanner {
        Scanner::with(deps(pipeline, rule).await, slot)
    }

    pub(crate) fn with(deps: Arc<Deps>, slot: u16) -> Scanner {
        let stop = CancellationToken::new();
        let task = tokio::spawn(scan_slot(deps, Slot(slot), stop.clone()));
        Scanner { stop, task }
    }

    /// In good order.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// As `kill -9` would: nothing is finished.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}
