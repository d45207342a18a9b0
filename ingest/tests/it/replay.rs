//! What a crash interrupts, the next owner repeats; what was applied is never applied again.

use crate::pipeline::{Pipeline, now_ms, reason, until};
use runtime::kafka::OutRecord;
use schemas::due::DueKind;
use std::collections::BTreeMap;

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_between_commit_and_acks_emissions_and_rejections_are_sent_again() {
    let pipeline = Pipeline::new().await;
    pipeline.sql(&format!("UPDATE shard SET cursor_at = {}", now_ms() + HOUR_MS)).await;
    let first = pipeline.ingest("");
    first.ready().await;
    // Kafka takes neither emissions nor rejections: the effects of what is committed now cannot be acked.
    let (due, rejected) = (pipeline.names.due(), pipeline.names.rejected());
    pipeline.delete_topic(&due).await;
    pipeline.delete_topic(&rejected).await;
    let soon = now_ms() + 1_000;
    pipeline
        .submit(vec![
            pipeline.task("near", soon),
            OutRecord::to("").key("k").value("garbage"),
            pipeline.task("far", now_ms() + 2 * HOUR_MS),
            pipeline.task("near", soon + 1),
            pipeline.task("settled meanwhile", soon),
        ])
        .await;
    pipeline.applied(&pipeline.names.tasks(), 5).await;
    assert_eq!(pipeline.positions(&pipeline.names.tasks(), 0).await, (5, 0), "nothing is confirmed");
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 2, "two answers are owed");
    first.kill();

    // Meanwhile one of the rows is settled; what is refused now was accepted then, and stays accepted.
    pipeline.sql("DELETE FROM pending WHERE task_id = 'settled meanwhile'").await;
    pipeline.create_topic(&due, 2).await;
    pipeline.create_topic(&rejected, 2).await;
    let second = pipeline.ingest("[callback]\nallow = \"nothing\"\n[tasks]\ndedup_window = \"1ms\"\n");
    pipeline.confirmed(&pipeline.names.tasks(), 5).await;

    let emitted = pipeline.due().await;
    let ids: Vec<String> = emitted
        .iter()
        .map(|(_, due)| match &due.kind {
            DueKind::Deliver(deliver) => deliver.task_id.clone(),
            DueKind::Withdraw => "withdraw".to_owned(),
        })
        .collect();
    assert_eq!(ids, ["near"], "pending and at or below the cursor, and nothing else");
    let mut reasons: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for record in pipeline.rejected().await {
        assert_eq!(reasons.insert(reason(&record), record.value.unwrap().to_vec()), None, "each once");
    }
    assert_eq!(
        reasons,
        BTreeMap::from([
            ("conflict".to_owned(), b"value of near".to_vec()),
            ("not_a_command".to_owned(), b"garbage".to_vec()),
        ])
    );
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0);
    assert_eq!(pipeline.tasks().await.len(), 3);

    second.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_share_the_partitions_and_one_goes_on_alone() {
    let pipeline = Pipeline::new().await;
    let due_at = now_ms() + HOUR_MS;
    let (one, two) = (pipeline.ingest(""), pipeline.ingest(""));
    one.ready().await;
    two.ready().await;
    let burst = |from: usize| {
        let task = |n: usize| {
            let partition = i32::try_from(n % 2).unwrap();
            pipeline.task(&format!("task {n}"), due_at).partition(partition)
        };
        (from..from + 300).map(task).collect::<Vec<_>>()
    };
    let all = async |count: usize| {
        until("all tasks are stored", || async {
            let stored = pipeline.number("SELECT COUNT(*) FROM task").await;
            if stored == i64::try_from(count).unwrap() { Ok(()) } else { Err(stored) }
        })
        .await;
    };
    pipeline.submit(burst(0)).await;
    all(300).await;
    pipeline.submit(burst(300)).await;
    one.stop().await;
    pipeline.submit(burst(600)).await;
    all(900).await;
    pipeline.submit(burst(900)).await;
    two.kill();
    let three = pipeline.ingest("");
    pipeline.submit(burst(1_200)).await;
    all(1_500).await;
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM pending").await, 1_500);
    assert!(pipeline.rejected().await.is_empty());
    for partition in 0..2 {
        until("everything is confirmed", || async {
            let positions = pipeline.positions(&pipeline.names.tasks(), partition).await;
            if positions == (750, 750) { Ok(()) } else { Err(positions) }
        })
        .await;
    }
    three.stop().await;
    pipeline.finish().await;
}
