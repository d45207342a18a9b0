//! A pipeline of its own for each test of a program: a fresh database and topics nobody else has, on the servers that
//! `KAFKA_BOOTSTRAP` and `MYSQL_URL` name. Only what scanner and compensator need of it; `duectl init` sets up the rest.
//!
//! Compiled always, like [`crate::store::testing`]: the linker drops what a program does not call.

use crate::kafka::{Admin, Cluster, JournalReader, TopicSpec};
use crate::store::testing::TestDb;
use crate::store::{PendingRow, position, route, setting, shard, source, tasks};
use protocol::admission::{ContentHash, Identity};
use protocol::route::default_slot;
use schemas::due::{Completion, DueRecord};
use schemas::ids::{Generation, RowId, Shard, Slot, SourceId};
use schemas::row::{RowBody, RowHistory, RowOptions};
use schemas::topics::Names;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// Longest time anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A pipeline without programs.
pub struct TestPipeline {
    /// Its database.
    pub db: TestDb,
    /// Its brokers.
    pub cluster: Cluster,
    /// Questions to the brokers.
    pub admin: Admin,
    /// Its names.
    pub names: Names,
    /// Number of its journal.
    pub journal: SourceId,
    /// Base shards.
    pub shards: u16,
    /// Slots.
    pub slots: u16,
}

impl TestPipeline {
    /// A fresh one.
    ///
    /// # Panics
    /// Where the servers are not there: a test without its servers has failed.
    pub async fn fresh(shards: u16, slots: u16) -> TestPipeline {
        let bootstrap =
            std::env::var("KAFKA_BOOTSTRAP").expect("KAFKA_BOOTSTRAP is not set: `./dev test` sets it");
        let db = TestDb::fresh().await;
        let cluster = Cluster::new(bootstrap, BTreeMap::new(), "tests");
        let admin = Admin::new(&cluster).expect("an admin client").within(PATIENCE);
        let names = Names::new(format!("it-{:016x}.", RandomState::new().build_hasher().finish()));
        let mut pipeline = TestPipeline { db, cluster, admin, names, journal: SourceId(0), shards, slots };
        pipeline.set_up().await;
        pipeline
    }

    async fn set_up(&mut self) {
        let topics = [self.names.due(), self.names.slots(), self.names.journal()];
        let partitions = i32::from(self.slots);
        let spec = |name: &String| TopicSpec {
            name: name.clone(),
            partitions,
            replication: 1,
            config: BTreeMap::new(),
        };
        let specs: Vec<TopicSpec> = topics.iter().map(spec).collect();
        for (name, created) in self.admin.create_topics(&specs).await.expect("brokers") {
            created.unwrap_or_else(|e| panic!("topic {name}: {e}"));
        }
        for name in &topics {
            until("leaders of a new topic", async || {
                let topic = self.admin.topic(name).await.expect("brokers");
                topic.filter(|topic| topic.has_leaders()).ok_or("none yet")
            })
            .await;
        }
        let id = self.admin.topic_id(&self.names.journal()).await.expect("brokers").expect("just made");
        let mut session = self.db.db.session().await.expect("database");
        let made = async {
            setting::set(&mut session, setting::SHARDS, &self.shards.to_string()).await?;
            setting::set(&mut session, setting::SLOTS, &self.slots.to_string()).await?;
            shard::create(&mut session, self.shards).await?;
            route::create(&mut session, self.shards, |shard| default_slot(shard, self.slots)).await?;
            let journal = source::register(&mut session, &self.names.journal(), *id.as_bytes()).await?;
            for slot in 0..self.slots {
                position::create(&mut session, journal, i32::from(slot), 0).await?;
            }
            Ok::<_, crate::store::StoreError>(journal)
        };
        self.journal = made.await.expect("database");
    }

    /// Commits rows as ingest does, without its second look.
    pub async fn insert(&self, rows: &[PendingRow]) {
        let task = |row: &PendingRow| {
            let identity = u128::from(row.id.0).to_be_bytes();
            tasks::NewTask {
                identity: Identity(identity),
                content: ContentHash([0; 16]),
                created_at: 0,
                row: row.clone(),
            }
        };
        let mut new: Vec<tasks::NewTask> = rows.iter().map(task).collect();
        new.sort_unstable_by_key(|task| task.identity);
        let inserted = async {
            let mut tx = self.db.db.begin("test_insert").await?;
            tasks::insert(&mut tx, &new).await?;
            tx.commit().await
        };
        inserted.await.expect("rows are inserted");
    }

    /// The rows of all shards.
    pub async fn shard_rows(&self) -> Vec<shard::ShardRow> {
        let read = async { shard::read_all(&mut self.db.db.session().await?).await };
        read.await.expect("shards are read")
    }

    /// Everything that stands on one slot's partition of `due`, in its order.
    pub async fn due_records(&self, slot: Slot) -> Vec<DueRecord> {
        let (topic, cluster) = (self.names.due(), self.cluster.clone());
        let read = tokio::task::spawn_blocking(move || {
            let reader = JournalReader::new(&cluster, "tests", &topic)?;
            let partition = i32::from(slot.0);
            let (start, end) = reader.stable_range(partition, PATIENCE)?;
            reader.read_all(partition, start, end - 1, Instant::now() + PATIENCE)
        });
        let records = read.await.expect("the reader does not panic").expect("due is read");
        let decode =
            |value: Option<bytes::Bytes>| DueRecord::decode(&value.expect("a value")).expect("a due record");
        records.into_iter().map(|record| decode(record.value)).collect()
    }

    /// The same, once there are at least `count` of them.
    pub async fn due_records_from(&self, slot: Slot, count: usize) -> Vec<DueRecord> {
        until("due records", async || {
            let records = self.due_records(slot).await;
            if records.len() >= count { Ok(records) } else { Err(format!("{} of {count}", records.len())) }
        })
        .await
    }
}

impl Drop for TestPipeline {
    fn drop(&mut self) {
        if std::env::var_os("DUESTREAM_TEST_KEEP").is_some() {
            eprintln!("kept: topics {}*", self.names.prefix());
            return;
        }
        let (admin, names) = (self.admin.clone(), self.names.clone());
        // This may be dropped inside a runtime, where nothing can be awaited: another thread does.
        let deleting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let topics = [names.due(), names.slots(), names.journal()];
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            runtime.map(|runtime| runtime.block_on(admin.delete_topics(&topics)))
        });
        if !matches!(deleting.join(), Ok(Ok(Ok(())))) {
            eprintln!("topics {}* stay", self.names.prefix());
        }
    }
}

/// A row that waits in `pending` for its first delivery.
pub fn row(shard: u16, due_at: i64, id: u64) -> PendingRow {
    let options = RowOptions {
        partition: None,
        expires_at: None,
        asked_at: None,
        completion: Completion::OnDelivery,
        ..RowOptions::default()
    };
    let body =
        RowBody { key: None, headers: Vec::new(), value: Some(format!("payload of {id}").into_bytes()) };
    PendingRow {
        shard: Shard(shard),
        due_at,
        id: RowId(id),
        generation: Generation(1),
        attempt: 1,
        failures: 0,
        stalls: 0,
        task_id: id.to_string(),
        shard_key: None,
        callback_topic: "callbacks".into(),
        bury: None,
        options: options.encode(),
        history: RowHistory::default().encode(),
        body: body.encode(),
    }
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// After [`PATIENCE`], with what was waited for and the last state seen.
pub async fn until<T, S: std::fmt::Debug>(what: &str, mut probe: impl AsyncFnMut() -> Result<T, S>) -> T {
    let began = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(state) if began.elapsed() > PATIENCE => {
                panic!("{what}: not within {PATIENCE:?}, last seen: {state:?}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
