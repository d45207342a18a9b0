//! `duectl cancel`, `reschedule` and `get` on tasks in every state.

use crate::acks::{ack, attempt, await_state, on_ack, say, started};
use anyhow::{Context, Result};
use devstack::wait;
use protocol::state::TaskState;
use serde_json::Value;
use tests::world::PATIENCE;
use tests::{Task, World, now_ms};

/// Standard output of `duectl`, and its status.
async fn duectl(world: &World, arguments: &[&str]) -> Result<(String, Option<i32>)> {
    let out = world.pipeline.duectl(arguments).await?;
    let text = [out.stdout, out.stderr].concat();
    Ok((String::from_utf8_lossy(&text).into_owned(), out.status.code()))
}

async fn get(world: &World, id: &str) -> Result<Value> {
    Ok(serde_json::from_str(&world.pipeline.duectl_ok(&["get", id, "--json"]).await?)?)
}

#[tokio::test]
async fn a_task_is_cancelled_and_moved_by_one_line_that_says_what_became_of_it() -> Result<()> {
    let mut world = World::started("duectl_changes").await?;
    let topic = world.topic("out", 1).await?;
    let hour = now_ms() + 3_600_000;
    let expired = (now_ms() - 30_000).to_string();
    world
        .submit(&[
            Task::new("far", &topic, hour),
            Task::new("moved", &topic, hour),
            Task::new("fired", &topic, hour),
            Task::new("sent", &topic, now_ms()),
            Task::new("dead", &topic, now_ms() - 60_000).with("duestream-expires-at", &expired),
        ])
        .await?;
    await_state(&world, "sent", TaskState::Done).await?;
    await_state(&world, "dead", TaskState::Dead).await?;
    world.await_accepted(5).await?;

    for (arguments, said, status) in [
        (&["cancel", "far"][..], "cancelled: task far will not be delivered", 0),
        (&["cancel", "far"], "cancelled", 0),
        (&["cancel", "nobody"], "not_found", 3),
        (&["cancel", "far", "--shard-key", "other"], "not_found", 3),
        (&["cancel", "sent"], "already_sent", 1),
        (&["cancel", "dead"], "rejected (dead)", 1),
        (&["reschedule", "far", "--now"], "cancelled", 1),
        (&["reschedule", "sent", "--delay", "1h"], "already_sent", 1),
        (
            &["reschedule", "moved", "--due-at", "2040-01-01T00:00:00Z"],
            "accepted: task moved is due at 2040",
            0,
        ),
        (&["reschedule", "moved"], "required", 2),
        (&["reschedule", "moved", "--now", "--delay", "1s"], "cannot be used with", 2),
        (&["reschedule", "moved", "--due-at", "2040-01-01"], "would be refused", 2),
        (
            &["reschedule", "moved", "--delay", "2h", "--expires-at", "2026-01-01T00:00:00Z"],
            "would be refused",
            2,
        ),
        (&["reschedule", "fired", "--now"], "accepted: task fired is due", 0),
    ] {
        let (text, found) = duectl(&world, arguments).await?;
        assert!(text.contains(said) && found == Some(status), "{arguments:?} ended with {found:?}:\n{text}");
    }
    await_state(&world, "fired", TaskState::Done).await?;
    let json = world.pipeline.duectl_ok(&["reschedule", "moved", "--delay", "0s", "--json"]).await?;
    let json: Value = serde_json::from_str(&json)?;
    assert_eq!((&json["answer"], &json["task_id"]), (&Value::from("accepted"), &Value::from("moved")));
    assert!(json["due_at"].is_i64() && json["command"]["offset"].is_i64(), "{json}");
    await_state(&world, "moved", TaskState::Done).await?;
    assert_eq!(world.visible(&[&topic]).await?.len(), 3, "sent, fired, moved");

    // Nobody answers: the command stands, and is carried out once somebody reads it.
    world.submit(&[Task::new("late", &topic, hour)]).await?;
    world.await_accepted(6).await?;
    for ingest in world.take("ingest") {
        ingest.process.kill9();
    }
    let (text, status) = duectl(&world, &["cancel", "late", "--wait", "500ms"]).await?;
    assert!(text.contains("no answer within") && status == Some(3), "{text}");
    world.start("ingest").await?;
    await_state(&world, "late", TaskState::Cancelled).await?;
    Ok(())
}

#[tokio::test]
async fn commands_of_one_task_have_one_key_whoever_sends_them() -> Result<()> {
    let world = World::started("command_keys").await?;
    let topic = world.topic("out", 1).await?;
    for (id, more) in
        [("keyed", &["--key", "callback-key"][..]), ("sharded", &["--shard-key", "shop-7"]), ("plain", &[])]
    {
        let arguments = ["submit", "--topic", &topic, "--delay", "1h", "--value", "v", "--task-id", id];
        world.pipeline.duectl_ok(&[&arguments[..], more].concat()).await?;
    }
    world.await_accepted(3).await?;
    world.pipeline.duectl_ok(&["cancel", "keyed"]).await?;
    world.pipeline.duectl_ok(&["reschedule", "sharded", "--shard-key", "shop-7", "--delay", "2h"]).await?;
    world.pipeline.duectl_ok(&["cancel", "plain"]).await?;
    let mut blind = world.pipeline.duectl_command(&["cancel", "keyed", "--key", "callback-key"])?;
    blind.env_remove("MYSQL_URL");
    let out = tokio::task::spawn_blocking(move || blind.output()).await??;
    assert!(out.status.success(), "without the database the key is given");

    let commands = world.visible(&[&world.pipeline.names().tasks()]).await?;
    for (id, key, count) in [("keyed", "callback-key", 3), ("sharded", "shop-7", 2), ("plain", "plain", 2)] {
        let of: Vec<_> =
            commands.iter().filter(|command| command.header("duestream-task-id") == Some(id)).collect();
        assert_eq!(of.len(), count, "{id}");
        assert!(of.iter().all(|command| command.key.as_deref() == Some(key.as_bytes())), "{id}: {of:?}");
    }
    Ok(())
}

#[tokio::test]
async fn get_tells_the_attempts_of_a_task_its_progress_and_what_it_waits_for() -> Result<()> {
    let (world, topic) = started("get_life").await?;
    let task = on_ack("t", &topic).with("duestream-max-attempts", "3").with("duestream-ack-timeout", "10m");
    world.submit(&[task]).await?;
    let first = attempt(&world, &topic, "t", 1).await?;
    await_state(&world, "t", TaskState::Running).await?;
    let running = get(&world, "t").await?;
    assert_eq!((&running["where"], &running["life"]["failures"]), (&Value::from("running"), &Value::from(0)));
    let deadline = running["detail"]["deadline_at"].as_i64().context("a deadline")?;
    assert!(deadline > now_ms() + 500_000, "ten minutes: {running}");

    say(&world, &[ack(&first, "progress").value(Some(b"page 3"))]).await?;
    wait::until("the progress to be seen", PATIENCE, async || {
        let found = get(&world, "t").await?;
        Ok(if found["life"]["progress"] == "page 3" { Ok(()) } else { Err(found.to_string()) })
    })
    .await?;
    say(&world, &[ack(&first, "failed").with("duestream-reason", "disk full")]).await?;
    attempt(&world, &topic, "t", 2).await?;
    await_state(&world, "t", TaskState::Running).await?;
    let again = get(&world, "t").await?;
    assert_eq!(
        (&again["attempt"], &again["life"]["failures"]),
        (&Value::from(2), &Value::from(1)),
        "{again}"
    );
    assert_eq!(again["life"]["history"][0]["reason"], "disk full");
    // A cancel of what runs comes too late for this attempt, and in time for the next one.
    let (text, status) = duectl(&world, &["cancel", "t"]).await?;
    assert!(text.contains("no further attempt") && status == Some(1), "{text}");
    let text = world.pipeline.duectl_ok(&["get", "t"]).await?;
    for wanted in [
        "failed 1 of 3",
        "attempt 1 failed at",
        "disk full",
        "progress   page 3",
        "it was cancelled while it ran",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in:\n{text}");
    }
    Ok(())
}
