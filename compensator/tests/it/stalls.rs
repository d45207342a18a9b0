//! Consumers that are silent: judged only as far as acks are known to be applied.

use crate::world::{deps, heartbeat, move_cursors, numbers, sql};
use compensator::Staller;
use runtime::kafka::TopicSpec;
use runtime::store::{PendingRow, position, source};
use runtime::testing::{TestPipeline, row, until};
use schemas::due::{Completion, DueKind};
use schemas::ids::{Generation, Slot, SourceId};
use schemas::options::Backoff;
use schemas::row::RowOptions;
use std::collections::BTreeMap;

const SLOT: Slot = Slot(0);

/// One slot, one shard whose cursor lies an hour ahead, an open gate, `acks` with two partitions, and the database's clock.
async fn world() -> (TestPipeline, SourceId, i64) {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    move_cursors(&pipeline, now + 3_600_000).await;
    heartbeat(&pipeline, 0, now + 30_000, 0, None).await;
    let name = pipeline.names.acks();
    let spec = TopicSpec { name: name.clone(), partitions: 2, replication: 1, config: BTreeMap::new() };
    for (_, created) in pipeline.admin.create_topics(&[spec]).await.unwrap() {
        created.unwrap();
    }
    until("leaders of acks", async || {
        let topic = pipeline.admin.topic(&name).await.unwrap();
        topic.filter(|topic| topic.has_leaders()).map(drop).ok_or("none yet")
    })
    .await;
    let id = pipeline.admin.topic_id(&name).await.unwrap().unwrap();
    let mut session = pipeline.db.db.session().await.unwrap();
    let acks = source::register(&mut session, &name, *id.as_bytes()).await.unwrap();
    for partition in 0..2 {
        position::create(&mut session, acks, partition, 0).await.unwrap();
    }
    (pipeline, acks, now)
}

async fn tick(pipeline: &TestPipeline, acks: SourceId, partition: i32, at: i64) {
    let mut tx = pipeline.db.db.begin("test").await.unwrap();
    position::tick(&mut tx, acks, partition, at).await.unwrap();
    tx.commit().await.unwrap();
}

fn on_ack(id: u64, due_at: i64, max_stalls: u16) -> PendingRow {
    let options = RowOptions {
        completion: Completion::OnAck,
        backoff: "fixed:7s".parse::<Backoff>().ok(),
        max_stalls: Some(max_stalls),
        ..RowOptions::default()
    };
    PendingRow { options: options.encode(), ..row(0, due_at, id) }
}

/// Delivered, with this deadline.
async fn run(pipeline: &TestPipeline, rows: &[(PendingRow, i64)]) {
    pipeline.insert(&rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>()).await;
    for (row, deadline_at) in rows {
        let id = row.id;
        sql(
            pipeline,
            format!(
                "INSERT INTO running (shard, deadline_at, id, due_at, gen, attempt, failures, stalls, task_id, callback_topic, options, \
                 history, body, progress, stop) SELECT shard, {deadline_at}, id, due_at, gen, attempt, failures, stalls, task_id, \
                 callback_topic, options, history, body, 'page 3', 0 FROM pending WHERE id = {id}; \
                 DELETE FROM pending WHERE id = {id}; UPDATE task SET state = 2, due_at = {deadline_at} WHERE id = {id}"
            ),
        )
        .await;
    }
}

async fn states(pipeline: &TestPipeline) -> Vec<u64> {
    numbers(
        pipeline,
        "SELECT CAST(state * 1000 + gen * 100 + attempt AS UNSIGNED) FROM task ORDER BY id".into(),
    )
    .await
}

#[tokio::test]
async fn a_deadline_counts_only_up_to_the_oldest_tick_of_all_partitions() {
    let (pipeline, acks, now) = world().await;
    run(&pipeline, &[(on_ack(1, now - 90_000, 3), now - 60_000), (on_ack(2, now - 90_000, 3), now - 20_000)])
        .await;
    let mut staller = Staller::new(deps(&pipeline, ""), SLOT);
    assert_eq!(staller.pass().await.unwrap(), 0, "no acks are known to be applied");
    tick(&pipeline, acks, 0, now).await;
    assert_eq!(staller.pass().await.unwrap(), 0, "one partition has no tick");
    tick(&pipeline, acks, 1, now - 60_001).await;
    assert_eq!(staller.pass().await.unwrap(), 0, "ingest is a minute behind");
    tick(&pipeline, acks, 1, now - 30_000).await;
    assert_eq!(staller.pass().await.unwrap(), 1);
    assert_eq!(states(&pipeline).await, [1_202, 2_101], "the next attempt, and one that still has time");

    let due = pipeline.due_records_from(SLOT, 1).await;
    let DueKind::Deliver(deliver) = &due[0].kind else { panic!("a delivery") };
    assert_eq!((due[0].id.0, due[0].generation, deliver.attempt), (1, Generation(2), 2));
    assert_eq!(deliver.progress.as_deref(), Some(&b"page 3"[..]), "work continues where it stopped");
    assert_eq!(deliver.history[0].outcome, "stalled");
    assert!((now + 7_000..now + 60_000).contains(&due[0].due_at));
    assert_eq!(numbers(&pipeline, "SELECT stalls FROM pending".into()).await, [1]);
    pipeline.admin.delete_topics(&[&pipeline.names.acks()]).await.unwrap();
}

#[tokio::test]
async fn what_is_spoken_for_is_left_alone_and_a_closed_gate_ends_nothing() {
    let (pipeline, acks, now) = world().await;
    run(&pipeline, &[(on_ack(1, now - 90_000, 3), now - 60_000), (on_ack(2, now - 90_000, 3), now - 60_000)])
        .await;
    sql(
        &pipeline,
        "INSERT INTO `change` (command, id, gen, kind, op, received_at) VALUES (11, 1, 1, 3, 1, 0)".into(),
    )
    .await;
    for partition in 0..2 {
        tick(&pipeline, acks, partition, now).await;
    }
    heartbeat(&pipeline, 0, now + 30_000, 1_000_000, None).await;
    let mut staller = Staller::new(deps(&pipeline, ""), SLOT);
    assert_eq!(staller.pass().await.unwrap(), 0, "the slot is drowning");
    heartbeat(&pipeline, 0, now + 30_000, 0, None).await;
    assert_eq!(staller.pass().await.unwrap(), 1);
    assert_eq!(states(&pipeline).await, [2_101, 1_202]);
    pipeline.admin.delete_topics(&[&pipeline.names.acks()]).await.unwrap();
}

#[tokio::test]
async fn a_task_stalls_so_often_and_is_buried_and_a_cancelled_one_ends() {
    let (pipeline, acks, now) = world().await;
    run(&pipeline, &[(on_ack(1, now - 90_000, 0), now - 60_000), (on_ack(2, now - 90_000, 3), now - 60_000)])
        .await;
    sql(&pipeline, "UPDATE running SET stop = 1 WHERE id = 2".into()).await;
    for partition in 0..2 {
        tick(&pipeline, acks, partition, now).await;
    }
    assert_eq!(Staller::new(deps(&pipeline, ""), SLOT).pass().await.unwrap(), 2);
    assert_eq!(states(&pipeline).await, [1_201, 5_101]);
    let due = pipeline.due_records_from(SLOT, 1).await;
    let DueKind::Deliver(deliver) = &due[0].kind else { panic!("a delivery") };
    assert_eq!((due[0].id.0, deliver.bury.as_deref()), (1, Some("attempts_exhausted")));
    assert!(due[0].due_at <= pipeline.db.db.now().await.unwrap(), "at once");
    pipeline.admin.delete_topics(&[&pipeline.names.acks()]).await.unwrap();
}

#[tokio::test]
async fn a_look_is_capped_and_the_next_one_goes_on() {
    let (pipeline, acks, now) = world().await;
    let rows: Vec<(PendingRow, i64)> =
        (1..=25).map(|id| (on_ack(id, now - 90_000, 3), now - 60_000)).collect();
    run(&pipeline, &rows).await;
    for partition in 0..2 {
        tick(&pipeline, acks, partition, now).await;
    }
    let mut staller = Staller::new(deps(&pipeline, "[stalls]\nrows_per_pass = 10\n"), SLOT);
    let mut ended = Vec::new();
    for _ in 0..4 {
        ended.push(staller.pass().await.unwrap());
    }
    assert_eq!(ended.iter().sum::<u64>(), 25, "{ended:?}");
    assert!(ended.iter().all(|n| *n <= 10), "{ended:?}");
    pipeline.admin.delete_topics(&[&pipeline.names.acks()]).await.unwrap();
}
