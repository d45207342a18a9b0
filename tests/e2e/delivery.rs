//! What is delivered: exactly what was submitted, in order.

use anyhow::Result;
use tests::{Expected, Task, World, now_ms};

#[tokio::test]
async fn bytes_headers_and_partition_arrive_exactly_as_submitted() -> Result<()> {
    let world = World::started("bytes").await?;
    let topic = world.topic("out", 7).await?;
    let due_at = now_ms() + 500;
    let task = |id: &str| Task::new(id, &topic, due_at);
    let tasks = [
        task("null-key").key(None),
        task("empty-key").key(Some(b"")),
        task("null-value").value(None),
        task("empty-value").value(Some(b"")),
        task("binary").key(Some(&[0xff, 0, 1])).value(Some(&(0..=255).collect::<Vec<u8>>())),
        task("headers")
            .with("a", "1")
            .with("b", "2")
            .with("a", "3")
            .with_bytes("null", None)
            .with_bytes("empty", Some(b"")),
        task("trace").with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        task("placed").with("duestream-partition", "6"),
        task("other-key").with("duestream-key", "callback-key").key(Some(b"command-key")),
    ];
    world.submit(&tasks).await?;

    let ids: Vec<String> = tasks
        .iter()
        .map(|task| String::from_utf8_lossy(task.headers[0].1.as_deref().unwrap_or_default()).into_owned())
        .collect();
    let records = world.check(&Expected { task_ids: ids.clone(), topics: vec![topic] }).await?;
    let by_id =
        |id: &str| records.iter().find(|record| record.header("duestream-task-id") == Some(id)).expect(id);
    for (id, task) in ids.iter().zip(&tasks) {
        let record = by_id(id);
        let key = if id == "other-key" { Some(b"callback-key".to_vec()) } else { task.key.clone() };
        assert_eq!(record.key, key, "key of {id}");
        assert_eq!(record.value, task.value, "value of {id}");
        let own = |headers: &[(String, Option<Vec<u8>>)]| -> Vec<(String, Option<Vec<u8>>)> {
            headers.iter().filter(|(name, _)| !name.starts_with("duestream-")).cloned().collect()
        };
        assert_eq!(own(&record.headers), own(&task.headers), "headers of {id}");
        assert_eq!(record.header("duestream-attempt"), Some("1"));
        assert_eq!(record.number("duestream-due-at"), Some(due_at));
        assert!(record.header("duestream-delivery-id").is_some());
    }
    assert_eq!(by_id("placed").partition, 6);
    Ok(())
}

#[tokio::test]
async fn tasks_of_one_key_due_in_the_same_millisecond_leave_in_the_order_of_their_submission() -> Result<()> {
    let world = World::started("order").await?;
    let topic = world.topic("out", 3).await?;
    let due_at = now_ms() + 3_000;
    let tasks: Vec<Task> = (0..400)
        .map(|n| {
            Task::new(&format!("t{n:03}"), &topic, due_at)
                .key(Some(b"one"))
                .with("duestream-shard-key", "one")
        })
        .collect();
    world.submit(&tasks).await?;

    let expected = Expected { task_ids: (0..400).map(|n| format!("t{n:03}")).collect(), topics: vec![topic] };
    let records = world.check(&expected).await?;
    let order: Vec<&str> = records.iter().filter_map(|record| record.header("duestream-task-id")).collect();
    assert_eq!(order, expected.task_ids, "one key, one partition: offsets tell the order");
    Ok(())
}
