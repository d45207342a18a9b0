//! What a stranger writes to `due`.

use anyhow::Result;
use devstack::topics::Record;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use std::time::Duration;
use tests::{Expected, Task, World, now_ms};

/// A key or value that may be null.
type Maybe<'b> = Option<&'b [u8]>;

#[tokio::test]
async fn garbage_on_due_is_kept_in_rejected_with_its_place_and_stops_nothing() -> Result<()> {
    let mut world = World::started("litter").await?;
    let topic = world.topic("out", 2).await?;
    let due = world.pipeline.names().due();
    let start = now_ms() + 1_500;
    let tasks: Vec<Task> = (0..60).map(|n| Task::new(&format!("t{n}"), &topic, start + 100 * n)).collect();
    world.submit(&tasks).await?;

    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", &world.pipeline.addresses().kafka)
        .set("message.max.bytes", "20000000")
        .set("compression.type", "lz4")
        .create()?;
    let large = vec![b'z'; 3_000_000];
    let litter: [(Maybe<'_>, Maybe<'_>); 6] = [
        (None, None),
        (Some(b"key"), Some(b"")),
        (Some(b"\xff\0"), Some(b"\xc3\x01 not one of our schemas")),
        (None, Some(b"{\"task_id\": \"x\"}")),
        (Some(b""), None),
        // Compressed it passes; whole it is larger than anything that `rejected` takes.
        (Some(b"bomb"), Some(&large)),
    ];
    let mut places = Vec::new();
    for (n, (key, value)) in (0_i32..).zip(litter) {
        let headers =
            OwnedHeaders::new()
                .insert(Header { key: "a", value: Some("1") })
                .insert(Header::<&str> { key: "a", value: None });
        let record = FutureRecord::<[u8], [u8]> { key, payload: value, ..FutureRecord::to(&due) };
        let record = record.partition(n % 4).headers(headers);
        let placed = producer.send(record, Duration::from_secs(20)).await.map_err(|(error, _)| error)?;
        places.push((i64::from(placed.partition), placed.offset));
    }

    let rejected = world.delivered(&[&world.pipeline.names().rejected()], litter.len()).await?;
    // A take-over begins behind what is kept.
    for victim in world.take("dispatcher") {
        victim.process.kill9();
    }
    world.start("dispatcher").await?;
    let task_ids = (0..60).map(|n| format!("t{n}")).collect();
    world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    assert!(rejected.len() >= litter.len());
    for ((partition, offset), (key, value)) in places.into_iter().zip(litter) {
        let found = |record: &&Record| {
            record.number("duestream-rejected-partition") == Some(partition)
                && record.number("duestream-rejected-offset") == Some(offset)
        };
        let record = rejected.iter().find(found).unwrap_or_else(|| panic!("{key:?} is not on rejected"));
        assert_eq!(record.key.as_deref(), key);
        assert_eq!(record.header("duestream-rejected-reason"), Some("foreign_record"));
        assert_eq!(record.header("duestream-rejected-topic"), Some(&*due));
        assert!(record.number("duestream-rejected-timestamp").is_some_and(|at| at > 0));
        assert!(record.header("duestream-rejected-message").is_some_and(|text| text.len() > 20));
        let own: Vec<_> = record.headers.iter().take(2).cloned().collect();
        assert_eq!(own, [("a".to_owned(), Some(b"1".to_vec())), ("a".to_owned(), None)]);
        if value.is_some_and(|value| value.len() > 1_000_000) {
            let kept = record.value.as_ref().map_or(0, Vec::len);
            assert!(kept >= 100_000, "its head is kept: {kept} bytes");
            assert_eq!(record.number("duestream-rejected-value-bytes"), Some(3_000_000));
        } else {
            assert_eq!(record.value.as_deref(), value);
        }
    }
    Ok(())
}
