//! Limits and pauses of callback topics, set with duectl while everything runs.

use anyhow::Result;
use devstack::topics::Record;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use serde_json::Value;
use std::time::Duration;
use tests::{Expected, Task, World, now_ms};

fn delivered_at(record: &Record) -> i64 {
    record.number("duestream-delivered-at").expect("every delivery says when it was")
}

/// The most in any stretch of this length.
fn densest(records: &[Record], window_ms: i64) -> usize {
    let mut times: Vec<i64> = records.iter().map(delivered_at).collect();
    times.sort_unstable();
    let (mut most, mut from) = (0, 0);
    for (to, at) in times.iter().enumerate() {
        while times[from] <= at - window_ms {
            from += 1;
        }
        most = most.max(to + 1 - from);
    }
    most
}

#[tokio::test]
async fn a_rate_holds_over_a_herd_in_all_slots_and_delays_no_other_topic() -> Result<()> {
    const RATE: usize = 60;
    let world = World::started("limit_rate").await?;
    let (slow, free) = (world.topic("slow", 3).await?, world.topic("free", 3).await?);
    let said = world.pipeline.duectl_ok(&["limit", "set", &slow, "--rate", "60/s"]).await?;
    assert!(said.contains("60/s; in effect within two seconds"), "{said}");
    tokio::time::sleep(Duration::from_secs(2)).await;

    let due_at = now_ms() + 2_000;
    let mut tasks: Vec<Task> = (0..500).map(|n| Task::new(&format!("s{n}"), &slow, due_at)).collect();
    tasks.extend((0..200).map(|n| Task::new(&format!("f{n}"), &free, due_at + 10 * n)));
    world.submit(&tasks).await?;
    devstack::wait::until("the list to say how many wait", Duration::from_secs(30), async || {
        let listed = world.pipeline.duectl_ok(&["limit", "list", "--json"]).await?;
        let listed: Value = serde_json::from_str(&listed)?;
        assert_eq!((listed[0]["topic"].as_str(), listed[0]["rate"].as_str()), (Some(&*slow), Some("60/s")));
        Ok(if listed[0]["waiting"].as_i64() > Some(50) { Ok(()) } else { Err(listed.to_string()) })
    })
    .await?;

    let task_ids = (0..500).map(|n| format!("s{n}")).chain((0..200).map(|n| format!("f{n}"))).collect();
    let records = world.check(&Expected { task_ids, topics: vec![slow.clone(), free.clone()] }).await?;
    let (of_slow, of_free): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| record.topic == slow);
    for window_ms in [250, 1_000, 4_000] {
        let most = densest(&of_slow, window_ms);
        // One second's worth may have been saved up, and one delivery in each of 8 slots.
        let bound = RATE * usize::try_from(window_ms)? / 1_000 + RATE + 8;
        assert!(most <= bound, "{most} within {window_ms} ms, allowed {bound}");
    }
    // Both were due together; what is limited goes on leaving long after the other topic has all of its own.
    let last = |records: &[Record]| records.iter().map(delivered_at).max();
    assert!(last(&of_free) < last(&of_slow), "the other topic waited for the limited one");
    Ok(())
}

#[tokio::test]
async fn nothing_comes_while_a_topic_is_paused_and_everything_once_it_is_resumed() -> Result<()> {
    let world = World::started("limit_pause").await?;
    let (topic, other) = (world.topic("out", 2).await?, world.topic("other", 2).await?);
    world.pipeline.duectl_ok(&["pause", &topic]).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let due_at = now_ms();
    let tasks: Vec<Task> = (0..300).map(|n| Task::new(&format!("t{n}"), &topic, due_at)).collect();
    world.submit(&tasks).await?;
    world.submit(&[Task::new("free", &other, due_at)]).await?;
    world.delivered(&[&other], 1).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.visible(&[&topic]).await?.len(), 0);

    world.pipeline.duectl_ok(&["resume", &topic]).await?;
    let task_ids = (0..300).map(|n| format!("t{n}")).chain(["free".to_owned()]).collect();
    world.check(&Expected { task_ids, topics: vec![topic.clone(), other] }).await?;
    let again = world.pipeline.duectl(&["resume", &topic]).await?;
    assert_eq!(again.status.code(), Some(3), "it is not paused any more");
    Ok(())
}

#[tokio::test]
async fn limits_that_make_no_sense_are_refused_with_a_remedy() -> Result<()> {
    let world = World::new("limit_usage").await?;
    let internal = world.pipeline.names().due();
    for (arguments, status, remedy) in [
        (&["limit", "set", "orders", "--rate", "5"][..], 2, "such as 100/s"),
        (&["limit", "set", "orders", "--in-flight", "0"], 2, "duectl pause"),
        (&["limit", "set", "orders"], 2, "--rate N/s"),
        (&["limit", "set", &internal, "--rate", "5/s"], 2, "a topic that tasks are delivered to"),
        (&["pause", "a b"], 2, "a topic that tasks are delivered to"),
        (&["limit", "clear", "orders"], 3, "duectl limit list"),
        (&["resume", "orders"], 3, "duectl limit list"),
    ] {
        let out = world.pipeline.duectl(arguments).await?;
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(remedy), "{arguments:?}: {said}");
    }
    assert!(world.pipeline.duectl_ok(&["limit", "list"]).await?.contains("no topic has a limit"));

    for arguments in [
        &["limit", "set", "orders", "--rate", "100/s", "--in-flight", "50"][..],
        &["pause", "orders"],
        &["limit", "set", "orders", "--rate", "none"],
    ] {
        world.pipeline.duectl_ok(arguments).await?;
    }
    let listed: Value = serde_json::from_str(&world.pipeline.duectl_ok(&["limit", "list", "--json"]).await?)?;
    let row = &listed[0];
    assert_eq!(
        (&row["rate"], &row["in_flight"], &row["paused"]),
        (&Value::Null, &50.into(), &true.into()),
        "{row}"
    );
    world.pipeline.duectl_ok(&["limit", "clear", "orders"]).await?;
    world.pipeline.duectl_ok(&["resume", "orders"]).await?;
    assert_eq!(world.pipeline.duectl_ok(&["limit", "list", "--json"]).await?.trim(), "[]");
    Ok(())
}

/// What a consumer says of a delivery when it is through.
async fn succeeded(world: &World, deliveries: &[Record]) -> Result<()> {
    let producer: FutureProducer =
        ClientConfig::new().set("bootstrap.servers", &world.pipeline.addresses().kafka).create()?;
    let topic = world.pipeline.names().acks();
    for delivery in deliveries {
        let id = delivery.header("duestream-delivery-id").unwrap_or_default();
        let headers = OwnedHeaders::new()
            .insert(Header { key: "duestream-delivery-id", value: Some(id) })
            .insert(Header { key: "duestream-ack", value: Some("succeeded") });
        let key = delivery.header("duestream-task-id").unwrap_or_default();
        let record = FutureRecord::<str, [u8]>::to(&topic).key(key).headers(headers);
        producer.send(record, Duration::from_secs(10)).await.map_err(|(error, _)| error)?;
    }
    Ok(())
}

#[tokio::test]
async fn no_more_deliveries_are_in_flight_than_allowed_and_acks_make_room() -> Result<()> {
    const MOST: usize = 6;
    let world = World::started("limit_in_flight").await?;
    let topic = world.topic("out", 2).await?;
    world.pipeline.duectl_ok(&["limit", "set", &topic, "--in-flight", "6"]).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let now = now_ms();
    let tasks: Vec<Task> = (0..30)
        .map(|n| Task::new(&format!("t{n}"), &topic, now).with("duestream-completion", "on_ack"))
        .collect();
    world.submit(&tasks).await?;
    let mut acked = 0;
    while acked < 30 {
        let wanted = (acked + MOST).min(30);
        world.delivered(&[&topic], wanted).await?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let seen = world.visible(&[&topic]).await?;
        assert!(seen.len() <= acked + MOST, "{} in flight", seen.len() - acked);
        if acked == 0 {
            let listed = world.pipeline.duectl_ok(&["limit", "list", "--json"]).await?;
            let listed: Value = serde_json::from_str(&listed)?;
            assert_eq!(listed[0]["running"].as_i64(), Some(6), "{listed}");
        }
        // Records of two partitions come in any order: what is not acked yet is acked now.
        let ids: Vec<&str> = seen.iter().filter_map(|record| record.header("duestream-task-id")).collect();
        assert_eq!(ids.len(), ids.iter().collect::<std::collections::BTreeSet<_>>().len(), "each once");
        succeeded(&world, &seen).await?;
        acked = seen.len();
    }
    let task_ids = (0..30).map(|n| format!("t{n}")).collect();
    world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    Ok(())
}
