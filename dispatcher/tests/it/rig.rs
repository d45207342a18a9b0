//! A pipeline's topics without the rest of the pipeline: due records are produced by the test itself.

use dispatcher::config::Config;
use runtime::config::load_from;
use runtime::kafka::{
    Admin, BatchProducer, BatchSettings, Cluster, JournalReader, OutRecord, Record, TopicSpec,
};
use runtime::lifecycle::{Ended, Lifecycle};
use schemas::due::{Completion, Deliver, DueKind, DueRecord};
use schemas::ids::{Generation, RowId, Shard};
use schemas::journal::{EntryKind, JournalKind, JournalRecord};
use schemas::record::Header;
use schemas::topics::Names;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Rig {
    pub(crate) admin: Admin,
    pub(crate) names: Names,
    pub(crate) prefix: String,
    pub(crate) redis_url: String,
    cluster: Cluster,
    bootstrap: String,
    producer: BatchProducer,
}

/// A dispatcher inside this process.
pub(crate) struct Running {
    life: Lifecycle,
}

impl Running {
    pub(crate) fn is_ready(&self) -> bool {
        self.life.readiness().reasons().is_empty()
    }

    /// Why it is not ready.
    pub(crate) fn reasons(&self) -> String {
        format!("{:?}", self.life.readiness().reasons())
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.life.failure()
    }

    /// Stops in good order; how long that took.
    pub(crate) async fn stop(self) -> Duration {
        let started = Instant::now();
        let (_keep, signals) = tokio::sync::mpsc::unbounded_channel();
        self.life.stop();
        assert_eq!(self.life.wait(signals).await, Ended::Clean);
        started.elapsed()
    }
}

fn env(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} must name a real server: run the tests with ./dev test"))
}

pub(crate) fn now_ms() -> i64 {
    runtime::clock::now_ms()
}

impl Rig {
    pub(crate) async fn new(slots: i32) -> Rig {
        let unique = format!("it{:08x}", rand::random::<u32>());
        let (bootstrap, redis_url) = (env("KAFKA_BOOTSTRAP"), env("REDIS_URL"));
        let cluster = Cluster::new(&bootstrap, BTreeMap::new(), "dispatcher-it");
        let rig = Rig {
            admin: Admin::new(&cluster).unwrap(),
            names: Names::new(format!("{unique}.")),
            prefix: unique,
            redis_url,
            producer: BatchProducer::new(&cluster, &BatchSettings::new("it")).unwrap(),
            cluster,
            bootstrap,
        };
        for topic in [rig.names.due(), rig.names.slots(), rig.names.dead()] {
            rig.topic(&topic, slots, &[]).await;
        }
        rig.topic(&rig.names.journal(), slots, &[("message.timestamp.type", "LogAppendTime")]).await;
        rig
    }

    /// Makes a topic and waits until every partition is led.
    pub(crate) async fn topic(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        let config = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let spec = TopicSpec { name: name.to_owned(), partitions, replication: 1, config };
        self.admin.create_topics(&[spec]).await.unwrap();
        self.until(name, async || {
            self.admin
                .topic(name)
                .await
                .unwrap()
                .filter(|t| t.partition_count() == partitions && t.has_leaders())
        })
        .await;
    }

    /// A name of this rig's own.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    pub(crate) async fn callback_topic(&self, name: &str) -> String {
        let name = self.name(name);
        self.topic(&name, 2, &[]).await;
        name
    }

    pub(crate) fn config(&self, changes: &[(&str, &str)]) -> Config {
        let own = [
            ("KAFKA__BOOTSTRAP", self.bootstrap.as_str()),
            ("TOPICS__PREFIX", self.names.prefix()),
            ("REDIS__URL", &self.redis_url),
            ("REDIS__PREFIX", &self.prefix),
        ];
        let pairs = own.iter().chain(changes);
        let env = pairs.map(|(key, value)| (format!("DUESTREAM_DISPATCHER__{key}"), (*value).to_owned()));
        load_from::<Config>(None, env.collect::<Vec<_>>().into_iter())
            .map_err(|report| report.to_string())
            .unwrap()
            .config
    }

    pub(crate) async fn start(&self) -> Running {
        self.start_with(&[]).await
    }

    /// Starts a dispatcher.
    pub(crate) async fn begin(&self, changes: &[(&str, &str)]) -> Running {
        let cfg = Arc::new(self.config(changes));
        let life = Lifecycle::new("dispatcher", *cfg.lifecycle.drain_timeout);
        dispatcher::run(cfg, life.clone()).await.unwrap();
        Running { life }
    }

    /// Starts a dispatcher and waits until its slots run.
    pub(crate) async fn start_with(&self, changes: &[(&str, &str)]) -> Running {
        let running = self.begin(changes).await;
        self.until("a dispatcher that is ready", async || running.is_ready().then_some(())).await;
        running
    }

    /// Waits for an answer, at most 30 s.
    pub(crate) async fn until<T>(&self, what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(answer) = probe().await {
                return answer;
            }
            assert!(Instant::now() < deadline, "waited 30 s for {what}");
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Puts due records on the partition of a slot.
    pub(crate) async fn emit(&self, slot: i32, records: &[DueRecord]) {
        let record = |due: &DueRecord| {
            OutRecord::to(self.names.due())
                .partition(slot)
                .key(due.id.to_string().into_bytes())
                .value(due.encode())
        };
        let records: Vec<OutRecord> = records.iter().map(record).collect();
        for placed in self.producer.send_batch(&records).await {
            placed.unwrap();
        }
    }

    /// Writes one record and waits for its ack.
    pub(crate) async fn write(&self, record: &OutRecord) {
        self.producer.send(record).await.unwrap();
    }

    /// Gives a topic more partitions and waits until they are led.
    pub(crate) async fn add_partitions(&self, topic: &str, count: usize) {
        let admin: rdkafka::admin::AdminClient<rdkafka::client::DefaultClientContext> =
            rdkafka::ClientConfig::new().set("bootstrap.servers", &self.bootstrap).create().unwrap();
        let more = rdkafka::admin::NewPartitions::new(topic, count);
        let answers = admin.create_partitions(&[more], &rdkafka::admin::AdminOptions::new()).await.unwrap();
        answers.into_iter().for_each(|answer| drop(answer.unwrap()));
        self.until("new partitions", async || {
            let info = self.admin.topic(topic).await.unwrap();
            info.filter(|t| t.partitions.len() == count && t.has_leaders())
        })
        .await;
    }

    /// All visible records of a topic, partition by partition.
    pub(crate) async fn visible(&self, topic: &str) -> Vec<Record> {
        let partitions = self.admin.topic(topic).await.unwrap().map_or(0, |topic| topic.partition_count());
        let (cluster, topic) = (self.cluster.clone(), topic.to_owned());
        let read = move || {
            let reader = JournalReader::new(&cluster, "it", &topic).unwrap();
            let mut all = Vec::new();
            for partition in 0..partitions {
                let (start, end) = reader.stable_range(partition, Duration::from_secs(10)).unwrap();
                if end > start {
                    let deadline = Instant::now() + Duration::from_secs(20);
                    all.extend(reader.read_all(partition, start, end - 1, deadline).unwrap());
                }
            }
            all
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }

    /// Waits until a topic shows so many records.
    pub(crate) async fn visible_when(&self, topic: &str, count: usize) -> Vec<Record> {
        self.until(&format!("{count} records on {topic}"), async || {
            let seen = self.visible(topic).await;
            (seen.len() >= count).then_some(seen)
        })
        .await
    }

    pub(crate) async fn journal(&self) -> Vec<JournalRecord> {
        let records = self.visible(&self.names.journal()).await;
        records
            .iter()
            .map(|record| JournalRecord::decode(record.value.as_deref().unwrap()).unwrap())
            .collect()
    }

    /// Every entry of the journal, slot by slot.
    pub(crate) async fn fates(&self) -> Vec<(u64, EntryKind, Option<String>)> {
        let journal = self.journal().await;
        let entries = journal.into_iter().flat_map(|record| record.entries);
        entries.map(|entry| (entry.id.0, entry.kind, entry.reason)).collect()
    }

    pub(crate) async fn fates_when(&self, count: usize) -> Vec<(u64, EntryKind, Option<String>)> {
        self.until(&format!("{count} fates"), async || {
            let fates = self.fates().await;
            (fates.len() >= count).then_some(fates)
        })
        .await
    }

    /// Number of barriers in the journal.
    pub(crate) async fn barriers(&self) -> usize {
        self.journal().await.iter().filter(|record| record.kind == JournalKind::Barrier).count()
    }

    pub(crate) async fn redis(&self) -> redis::aio::MultiplexedConnection {
        redis::Client::open(self.redis_url.as_str())
            .unwrap()
            .get_multiplexed_async_connection()
            .await
            .unwrap()
    }

    /// Waits until a next owner of slot 0 would begin to read `due` at this offset.
    pub(crate) async fn due_pos_when(&self, offset: i64) {
        let mut redis = self.redis().await;
        let key = format!("{}:{{0}}:meta", self.prefix);
        self.until("due_pos to move", async || {
            let at: i64 = redis::cmd("HGET").arg(&key).arg("due_pos").query_async(&mut redis).await.unwrap();
            (at >= offset).then_some(())
        })
        .await;
    }

    /// Empties Redis as far as it is this rig's.
    pub(crate) async fn flush(&self) {
        let mut redis = self.redis().await;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(format!("{}:*", self.prefix)).query_async(&mut redis).await.unwrap();
        if !keys.is_empty() {
            redis::cmd("UNLINK").arg(keys).query_async::<i64>(&mut redis).await.unwrap();
        }
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut redis = self.redis().await;
        redis::cmd("KEYS").arg(format!("{}:*", self.prefix)).query_async(&mut redis).await.unwrap()
    }
}

/// A due record of row `id`.
pub(crate) fn due(id: u64, topic: &str, due_at: i64) -> DueRecord {
    let deliver = Deliver {
        attempt: 1,
        task_id: format!("task-{id}"),
        shard_key: Some("shop-7".into()),
        partition: None,
        key: Some(b"key".to_vec()),
        headers: vec![Header { name: "colour".into(), value: Some(b"red".to_vec()) }],
        value: Some(format!("payload {id}").into_bytes()),
        expires_at: None,
        asked_at: None,
        completion: Completion::OnDelivery,
        progress: None,
        history: vec![],
        bury: None,
    };
    DueRecord {
        id: RowId(id),
        generation: Generation(1),
        shard: Shard(3),
        due_at,
        fence: 0,
        callback_topic: topic.to_owned(),
        kind: DueKind::Deliver(Box::new(deliver)),
    }
}

/// The same with a change.
pub(crate) fn due_with(id: u64, topic: &str, due_at: i64, change: impl FnOnce(&mut Deliver)) -> DueRecord {
    let mut record = due(id, topic, due_at);
    if let DueKind::Deliver(deliver) = &mut record.kind {
        change(deliver);
    }
    record
}

pub(crate) fn withdraw(of: &DueRecord) -> DueRecord {
    DueRecord { kind: DueKind::Withdraw, ..of.clone() }
}

pub(crate) fn header(record: &Record, name: &str) -> Option<String> {
    let header = record.headers.iter().find(|header| header.name == name)?;
    Some(String::from_utf8(header.value.clone()?).unwrap())
}

/// Task ids of callback records, in the order given.
pub(crate) fn task_ids(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| header(record, "duestream-task-id").unwrap()).collect()
}
