//! Commands as Avro through a real schema registry: producers of two versions side by side.

use anyhow::{Context, Result, ensure};
use devstack::wait;
use schemas::avro::{ReadReply, TASK_COMMAND_VERSIONS};
use schemas::command::{AvroTime, TaskCommand};
use serde_json::{Value, json};
use std::io::Read as _;
use std::process::{Command, Stdio};
use tests::world::PATIENCE;
use tests::{Expected, Task, World, now_ms};
use tokio::net::{TcpListener, TcpStream};

/// Registers a schema and answers its id. (curl: the tests have no HTTP client of their own.)
fn register(url: &str, subject: &str, schema: &str, kind: &str) -> Result<u32> {
    let body = json!({ "schema": schema, "schemaType": kind }).to_string();
    let mut child = Command::new("curl")
        .args([
            "-s",
            "-S",
            "-X",
            "POST",
            "-H",
            "content-type: application/vnd.schemaregistry.v1+json",
            "-d",
            &body,
        ])
        .arg(format!("{url}/subjects/{subject}/versions"))
        .stdout(Stdio::piped())
        .spawn()
        .context("curl")?;
    let mut answer = String::new();
    child.stdout.take().context("no stdout")?.read_to_string(&mut answer)?;
    ensure!(child.wait()?.success(), "curl failed: {answer}");
    let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
    let id = answer["id"].as_u64().with_context(|| format!("no id in {answer}"))?;
    Ok(u32::try_from(id)?)
}

/// Lets connections through to a registry. Until then they are made and nobody answers.
fn open(road: std::net::TcpListener, to: String) -> Result<()> {
    road.set_nonblocking(true)?;
    let road = TcpListener::from_std(road)?;
    tokio::spawn(async move {
        while let Ok((mut near, _)) = road.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                if let Ok(mut far) = TcpStream::connect(to).await {
                    drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                }
            });
        }
    });
    Ok(())
}

#[tokio::test]
async fn a_registry_that_does_not_answer_is_waited_for_and_nothing_is_refused() -> Result<()> {
    let mut world = World::new("noregistry").await?;
    let registry = world.pipeline.addresses().registry()?.to_owned();
    let (host, path) =
        registry.strip_prefix("http://").context("no http")?.split_once('/').context("no path")?;
    let road = std::net::TcpListener::bind("127.0.0.1:0")?;
    world.pipeline.set("ingest", "REGISTRY__URL", format!("http://{}/{path}", road.local_addr()?));
    world.pipeline.set("ingest", "REGISTRY__TIMEOUT", "500ms");
    world.start_all().await?;
    let topic = world.topic("out", 1).await?;
    let command = TaskCommand {
        task_id: Some("patient".into()),
        topic: Some(topic.clone()),
        delay: Some("1s".into()),
        ..TaskCommand::default()
    };
    let newest = TASK_COMMAND_VERSIONS.last().context("no version")?;
    let id = register(&registry, &topic, newest, "AVRO")?;
    world.submit(&[Task::bare(&command.encode_framed(id))]).await?;
    let http = world.only("ingest").http.clone();
    wait::until("ingest says that it waits", PATIENCE, async || {
        let http = http.clone();
        let asked = tokio::task::spawn_blocking(move || devstack::program::ask_ready(&http)).await?;
        let told = asked.unwrap_or_else(|reason| reason);
        Ok(if told.contains(&format!("waiting for the schema registry (schema {id})")) {
            Ok(())
        } else {
            Err(told)
        })
    })
    .await?;
    open(road, host.to_owned())?;
    world.check(&Expected { task_ids: vec!["patient".into()], topics: vec![topic] }).await?;
    assert!(world.visible(&[&world.pipeline.names().rejected()]).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn commands_of_two_versions_framed_and_single_are_delivered_and_answered() -> Result<()> {
    let mut world = World::new("registry").await?;
    let registry = world.pipeline.addresses().registry()?.to_owned();
    world.pipeline.set("ingest", "REGISTRY__URL", registry.clone());
    world.start_all().await?;
    let topic = world.topic("out", 1).await?;
    let due_at = now_ms() + 2_000;
    let command = |id: &str| TaskCommand {
        task_id: Some(id.to_owned()),
        topic: Some(topic.clone()),
        due_at: Some(AvroTime::Ms(due_at)),
        value: Some(id.as_bytes().to_vec()),
        reply: Some(true),
        correlation: Some(id.as_bytes().to_vec()),
        ..TaskCommand::default()
    };
    let newest = TASK_COMMAND_VERSIONS.last().context("no version")?;
    let mut next: Value = serde_json::from_str(newest)?;
    let fields = next["fields"].as_array_mut().context("no fields")?;
    fields.push(json!({ "name": "colour", "type": ["null", "string"], "default": null }));
    let subject = topic.clone();
    let id = register(&registry, &subject, newest, "AVRO")?;
    let next_id = register(&registry, &subject, &next.to_string(), "AVRO")?;
    let other_id = register(
        &registry,
        &format!("{subject}-other"),
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}"#,
        "JSON",
    )?;

    // A datum of the next version that does not use what is new: one more null at its end.
    let mut of_next = command("next").encode_framed(next_id);
    of_next.push(0);
    // One that does: branch 1, "red".
    let mut using_it = command("using it").encode_framed(next_id);
    using_it.extend_from_slice(b"\x02\x06red");
    let bare = |value: Vec<u8>| Task::bare(&value).on_partition(0);
    world
        .submit(&[
            bare(command("framed").encode_framed(id)),
            bare(of_next),
            bare(using_it),
            bare(command("single").encode()),
            bare(command("other").encode_framed(other_id)),
            bare(command("nowhere").encode_framed(u32::MAX)),
            Task::new("headers", &topic, due_at).on_partition(0),
        ])
        .await?;
    let task_ids = ["framed", "next", "single", "headers"].map(str::to_owned).to_vec();
    world.check(&Expected { task_ids, topics: vec![topic] }).await?;

    let names = world.pipeline.names();
    let mut reasons: Vec<(i64, String)> = Vec::new();
    for record in world.delivered(&[&names.rejected()], 3).await? {
        let offset = record.number("duestream-rejected-offset").context("no offset")?;
        reasons.push((offset, record.header("duestream-rejected-reason").unwrap_or_default().to_owned()));
    }
    reasons.sort();
    let expected = [(2, "unknown_field"), (4, "incompatible_schema"), (5, "unknown_schema")];
    assert_eq!(reasons, expected.map(|(offset, code)| (offset, code.to_owned())));

    let mut replies: Vec<(String, String)> = Vec::new();
    for record in world.delivered(&[&names.replies()], 4).await? {
        let reply = ReadReply::decode(record.value.as_deref().unwrap_or_default())?;
        let correlation = String::from_utf8(reply.correlation.unwrap_or_default())?;
        assert_eq!(reply.task_id.as_deref(), Some(correlation.as_str()));
        replies.push((correlation, reply.answer));
    }
    replies.sort();
    let expected =
        [("framed", "accepted"), ("next", "accepted"), ("single", "accepted"), ("using it", "rejected")];
    assert_eq!(replies, expected.map(|(to, answer)| (to.to_owned(), answer.to_owned())));
    Ok(())
}
