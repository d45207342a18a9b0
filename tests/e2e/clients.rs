//! Clients in other languages submit and consume, each in the form that is natural there. What they say they saw is
//! compared with what was submitted and with what stands on the topic.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use devstack::topics::Record;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;
use tests::clients::Language;
use tests::{Expected, Task, World, now_ms};

const PARTITIONS: i32 = 3;
/// Key of every command.
const KEY: &str = "order-4711";
/// Where Java's producer puts that key on `tasks`, which has four partitions here.
const JAVAS_PARTITION: i32 = 3;

/// What stands on every record that is delivered, after the user's own headers.
const DELIVERED: [&str; 6] = [
    "duestream-task-id",
    "duestream-shard-key",
    "duestream-attempt",
    "duestream-due-at",
    "duestream-delivery-id",
    "duestream-delivered-at",
];

/// What a client tells of the record it consumed.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    partition: i32,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Seen {
    fn of(record: &Record) -> Seen {
        let Record { partition, key, value, headers, .. } = record.clone();
        Seen { partition, key, value, headers }
    }

    /// From the line of JSON that the programs print, bytes in base64.
    fn parse(line: &str) -> Result<Seen> {
        let json: Value = serde_json::from_str(line).with_context(|| format!("parse {line:?}"))?;
        let header = |pair: &Value| {
            Ok((pair[0].as_str().context("the name of a header")?.to_owned(), bytes(&pair[1])?))
        };
        Ok(Seen {
            partition: partition(&json)?,
            key: bytes(&json["key"])?,
            value: bytes(&json["value"])?,
            headers: json["headers"]
                .as_array()
                .context("headers")?
                .iter()
                .map(header)
                .collect::<Result<_>>()?,
        })
    }

    /// From kcat's own JSON: text, and headers as one flat list.
    fn parse_kcat(line: &str) -> Result<Seen> {
        let json: Value = serde_json::from_str(line).with_context(|| format!("parse {line:?}"))?;
        let text = |value: &Value| value.as_str().map(|text| text.as_bytes().to_vec());
        let flat = json["headers"].as_array().context("headers")?;
        let pairs = flat
            .chunks(2)
            .map(|pair| Ok((pair[0].as_str().context("the name of a header")?.to_owned(), text(&pair[1]))));
        Ok(Seen {
            partition: partition(&json)?,
            key: text(&json["key"]),
            value: text(&json["payload"]),
            headers: pairs.collect::<Result<_>>()?,
        })
    }
}

fn partition(json: &Value) -> Result<i32> {
    Ok(i32::try_from(json["partition"].as_i64().context("a partition")?)?)
}

fn bytes(value: &Value) -> Result<Option<Vec<u8>>> {
    value.as_str().map(|text| STANDARD.decode(text).context("base64")).transpose()
}

/// What a client submits.
struct Submitted {
    task_id: &'static str,
    value: Vec<u8>,
    headers: Vec<(&'static str, &'static str)>,
}

impl Submitted {
    fn check(&self, seen: &Seen) {
        assert_eq!(seen.key.as_deref(), Some(KEY.as_bytes()));
        assert_eq!(seen.value.as_deref(), Some(&self.value[..]));
        let own: Vec<(String, Option<Vec<u8>>)> = self
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Some(value.as_bytes().to_vec())))
            .collect();
        assert_eq!(seen.headers[..own.len()], own[..], "the user's own headers come first, as submitted");
        let rest: Vec<&str> = seen.headers[own.len()..].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(rest, DELIVERED);
    }
}

/// Runs a client that submits and consumes against a pipeline of its own, and compares.
async fn round_trip(language: Language, program: &str, submitted: Submitted) -> Result<()> {
    let Some(client) = language.client().await? else { return Ok(()) };
    let world = World::started(&submitted.task_id.replace('-', "_")).await?;
    let topic = world.topic("out", PARTITIONS).await?;
    taken_back(&world, &topic)?;
    let (kafka, tasks) = (world.pipeline.addresses().kafka.clone(), world.pipeline.names().tasks());
    let said = client.run(program, &[&kafka, &tasks, &topic, &format!("{topic}-group")]).await?;

    let record = delivered(&world, &submitted, topic).await?;
    let line = said.trim();
    let seen = if language == Language::Kcat { Seen::parse_kcat(line)? } else { Seen::parse(line)? };
    assert_eq!(seen, Seen::of(&record), "the client saw what stands on the topic");
    Ok(())
}

/// The one delivery, which must be what was submitted, of a command that stands where Java's producer would put it.
async fn delivered(world: &World, submitted: &Submitted, topic: String) -> Result<Record> {
    let task_ids = vec![submitted.task_id.to_owned()];
    let mut records = world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    let record = records.remove(0);
    submitted.check(&Seen::of(&record));
    let commands = world.delivered(&[&world.pipeline.names().tasks()], 1).await?;
    assert_eq!(
        commands[0].partition, JAVAS_PARTITION,
        "all languages put the commands of one task on one partition"
    );
    Ok(record)
}

/// Puts a record on every partition and aborts: a client that does not read committed sees these first.
fn taken_back(world: &World, topic: &str) -> Result<()> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &world.pipeline.addresses().kafka)
        .set("transactional.id", format!("{topic}-taken-back"))
        .create()?;
    let within = Duration::from_secs(30);
    producer.init_transactions(within)?;
    producer.begin_transaction()?;
    for partition in 0..PARTITIONS {
        let record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition).payload(b"taken back");
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(within)?;
    producer.abort_transaction(within)?;
    Ok(())
}

#[tokio::test]
async fn kcat_schedules_with_headers_and_receives() -> Result<()> {
    let submitted = Submitted {
        task_id: "kcat-1",
        value: "Grüße from kcat".into(),
        headers: vec![("content-type", "text/plain")],
    };
    round_trip(Language::Kcat, "client", submitted).await
}

#[tokio::test]
async fn java_schedules_bytes_with_repeated_headers_and_receives() -> Result<()> {
    let submitted = Submitted {
        task_id: "java-1",
        value: "Grüße from Java \0".into(),
        headers: vec![("step", "1"), ("step", "2")],
    };
    round_trip(Language::Java, "Client", submitted).await
}

#[tokio::test]
async fn python_schedules_as_json_and_receives() -> Result<()> {
    let submitted = Submitted {
        task_id: "python-1",
        value: r#"{"order": 4711, "note": "Gr\u00fc\u00dfe from Python"}"#.into(),
        headers: vec![("content-type", "application/json")],
    };
    round_trip(Language::Python, "client", submitted).await
}

#[tokio::test]
async fn go_schedules_bytes_with_repeated_headers_and_receives() -> Result<()> {
    let submitted = Submitted {
        task_id: "go-1",
        value: ["Grüße from Go ".as_bytes(), &[0, 0xff]].concat(),
        headers: vec![("step", "1"), ("step", "2")],
    };
    round_trip(Language::Go, "client", submitted).await
}

#[tokio::test]
async fn node_schedules_as_json_and_receives() -> Result<()> {
    let submitted = Submitted {
        task_id: "node-1",
        value: r#"{"order":4711,"note":"Grüße from Node.js"}"#.into(),
        headers: vec![("content-type", "application/json")],
    };
    round_trip(Language::Node, "client", submitted).await
}

#[tokio::test]
async fn java_schedules_as_avro_in_single_object_encoding() -> Result<()> {
    let Some(client) = Language::Java.client().await? else { return Ok(()) };
    let submitted = Submitted {
        task_id: "java-avro-1",
        value: "Grüße from Avro".into(),
        headers: vec![("content-type", "text/plain")],
    };
    let world = World::started("java_avro").await?;
    let topic = world.topic("out", PARTITIONS).await?;
    let (kafka, tasks) = (world.pipeline.addresses().kafka.clone(), world.pipeline.names().tasks());
    client.run("SubmitAvro", &[&kafka, &tasks, &topic, &task_command()?]).await?;
    delivered(&world, &submitted, topic).await?;
    Ok(())
}

#[tokio::test]
async fn python_schedules_as_avro_through_a_schema_registry() -> Result<()> {
    let Some(client) = Language::Python.client().await? else { return Ok(()) };
    let submitted = Submitted {
        task_id: "python-avro-1",
        value: [&b"any bytes "[..], &[0, 0xff]].concat(),
        headers: vec![("content-type", "application/octet-stream")],
    };
    let mut world = World::new("python_avro").await?;
    let registry = world.pipeline.addresses().registry()?.to_owned();
    world.pipeline.set("ingest", "REGISTRY__URL", registry.as_str());
    world.start_all().await?;
    let topic = world.topic("out", PARTITIONS).await?;
    let (kafka, tasks) = (world.pipeline.addresses().kafka.clone(), world.pipeline.names().tasks());
    client.run("submit_avro", &[&kafka, &tasks, &topic, &task_command()?, &registry]).await?;
    delivered(&world, &submitted, topic).await?;
    Ok(())
}

#[tokio::test]
async fn go_learns_from_replies_what_became_of_its_commands() -> Result<()> {
    let Some(client) = Language::Go.client().await? else { return Ok(()) };
    let world = World::started("go_reply").await?;
    let topic = world.topic("out", 1).await?;
    let (kafka, names) = (world.pipeline.addresses().kafka.clone(), world.pipeline.names());
    let said = client.run("reply", &[&kafka, &names.tasks(), &topic, &names.replies()]).await?;
    let replies: Vec<Value> =
        said.lines().map(|line| Ok(serde_json::from_str(line)?)).collect::<Result<_>>()?;
    let field =
        |n: usize, name: &str| replies[n][format!("duestream-reply-{name}")].as_str().unwrap_or_default();
    assert_eq!(replies.len(), 2, "{said}");
    assert_eq!((field(0, "answer"), field(0, "reason")), ("rejected", "time_out_of_range"));
    assert_eq!((field(1, "answer"), field(1, "due-at")), ("accepted", "7226582400000"));
    Ok(())
}

/// The schema that producers in Avro write with.
fn task_command() -> Result<String> {
    let file = devstack::paths::work_tree()?.join("schemas/avsc/task_command/v1.avsc");
    Ok(file.to_str().context("a path in UTF-8")?.to_owned())
}

/// The partition that Duestream chooses for a key is the one that Java's own producer chooses.
#[tokio::test]
async fn a_key_is_delivered_to_the_partition_that_javas_producer_chooses() -> Result<()> {
    const PARTITIONS: i32 = 7;
    let Some(client) = Language::Java.client().await? else { return Ok(()) };
    let world = World::started("murmur2").await?;
    let (topic, direct) = (world.topic("out", PARTITIONS).await?, world.topic("direct", PARTITIONS).await?);
    // Every remainder of four, bytes with the high bit, and the empty key: where implementations of murmur2 differ.
    let mut keys: Vec<Vec<u8>> = (0..=9).map(|length| (1..=length).collect()).collect();
    keys.extend((1..=9).map(|length| (0..length).map(|n| 0xff - 7 * n).collect()));
    keys.extend((0..20).map(|n| format!("order-{n}").into_bytes()));
    keys.push("Grüße, 世界".into());
    let tasks: Vec<Task> = (0..)
        .zip(&keys)
        .map(|(n, key)| Task::new(&format!("task-{n}"), &topic, now_ms()).key(Some(key)))
        .collect();
    world.submit(&tasks).await?;
    let task_ids = (0..keys.len()).map(|n| format!("task-{n}")).collect();
    let records = world.check(&Expected { task_ids, topics: vec![topic] }).await?;

    let in_hex: Vec<String> = keys.iter().map(|key| hex(key)).collect();
    let mut arguments = vec![world.pipeline.addresses().kafka.as_str(), &direct];
    arguments.extend(in_hex.iter().map(String::as_str));
    let said = client.run("Partitions", &arguments).await?;
    let by_java: Vec<i32> = said.lines().map(|line| Ok(line.parse()?)).collect::<Result<_>>()?;
    ensure!(by_java.len() == keys.len(), "{said}");
    for (key, by_java) in keys.iter().zip(by_java) {
        let record = records.iter().find(|record| record.key.as_ref() == Some(key)).context("a delivery")?;
        assert_eq!(record.partition, by_java, "key {key:?}");
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all");
        text
    })
}
