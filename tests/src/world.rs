//! A pipeline of its own for one test, with the programs the test wants.

use crate::task::Task;
use anyhow::{Context, Result};
use devstack::pipeline::{Layout, Pipeline};
use devstack::process::Lifetime;
use devstack::program::{self, Program};
use devstack::stack::Addresses;
use devstack::topics::{self, Reader, Record};
use devstack::wait;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use std::collections::BTreeMap;
use std::time::Duration;

/// Long enough for a busy two-core machine, short enough that a stuck pipeline fails the run soon.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// One test's pipeline and programs.
pub struct World {
    name: String,
    /// The pipeline, for settings and further programs.
    pub pipeline: Pipeline,
    /// What runs, by program name.
    pub programs: BTreeMap<&'static str, Vec<Program>>,
    producer: FutureProducer,
    dir: Option<tempfile::TempDir>,
}

impl World {
    /// A fresh pipeline with nothing running. `name` must be unique among the tests.
    pub async fn new(name: &str) -> Result<World> {
        World::with_layout(name, &Layout::default()).await
    }

    /// The same with a layout of its own.
    pub async fn with_layout(name: &str, layout: &Layout) -> Result<World> {
        let addresses = Addresses::from_env()?;
        let dir = tempfile::Builder::new().prefix("duestream-e2e-").tempdir()?;
        // Leftovers of an earlier run on the same servers must not be taken for this one's.
        let unique = format!("e2e_{name}_{:06x}", rand::random_range(0..0x0100_0000));
        let mut pipeline =
            Pipeline::create(&addresses, &unique, layout, dir.path(), Lifetime::WithStarter).await?;
        for program in program::NAMES {
            // A killed member is missed after this long: the default of 10 s would only make the tests wait.
            pipeline.set(program, "KAFKA__SESSION_TIMEOUT", "3s");
        }
        pipeline.set("dispatcher", "LIFECYCLE__DRAIN_TIMEOUT", "3s");
        let producer = ClientConfig::new()
            .set("bootstrap.servers", &addresses.kafka)
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .set("partitioner", "murmur2_random")
            .set("message.max.bytes", "2000000")
            .create()?;
        Ok(World { name: unique, pipeline, programs: BTreeMap::new(), producer, dir: Some(dir) })
    }

    /// A fresh pipeline with one of each program, ready.
    pub async fn started(name: &str) -> Result<World> {
        let mut world = World::new(name).await?;
        world.start_all().await?;
        Ok(world)
    }

    /// Starts one more of each program and waits until all are ready.
    pub async fn start_all(&mut self) -> Result<()> {
        for name in program::NAMES {
            let program = self.pipeline.spawn(name)?;
            self.programs.entry(name).or_default().push(program);
        }
        for program in self.programs.values().flatten() {
            program.ready().await?;
        }
        Ok(())
    }

    /// Starts one more `name` and waits until it is ready.
    pub async fn start(&mut self, name: &'static str) -> Result<()> {
        let program = self.pipeline.start(name).await?;
        self.programs.entry(name).or_default().push(program);
        Ok(())
    }

    /// Takes the running programs called `name` out of the world, to be killed or stopped.
    pub fn take(&mut self, name: &'static str) -> Vec<Program> {
        self.programs.remove(name).unwrap_or_default()
    }

    /// The one running program called `name`.
    pub fn only(&self, name: &'static str) -> &Program {
        &self.programs[name][0]
    }

    /// Creates a callback topic for this test and answers its full name.
    pub async fn topic(&self, suffix: &str, partitions: i32) -> Result<String> {
        self.topic_with(suffix, partitions, &[]).await
    }

    /// The same with topic settings.
    pub async fn topic_with(
        &self,
        suffix: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<String> {
        let name = format!("cb-{}-{suffix}", self.name);
        topics::create_with(&self.pipeline.addresses().kafka, &[&name], partitions, settings).await?;
        Ok(name)
    }

    /// Publishes commands on `tasks` in order and waits for the broker's acks.
    pub async fn submit(&self, tasks: &[Task]) -> Result<()> {
        let topic = self.pipeline.names().tasks();
        let mut waiting = Vec::with_capacity(tasks.len());
        for task in tasks {
            let headers = task.owned_headers();
            let mut record = FutureRecord::<[u8], [u8]>::to(&topic);
            record.key = task.key.as_deref();
            record.payload = task.value.as_deref();
            record.partition = task.partition;
            if !task.headers.is_empty() {
                record = record.headers(headers);
            }
            let sent = self.producer.send_result(record);
            waiting
                .push(sent.map_err(|(error, _)| error).context("the queue of the test's producer is full")?);
        }
        for delivery in waiting {
            delivery.await?.map_err(|(error, _)| error)?;
        }
        rdkafka::producer::Producer::flush(&self.producer, Timeout::After(Duration::from_secs(10)))?;
        Ok(())
    }

    /// Waits until `count` records are visible on `topics` to a read-committed consumer; answers all that are there.
    pub async fn delivered(&self, topics: &[&str], count: usize) -> Result<Vec<Record>> {
        self.read(topics, count, PATIENCE).await
    }

    async fn read(&self, topics: &[&str], count: usize, within: Duration) -> Result<Vec<Record>> {
        let bootstrap = self.pipeline.addresses().kafka.clone();
        let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
        tokio::task::spawn_blocking(move || {
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            let reader = Reader::from_beginning(&bootstrap, &topics)?;
            let deadline = std::time::Instant::now() + within;
            let mut records = Vec::new();
            while records.len() < count {
                let left = deadline.saturating_duration_since(std::time::Instant::now());
                let next = reader.next(left)?;
                let seen = records.len();
                records.push(next.with_context(|| {
                    format!("waited {within:?} for {count} records on {topics:?}, saw {seen}")
                })?);
            }
            records.extend(reader.read_to_end(within)?);
            Ok(records)
        })
        .await?
    }

    /// Everything that stands on `topics` now.
    pub async fn visible(&self, topics: &[&str]) -> Result<Vec<Record>> {
        self.read(topics, 0, PATIENCE).await
    }

    /// One number from this pipeline's database.
    pub async fn count(&self, sql: &str) -> Result<i64> {
        let mut connection = MySqlConnection::connect(&self.pipeline.mysql_url).await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await?)
    }

    /// Waits until a count in this pipeline's database has a value.
    pub async fn await_count(&self, what: &str, sql: &str, wanted: i64) -> Result<()> {
        wait::until(what, PATIENCE, async || {
            // A server that a test restarts answers again soon.
            Ok(match self.count(sql).await {
                Ok(count) if count == wanted => Ok(()),
                Ok(count) => Err(format!("{count} instead of {wanted}")),
                Err(error) => Err(format!("{error:#}")),
            })
        })
        .await
    }

    /// Waits until `count` tasks are known to MySQL.
    pub async fn await_accepted(&self, count: usize) -> Result<()> {
        self.await_count("tasks to be accepted", "SELECT COUNT(*) FROM task", i64::try_from(count)?).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for program in self.programs.values().flatten() {
            eprintln!("==== log of {}:\n{}", program.name(), program.process.log_tail());
        }
        if let Some(dir) = self.dir.take() {
            eprintln!("==== the logs stay in {}", dir.keep().display());
        }
    }
}
