//! Commands become rows, refusals go to `rejected`, and nothing stops the partition.

use crate::pipeline::{Pipeline, header, now_ms, reason};
use protocol::state::TaskState;
use runtime::kafka::OutRecord;
use schemas::due::DueKind;
use std::collections::BTreeMap;

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread")]
async fn garbage_among_good_records_is_kept_untouched_and_stops_nothing() {
    let pipeline = Pipeline::new().await;
    let due_at = now_ms() + HOUR_MS;
    let json =
        format!(r#"{{"task_id":"json","topic":"{}","due_at":{due_at},"value":"hello"}}"#, pipeline.callback);
    pipeline
        .submit(vec![
            pipeline.task("first", due_at),
            OutRecord::to("").key("garbage key").value(&b"\xff\xfe garbage"[..]).header("mine", "kept"),
            OutRecord::to(""),
            OutRecord::to("").value(""),
            OutRecord::to("").value(json),
            OutRecord::to("").value(r#"{"task_id": "#),
            OutRecord::to("").value(&b"\xc3\x01\x00\x00\x00\x00\x00\x00\x00\x00"[..]),
            OutRecord::to("").value("x").header("duestream-due-at", "tomorrow"),
            pipeline.task("last", due_at),
        ])
        .await;
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 9).await;

    let tasks = pipeline.tasks().await;
    assert_eq!(tasks.keys().collect::<Vec<_>>(), ["first", "json", "last"]);
    assert!(tasks.values().all(|task| task.state == TaskState::Scheduled.code() && task.due_at == due_at));
    let pending = pipeline.pending().await;
    assert_eq!(pending.keys().collect::<Vec<_>>(), ["first", "json", "last"]);

    let rejected = pipeline.rejected().await;
    let by_offset: BTreeMap<String, _> = rejected
        .iter()
        .map(|record| (header(record, "duestream-rejected-offset").unwrap(), record))
        .collect();
    let reasons: Vec<String> = by_offset.values().map(|record| reason(record)).collect();
    let expected =
        ["not_a_command", "not_a_command", "not_a_command", "invalid_json", "unknown_schema", "invalid_time"];
    assert_eq!(reasons, expected);
    let garbage = by_offset["1"];
    assert_eq!(garbage.key.as_deref(), Some(&b"garbage key"[..]));
    assert_eq!(garbage.value.as_deref(), Some(&b"\xff\xfe garbage"[..]));
    assert_eq!(header(garbage, "mine").as_deref(), Some("kept"));
    assert_eq!((&by_offset["2"].key, &by_offset["2"].value), (&None, &None), "null stays null");
    assert_eq!(by_offset["3"].value.as_deref(), Some(&b""[..]), "empty stays empty");
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0, "no answer is owed any more");

    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_submitted_again_is_stored_once_and_other_content_is_a_conflict() {
    let pipeline = Pipeline::new().await;
    let due_at = now_ms() + HOUR_MS;
    let other = || pipeline.task("a", due_at + 1);
    let ingest = pipeline.ingest("");
    // Within a batch …
    pipeline.submit(vec![pipeline.task("a", due_at), pipeline.task("a", due_at), other()]).await;
    pipeline.confirmed(&pipeline.names.tasks(), 3).await;
    // … and across batches.
    pipeline.submit(vec![pipeline.task("a", due_at), other(), pipeline.task("b", due_at)]).await;
    pipeline.confirmed(&pipeline.names.tasks(), 6).await;

    let tasks = pipeline.tasks().await;
    assert_eq!(tasks.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((tasks["a"].id.offset(), tasks["a"].due_at), (0, due_at), "the first one counts");
    let rejected = pipeline.rejected().await;
    assert_eq!(rejected.iter().map(reason).collect::<Vec<_>>(), ["conflict", "conflict"]);

    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_and_missing_callback_topics_are_refused_among_healthy_ones() {
    let pipeline = Pipeline::new().await;
    let due_at = now_ms() + HOUR_MS;
    let to = |task_id: &str, topic: &str| {
        OutRecord::to("")
            .value("x")
            .header("duestream-task-id", task_id)
            .header("duestream-topic", topic)
            .header("duestream-due-at", due_at.to_string())
    };
    let in_partition = |task_id: &str, partition: &str| {
        to(task_id, &pipeline.callback).header("duestream-partition", partition)
    };
    pipeline
        .submit(vec![
            to("good", &pipeline.callback),
            to("missing", "no-such-topic"),
            to("kafka's", "__consumer_offsets"),
            to("ours", &pipeline.names.due()),
            to("not on the list", "elsewhere"),
            in_partition("in the last", "2"),
            in_partition("beyond the last", "3"),
        ])
        .await;
    let allow = format!("[callback]\nallow = \"{}*, no-such-topic, __*\"\n", pipeline.callback);
    let ingest = pipeline.ingest(&allow);
    pipeline.confirmed(&pipeline.names.tasks(), 7).await;

    assert_eq!(pipeline.tasks().await.keys().collect::<Vec<_>>(), ["good", "in the last"]);
    let rejected = pipeline.rejected().await;
    let reasons: BTreeMap<_, _> =
        rejected.iter().map(|r| (header(r, "duestream-task-id").unwrap(), reason(r))).collect();
    let denied = "topic_not_allowed".to_owned();
    assert_eq!(
        reasons,
        BTreeMap::from([
            ("missing".to_owned(), "unknown_topic".to_owned()),
            ("kafka's".to_owned(), denied.clone()),
            ("ours".to_owned(), denied.clone()),
            ("not on the list".to_owned(), denied),
            ("beyond the last".to_owned(), "unknown_partition".to_owned()),
        ])
    );

    // A topic that was missing a moment ago is found as soon as it is there.
    let late = format!("{}-late", pipeline.callback);
    pipeline.submit(vec![to("too early", &late)]).await;
    pipeline.confirmed(&pipeline.names.tasks(), 8).await;
    pipeline.create_topic(&late, 1).await;
    pipeline.submit(vec![to("in time", &late)]).await;
    pipeline.confirmed(&pipeline.names.tasks(), 9).await;
    let tasks = pipeline.tasks().await;
    assert!(tasks.contains_key("in time") && !tasks.contains_key("too early"));

    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_callback_topic_is_accepted_where_it_may_come_later() {
    let pipeline = Pipeline::new().await;
    let task = OutRecord::to("")
        .value("x")
        .header("duestream-task-id", "early bird")
        .header("duestream-topic", "topic-that-comes-later")
        .header("duestream-delay", "1h");
    pipeline.submit(vec![task]).await;
    let ingest = pipeline.ingest("[callback]\nunknown_topic = \"accept\"\n");
    pipeline.confirmed(&pipeline.names.tasks(), 1).await;
    assert_eq!(pipeline.tasks().await.keys().collect::<Vec<_>>(), ["early bird"]);
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_that_mysql_refuses_is_found_in_its_batch_and_put_aside() {
    let pipeline = Pipeline::new().await;
    pipeline.sql("ALTER TABLE pending ADD CONSTRAINT picky CHECK (task_id <> 'task 37')").await;
    let due_at = now_ms() + HOUR_MS;
    let tasks = (0..100).map(|n| pipeline.task(&format!("task {n}"), due_at)).collect();
    pipeline.submit(tasks).await;
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 100).await;

    assert_eq!(pipeline.tasks().await.len(), 99);
    assert_eq!(pipeline.pending().await.len(), 99);
    let rejected = pipeline.rejected().await;
    assert_eq!(rejected.iter().map(reason).collect::<Vec<_>>(), ["refused_by_store"]);
    assert_eq!(rejected[0].value.as_deref(), Some(&b"value of task 37"[..]));

    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_older_than_the_window_is_refused() {
    let pipeline = Pipeline::new().await;
    pipeline.submit(vec![pipeline.task("old", now_ms() + HOUR_MS)]).await;
    let ingest = pipeline.ingest("[tasks]\ndedup_window = \"1ms\"\n");
    pipeline.confirmed(&pipeline.names.tasks(), 1).await;
    assert!(pipeline.tasks().await.is_empty());
    assert_eq!(pipeline.rejected().await.iter().map(reason).collect::<Vec<_>>(), ["too_old"]);
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_at_or_below_the_cursor_is_emitted_at_once_and_what_lies_beyond_is_not() {
    let pipeline = Pipeline::new().await;
    let cursor_at = now_ms() + 60_000;
    pipeline.sql(&format!("UPDATE shard SET cursor_at = {cursor_at}")).await;
    pipeline.sql("UPDATE stream_position SET next = 7, confirmed = 7 WHERE source = (SELECT source FROM source WHERE topic LIKE '%.journal')").await;
    // Positions above the end of an empty journal would halt that side; the fences are what is looked at here.
    let ingest = pipeline.ingest("");
    pipeline
        .submit(vec![
            pipeline.task("past", now_ms() - HOUR_MS),
            pipeline.task("at the cursor", cursor_at),
            pipeline.task("beyond", cursor_at + 1),
            pipeline.task("near", now_ms() + 1_000).header("user", "header"),
        ])
        .await;
    pipeline.confirmed(&pipeline.names.tasks(), 4).await;

    let tasks = pipeline.tasks().await;
    assert_eq!(tasks.len(), 4);
    let due = pipeline.due().await;
    let mut emitted: BTreeMap<String, _> = BTreeMap::new();
    for (record, due) in due {
        let DueKind::Deliver(deliver) = due.kind.clone() else { panic!("{due:?}") };
        let task = &tasks[&deliver.task_id];
        assert_eq!(
            (due.id, due.generation, due.due_at, due.shard),
            (task.id, task.generation, task.due_at, task.shard)
        );
        assert_eq!(record.partition, i32::from(due.shard.0 & 1), "the slot of its shard");
        assert_eq!(record.key.as_deref(), Some(due.id.to_string().as_bytes()));
        assert_eq!(due.fence, 7, "next of the slot's journal");
        emitted.insert(deliver.task_id.clone(), deliver);
    }
    assert_eq!(emitted.keys().collect::<Vec<_>>(), ["at the cursor", "near", "past"]);
    let near = &emitted["near"];
    assert_eq!(near.value.as_deref(), Some(&b"value of near"[..]));
    assert_eq!((near.headers.len(), near.headers[0].name.as_str()), (1, "user"));

    ingest.stop().await;
    pipeline.finish().await;
}
