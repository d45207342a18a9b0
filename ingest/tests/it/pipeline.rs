//! A pipeline of its own for each test, and ingest running on it inside the test's process.

use ingest::config::Config;
use runtime::init::{self, Mode, Servers};
use runtime::kafka::{
    Admin, BatchProducer, BatchSettings, Cluster, JournalReader, OutRecord, Record, TopicSpec,
};
use runtime::lifecycle::Lifecycle;
use runtime::store::testing::TestDb;
use runtime::store::{Options, PendingRow, TaskRow};
use schemas::due::DueRecord;
use schemas::topics::Names;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(40);
static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Topics, database, and what tests do with them.
pub struct Pipeline {
    pub names: Names,
    pub test: TestDb,
    pub admin: Admin,
    pub callback: String,
    bootstrap: String,
    cluster: Cluster,
    producer: BatchProducer,
    raw: tokio::sync::Mutex<MySqlConnection>,
}

/// One instance of ingest.
pub struct Running {
    life: Lifecycle,
    runtime: Option<tokio::runtime::Runtime>,
    ended: Option<tokio::task::JoinHandle<anyhow::Result<()>>>,
}

pub fn now_ms() -> i64 {
    runtime::clock::now_ms()
}

impl Pipeline {
    pub async fn new() -> Pipeline {
        let bootstrap =
            std::env::var("KAFKA_BOOTSTRAP").expect("KAFKA_BOOTSTRAP names the brokers (./dev test sets it)");
        let unique = format!(
            "it{}x{}x{}",
            std::process::id(),
            now_ms() % 1_000_000,
            COUNTER.fetch_add(1, Ordering::Relaxed)
        );
        let names = Names::new(format!("{unique}."));
        let cluster = Cluster::new(&bootstrap, BTreeMap::new(), "ingest-it");
        let admin = Admin::new(&cluster).unwrap();
        let test = TestDb::fresh().await;
        let servers = Servers { admin: admin.clone(), mysql: Options::new(&test.url), redis: None };
        let pipeline = init::Pipeline {
            names: names.clone(),
            shards: Some(4),
            slots: Some(2),
            task_partitions: 2,
            replication: 1,
            sources: Vec::new(),
        };
        // Brokers may not know yet who leads a topic that was made a moment ago.
        let report = until("the pipeline is set up", || init::run(&servers, &pipeline, Mode::Apply)).await;
        assert!(report.is_good(), "{report:?}");
        let producer = BatchProducer::new(&cluster, &BatchSettings::new("it")).unwrap();
        let raw = tokio::sync::Mutex::new(MySqlConnection::connect(&test.url).await.unwrap());
        let callback = format!("{unique}-callbacks");
        let pipeline = Pipeline { names, test, admin, callback, bootstrap, cluster, producer, raw };
        pipeline.create_topic(&pipeline.callback, 3).await;
        pipeline
    }

    /// Name of a further topic of this test, outside the prefix of the pipeline.
    pub fn own(&self, name: &str) -> String {
        format!("{}-{name}", self.names.prefix().trim_end_matches('.'))
    }

    pub async fn create_topic(&self, name: &str, partitions: i32) {
        self.create_topic_with(name, partitions, &[]).await;
    }

    /// A topic that commands may be read from.
    pub async fn create_source(&self, name: &str, partitions: i32) {
        self.create_topic_with(name, partitions, &[("message.timestamp.type", "LogAppendTime")]).await;
    }

    pub async fn create_topic_with(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        let config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let spec = TopicSpec { name: name.to_owned(), partitions, replication: 1, config };
        until("the topic is created", || async {
            let created =
                self.admin.create_topics(std::slice::from_ref(&spec)).await.map_err(|e| e.to_string())?;
            created.into_iter().try_for_each(|(_, result)| result.map(drop).map_err(|e| e.to_string()))
        })
        .await;
        until("the topic has leaders", || async {
            let info = self.admin.topic(name).await.map_err(|e| e.to_string())?;
            info.filter(|info| info.has_leaders()).map(drop).ok_or_else(|| "not yet".to_owned())
        })
        .await;
    }

    pub async fn delete_topic(&self, name: &str) {
        self.admin.delete_topics(&[name]).await.unwrap();
        until("the topic is gone", || async {
            match self.admin.topic(name).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// Starts ingest with these lines of configuration on top of the defaults.
    pub fn ingest(&self, toml: &str) -> Running {
        self.ingest_on(&self.test.url, toml)
    }

    pub fn ingest_on(&self, mysql_url: &str, toml: &str) -> Running {
        let env = [
            ("DUESTREAM_INGEST__KAFKA__BOOTSTRAP", self.bootstrap.as_str()),
            ("DUESTREAM_INGEST__KAFKA__SESSION_TIMEOUT", "6s"),
            ("DUESTREAM_INGEST__TOPICS__PREFIX", self.names.prefix()),
            ("DUESTREAM_INGEST__MYSQL__URL", mysql_url),
        ];
        let env = env.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let loaded = runtime::config::load_from::<Config>(Some(toml), env).unwrap_or_else(|e| panic!("{e}"));
        let life = Lifecycle::new("ingest", Duration::from_secs(10));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let ended = runtime.spawn(ingest::run(Arc::new(loaded.config), life.clone()));
        Running { life, runtime: Some(runtime), ended: Some(ended) }
    }

    /// Sends records to partition 0 of a topic, in order.
    pub async fn send(&self, topic: &str, records: Vec<OutRecord>) -> Vec<i64> {
        let records: Vec<OutRecord> = records
            .into_iter()
            .map(|mut record| {
                record.topic = topic.into();
                record.partition.get_or_insert(0);
                record
            })
            .collect();
        let mut offsets = Vec::new();
        for result in self.producer.send_batch(&records).await {
            offsets.push(result.unwrap().offset);
        }
        offsets
    }

    pub async fn submit(&self, records: Vec<OutRecord>) -> Vec<i64> {
        self.send(&self.names.tasks(), records).await
    }

    /// A task by headers.
    pub fn task(&self, task_id: &str, due_at: i64) -> OutRecord {
        OutRecord::to("")
            .key("k")
            .value(format!("value of {task_id}"))
            .header("duestream-task-id", task_id)
            .header("duestream-topic", self.callback.as_str())
            .header("duestream-due-at", due_at.to_string())
    }

    /// Everything that a topic holds, read committed.
    pub async fn read(&self, topic: &str) -> Vec<Record> {
        let (cluster, topic) = (self.cluster.clone(), topic.to_owned());
        let partitions = self.admin.topic(&topic).await.unwrap().map_or(0, |info| info.partition_count());
        tokio::task::spawn_blocking(move || {
            let reader = JournalReader::new(&cluster, "ingest-it-reader", topic.as_str()).unwrap();
            let mut records = Vec::new();
            for partition in 0..partitions {
                let (start, end) = reader.stable_range(partition, PATIENCE).unwrap();
                let deadline = Instant::now() + PATIENCE;
                records.extend(reader.read_all(partition, start, end - 1, deadline).unwrap());
            }
            records
        })
        .await
        .unwrap()
    }

    pub async fn rejected(&self) -> Vec<Record> {
        self.read(&self.names.rejected()).await
    }

    pub async fn due(&self) -> Vec<(Record, DueRecord)> {
        let records = self.read(&self.names.due()).await;
        records
            .into_iter()
            .map(|record| {
                let due = DueRecord::decode(record.value.as_ref().unwrap()).unwrap();
                (record, due)
            })
            .collect()
    }

    /// Runs a statement.
    pub async fn sql(&self, text: &str) {
        let mut raw = self.raw.lock().await;
        raw.execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned()))).await.unwrap();
    }

    /// First column of the first row, as a number.
    pub async fn number(&self, text: &str) -> i64 {
        let mut raw = self.raw.lock().await;
        let text = format!("SELECT CAST(({text}) AS SIGNED)");
        sqlx::query(AssertSqlSafe(text))
            .fetch_one(&mut *raw)
            .await
            .unwrap()
            .get::<Option<i64>, _>(0)
            .unwrap_or(-1)
    }

    pub async fn tasks(&self) -> BTreeMap<String, TaskRow> {
        let mut raw = self.raw.lock().await;
        let text = concat!("SELECT ", runtime::task_columns!(), " FROM task AS t");
        let rows: Vec<TaskRow> = sqlx::query_as(text).fetch_all(&mut *raw).await.unwrap();
        rows.into_iter().map(|row| (row.task_id.clone(), row)).collect()
    }

    pub async fn pending(&self) -> BTreeMap<String, PendingRow> {
        let mut raw = self.raw.lock().await;
        let text = concat!("SELECT ", runtime::pending_columns!(), " FROM pending AS p");
        let rows: Vec<PendingRow> = sqlx::query_as(text).fetch_all(&mut *raw).await.unwrap();
        rows.into_iter().map(|row| (row.task_id.clone(), row)).collect()
    }

    /// `next` and `confirmed` of a partition of the newest topic of that name.
    pub async fn positions(&self, topic: &str, partition: i32) -> (i64, i64) {
        let of = |column| {
            format!(
                "SELECT {column} FROM stream_position WHERE `partition` = {partition} AND source = \
                 (SELECT MAX(source) FROM source WHERE topic = '{topic}')"
            )
        };
        (self.number(&of("next")).await, self.number(&of("confirmed")).await)
    }

    /// Waits until everything up to `end` is applied, and its effects are acked.
    pub async fn confirmed(&self, topic: &str, end: i64) {
        until("the position is confirmed", || async {
            let positions = self.positions(topic, 0).await;
            if positions == (end, end) { Ok(()) } else { Err(format!("{positions:?}, not {end}")) }
        })
        .await;
    }

    /// Waits until everything up to `end` is applied.
    pub async fn applied(&self, topic: &str, end: i64) {
        until("the position is applied", || async {
            let (next, confirmed) = self.positions(topic, 0).await;
            if next == end {
                Ok(())
            } else {
                Err(format!("next {next}, confirmed {confirmed}, wanted {end}"))
            }
        })
        .await;
    }

    /// Removes the topics; the database goes by itself. Not done by a test that fails.
    pub async fn finish(self) {
        let all = self.admin.topics().await.unwrap();
        let unique = self.names.prefix().trim_end_matches('.').to_owned();
        let own: Vec<&str> =
            all.keys().map(String::as_str).filter(|name| name.starts_with(&unique)).collect();
        self.admin.delete_topics(&own).await.unwrap();
    }
}

impl Running {
    /// Waits until `/ready` would say yes.
    pub async fn ready(&self) {
        until("ingest is ready", || async {
            let reasons = self.life.readiness().reasons();
            if reasons.is_empty() && self.is_started() { Ok(()) } else { Err(format!("{reasons:?}")) }
        })
        .await;
    }

    fn is_started(&self) -> bool {
        self.ended.as_ref().is_some_and(tokio::task::JoinHandle::is_finished)
    }

    /// Waits until `/ready` says no, with a reason that holds this text.
    pub async fn unready(&self, text: &str) {
        until("ingest says what is wrong", || async {
            let reasons = self.life.readiness().reasons();
            let found = reasons.values().any(|reason| reason.contains(text));
            if found { Ok(()) } else { Err(format!("{reasons:?}")) }
        })
        .await;
    }

    pub fn token(&self) -> CancellationToken {
        self.life.token()
    }

    /// SIGTERM: finishes and leaves.
    pub async fn stop(mut self) {
        self.ended.take().unwrap().await.unwrap().unwrap();
        self.life.stop();
        let (_signals, none) = tokio::sync::mpsc::unbounded_channel();
        let ended = self.life.wait(none).await;
        assert_eq!(ended.status(), 0, "{ended}");
        self.runtime.take().unwrap().shutdown_background();
    }

    /// kill −9, as far as a thread can: whatever is under way is dropped where it stands.
    pub fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Waits until it is so, and says what it looked like when it never was.
pub async fn until<T, E: Debug, F: Future<Output = Result<T, E>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(value) => return value,
            Err(seen) if Instant::now() >= deadline => panic!("never: {what}; last seen: {seen:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A header as text.
pub fn header(record: &Record, name: &str) -> Option<String> {
    let header = record.headers.iter().find(|header| header.name == name)?;
    Some(String::from_utf8_lossy(header.value.as_deref().unwrap_or_default()).into_owned())
}

pub fn reason(record: &Record) -> String {
    header(record, "duestream-rejected-reason").unwrap_or_default()
}
