//! Cancel and reschedule: at once where nobody can have emitted the row, else by way of the journal.

use crate::life::{HOUR_MS, ack, acked, on_ack, settle, states};
use crate::pipeline::{Pipeline, header, now_ms, until};
use runtime::kafka::OutRecord;
use schemas::due::DueKind;
use schemas::ids::Generation;
use schemas::journal::EntryKind;
use schemas::row::RowOptions;
use std::collections::BTreeMap;

/// A command that asks for its answer; `correlation` names it in the tests.
fn command(op: &str, task_id: &str, correlation: &str) -> OutRecord {
    OutRecord::to("")
        .key("k")
        .header("duestream-op", op)
        .header("duestream-task-id", task_id)
        .header("duestream-reply", "true")
        .header("duestream-correlation", correlation)
}

fn cancel(task_id: &str, correlation: &str) -> OutRecord {
    command("cancel", task_id, correlation)
}

fn move_to(task_id: &str, due_at: i64, correlation: &str) -> OutRecord {
    command("reschedule", task_id, correlation).header("duestream-due-at", due_at.to_string())
}

/// Answers by correlation, once there are so many.
async fn told(pipeline: &Pipeline, count: usize) -> BTreeMap<String, String> {
    until("the answers are told", || async {
        let of =
            |record: &_, name: &str| header(record, &format!("duestream-reply-{name}")).unwrap_or_default();
        let replies = pipeline.read(&pipeline.names.replies()).await;
        let told: BTreeMap<String, String> = replies
            .iter()
            .map(|reply| {
                let said = format!("{} {}", of(reply, "answer"), of(reply, "reason"));
                (of(reply, "correlation"), said.trim_end().to_owned())
            })
            .collect();
        if told.len() >= count { Ok(told) } else { Err(told) }
    })
    .await
}

fn answers<const N: usize>(expected: [(&str, &str); N]) -> BTreeMap<String, String> {
    expected.map(|(correlation, answer)| (correlation.to_owned(), answer.to_owned())).into()
}

/// Cursors that lie an hour ahead.
async fn cursors_ahead(pipeline: &Pipeline) {
    pipeline.sql(&format!("UPDATE shard SET cursor_at = {}", now_ms() + HOUR_MS)).await;
}

/// What is on `due` besides deliveries of first generations: `withdraw` or the due time, by task.
async fn later_dues(pipeline: &Pipeline) -> Vec<(u64, Generation, Option<i64>)> {
    let due = pipeline.due().await.into_iter().map(|(_, due)| due);
    let due = due.filter(|due| due.kind == DueKind::Withdraw || due.generation.0 > 1);
    due.map(|due| (due.id.0, due.generation, (due.kind != DueKind::Withdraw).then_some(due.due_at))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_cursor_a_task_is_changed_at_once() {
    let pipeline = Pipeline::new().await;
    let far = now_ms() + 2 * HOUR_MS;
    let tasks = ["cancelled", "moved", "fired", "untouched"];
    pipeline.submit(tasks.iter().map(|id| pipeline.task(id, far)).collect()).await;
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 4).await;
    let before = pipeline.pending().await;
    cursors_ahead(&pipeline).await;
    let now = now_ms();
    pipeline
        .submit(vec![
            cancel("cancelled", "1"),
            cancel("cancelled", "2"),
            move_to("cancelled", far + 5, "3"),
            move_to("moved", far + 5, "4"),
            move_to("moved", far + 7, "5"),
            move_to("fired", now - 5, "6"),
            cancel("nobody", "7"),
        ])
        .await;
    let told = told(&pipeline, 7).await;
    let expected = [
        ("1", "cancelled"),
        ("2", "cancelled"),
        ("3", "cancelled"),
        ("4", "accepted"),
        ("5", "accepted"),
        ("6", "accepted"),
        ("7", "not_found"),
    ];
    assert_eq!(told, answers(expected));
    assert_eq!(states(&pipeline).await["cancelled"].0, 5);
    let after = pipeline.pending().await;
    assert_eq!(after.keys().collect::<Vec<_>>(), ["fired", "moved", "untouched"]);
    assert_eq!((after["moved"].due_at, &after["moved"].body), (far + 7, &before["moved"].body));
    assert_eq!(after["untouched"], before["untouched"]);
    // Only what was moved to where the scanner has been is emitted, and nothing is withdrawn.
    let fired = &after["fired"];
    let dues = until("the fired task is emitted", || async {
        let dues = later_dues(&pipeline).await;
        if dues.is_empty() { Err("nothing") } else { Ok(dues) }
    })
    .await;
    assert_eq!(dues, [(fired.id.0, Generation(2), Some(now - 5))]);
    pipeline.confirmed(&pipeline.names.tasks(), 11).await;
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0);
    assert!(pipeline.rejected().await.is_empty(), "nothing was wrong with the commands");
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_or_below_the_cursor_the_journal_decides_and_nobody_is_answered_before() {
    let pipeline = Pipeline::new().await;
    cursors_ahead(&pipeline).await;
    let soon = now_ms() + 60_000;
    let key = |record: OutRecord| record.header("duestream-shard-key", "key 4");
    let tasks = ["cancelled", "moved", "sent"];
    pipeline.submit(tasks.iter().map(|id| key(pipeline.task(id, soon))).collect()).await;
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 3).await;
    let rows = pipeline.pending().await;
    pipeline
        .submit(
            [
                cancel("cancelled", "1"),
                move_to("cancelled", soon + 5, "2"),
                move_to("moved", soon + 5, "3"),
                move_to("moved", soon + 2 * HOUR_MS, "4"),
                cancel("sent", "5"),
            ]
            .map(key)
            .into(),
        )
        .await;
    pipeline.confirmed(&pipeline.names.tasks(), 8).await;
    let mut dues = later_dues(&pipeline).await;
    dues.sort_unstable();
    dues.dedup();
    let mut expected: Vec<_> = rows.values().map(|row| (row.id.0, Generation(1), None)).collect();
    expected.sort_unstable();
    assert_eq!(dues, expected, "each is withdrawn");
    assert!(pipeline.read(&pipeline.names.replies()).await.is_empty(), "nothing is known yet");
    assert_eq!(pipeline.pending().await, rows, "a row that may be alive outside is not touched");
    settle(
        &pipeline,
        &[
            (&rows["cancelled"], EntryKind::Withdrawn),
            (&rows["moved"], EntryKind::Withdrawn),
            (&rows["sent"], EntryKind::Delivered),
        ],
    )
    .await;
    let told = told(&pipeline, 5).await;
    let expected =
        [("1", "cancelled"), ("2", "cancelled"), ("3", "accepted"), ("4", "accepted"), ("5", "already_sent")];
    assert_eq!(told, answers(expected));
    assert_eq!(pipeline.pending().await["moved"].due_at, soon + 2 * HOUR_MS);
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_one_batch_each_command_sees_what_the_earlier_ones_did() {
    let pipeline = Pipeline::new().await;
    cursors_ahead(&pipeline).await;
    let soon = now_ms() + 60_000;
    pipeline
        .submit(vec![
            cancel("late", "1"),
            pipeline.task("late", soon),
            pipeline.task("short", soon),
            move_to("short", soon + 9, "2"),
            cancel("short", "3"),
            pipeline.task("moved", soon),
            move_to("moved", soon + 7, "4"),
        ])
        .await;
    let ingest = pipeline.ingest("");
    let told = told(&pipeline, 4).await;
    let expected = [("1", "not_found"), ("2", "accepted"), ("3", "cancelled"), ("4", "accepted")];
    assert_eq!(told, answers(expected));
    pipeline.confirmed(&pipeline.names.tasks(), 7).await;
    let pending = pipeline.pending().await;
    assert_eq!(pending.keys().collect::<Vec<_>>(), ["late", "moved"]);
    assert_eq!((pending["moved"].due_at, pending["moved"].generation), (soon + 7, Generation(2)));
    // What was never emitted is not withdrawn, and only what is true now is emitted.
    let due: Vec<_> = pipeline.due().await.into_iter().map(|(_, due)| (due.id, due.generation)).collect();
    assert_eq!(due.len(), 2, "{due:?}");
    assert!(
        due.contains(&(pending["late"].id, Generation(1)))
            && due.contains(&(pending["moved"].id, Generation(2)))
    );
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_running_or_over_is_answered_as_it_stands() {
    let pipeline = Pipeline::new().await;
    cursors_ahead(&pipeline).await;
    let soon = now_ms() + 1_000;
    let key = |record: OutRecord| record.header("duestream-shard-key", "key 4");
    let names = ["running", "done", "dead", "expiring"];
    pipeline.submit(names.iter().map(|id| key(pipeline.task(id, soon))).collect()).await;
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 4).await;
    let rows = pipeline.pending().await;
    on_ack(&pipeline, &RowOptions { expires_at: Some(soon + 10_000), ..RowOptions::default() }).await;
    settle(
        &pipeline,
        &[
            (&rows["running"], EntryKind::Delivered),
            (&rows["done"], EntryKind::Delivered),
            (&rows["dead"], EntryKind::Buried),
        ],
    )
    .await;
    acked(&pipeline, vec![ack(&rows["done"], "succeeded")]).await;
    pipeline
        .submit(
            [
                move_to("running", soon + 5, "1"),
                cancel("running", "2"),
                cancel("done", "3"),
                cancel("dead", "4"),
                move_to("expiring", soon + 10_001, "5"),
                cancel("running", "6"),
            ]
            .map(key)
            .into(),
        )
        .await;
    let told = told(&pipeline, 6).await;
    let expected = [
        ("1", "already_sent"),
        ("2", "already_sent"),
        ("3", "already_sent"),
        ("4", "rejected dead"),
        ("5", "rejected expires_before_due"),
        ("6", "already_sent"),
    ];
    assert_eq!(told, answers(expected));
    assert_eq!(pipeline.number("SELECT stop FROM running WHERE task_id = 'running'").await, 1);
    // A cancelled attempt that fails is the last one.
    acked(&pipeline, vec![ack(&rows["running"], "failed")]).await;
    assert_eq!(states(&pipeline).await["running"].0, 5);
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_may_not_deliver_to_a_topic_does_not_know_its_tasks() {
    let pipeline = Pipeline::new().await;
    let far = now_ms() + 2 * HOUR_MS;
    pipeline.submit(vec![pipeline.task("theirs", far)]).await;
    let first = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 1).await;
    first.stop().await;
    let ingest = pipeline.ingest("[callback]\nallow = \"nothing\"\n");
    pipeline.submit(vec![cancel("theirs", "1"), move_to("theirs", far + 1, "2")]).await;
    assert_eq!(told(&pipeline, 2).await, answers([("1", "not_found"), ("2", "not_found")]));
    assert_eq!(pipeline.pending().await["theirs"].due_at, far);
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_withdrawals_emissions_and_answers_are_sent_again() {
    let pipeline = Pipeline::new().await;
    let far = now_ms() + 2 * HOUR_MS;
    pipeline.submit(["near", "fired", "cancelled"].map(|id| pipeline.task(id, far)).into()).await;
    let first = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 3).await;
    cursors_ahead(&pipeline).await;
    let soon = now_ms() + 60_000;
    pipeline
        .sql(&format!(
            "UPDATE pending SET due_at = {soon} WHERE task_id = 'near'; UPDATE task SET due_at = {soon} WHERE task_id = 'near'"
        ))
        .await;
    // Kafka takes neither: what is committed now cannot be told.
    let (due, replies) = (pipeline.names.due(), pipeline.names.replies());
    pipeline.delete_topic(&due).await;
    pipeline.delete_topic(&replies).await;
    pipeline
        .submit(vec![
            cancel("near", "1"),
            OutRecord::to("")
                .key("k")
                .header("duestream-op", "reschedule")
                .header("duestream-task-id", "fired")
                .header("duestream-due-at", soon.to_string()),
            cancel("cancelled", "2"),
            cancel("nobody", "3"),
        ])
        .await;
    pipeline.applied(&pipeline.names.tasks(), 7).await;
    first.kill();
    pipeline.create_topic(&due, 2).await;
    pipeline.create_topic(&replies, 2).await;
    let second = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 7).await;
    assert_eq!(told(&pipeline, 2).await, answers([("2", "cancelled"), ("3", "not_found")]));
    let rows = pipeline.pending().await;
    // What the first one had queued may still come, too: an emission that is doubled is dropped by the dispatcher.
    let mut dues = later_dues(&pipeline).await;
    dues.sort_unstable();
    dues.dedup();
    let mut expected =
        [(rows["near"].id.0, Generation(1), None), (rows["fired"].id.0, Generation(2), Some(soon))];
    expected.sort_unstable();
    assert_eq!(dues, expected);
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change` WHERE kind = 1").await, 1, "the intent waits");
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 1);
    second.stop().await;
    pipeline.finish().await;
}
