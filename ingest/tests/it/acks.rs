//! Acks reach the rows that wait for them: late, early, old, doubled, and garbage among them.

use crate::life::{HOUR_MS, ack, acked, on_ack, settle, states, waiting_for_acks};
use crate::pipeline::{now_ms, reason, until};
use runtime::kafka::OutRecord;
use schemas::due::{DueKind, PastAttempt};
use schemas::ids::Generation;
use schemas::journal::EntryKind;
use schemas::row::{RowHistory, RowOptions};
use std::collections::BTreeMap;

#[tokio::test(flavor = "multi_thread")]
async fn consumers_finish_fail_and_go_on() {
    let names = ["done", "failed", "for good", "at work", "silent"];
    let (pipeline, ingest, rows) = waiting_for_acks(&names, "").await;
    let delivered_at =
        settle(&pipeline, &rows.values().map(|row| (row, EntryKind::Delivered)).collect::<Vec<_>>()).await;
    assert!(pipeline.pending().await.is_empty());
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM running").await, 5);
    assert!(states(&pipeline).await.values().all(|state| *state == (2, 1)));
    let deadline = |of: &str| format!("SELECT deadline_at FROM running WHERE task_id = '{of}'");
    assert_eq!(pipeline.number(&deadline("silent")).await, delivered_at + 15 * 60_000);

    let at = acked(
        &pipeline,
        vec![
            ack(&rows["at work"], "progress").value("page 7"),
            ack(&rows["failed"], "progress").value("half"),
            ack(&rows["done"], "succeeded"),
            ack(&rows["failed"], "failed").header("duestream-reason", "disk full"),
            ack(&rows["for good"], "failed").header("duestream-permanent", "true"),
            // Of attempts that are over, and twice.
            ack(&rows["done"], "failed"),
            ack(&rows["failed"], "progress").value("too late"),
            ack(&rows["done"], "succeeded"),
            OutRecord::to("").key("k").value("garbage"),
        ],
    )
    .await;
    assert_eq!(
        states(&pipeline).await,
        BTreeMap::from([
            ("done".to_owned(), (3, 1)),
            ("failed".to_owned(), (1, 2)),
            ("for good".to_owned(), (1, 1)),
            ("at work".to_owned(), (2, 1)),
            ("silent".to_owned(), (2, 1)),
        ])
    );
    // Records of one batch have one timestamp, or nearly so.
    let is_at = |found: i64| assert!((0..1_000).contains(&(at - found)), "{found} {at}");
    is_at(pipeline.number(&deadline("at work")).await - 15 * 60_000);
    assert_eq!(pipeline.number("SELECT progress = 'page 7' FROM running WHERE task_id = 'at work'").await, 1);

    let again = pipeline.pending().await;
    let failed = &again["failed"];
    is_at(failed.due_at - 7_000);
    assert_eq!((failed.generation, failed.attempt, failed.failures, failed.stalls), (Generation(2), 2, 1, 0));
    assert_eq!(failed.body, rows["failed"].body);
    assert_eq!(RowOptions::decode(&failed.options).unwrap().progress, Some(b"half".to_vec()));
    let past = RowHistory::decode(&failed.history).unwrap().attempts;
    let PastAttempt { attempt, outcome, reason: why, .. } = &past[0];
    assert_eq!((past.len(), *attempt, outcome.as_str(), why.as_deref()), (1, 1, "failed", Some("disk full")));
    assert!(again["for good"].bury.is_some() && again["for good"].generation == Generation(2));

    // Both lie below the cursor: whoever committed them emits them.
    let second = |due: &schemas::due::DueRecord| due.generation == Generation(2);
    let emitted = until("both are emitted", || async {
        let emitted: Vec<_> = pipeline.due().await.into_iter().map(|(_, due)| due).filter(second).collect();
        if emitted.len() == 2 { Ok(emitted) } else { Err(emitted) }
    })
    .await;
    for due in emitted {
        let DueKind::Deliver(deliver) = due.kind else { panic!("a delivery") };
        assert_eq!(deliver.bury.as_deref(), (deliver.task_id == "for good").then_some("failed"));
        assert_eq!(deliver.history.len(), 1);
    }
    let rejected = until("garbage is kept", || async {
        let rejected = pipeline.rejected().await;
        if rejected.len() == 1 { Ok(rejected) } else { Err(rejected) }
    })
    .await;
    assert_eq!(
        (reason(&rejected[0]).as_str(), rejected[0].value.as_deref()),
        ("not_a_command", Some(&b"garbage"[..]))
    );
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_consumer_says_before_its_delivery_is_applied_counts_once_it_is() {
    let names = ["quick", "failing", "at work", "withdrawn"];
    let (pipeline, ingest, rows) = waiting_for_acks(&names, "").await;
    // The journal is behind: nothing of these deliveries has been applied.
    let at = acked(
        &pipeline,
        vec![
            ack(&rows["quick"], "succeeded"),
            ack(&rows["failing"], "progress").value("page 1"),
            ack(&rows["failing"], "progress").value("page 2"),
            ack(&rows["failing"], "failed"),
            ack(&rows["at work"], "progress").value("page 3"),
            // Seen by a consumer that reads uncommitted records.
            ack(&rows["withdrawn"], "failed"),
        ],
    )
    .await;
    assert!(states(&pipeline).await.values().all(|state| *state == (1, 1)), "nothing has changed yet");
    let kinds = "SELECT GROUP_CONCAT(kind ORDER BY command SEPARATOR '') FROM `change`";
    // A finish, the newest progress and the failure of `failing`, and one each of the others.
    assert_eq!(pipeline.number(kinds).await, 13_333);
    let withdrawn = until("a withdrawal is emitted", || async {
        let due: Vec<_> = pipeline.due().await.into_iter().map(|(_, due)| due).collect();
        let withdrawn: Vec<u64> =
            due.iter().filter(|due| due.kind == DueKind::Withdraw).map(|due| due.id.0).collect();
        if withdrawn.is_empty() { Err("none") } else { Ok(withdrawn) }
    })
    .await;
    assert_eq!(withdrawn, [rows["quick"].id.0], "only a finish takes back");

    settle(
        &pipeline,
        &[
            (&rows["quick"], EntryKind::Delivered),
            (&rows["failing"], EntryKind::Delivered),
            (&rows["at work"], EntryKind::Delivered),
            (&rows["withdrawn"], EntryKind::Withdrawn),
        ],
    )
    .await;
    let states = states(&pipeline).await;
    let state = |id: &str| states[id];
    assert_eq!((state("quick"), state("failing"), state("at work")), ((3, 1), (1, 2), (2, 1)));
    assert_eq!(state("withdrawn"), (1, 1), "no attempt of it was ever visible");
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0);
    let failing = &pipeline.pending().await["failing"];
    assert!((0..1_000).contains(&(at - (failing.due_at - 7_000))));
    assert_eq!(RowOptions::decode(&failing.options).unwrap().progress, Some(b"page 2".to_vec()));
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_success_ends_a_task_that_waits_again_at_once_or_through_its_withdrawal() {
    let (pipeline, ingest, rows) = waiting_for_acks(&["far", "near"], "").await;
    settle(&pipeline, &[(&rows["far"], EntryKind::Delivered), (&rows["near"], EntryKind::Delivered)]).await;
    let failed = |id: &str| ack(&rows[id], "failed");
    acked(&pipeline, vec![failed("far"), failed("near")]).await;
    // Beyond its cursor nobody has emitted it; at or below it a record may be under way.
    let again = pipeline.pending().await;
    pipeline
        .sql(&format!(
            "UPDATE pending SET due_at = {0} WHERE task_id = 'far'; UPDATE task SET due_at = {0} WHERE task_id = 'far'",
            now_ms() + 2 * HOUR_MS
        ))
        .await;
    let succeeded = |id: &str| ack(&rows[id], "succeeded");
    acked(&pipeline, vec![succeeded("far"), succeeded("near"), succeeded("near")]).await;
    assert_eq!(states(&pipeline).await, BTreeMap::from([("far".into(), (3, 2)), ("near".into(), (1, 2))]));
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change` WHERE kind = 1 AND op = 3").await, 1);
    until("a withdrawal is emitted", || async {
        let due = pipeline.due().await;
        let withdrawn = due.iter().any(|(_, due)| {
            due.kind == DueKind::Withdraw && due.id == rows["near"].id && due.generation == Generation(2)
        });
        withdrawn.then_some(()).ok_or(due.len())
    })
    .await;
    settle(&pipeline, &[(&again["near"], EntryKind::Withdrawn)]).await;
    assert_eq!(states(&pipeline).await["near"], (3, 2));
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0);
    assert!(pipeline.pending().await.is_empty());
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_end_in_a_burial_when_they_are_used_up() {
    let (pipeline, ingest, rows) = waiting_for_acks(&["unlucky"], "").await;
    on_ack(&pipeline, &RowOptions { max_attempts: Some(2), ..RowOptions::default() }).await;
    settle(&pipeline, &[(&rows["unlucky"], EntryKind::Delivered)]).await;
    acked(&pipeline, vec![ack(&rows["unlucky"], "failed")]).await;
    let second = pipeline.pending().await["unlucky"].clone();
    assert_eq!((second.attempt, second.bury), (2, None));
    settle(&pipeline, &[(&second, EntryKind::Delivered)]).await;
    acked(&pipeline, vec![ack(&second, "failed")]).await;
    let last = pipeline.pending().await["unlucky"].clone();
    assert_eq!((last.generation, last.attempt, last.failures), (Generation(3), 2, 2));
    let bury = last.bury.and_then(|code| schemas::delivery::DeadReason::ALL.get(usize::from(code)).copied());
    assert_eq!(bury.map(|reason| reason.as_str()), Some("attempts_exhausted"));
    assert_eq!(RowHistory::decode(&last.history).unwrap().attempts.len(), 2);
    settle(&pipeline, &[(&last, EntryKind::Buried)]).await;
    assert_eq!(states(&pipeline).await["unlucky"], (4, 2));
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_the_next_attempt_is_emitted_by_the_next_owner() {
    let (pipeline, first, rows) = waiting_for_acks(&["failed"], "").await;
    settle(&pipeline, &[(&rows["failed"], EntryKind::Delivered)]).await;
    // Kafka takes no emissions: the next attempt is committed and cannot be emitted.
    let due = pipeline.names.due();
    pipeline.delete_topic(&due).await;
    acked(&pipeline, vec![ack(&rows["failed"], "failed")]).await;
    let again = pipeline.pending().await["failed"].clone();
    assert_eq!(again.generation, Generation(2));
    first.kill();
    pipeline.create_topic(&due, 2).await;
    let second = pipeline.ingest("");
    let emitted = until("the next attempt is emitted", || async {
        let emitted = pipeline.due().await;
        if emitted.is_empty() { Err("nothing") } else { Ok(emitted) }
    })
    .await;
    assert_eq!((emitted[0].1.id, emitted[0].1.generation), (again.id, Generation(2)));
    assert_eq!(pipeline.pending().await["failed"], again, "what was applied is not applied again");
    second.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_partition_of_acks_has_a_tick_although_no_consumer_says_anything() {
    let (pipeline, ingest, _) = waiting_for_acks(&[], "[acks]\ntick = \"200ms\"\n").await;
    let ticks = format!(
        "SELECT COUNT(*) FROM stream_position WHERE hb_at > {} AND source = (SELECT source FROM source WHERE topic = '{}')",
        now_ms() - 60_000,
        pipeline.names.acks()
    );
    until("both partitions are ticked", || async {
        let ticked = pipeline.number(&ticks).await;
        if ticked == 2 { Ok(()) } else { Err(ticked) }
    })
    .await;
    let oldest = format!(
        "SELECT MIN(hb_at) FROM stream_position WHERE source = (SELECT source FROM source WHERE topic = '{}')",
        pipeline.names.acks()
    );
    let before = pipeline.number(&oldest).await;
    until("they go on", || async {
        let now = pipeline.number(&oldest).await;
        if now > before { Ok(()) } else { Err(now) }
    })
    .await;
    assert!(pipeline.rejected().await.is_empty());
    ingest.stop().await;
    pipeline.finish().await;
}
