//! Tasks that wait for their consumer: progress, failures, silence, and what becomes of them.

use anyhow::{Context, Result};
use devstack::topics::Record;
use protocol::state::TaskState;
use tests::{Task, World, now_ms};

/// What a consumer says of a delivery.
pub(crate) fn ack(of: &Record, outcome: &str) -> Task {
    let id = of.header("duestream-task-id").unwrap_or_default();
    let task = Task { key: Some(id.as_bytes().to_vec()), value: None, headers: Vec::new(), partition: None };
    task.with("duestream-delivery-id", of.header("duestream-delivery-id").unwrap_or_default())
        .with("duestream-ack", outcome)
}

/// The delivery of an attempt, once it is there.
pub(crate) async fn attempt(world: &World, topic: &str, id: &str, attempt: i64) -> Result<Record> {
    for count in 1.. {
        let records = world.delivered(&[topic], count).await?;
        let found = records.into_iter().find(|record| {
            record.header("duestream-task-id") == Some(id)
                && record.number("duestream-attempt") == Some(attempt)
        });
        if let Some(found) = found {
            return Ok(found);
        }
    }
    anyhow::bail!("no end of records")
}

pub(crate) async fn say(world: &World, acks: &[Task]) -> Result<()> {
    world.publish(&world.pipeline.names().acks(), acks).await
}

pub(crate) async fn await_state(world: &World, id: &str, state: TaskState) -> Result<()> {
    let sql = format!("SELECT COUNT(*) FROM task WHERE task_id = '{id}' AND state = {}", state.code());
    world.await_count(&format!("{id} to be {}", state.name()), &sql, 1).await
}

/// The dead letter of a task.
pub(crate) async fn letter(world: &World, id: &str, count: usize) -> Result<Record> {
    let letters = world.delivered(&[&world.pipeline.names().dead()], count).await?;
    let found = letters.into_iter().find(|letter| letter.header("duestream-task-id") == Some(id));
    found.with_context(|| format!("no dead letter of {id}"))
}

pub(crate) async fn started(name: &str) -> Result<(World, String)> {
    let mut world = World::new(name).await?;
    world.pipeline.set("ingest", "ACKS__TICK", "200ms");
    world.pipeline.set("compensator", "STALLS__EVERY", "200ms");
    world.start_all().await?;
    let topic = world.topic("out", 1).await?;
    Ok((world, topic))
}

pub(crate) fn on_ack(id: &str, topic: &str) -> Task {
    Task::new(id, topic, now_ms())
        .with("duestream-completion", "on_ack")
        .with("duestream-backoff", "fixed:200ms")
}

#[tokio::test]
async fn a_consumer_that_fails_is_given_the_task_again_with_its_progress_until_it_succeeds() -> Result<()> {
    let (world, topic) = started("resumed").await?;
    world.submit(&[on_ack("t", &topic).with("own", "1")]).await?;
    let first = attempt(&world, &topic, "t", 1).await?;
    assert_eq!(first.header("duestream-progress"), None);
    await_state(&world, "t", TaskState::Running).await?;
    let progress = ack(&first, "progress").value(Some(b"page 3"));
    let failed = ack(&first, "failed").with("duestream-reason", "disk full");
    say(&world, &[progress, failed]).await?;
    let second = attempt(&world, &topic, "t", 2).await?;
    assert_eq!(second.header("duestream-progress"), Some("page 3"), "work goes on where it stopped");
    assert_eq!((&second.value, &second.key, second.header("own")), (&first.value, &first.key, Some("1")));
    assert_ne!(second.header("duestream-delivery-id"), first.header("duestream-delivery-id"));
    // What is said of the first attempt counts no more, but that it succeeded after all would.
    say(&world, &[ack(&first, "failed"), ack(&second, "succeeded")]).await?;
    await_state(&world, "t", TaskState::Done).await?;
    assert_eq!(world.visible(&[&topic]).await?.len(), 2, "two attempts, each once");
    assert_eq!(world.count("SELECT COUNT(*) FROM running").await?, 0);
    Ok(())
}

#[tokio::test]
async fn attempts_that_are_used_up_and_failures_for_good_make_dead_letters_that_can_be_replayed() -> Result<()>
{
    let (world, topic) = started("buried").await?;
    let unlucky = on_ack("unlucky", &topic).with("duestream-max-attempts", "2");
    let hopeless = on_ack("hopeless", &topic).with("duestream-reply", "true");
    world.submit(&[unlucky, hopeless]).await?;
    let first = attempt(&world, &topic, "unlucky", 1).await?;
    say(&world, &[ack(&first, "failed").with("duestream-reason", "one")]).await?;
    let second = attempt(&world, &topic, "unlucky", 2).await?;
    say(&world, &[ack(&second, "failed").with("duestream-reason", "two")]).await?;
    await_state(&world, "unlucky", TaskState::Dead).await?;
    let buried = letter(&world, "unlucky", 1).await?;
    assert_eq!(buried.header("duestream-dead-reason"), Some("attempts_exhausted"));
    let history =
        buried.headers.iter().find(|(name, _)| name == "duestream-history").and_then(|(_, it)| it.clone());
    let past = schemas::row::RowHistory::decode(&history.context("a history")?)?.attempts;
    let reasons: Vec<_> = past.iter().map(|past| (past.attempt, past.reason.as_deref())).collect();
    assert_eq!(reasons, [(1, Some("one")), (2, Some("two"))]);

    let only = attempt(&world, &topic, "hopeless", 1).await?;
    let for_good = ack(&only, "failed").with("duestream-permanent", "true").value(Some(b"half"));
    say(&world, &[for_good]).await?;
    await_state(&world, "hopeless", TaskState::Dead).await?;
    let buried = letter(&world, "hopeless", 2).await?;
    assert_eq!(buried.header("duestream-dead-reason"), Some("failed"));

    // The letter, as it is, with one more header; it can be sent twice and is carried out once.
    let again = |correlation: &str| {
        let (key, value, headers) = (buried.key.clone(), buried.value.clone(), buried.headers.clone());
        Task { key, value, headers, partition: Some(0) }
            .with("duestream-op", "replay")
            .with("duestream-reply", "true")
            .with("duestream-correlation", correlation)
    };
    world.submit(&[again("first"), again("twice")]).await?;
    let replayed = attempt(&world, &topic, "hopeless", 2).await?;
    assert_eq!(replayed.header("duestream-progress"), Some("half"));
    assert_eq!((&replayed.value, &replayed.key), (&only.value, &only.key));
    let answers = world.answers(3).await?;
    assert_eq!((answers["first"].as_str(), answers["twice"].as_str()), ("accepted", "rejected not_dead"));
    say(&world, &[ack(&replayed, "succeeded")]).await?;
    await_state(&world, "hopeless", TaskState::Done).await?;
    Ok(())
}

#[tokio::test]
async fn a_consumer_that_is_silent_loses_the_task_and_after_its_last_stall_it_is_buried() -> Result<()> {
    let (world, topic) = started("stalled").await?;
    let silent = on_ack("silent", &topic)
        .with("duestream-ack-timeout", "1s")
        .with("duestream-max-stalls", "1")
        .with("duestream-max-attempts", "1");
    world.submit(&[silent]).await?;
    let first = attempt(&world, &topic, "silent", 1).await?;
    let second = attempt(&world, &topic, "silent", 2).await?;
    let between = second.timestamp_at - first.timestamp_at;
    assert!(between >= 1_100, "the next attempt after {between} ms: not before the time-out and the pause");
    await_state(&world, "silent", TaskState::Dead).await?;
    let buried = letter(&world, "silent", 1).await?;
    assert_eq!(buried.header("duestream-dead-reason"), Some("attempts_exhausted"));
    assert_eq!(buried.number("duestream-attempt"), Some(2));
    assert_eq!(world.visible(&[&topic]).await?.len(), 2);
    Ok(())
}
