//! `./dev bench`: what the pipeline does per second, as a share of what a plain producer does on the same broker in the
//! same minute. On a shared machine only such ratios mean anything; absolute figures are printed for orientation.

use super::{interrupted, say};
use anyhow::{Context, Result, bail};
use clap::Args;
use devstack::pipeline::{Layout, Pipeline};
use devstack::process::Lifetime;
use devstack::program::{self, Program};
use devstack::stack::{Stack, Wanted};
use devstack::topics::{self, Reader};
use devstack::wait;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use sqlx::Connection;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(300);
/// Payload of the floor and of the tasks, bytes.
const PAYLOAD: usize = 200;

#[derive(Debug, Args)]
pub struct Bench {
    /// Tasks per measurement
    #[arg(long, default_value_t = 50_000)]
    tasks: usize,
}

impl Bench {
    pub async fn run(self) -> Result<ExitCode> {
        tokio::select! {
            outcome = self.measure() => outcome,
            () = interrupted() => bail!("interrupted; everything that was started has been ended"),
        }
    }

    async fn measure(&self) -> Result<ExitCode> {
        let name = format!("bench-{}", std::process::id());
        let stack = Stack::start(&name, Wanted::default(), Lifetime::WithStarter, &say).await?;
        let kafka = stack.addresses().kafka.clone();
        let mut pipeline = Pipeline::create(
            stack.addresses(),
            "duestream",
            &Layout::PRODUCTION,
            stack.dir(),
            Lifetime::WithStarter,
        )
        .await?;
        topics::create(&kafka, &["floor", "herd"], 8).await?;
        // Nothing is delivered while ingest is measured: all is due beyond the horizon, at one instant.
        pipeline.set("scanner", "SCAN__HORIZON", "5s");
        pipeline.set("scanner", "SCAN__BUCKET_MAX", "1s");
        let programs: Vec<Program> =
            program::NAMES.into_iter().map(|name| pipeline.spawn(name)).collect::<Result<_>>()?;
        for program in &programs {
            program.ready().await?;
        }

        say("floor: a plain idempotent producer, acks=all");
        let floor = self.produce(&kafka, "floor", None).await?;
        say("ingest: commands into MySQL");
        let due_at = now_ms()? + 60_000;
        let submitted = self.produce(&kafka, &pipeline.names().tasks(), Some(due_at)).await?;
        let mut database = sqlx::MySqlConnection::connect(&pipeline.mysql_url).await?;
        let started = Instant::now();
        let wanted = i64::try_from(self.tasks)?;
        wait::until("all commands to be in MySQL", PATIENCE, async || {
            let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM task").fetch_one(&mut database).await?;
            Ok(if count >= wanted { Ok(()) } else { Err(count) })
        })
        .await?;
        let ingest = self.tasks as f64 / (submitted.seconds + started.elapsed().as_secs_f64());
        if now_ms()? >= due_at {
            bail!("the commands were not in MySQL before they were due; use fewer --tasks");
        }

        say("herd: all of them due in the same millisecond");
        let tasks = self.tasks;
        let lateness = tokio::task::spawn_blocking(move || read_lateness(&kafka, tasks)).await??;
        let last = lateness.last().copied().context("no deliveries")?;
        let herd = self.tasks as f64 / (last as f64 / 1000.0).max(0.001);
        println!("\n  floor    {:>9.0} records/s", floor.rate);
        println!("  ingest   {ingest:>9.0} tasks/s    {:.3} of the floor", ingest / floor.rate);
        println!(
            "  herd     {herd:>9.0} tasks/s    {:.3} of the floor, from the due time to the last delivery",
            herd / floor.rate
        );
        println!("  lateness in the herd: p50 {} ms, max {last} ms", lateness[lateness.len() / 2]);
        Ok(ExitCode::SUCCESS)
    }

    /// Produces all records, as commands due at `due_at` if there is one, and waits for the acks.
    async fn produce(&self, bootstrap: &str, topic: &str, due_at: Option<i64>) -> Result<Produced> {
        let (bootstrap, topic, tasks) = (bootstrap.to_owned(), topic.to_owned(), self.tasks);
        tokio::task::spawn_blocking(move || produce(&bootstrap, &topic, tasks, due_at)).await?
    }
}

struct Produced {
    seconds: f64,
    rate: f64,
}

fn produce(bootstrap: &str, topic: &str, tasks: usize, due_at: Option<i64>) -> Result<Produced> {
    use rdkafka::error::{KafkaError, RDKafkaErrorCode};
    use rdkafka::message::{Header, OwnedHeaders};
    let producer: ThreadedProducer<rdkafka::producer::DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .create()?;
    let payload = [b'x'; PAYLOAD];
    let due_at = due_at.map(|at| at.to_string());
    let started = Instant::now();
    for n in 0..tasks {
        let id = format!("t{n}");
        let mut record = BaseRecord::to(topic).key(id.as_bytes()).payload(&payload[..]);
        if let Some(due_at) = &due_at {
            let headers = OwnedHeaders::new()
                .insert(Header { key: "duestream-task-id", value: Some(&id) })
                .insert(Header { key: "duestream-topic", value: Some("herd") })
                .insert(Header { key: "duestream-due-at", value: Some(due_at) });
            record = record.headers(headers);
        }
        let mut next = Some(record);
        while let Some(record) = next.take() {
            if let Err((error, record)) = producer.send(record) {
                let KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) = error else {
                    return Err(error.into());
                };
                producer.flush(Duration::from_millis(50)).ok();
                next = Some(record);
            }
        }
    }
    producer.flush(Duration::from_secs(60))?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Produced { seconds, rate: tasks as f64 / seconds })
}

/// Lateness of every delivery by the record's own timestamp, sorted, ms.
fn read_lateness(bootstrap: &str, tasks: usize) -> Result<Vec<i64>> {
    let reader = Reader::from_beginning(bootstrap, &["herd"])?;
    let deadline = Instant::now() + PATIENCE;
    let mut lateness = Vec::with_capacity(tasks);
    while lateness.len() < tasks {
        match reader.next(Duration::from_secs(1))? {
            Some(record) => {
                let due_at = record.number("duestream-due-at").context("a delivery without due time")?;
                lateness.push(record.timestamp_at - due_at);
            }
            None if Instant::now() > deadline => {
                bail!("{} of {tasks} were delivered within {PATIENCE:?}", lateness.len())
            }
            None => {}
        }
    }
    lateness.sort_unstable();
    Ok(lateness)
}

#[expect(clippy::disallowed_methods, reason = "devstack lives outside the programs' clock")]
fn now_ms() -> Result<i64> {
    Ok(i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis())?)
}
