//! Callback topics that take less than others.

use anyhow::Result;
use devstack::topics::Record;
use tests::{Expected, Task, World, now_ms};

const LIMIT: usize = 5_000;

/// What the callback record of a task weighs on the wire, from the record itself or from its dead letter.
fn wire_bytes(record: &Record, key: &[u8]) -> usize {
    let sized = |len: usize| len + if len < 64 { 1 } else { 2 };
    let ours = [
        "duestream-task-id",
        "duestream-shard-key",
        "duestream-attempt",
        "duestream-due-at",
        "duestream-delivery-id",
    ];
    let texts = ours.iter().map(|name| (*name, record.header(name).unwrap_or_default().len()));
    let all = texts.chain([("duestream-delivered-at", 13)]);
    let headers: usize = all.map(|(name, len)| sized(name.len()) + sized(len)).sum();
    let value = record.value.as_ref().map_or(0, Vec::len);
    // The batch's header, the record's length, its attributes and differences, and the number of headers.
    61 + sized(3 + sized(key.len()) + sized(value) + 1 + headers)
}

#[tokio::test]
async fn what_is_too_large_for_its_topic_is_dead_and_its_neighbours_are_delivered_to_the_last_byte()
-> Result<()> {
    let world = World::started("small").await?;
    let small = world.topic_with("small", 1, &[("max.message.bytes", &LIMIT.to_string())]).await?;
    let other = world.topic("other", 1).await?;
    let due_at = now_ms() + 1_500;
    let sizes: Vec<usize> = (4_600..4_760).chain([20_000]).collect();
    let task = |n: usize| Task::new(&format!("size{n:05}"), &small, due_at).value(Some(&vec![b'x'; n]));
    let mut tasks: Vec<Task> = sizes.iter().map(|n| task(*n)).collect();
    tasks.extend((0..20).map(|n| Task::new(&format!("other{n}"), &other, due_at)));
    world.submit(&tasks).await?;
    world.await_accepted(tasks.len()).await?;
    world.await_count("every task to be final", "SELECT COUNT(*) FROM pending", 0).await?;

    let letters = world.visible(&[&world.pipeline.names().dead()]).await?;
    for letter in &letters {
        assert_eq!(letter.header("duestream-dead-reason"), Some("too_large"));
        let key = letter.header("duestream-key").unwrap_or_default();
        let bytes = wire_bytes(letter, key.as_bytes());
        assert!(bytes > LIMIT, "{bytes} bytes would have fitted");
        let id = letter.header("duestream-task-id").unwrap_or_default();
        let value = letter.value.as_ref().map_or(0, Vec::len);
        assert_eq!(id, format!("size{value:05}"), "whole");
    }
    let records = world.visible(&[&small]).await?;
    assert_eq!(records.len() + letters.len(), sizes.len());
    let bytes: Vec<usize> =
        records.iter().map(|record| wire_bytes(record, record.key.as_deref().unwrap_or_default())).collect();
    assert!(bytes.contains(&LIMIT) && bytes.iter().all(|bytes| *bytes <= LIMIT), "{bytes:?}");
    let text = |record: &Record| record.header("duestream-task-id").unwrap_or_default().to_owned();
    let mut task_ids: Vec<String> = records.iter().map(text).collect();
    task_ids.extend((0..20).map(|n| format!("other{n}")));
    world.check(&Expected { task_ids, topics: vec![small, other] }).await?;
    Ok(())
}
