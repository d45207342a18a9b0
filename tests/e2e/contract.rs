//! Edges of the contract: duplicates, conflicts, refusals, and good records beside bad ones.

use anyhow::Result;
use tests::{Expected, Task, World, now_ms};

#[tokio::test]
async fn the_same_task_submitted_twice_is_delivered_once_and_a_conflicting_one_is_refused() -> Result<()> {
    let world = World::started("twice").await?;
    let topic = world.topic("out", 1).await?;
    let due_at = now_ms() + 1_500;
    let task = |id: &str| Task::new(id, &topic, due_at);
    // Within one batch, …
    world.submit(&[task("a"), task("a"), task("b"), task("a")]).await?;
    world.await_accepted(2).await?;
    // … across batches, and with other content.
    world.submit(&[task("a"), task("b").value(Some(b"other")), task("c")]).await?;

    let task_ids = ["a", "b", "c"].map(str::to_owned).to_vec();
    let records = world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    let b = records.iter().find(|record| record.header("duestream-task-id") == Some("b")).expect("b");
    assert_eq!(b.value.as_deref(), Some(&b"b"[..]), "the first content stays");
    let rejected = world.delivered(&[&world.pipeline.names().rejected()], 1).await?;
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].header("duestream-rejected-reason"), Some("conflict"));
    assert_eq!(rejected[0].value.as_deref(), Some(&b"other"[..]));
    Ok(())
}

#[tokio::test]
async fn bad_records_are_kept_in_rejected_and_good_ones_beside_them_are_delivered() -> Result<()> {
    let world = World::started("bad").await?;
    let topic = world.topic("out", 2).await?;
    let due_at = now_ms() + 1_000;
    let good = |n: i32| Task::new(&format!("good{n}"), &topic, due_at).on_partition(0);
    let garbage: &[u8] = &[0xde, 0xad, 0xbe, 0xef, 0, 0xff];
    let missing = format!("{topic}-that-does-not-exist");
    let seconds = (due_at / 1000).to_string();
    let bad: Vec<(Task, &str)> = vec![
        (Task::bare(garbage), ""),
        (Task::bare(b""), ""),
        (Task::bare(b"{\"not\": \"a command\"}"), ""),
        (Task::new("denied", "__consumer_offsets", due_at), "topic_not_allowed"),
        (Task::new("internal", &world.pipeline.names().due(), due_at), "topic_not_allowed"),
        (Task::new("missing", &missing, due_at), "unknown_topic"),
        (Task::bare(b"x").with("duestream-topic", &topic).with("duestream-due-at", &seconds), ""),
        (Task::bare(b"x").with("duestream-topic", &topic), ""),
        (Task::new("no-such-option", &topic, due_at).with("duestream-colour", "red"), ""),
        (Task::new("later", &topic, due_at).with("duestream-backoff", "fixed"), "unsupported"),
        (Task::new("out-of-range", &topic, due_at).with("duestream-partition", "2"), "unknown_partition"),
    ];
    let mut tasks = vec![good(0)];
    for (n, (task, _)) in (1..).zip(&bad) {
        tasks.push(task.clone().on_partition(0));
        tasks.push(good(n));
    }
    world.submit(&tasks).await?;

    let task_ids = (0..=bad.len()).map(|n| format!("good{n}")).collect();
    world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    let rejected = world.delivered(&[&world.pipeline.names().rejected()], bad.len()).await?;
    assert_eq!(rejected.len(), bad.len());
    for (task, code) in &bad {
        let wanted = task.headers.iter().find(|(name, _)| name == "duestream-task-id");
        let record = rejected.iter().find(|record| {
            record.value == task.value && wanted.is_none_or(|wanted| record.headers.contains(wanted))
        });
        let record = record.unwrap_or_else(|| panic!("{task:?} is not on rejected"));
        let reason = record.header("duestream-rejected-reason").unwrap_or_default();
        assert!(
            !reason.is_empty() && (code.is_empty() || reason == *code),
            "{task:?}: {reason} instead of {code}"
        );
        assert!(
            record.header("duestream-rejected-message").is_some_and(|message| message.len() > 20),
            "{record:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_task_submitted_as_json_is_delivered_like_one_submitted_with_headers() -> Result<()> {
    let world = World::started("json").await?;
    let topic = world.topic("out", 1).await?;
    let due_at = now_ms() + 500;
    let text = format!(
        r#"{{"task_id":"text","topic":"{topic}","due_at":{due_at},"key":"k","value":"hello","headers":{{"a":"1"}}}}"#
    );
    let bytes = format!(r#"{{"task_id":"bytes","topic":"{topic}","delay":"1s","value_base64":"AP8="}}"#);
    world.submit(&[Task::bare(text.as_bytes()), Task::bare(bytes.as_bytes())]).await?;

    let task_ids = ["text", "bytes"].map(str::to_owned).to_vec();
    let records = world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    let by_id =
        |id: &str| records.iter().find(|record| record.header("duestream-task-id") == Some(id)).expect(id);
    assert_eq!(by_id("text").value.as_deref(), Some(&b"hello"[..]));
    assert_eq!(by_id("text").header("a"), Some("1"));
    assert_eq!(by_id("bytes").value.as_deref(), Some(&[0, 0xff][..]));
    Ok(())
}
