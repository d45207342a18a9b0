//! Changes, options, defaults, spread and replays as producers say them, in every form.

use crate::life::{HOUR_MS, ack, acked, settle, states};
use crate::pipeline::{Pipeline, header, now_ms, until};
use runtime::kafka::OutRecord;
use runtime::store::PendingRow;
use schemas::avro::ReadReply;
use schemas::command::{AvroTime, TaskCommand};
use schemas::delivery::{DeadReason, dead_headers};
use schemas::due::{Completion, DueKind};
use schemas::ids::Generation;
use schemas::journal::EntryKind;
use schemas::row::{RowHistory, RowOptions};
use std::collections::BTreeMap;

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Answers by correlation, once there are so many.
async fn told(pipeline: &Pipeline, count: usize) -> BTreeMap<String, String> {
    until("the answers are told", || async {
        let replies = pipeline.read(&pipeline.names.replies()).await;
        let of =
            |record: &_, name: &str| header(record, &format!("duestream-reply-{name}")).unwrap_or_default();
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

fn options(row: &PendingRow) -> RowOptions {
    RowOptions::decode(&row.options).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_moved_and_cancelled_in_json_and_avro_and_answered_in_its_form() {
    let pipeline = Pipeline::new().await;
    let far = now_ms() + 2 * HOUR_MS;
    let ingest = pipeline.ingest("");
    let key = |record: OutRecord| record.key("k");
    let change = |op: &str, id: &str| TaskCommand {
        op: text(op),
        task_id: text(id),
        reply: Some(true),
        correlation: Some(id.into()),
        ..TaskCommand::default()
    };
    let moved = TaskCommand {
        due_at: Some(AvroTime::Ms(far + 5)),
        expires_at: Some(AvroTime::Ms(far + 10)),
        ..change("reschedule", "moved by avro")
    };
    let json = |op: &str, id: &str, more: &str| {
        format!(r#"{{"op": "{op}", "task_id": "{id}", "reply": true, "correlation": "{id}"{more}}}"#)
    };
    let names = ["cancelled by json", "cancelled by avro", "moved by json", "moved by avro"];
    let mut records: Vec<OutRecord> = names.iter().map(|id| pipeline.task(id, far)).collect();
    records.extend([
        key(OutRecord::to("").value(json("cancel", "cancelled by json", ""))),
        key(OutRecord::to("").value(change("cancel", "cancelled by avro").encode())),
        key(OutRecord::to("").value(json("reschedule", "moved by json", r#", "delay": "3h""#))),
        key(OutRecord::to("").value(moved.encode())),
        key(OutRecord::to("").value(json("cancel", "nobody", ""))),
    ]);
    let sent_at = now_ms();
    pipeline.submit(records).await;
    let told = told(&pipeline, 5).await;
    let expected = ["accepted", "accepted", "cancelled", "cancelled", "not_found"];
    let mut answers: Vec<&str> = told.values().map(String::as_str).collect();
    answers.sort_unstable();
    assert_eq!(answers, expected, "{told:?}");
    let pending = pipeline.pending().await;
    assert_eq!(pending.keys().collect::<Vec<_>>(), ["moved by avro", "moved by json"]);
    assert_eq!(pending["moved by avro"].due_at, far + 5);
    assert_eq!(options(&pending["moved by avro"]).expires_at, Some(far + 10));
    let late = pending["moved by json"].due_at - sent_at - 3 * HOUR_MS;
    assert!((-1_000..30_000).contains(&late), "a delay counts from the change's own timestamp: {late}");
    for reply in pipeline.read(&pipeline.names.replies()).await {
        let of = |name: &str| header(&reply, &format!("duestream-reply-{name}"));
        let value = reply.value.as_deref().unwrap();
        let id = of("correlation").unwrap();
        assert_eq!((of("task-id"), of("shard-key")), (text(&id), text(&id)));
        if id.ends_with("avro") {
            assert_eq!(ReadReply::decode(value).unwrap().task_id, Some(id));
        } else {
            assert!(value.starts_with(br#"{"answer""#));
        }
    }
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_options_of_a_task_come_with_its_command_in_every_form_and_decide_its_life() {
    let pipeline = Pipeline::new().await;
    pipeline.sql(&format!("UPDATE shard SET cursor_at = {}", now_ms() + HOUR_MS)).await;
    let ingest = pipeline.ingest("");
    let due_at = now_ms() + 1_000;
    let avro = TaskCommand {
        task_id: text("avro"),
        shard_key: text("key 4"),
        topic: Some(pipeline.callback.clone()),
        due_at: Some(AvroTime::Ms(due_at)),
        completion: text("on_ack"),
        max_attempts: Some(2),
        backoff: text("fixed:7s"),
        ack_timeout: text("10m"),
        max_stalls: Some(0),
        ..TaskCommand::default()
    };
    let json = format!(
        r#"{{"task_id": "json", "shard_key": "key 4", "topic": "{}", "due_at": {due_at}, "completion": "on_ack",
            "max_attempts": 2, "backoff": "fixed:7000ms", "ack_timeout": "PT10M", "max_stalls": "0"}}"#,
        pipeline.callback
    );
    let headers = pipeline
        .task("headers", due_at)
        .header("duestream-shard-key", "key 4")
        .header("duestream-completion", "on_ack")
        .header("duestream-max-attempts", "2")
        .header("duestream-backoff", "fixed:7s")
        .header("duestream-ack-timeout", "600s")
        .header("duestream-max-stalls", "0");
    pipeline
        .submit(vec![headers, OutRecord::to("").value(json), OutRecord::to("").value(avro.encode())])
        .await;
    pipeline.confirmed(&pipeline.names.tasks(), 3).await;
    let rows = pipeline.pending().await;
    let expected = RowOptions {
        completion: Completion::OnAck,
        max_attempts: Some(2),
        backoff: "fixed:7s".parse().ok(),
        ack_timeout_ms: Some(600_000),
        max_stalls: Some(0),
        ..RowOptions::default()
    };
    assert_eq!(rows.len(), 3);
    assert!(rows.values().all(|row| options(row) == expected), "{rows:?}");

    let at =
        settle(&pipeline, &rows.values().map(|row| (row, EntryKind::Delivered)).collect::<Vec<_>>()).await;
    assert!(states(&pipeline).await.values().all(|state| *state == (2, 1)), "they wait for their consumers");
    assert_eq!(pipeline.number("SELECT MAX(deadline_at) FROM running").await, at + 600_000);
    let at = acked(&pipeline, vec![ack(&rows["json"], "failed"), ack(&rows["avro"], "succeeded")]).await;
    let again = &pipeline.pending().await["json"];
    assert!((0..1_000).contains(&(at - (again.due_at - 7_000))));
    assert_eq!(states(&pipeline).await["avro"], (3, 1));
    settle(&pipeline, &[(again, EntryKind::Delivered)]).await;
    acked(&pipeline, vec![ack(again, "failed")]).await;
    let last = &pipeline.pending().await["json"];
    assert!(last.bury.is_some(), "two attempts were all");
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_does_not_say_is_as_its_topic_and_source_have_it() {
    let pipeline = Pipeline::new().await;
    let tenant = pipeline.own("tenant");
    pipeline.create_source(&tenant, 1).await;
    let callback = &pipeline.callback;
    let toml = format!(
        "[[sources]]\n[[sources]]\ntopic = \"{tenant}\"\n\
         [[callback.defaults]]\ntopic = \"{callback}\"\nsource = \"{tenant}\"\nspread = \"10x10s+5s\"\n\
         [[callback.defaults]]\ntopic = \"{callback}*\"\ncompletion = \"on_ack\"\nmax_attempts = 4\nack_timeout = \"10m\"\n"
    );
    let ingest = pipeline.ingest(&toml);
    let far = now_ms() + HOUR_MS;
    let asking = |id: &str| {
        pipeline.task(id, far).header("duestream-reply", "true").header("duestream-correlation", id)
    };
    pipeline
        .submit(vec![
            asking("plain"),
            asking("own").header("duestream-max-attempts", "9"),
            asking("delivered").header("duestream-completion", "on_delivery"),
            asking("plain").header("duestream-spread", "10x10s+5s"),
        ])
        .await;
    pipeline
        .send(&tenant, vec![asking("herd"), asking("herd"), asking("exact").header("duestream-window", "0s")])
        .await;
    pipeline.confirmed(&pipeline.names.tasks(), 4).await;
    pipeline.confirmed(&tenant, 3).await;
    let rows = pipeline.pending().await;
    let of = |id: &str| options(&rows[id]);
    let plain = of("plain");
    assert_eq!(
        (plain.completion, plain.max_attempts, plain.ack_timeout_ms),
        (Completion::OnAck, Some(4), Some(600_000))
    );
    assert_eq!((of("own").max_attempts, of("own").ack_timeout_ms), (Some(9), Some(600_000)));
    assert_eq!(of("delivered"), RowOptions::default());
    let herd = &rows["herd"];
    let identity = protocol::admission::Identity(schemas::command::identity("herd", "herd"));
    let shift = protocol::spread::shift_ms(&identity, "10x10s+5s".parse().ok(), None);
    assert_eq!((herd.due_at, of("herd").asked_at), (far + shift, Some(far)));
    assert_eq!(of("herd").completion, Completion::OnDelivery, "the first block that matches counts, alone");
    assert_eq!((rows["exact"].due_at, of("exact").asked_at), (far, None));
    let told = told(&pipeline, 5).await;
    assert_eq!(told["herd"], "duplicate", "the defaults are no content, and the instant is the same");
    assert_eq!(told["plain"], "conflict conflict", "what a command says itself is");
    let replies = pipeline.read(&pipeline.names.replies()).await;
    let accepted = replies.iter().find(|reply| {
        let of = |name: &str| header(reply, &format!("duestream-reply-{name}"));
        of("correlation").as_deref() == Some("herd") && of("answer").as_deref() == Some("accepted")
    });
    let due_at = header(accepted.unwrap(), "duestream-reply-due-at");
    assert_eq!(due_at, Some((far + shift).to_string()), "when it will be delivered");
    ingest.stop().await;
    pipeline.finish().await;
}

/// The dead letter of a row as the dispatcher writes it, put back as its replay.
fn replay(row: &PendingRow, correlation: &str) -> OutRecord {
    let due = row.clone().due_record(0).unwrap();
    let DueKind::Deliver(deliver) = due.kind.clone() else { panic!("a delivery") };
    let mut record = OutRecord::to("").key(row.task_id.clone());
    record.value = deliver.value.clone().map(Into::into);
    record.headers.clone_from(&deliver.headers);
    let added = dead_headers(&due, &deliver, DeadReason::Failed.as_str(), "it failed", now_ms());
    for added in added {
        record.headers.push(schemas::record::Header { name: added.name.to_owned(), value: added.value });
    }
    let has = |record: &OutRecord, name: &str| record.headers.iter().any(|header| header.name == name);
    if deliver.completion == Completion::OnAck && !has(&record, "duestream-completion") {
        record = record.header("duestream-completion", "on_ack").header("duestream-backoff", "fixed:7s");
    }
    record
        .header("duestream-op", "replay")
        .header("duestream-reply", "true")
        .header("duestream-correlation", correlation)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_task_is_replayed_once_with_its_body_and_history_as_a_new_attempt() {
    let pipeline = Pipeline::new().await;
    pipeline.sql(&format!("UPDATE shard SET cursor_at = {}", now_ms() + HOUR_MS)).await;
    let ingest = pipeline.ingest("");
    let due_at = now_ms() + 1_000;
    let task = |id: &str| pipeline.task(id, due_at).header("duestream-shard-key", "key 4").header("own", "1");
    pipeline
        .submit(vec![
            task("t")
                .header("duestream-completion", "on_ack")
                .header("duestream-backoff", "fixed:7s")
                .header("duestream-expires-at", (due_at + HOUR_MS).to_string()),
            task("cancelled"),
        ])
        .await;
    pipeline.confirmed(&pipeline.names.tasks(), 2).await;
    let first = pipeline.pending().await;
    // Not dead yet.
    pipeline.submit(vec![replay(&first["t"], "too early")]).await;
    settle(&pipeline, &[(&first["t"], EntryKind::Delivered), (&first["cancelled"], EntryKind::Buried)]).await;
    let for_good =
        ack(&first["t"], "failed").header("duestream-permanent", "true").header("duestream-reason", "disk");
    acked(&pipeline, vec![for_good]).await;
    let buried = pipeline.pending().await["t"].clone();
    settle(&pipeline, &[(&buried, EntryKind::Buried)]).await;
    assert_eq!((states(&pipeline).await["t"], pipeline.pending().await.len()), ((4, 1), 0));

    let elsewhere = {
        let mut record = replay(&buried, "elsewhere");
        pipeline.create_topic(&pipeline.own("other"), 1).await;
        let topic = record.headers.iter_mut().find(|header| header.name == "duestream-topic").unwrap();
        topic.value = Some(pipeline.own("other").into_bytes());
        record
    };
    pipeline
        .submit(vec![
            replay(&first["t"], "older generation"),
            elsewhere,
            replay(&buried, "good"),
            replay(&buried, "twice"),
            // In one batch with its cancel it is not delivered after all.
            replay(&first["cancelled"], "and back"),
            OutRecord::to("")
                .key("k")
                .header("duestream-op", "cancel")
                .header("duestream-task-id", "cancelled")
                .header("duestream-shard-key", "key 4")
                .header("duestream-reply", "true")
                .header("duestream-correlation", "cancel"),
        ])
        .await;
    let told = told(&pipeline, 7).await;
    let expected = [
        ("and back", "accepted"),
        ("cancel", "cancelled"),
        ("elsewhere", "not_found"),
        ("good", "accepted"),
        ("older generation", "rejected not_dead"),
        ("too early", "rejected not_dead"),
        ("twice", "rejected not_dead"),
    ];
    let told: Vec<(&str, &str)> = told.iter().map(|(to, answer)| (to.as_str(), answer.as_str())).collect();
    assert_eq!(told, expected);
    let pending = pipeline.pending().await;
    assert_eq!(pending.keys().collect::<Vec<_>>(), ["t"]);
    let again = &pending["t"];
    assert_eq!((again.generation, again.attempt), (Generation(buried.generation.0 + 1), 2));
    assert_eq!((again.failures, again.stalls, again.bury), (0, 0, None));
    assert_eq!(
        (&again.body, &again.shard_key, again.shard),
        (&first["t"].body, &first["t"].shard_key, first["t"].shard)
    );
    assert_eq!(RowHistory::decode(&again.history).unwrap().attempts[0].reason.as_deref(), Some("disk"));
    let kept = options(again);
    assert_eq!((kept.completion, kept.backoff), (Completion::OnAck, "fixed:7s".parse().ok()));
    assert_eq!((kept.expires_at, kept.asked_at), (None, None), "times of the old due time");
    let emitted = until("the replay is emitted", || async {
        let due: Vec<_> = pipeline.due().await.into_iter().map(|(_, due)| due).collect();
        let found = due.iter().find(|due| due.generation == again.generation && due.id == again.id).cloned();
        found.ok_or(due.len())
    })
    .await;
    let DueKind::Deliver(deliver) = emitted.kind else { panic!("a delivery") };
    assert_eq!(
        (deliver.attempt, deliver.value.as_deref(), deliver.bury),
        (2, Some(&b"value of t"[..]), None)
    );
    settle(&pipeline, &[(again, EntryKind::Delivered)]).await;
    acked(&pipeline, vec![ack(again, "succeeded")]).await;
    assert_eq!(states(&pipeline).await, BTreeMap::from([("t".into(), (3, 2)), ("cancelled".into(), (5, 2))]));
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0);
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_a_replay_that_was_committed_is_emitted_by_the_next_owner_and_not_carried_out_twice() {
    let pipeline = Pipeline::new().await;
    pipeline.sql(&format!("UPDATE shard SET cursor_at = {}", now_ms() + HOUR_MS)).await;
    let first = pipeline.ingest("");
    pipeline.submit(vec![pipeline.task("t", now_ms() + 1_000).header("duestream-shard-key", "key 4")]).await;
    pipeline.confirmed(&pipeline.names.tasks(), 1).await;
    let row = pipeline.pending().await["t"].clone();
    settle(&pipeline, &[(&row, EntryKind::Buried)]).await;
    // Kafka takes no emissions.
    let due = pipeline.names.due();
    pipeline.delete_topic(&due).await;
    pipeline.submit(vec![replay(&row, "1")]).await;
    pipeline.applied(&pipeline.names.tasks(), 2).await;
    let again = pipeline.pending().await["t"].clone();
    assert_eq!(again.generation, Generation(2));
    first.kill();
    pipeline.create_topic(&due, 2).await;
    let second = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 2).await;
    assert_eq!(pipeline.pending().await["t"], again);
    let mut emitted: Vec<_> =
        pipeline.due().await.into_iter().map(|(_, due)| (due.id, due.generation)).collect();
    // At least once: the first owner may have got one through before it died.
    emitted.dedup();
    assert_eq!(emitted, [(again.id, Generation(2))]);
    assert_eq!(told(&pipeline, 1).await["1"], "accepted");
    second.stop().await;
    pipeline.finish().await;
}
