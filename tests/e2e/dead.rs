//! Tasks that were given up: `duectl dead list`, `show` and `replay`.

use crate::acks::{ack, attempt, await_state, letter, on_ack, say, started};
use anyhow::{Context, Result, ensure};
use devstack::topics::Record;
use protocol::state::TaskState;
use schemas::row::RowHistory;
use serde_json::Value;
use std::time::Instant;
use tests::{Task, World, now_ms};

/// What `duectl` said on stdout, each line JSON, and its status.
async fn json(world: &World, arguments: &[&str]) -> Result<(Vec<Value>, Option<i32>)> {
    let arguments = [arguments, &["--json"]].concat();
    let out = world.pipeline.duectl(&arguments).await?;
    let (said, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let lines = said.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    let lines = lines.with_context(|| format!("duectl {}:\n{said}{error}", arguments.join(" ")))?;
    Ok((lines, out.status.code()))
}

/// Task ids of a list, oldest burial first.
async fn listed(world: &World, filter: &[&str]) -> Result<Vec<String>> {
    let (mut lines, status) = json(world, &[&["dead", "list"], filter].concat()).await?;
    ensure!(status == Some(0), "status {status:?} with {filter:?}");
    let counts = lines.pop().context("the counts")?;
    let ids = lines.iter().map(|line| line["task_id"].as_str().unwrap_or_default().to_owned());
    let ids: Vec<String> = ids.collect();
    if !filter.contains(&"--limit") {
        assert_eq!(counts["letters"], ids.len(), "{filter:?}");
    }
    Ok(ids)
}

async fn replay(world: &World, arguments: &[&str]) -> Result<(Value, Option<i32>)> {
    let (lines, status) = json(world, &[&["dead", "replay"], arguments].concat()).await?;
    Ok((lines.into_iter().next().context("a report")?, status))
}

fn history(letter: &Record) -> Result<Vec<(u16, String, Option<String>)>> {
    let bytes = letter.headers.iter().find(|(name, _)| name == "duestream-history");
    let Some(bytes) = bytes.and_then(|(_, bytes)| bytes.clone()) else { return Ok(Vec::new()) };
    let past = RowHistory::decode(&bytes)?.attempts.into_iter();
    Ok(past.map(|past| (past.attempt, past.outcome, past.reason)).collect())
}

#[tokio::test]
async fn tasks_that_were_given_up_are_listed_shown_and_replayed_with_their_history() -> Result<()> {
    let (world, topic) = started("dead").await?;
    let payload: &[u8] = &[0, 0xff, b'\n', 1];
    let unlucky = on_ack("unlucky", &topic)
        .with("duestream-max-attempts", "2")
        .with("own", "1")
        .key(Some(b"callback-key"))
        .value(Some(payload));
    world.submit(&[unlucky, on_ack("hopeless", &topic).value(None)]).await?;
    for n in 1..=2 {
        let delivery = attempt(&world, &topic, "unlucky", n).await?;
        say(&world, &[ack(&delivery, "failed").with("duestream-reason", &format!("reason {n}"))]).await?;
    }
    await_state(&world, "unlucky", TaskState::Dead).await?;
    let only = attempt(&world, &topic, "hopeless", 1).await?;
    say(&world, &[ack(&only, "failed").with("duestream-permanent", "true")]).await?;
    await_state(&world, "hopeless", TaskState::Dead).await?;

    // The letter has all that a replay needs.
    let buried = letter(&world, "unlucky", 2).await?;
    for (name, text) in [
        ("duestream-completion", "on_ack"),
        ("duestream-max-attempts", "2"),
        ("duestream-backoff", "fixed:200ms"),
        ("duestream-topic", topic.as_str()),
        ("duestream-key", "callback-key"),
        ("own", "1"),
    ] {
        assert_eq!(buried.header(name), Some(text), "{name}");
    }
    assert_eq!(buried.header("duestream-max-stalls"), None, "nobody said anything of it");
    assert_eq!(buried.value.as_deref(), Some(payload));

    assert_eq!(listed(&world, &[]).await?, ["unlucky", "hopeless"]);
    assert_eq!(listed(&world, &["--limit", "1"]).await?, ["hopeless"], "the newest");
    assert_eq!(listed(&world, &["--reason", "failed"]).await?, ["hopeless"]);
    assert_eq!(listed(&world, &["--topic", &topic, "--task-id", "unlucky"]).await?, ["unlucky"]);
    assert_eq!(listed(&world, &["--topic", "another"]).await?, Vec::<String>::new());
    assert_eq!(listed(&world, &["--since", "10m", "--reason", "attempts_exhausted"]).await?, ["unlucky"]);
    assert_eq!(listed(&world, &["--until", "10m"]).await?, Vec::<String>::new());
    let missing = world.pipeline.duectl(&["dead", "list", "--task-id", "nobody"]).await?;
    assert_eq!(missing.status.code(), Some(3));

    let (shown, _) = json(&world, &["dead", "show", "unlucky"]).await?;
    let shown = &shown[0];
    assert_eq!((&shown["attempt"], &shown["reason"]), (&Value::from(2), &Value::from("attempts_exhausted")));
    assert_eq!(
        (&shown["value"], &shown["key"]),
        (&Value::from(payload.to_vec()), &Value::from("callback-key"))
    );
    assert_eq!(shown["options"]["max-attempts"], "2");
    let past = shown["history"].as_array().context("a history")?;
    assert_eq!(past.len(), 2);
    for (n, past) in (1..).zip(past) {
        assert_eq!(
            (&past["attempt"], &past["reason"]),
            (&Value::from(n), &Value::from(format!("reason {n}")))
        );
        assert!(
            past["ack"]["offset"].is_i64() && past["due_at"].is_i64() && past["ended_at"].is_i64(),
            "{past}"
        );
    }
    let at = format!("{}:{}", shown["partition"], shown["offset"]);
    let text = world.pipeline.duectl_ok(&["dead", "show", "--at", &at]).await?;
    assert!(text.contains("dead letter of task unlucky") && text.contains("reason 2"), "{text}");
    let raw = world.pipeline.duectl(&["dead", "show", "unlucky", "--payload"]).await?;
    assert_eq!(raw.stdout, payload);
    assert_eq!(world.pipeline.duectl(&["dead", "show", "nobody"]).await?.status.code(), Some(3));
    let (got, _) = json(&world, &["get", "unlucky"]).await?;
    assert_eq!(got[0]["death"]["reason"], "attempts_exhausted");

    // Nothing is sent without being asked for in so many words.
    let tasks = world.pipeline.names().tasks();
    let before = world.visible(&[&tasks]).await?.len();
    assert_eq!(world.pipeline.duectl(&["dead", "replay"]).await?.status.code(), Some(2));
    let (dry, status) = replay(&world, &["--all", "--dry-run"]).await?;
    assert_eq!((&dry["letters"], &dry["dry_run"], status), (&Value::from(2), &Value::from(true), Some(0)));
    assert_eq!(world.visible(&[&tasks]).await?.len(), before);

    let (report, status) = replay(&world, &["--task-id", "unlucky"]).await?;
    assert_eq!((&report["accepted"], status), (&Value::from(1), Some(0)), "{report}");
    let third = attempt(&world, &topic, "unlucky", 3).await?;
    assert_eq!((third.value.as_deref(), third.key.as_deref()), (Some(payload), Some(&b"callback-key"[..])));
    assert_eq!(third.header("own"), Some("1"));
    // The same letter once more, while the task lives.
    let (report, status) = replay(&world, &["--task-id", "unlucky"]).await?;
    assert_eq!((&report["accepted"], status), (&Value::from(0), Some(1)), "{report}");
    assert_eq!(report["answers"]["rejected (not_dead)"], 1, "{report}");

    // It dies again: its history goes on, and its newest letter counts.
    await_state(&world, "unlucky", TaskState::Running).await?;
    let for_good =
        ack(&third, "failed").with("duestream-permanent", "true").with("duestream-reason", "reason 3");
    say(&world, &[for_good]).await?;
    await_state(&world, "unlucky", TaskState::Dead).await?;
    let letters = world.delivered(&[&world.pipeline.names().dead()], 3).await?;
    let newest = letters
        .iter()
        .rfind(|letter| letter.number("duestream-attempt") == Some(3))
        .context("a third letter")?;
    let reasons: Vec<Option<String>> = history(newest)?.into_iter().map(|(_, _, reason)| reason).collect();
    assert_eq!(reasons, ["reason 1", "reason 2", "reason 3"].map(|text| Some(text.to_owned())));
    assert_eq!(newest.header("duestream-max-attempts"), Some("2"), "what was said stays said");
    assert_eq!(listed(&world, &["--task-id", "unlucky", "--reason", "attempts_exhausted"]).await.ok(), None);

    let (report, status) = replay(&world, &["--all"]).await?;
    assert_eq!(
        (&report["accepted"], &report["letters"], status),
        (&Value::from(2), &Value::from(2), Some(0)),
        "{report}"
    );
    let (fourth, second) =
        (attempt(&world, &topic, "unlucky", 4).await?, attempt(&world, &topic, "hopeless", 2).await?);
    assert_eq!(second.value, None, "a tombstone stays one");
    say(&world, &[ack(&fourth, "succeeded"), ack(&second, "succeeded")]).await?;
    await_state(&world, "unlucky", TaskState::Done).await?;
    await_state(&world, "hopeless", TaskState::Done).await?;
    assert_eq!(world.visible(&[&topic]).await?.len(), 6, "each attempt once");
    Ok(())
}

#[tokio::test]
async fn what_has_expired_is_buried_at_its_due_time_also_a_retry_and_never_delivered_late() -> Result<()> {
    let (world, topic) = started("expired").await?;
    let (now, first_due) = (now_ms(), now_ms() - 60_000);
    let expires_at = now + 4_000;
    let old = Task::new("old", &topic, first_due).with("duestream-expires-at", &(now - 30_000).to_string());
    let retried = on_ack("retried", &topic).with("duestream-expires-at", &expires_at.to_string());
    let retried = Task {
        headers: retried.headers.into_iter().filter(|(name, _)| name != "duestream-backoff").collect(),
        ..retried
    }
    .with("duestream-backoff", "fixed:6s");
    world.submit(&[old, retried]).await?;
    let first = attempt(&world, &topic, "retried", 1).await?;
    say(&world, &[ack(&first, "failed").with("duestream-reason", "too busy")]).await?;
    for id in ["old", "retried"] {
        await_state(&world, id, TaskState::Dead).await?;
    }
    let buried = letter(&world, "retried", 2).await?;
    assert_eq!(buried.header("duestream-dead-reason"), Some("expired"));
    assert!(buried.number("duestream-dead-at") >= Some(expires_at), "not before it expired");
    assert_eq!(history(&buried)?, [(1, "failed".to_owned(), Some("too busy".to_owned()))]);
    assert_eq!(letter(&world, "old", 2).await?.header("duestream-dead-reason"), Some("expired"));
    assert_eq!(world.visible(&[&topic]).await?.len(), 1, "only the attempt before it expired");

    // Asked for in so many words they are delivered after all.
    let (report, status) = replay(&world, &["--reason", "expired"]).await?;
    assert_eq!((&report["accepted"], status), (&Value::from(2), Some(0)), "{report}");
    let third = attempt(&world, &topic, "retried", 3).await?;
    say(&world, &[ack(&third, "succeeded")]).await?;
    for id in ["old", "retried"] {
        await_state(&world, id, TaskState::Done).await?;
    }
    assert_eq!(world.visible(&[&topic]).await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn many_are_replayed_no_faster_than_asked_and_each_is_delivered_once() -> Result<()> {
    const TASKS: usize = 150;
    let world = World::started("replays").await?;
    let topic = world.topic("out", 4).await?;
    let now = now_ms();
    let tasks: Vec<Task> = (0..TASKS)
        .map(|n| {
            let task = Task::new(&format!("t{n}"), &topic, now - 20_000);
            let task = task.with("duestream-expires-at", &(now - 10_000).to_string());
            // Some have no key of their own, some a shard key.
            match n % 3 {
                0 => task,
                1 => task.with_bytes("duestream-key", None),
                _ => task.with("duestream-shard-key", "shop-7").key(Some(b"shop-7")),
            }
        })
        .collect();
    world.submit(&tasks).await?;
    let dead = format!("SELECT COUNT(*) FROM task WHERE state = {}", TaskState::Dead.code());
    world.await_count("all to be buried", &dead, i64::try_from(TASKS)?).await?;
    assert_eq!(listed(&world, &["--shard-key", "shop-7", "--limit", "1000"]).await?.len(), TASKS / 3);

    let began = Instant::now();
    let (report, status) = replay(&world, &["--topic", &topic, "--rate", "75/s"]).await?;
    assert_eq!((&report["accepted"], status), (&Value::from(TASKS), Some(0)), "{report}");
    assert!(began.elapsed().as_millis() >= 1_500, "150 at 75 a second took {:?}", began.elapsed());
    let done = format!("SELECT COUNT(*) FROM task WHERE state = {}", TaskState::Done.code());
    world.await_count("all to be delivered", &done, i64::try_from(TASKS)?).await?;
    let records = world.visible(&[&topic]).await?;
    assert_eq!(records.len(), TASKS);
    for record in &records {
        assert_eq!(record.number("duestream-attempt"), Some(2), "it was not delivered, but tried");
        assert_eq!(record.header("duestream-expires-at"), None);
    }
    let (report, status) = replay(&world, &["--all"]).await?;
    assert_eq!((&report["accepted"], status), (&Value::from(0), Some(1)));
    assert_eq!(report["answers"]["rejected (not_dead)"], TASKS);
    Ok(())
}
