//! Bytes, null against empty, headers, partitions, timestamps, sizes.

use super::{by_id, dead, java_partition, own};
use anyhow::Result;
use tests::{Expected, Task, World, now_ms};

/// Everything that a key, a value and headers can be.
fn shapes() -> Vec<(String, Task)> {
    let every_byte: Vec<u8> = (0..=255).collect();
    let long = vec![0xff; 3_000];
    let keys: [Option<&[u8]>; 5] = [None, Some(b""), Some(b"key"), Some(&every_byte), Some(&long)];
    let values: [Option<&[u8]>; 5] =
        [None, Some(b""), Some(b"{\"due_at\": 1}"), Some(&every_byte), Some(&[0xc3, 1])];
    let mut shapes = Vec::new();
    for (k, key) in keys.iter().enumerate() {
        for (v, value) in values.iter().enumerate() {
            let name = format!("key{k}-value{v}");
            shapes.push((name, Task::bare(b"").key(*key).value(*value)));
        }
    }
    let plain = || Task::bare(b"payload").key(Some(b"k"));
    shapes.push(("no-headers".into(), plain()));
    let repeats = plain()
        .with("b", "1")
        .with("a", "2")
        .with("b", "3")
        .with_bytes("a", None)
        .with_bytes("a", Some(b""))
        .with_bytes("b", Some(&every_byte));
    shapes.push(("repeats".into(), repeats));
    let trace = plain()
        .with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .with("tracestate", "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7")
        .with_bytes("baggage", Some(b""));
    shapes.push(("trace".into(), trace));
    let mut odd = plain();
    let very_long = "n".repeat(5_000);
    for name in [
        " ",
        "\t",
        "\n",
        "\r\n",
        "\u{7f}",
        "\u{1}",
        "ä",
        "€",
        "😀",
        "a b",
        "x=y",
        "x:y",
        "Content-Type",
        "CONTENT-TYPE",
        "duestream",
        "duestreamed",
        "_duestream-x",
        "x-duestream-due-at",
        "\u{feff}",
        "e\u{301}",
        "\u{e9}",
        &very_long,
    ] {
        odd = odd.with(name, name);
    }
    shapes.push(("odd-names".into(), odd));
    let many = (0..2_000).fold(plain(), |task, n| task.with(&format!("h{}", n % 7), &n.to_string()));
    shapes.push(("many".into(), many));
    shapes
}

/// The shape as a task for `topic`.
fn task(id: &str, shape: &Task, topic: &str, due_at: i64) -> Task {
    let fields = Task::new(id, topic, due_at);
    // Ours stand between the user's own: order among those is kept all the same.
    let (first, rest) = shape.headers.split_at(shape.headers.len() / 2);
    Task { headers: [first, &fields.headers, rest].concat(), ..shape.clone() }
}

#[tokio::test]
async fn every_shape_of_a_task_arrives_as_submitted_near_and_far_on_every_kind_of_topic() -> Result<()> {
    let mut world = World::new("shapes").await?;
    world.pipeline.set("scanner", "SCAN__HORIZON", "4s");
    world.pipeline.set("scanner", "SCAN__HORIZON_MIN", "2s");
    world.pipeline.set("scanner", "SCAN__BUCKET_MIN", "1s");
    world.pipeline.set("scanner", "SCAN__BUCKET_MAX", "1s");
    world.start_all().await?;
    world.await_count("cursors to move", "SELECT COUNT(*) FROM shard WHERE cursor_at = 0", 0).await?;
    let topics = [
        (world.topic("one", 1).await?, 1, false),
        (world.topic("hundred", 100).await?, 100, false),
        (world.topic_with("compacted", 3, &[("cleanup.policy", "compact")]).await?, 3, true),
        (world.topic_with("both", 7, &[("cleanup.policy", "compact,delete")]).await?, 7, true),
        (world.topic_with("appended", 5, &[("message.timestamp.type", "LogAppendTime")]).await?, 5, false),
    ];
    let now = now_ms();
    let (mut tasks, mut expected, mut keyless) = (Vec::new(), Vec::new(), Vec::new());
    for (way, due_at) in [("near", now + 1_000), ("far", now + 12_000)] {
        for (t, (topic, partitions, compacted)) in topics.iter().enumerate() {
            for (n, (name, shape)) in shapes().into_iter().enumerate() {
                let id = format!("{way}-{t}-{name}");
                let placed = (n % 4 == 3).then(|| i32::try_from(n).unwrap_or(0) % partitions);
                let mut task = task(&id, &shape, topic, due_at);
                if let Some(partition) = placed {
                    task = task.with("duestream-partition", &partition.to_string());
                }
                tasks.push(task);
                if *compacted && shape.key.is_none() {
                    keyless.push(format!("{id}: key_required"));
                } else {
                    expected.push((id, t, placed, shape, due_at));
                }
            }
        }
    }
    world.submit(&tasks).await?;

    let task_ids = expected.iter().map(|(id, ..)| id.clone()).collect();
    let names = topics.iter().map(|(name, ..)| name.clone()).collect();
    let records = world.check(&Expected { task_ids, topics: names }).await?;
    for (id, t, placed, shape, due_at) in &expected {
        let record = by_id(&records, id)?;
        let (topic, partitions, _) = &topics[*t];
        assert_eq!(record.topic, *topic, "{id}");
        assert_eq!(record.key, shape.key, "key of {id}");
        assert_eq!(record.value, shape.value, "value of {id}");
        assert_eq!(own(&record.headers), own(&shape.headers), "headers of {id}");
        let ours = record.headers.iter().skip_while(|(name, _)| !name.starts_with("duestream-"));
        assert!(ours.clone().all(|(name, _)| name.starts_with("duestream-")), "ours follow the user's: {id}");
        let names: Vec<&str> = ours.map(|(name, _)| name.as_str()).collect();
        let contract = [
            "duestream-task-id",
            "duestream-shard-key",
            "duestream-attempt",
            "duestream-due-at",
            "duestream-delivery-id",
            "duestream-delivered-at",
        ];
        assert_eq!(names, contract, "nothing of the command is forwarded: {id}");
        let by_key = record.key.as_ref().map(|key| java_partition(key, *partitions));
        if let Some(partition) = placed.or(by_key) {
            assert_eq!(record.partition, partition, "partition of {id}");
        }
        let delivered_at = record.number("duestream-delivered-at").unwrap_or_default();
        assert!(delivered_at >= *due_at, "{id}");
        if topic.ends_with("appended") {
            assert!(record.timestamp_at >= *due_at, "{id}: the broker's time");
        } else {
            assert_eq!(record.timestamp_at, delivered_at, "{id}");
        }
    }
    keyless.sort();
    assert_eq!(dead(&world, keyless.len()).await?, keyless);
    Ok(())
}

#[tokio::test]
async fn a_task_at_the_limit_of_size_arrives_whole_and_one_byte_more_is_refused() -> Result<()> {
    const LIMIT: usize = 900 << 10;
    let mut world = World::new("limit").await?;
    world.pipeline.set("scanner", "SCAN__HORIZON", "4s");
    world.pipeline.set("scanner", "SCAN__HORIZON_MIN", "2s");
    world.pipeline.set("scanner", "SCAN__BUCKET_MAX", "1s");
    world.start_all().await?;
    let topic = world.topic("out", 2).await?;
    let now = now_ms();
    // Noise, so that no codec on the way makes it small.
    let noise = |n: usize| -> Vec<u8> { (0..n).map(|_| rand::random()).collect() };
    let id = |text: &str| format!("{text}{}", "i".repeat(255 - text.len()));
    let mut sent = Vec::new();
    for (way, due_at) in [("near", now + 1_000), ("far", now + 14_000)] {
        for (name, short) in [("minus", 1), ("whole", 0)] {
            let value = noise(LIMIT - short - 3);
            sent.push(
                Task::new(&id(&format!("{way}-value-{name}")), &topic, due_at)
                    .key(Some(b"key"))
                    .value(Some(&value)),
            );
        }
        let key = noise(LIMIT);
        sent.push(Task::new(&id(&format!("{way}-key")), &topic, due_at).key(Some(&key)).value(None));
        // A header counts 8 bytes more than its name and value.
        let header = noise(LIMIT - 9);
        let in_header = Task::new(&id(&format!("{way}-header")), &topic, due_at).key(None).value(None);
        sent.push(in_header.with_bytes("h", Some(&header)));
        let small = Task::new(&id(&format!("{way}-headers")), &topic, due_at).key(None).value(None);
        let small = (0..LIMIT / 10).fold(small, |task, _| task.with_bytes("hh", None));
        sent.push(small);
    }
    let over = Task::new("over", &topic, now).key(Some(b"key")).value(Some(&noise(LIMIT - 2)));
    // As many as no client built on librdkafka could read.
    let many = Task::new("many", &topic, now).key(None).value(None);
    let many = (0..100_001).fold(many, |task, _| task.with_bytes("h", None));
    for task in sent.iter().chain([&over, &many]) {
        world.submit(std::slice::from_ref(task)).await?;
    }

    let text =
        |task: &Task| String::from_utf8_lossy(task.headers[0].1.as_deref().unwrap_or_default()).into_owned();
    let task_ids = sent.iter().map(text).collect();
    let records = world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    for task in &sent {
        let record = by_id(&records, &text(task))?;
        assert!(record.key == task.key && record.value == task.value, "{}", text(task));
        assert!(own(&record.headers) == own(&task.headers), "{}", text(task));
    }
    let rejected = world.delivered(&[&world.pipeline.names().rejected()], 2).await?;
    let of =
        |reason| rejected.iter().find(|record| record.header("duestream-rejected-reason") == Some(reason));
    assert!(of("too_large").is_some_and(|record| record.value == over.value), "what is refused is kept");
    assert!(of("invalid_header").is_some() && rejected.len() == 2);
    Ok(())
}

#[tokio::test]
async fn reserved_headers_of_a_producer_are_refused_and_never_forwarded() -> Result<()> {
    let world = World::started("reserved").await?;
    let topic = world.topic("out", 1).await?;
    let due_at = now_ms() + 500;
    let names = [
        "duestream-delivered-at",
        "duestream-delivery-id",
        "duestream-attempt",
        "duestream-asked-at",
        "duestream-progress",
        "duestream-dead-reason",
        "duestream-rejected-reason",
        "duestream-",
        "DueStream-Due-At",
        "DUESTREAM-TASK-ID",
    ];
    let mut tasks: Vec<Task> = names
        .iter()
        .enumerate()
        .map(|(n, name)| Task::new(&format!("bad{n}"), &topic, due_at).with(name, "1"))
        .collect();
    tasks.insert(3, Task::new("good", &topic, due_at));
    world.submit(&tasks).await?;
    let topics = vec![topic];
    world.check(&Expected { task_ids: vec!["good".into()], topics }).await?;
    let rejected = world.delivered(&[&world.pipeline.names().rejected()], names.len()).await?;
    assert_eq!(rejected.len(), names.len());
    for record in &rejected {
        // The last one is ours: a producer may have written one, too.
        let reason = record.headers.iter().rfind(|(name, _)| name == "duestream-rejected-reason");
        assert_eq!(reason.and_then(|(_, value)| value.as_deref()), Some(&b"unknown_field"[..]), "{record:?}");
    }
    Ok(())
}
