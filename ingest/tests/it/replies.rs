//! Replies: to each command that asks, after its commit, at least once.

use crate::pipeline::{Pipeline, header, now_ms, until};
use runtime::kafka::{OutRecord, Record};
use schemas::avro::ReadReply;
use schemas::command::{AvroTime, TaskCommand};
use std::collections::BTreeMap;

const HOUR_MS: i64 = 3_600_000;

fn asking(record: OutRecord, correlation: &str) -> OutRecord {
    record.header("duestream-reply", "true").header("duestream-correlation", correlation)
}

/// `answer reason task` by correlation.
fn answers(replies: &[Record]) -> BTreeMap<String, Vec<String>> {
    let mut answers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for reply in replies {
        let of =
            |name: &str| header(reply, &format!("duestream-reply-{name}")).unwrap_or_else(|| "-".to_owned());
        answers.entry(of("correlation")).or_default().push(format!(
            "{} {} {}",
            of("answer"),
            of("reason"),
            of("task-id")
        ));
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_that_asks_is_told_what_became_of_it() {
    let pipeline = Pipeline::new().await;
    let due_at = now_ms() + HOUR_MS;
    let json = format!(
        r#"{{"task_id":"json","topic":"{}","due_at":{due_at},"reply":true,"correlation":"from json"}}"#,
        pipeline.callback
    );
    let avro = TaskCommand {
        task_id: Some("avro".into()),
        topic: Some(pipeline.callback.clone()),
        due_at: Some(AvroTime::Ms(due_at)),
        reply: Some(true),
        correlation: Some(b"\xff\x00".to_vec()),
        ..TaskCommand::default()
    };
    let nameless = OutRecord::to("")
        .header("duestream-topic", pipeline.callback.as_str())
        .header("duestream-due-at", due_at.to_string());
    pipeline
        .submit(vec![
            asking(pipeline.task("one", due_at), "first"),
            asking(pipeline.task("one", due_at), "again"),
            asking(pipeline.task("one", due_at + 1), "other"),
            asking(
                OutRecord::to("").header("duestream-topic", "x").header("duestream-task-id", "bad"),
                "wrong",
            ),
            pipeline.task("not asking", due_at),
            OutRecord::to("").value(json),
            OutRecord::to("").value(avro.encode()),
            asking(nameless, "nameless"),
            OutRecord::to("").value(
                TaskCommand { topic: Some("no-such-topic".into()), task_id: Some("lost".into()), ..avro }
                    .encode(),
            ),
        ])
        .await;
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), 9).await;

    let replies = pipeline.read(&pipeline.names.replies()).await;
    let mut told = answers(&replies);
    let nameless = pipeline.tasks().await.into_values().find(|task| task.id.offset() == 7).unwrap();
    assert_eq!(told.remove("nameless").unwrap(), [format!("accepted - {}", nameless.id)]);
    let avro: Vec<String> = told.remove("\u{fffd}\0").unwrap();
    assert_eq!(avro.len(), 2, "{avro:?}");
    assert!(
        avro.contains(&"accepted - avro".to_owned())
            && avro.contains(&"rejected unknown_topic lost".to_owned())
    );
    let expected = [
        ("again", "duplicate - one"),
        ("first", "accepted - one"),
        ("from json", "accepted - json"),
        ("other", "conflict conflict one"),
        ("wrong", "rejected due_missing bad"),
    ];
    let told: Vec<(&str, &str)> = told.iter().map(|(to, all)| (to.as_str(), all[0].as_str())).collect();
    assert_eq!(told, expected);
    assert_eq!(replies.len(), 8, "each once, nobody else");

    for reply in &replies {
        let offset: i64 = header(reply, "duestream-reply-offset").unwrap().parse().unwrap();
        assert_eq!(header(reply, "duestream-reply-topic").as_deref(), Some(pipeline.names.tasks().as_str()));
        let value = reply.value.as_deref().unwrap();
        let key = reply.key.as_deref().map(|key| String::from_utf8(key.to_vec()).unwrap());
        assert_eq!(key, header(reply, "duestream-reply-task-id"), "keyed by the task");
        if [6, 8].contains(&offset) {
            let read = ReadReply::decode(value).unwrap();
            assert_eq!((read.offset, read.correlation.as_deref()), (offset, Some(&b"\xff\x00"[..])));
            assert_eq!(read.due_at, (offset == 6).then_some(due_at));
        } else {
            let text = std::str::from_utf8(value).unwrap();
            assert!(
                text.starts_with(r#"{"answer":""#) && text.contains(&format!(r#""offset":{offset}"#)),
                "{text}"
            );
        }
    }
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0, "nothing is owed any more");
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_between_commit_and_acks_replies_are_sent_again_as_they_were_decided() {
    let pipeline = Pipeline::new().await;
    let first = pipeline.ingest("");
    first.ready().await;
    let replies = pipeline.names.replies();
    pipeline.delete_topic(&replies).await;
    let due_at = now_ms() + HOUR_MS;
    pipeline
        .submit(vec![
            asking(pipeline.task("one", due_at), "a"),
            asking(pipeline.task("one", due_at), "b"),
            asking(pipeline.task("one", due_at + 1), "c"),
            asking(OutRecord::to("").value("x").header("duestream-due-at", "tomorrow"), &"ä".repeat(127)),
            pipeline.task("silent", due_at),
        ])
        .await;
    pipeline.applied(&pipeline.names.tasks(), 5).await;
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change` WHERE reply = 1").await, 4, "four are owed");
    assert_eq!(pipeline.positions(&pipeline.names.tasks(), 0).await, (5, 0), "nothing is confirmed");
    first.kill();

    // What is refused now was accepted then, and is answered so.
    pipeline.create_topic(&replies, 2).await;
    let second = pipeline.ingest("[callback]\nallow = \"nothing\"\n[tasks]\ndedup_window = \"1ms\"\n");
    pipeline.confirmed(&pipeline.names.tasks(), 5).await;
    let told = answers(&pipeline.read(&replies).await);
    let long = "ä".repeat(127);
    let expected = [
        ("a", "accepted - one"),
        ("b", "duplicate - one"),
        ("c", "conflict conflict one"),
        (long.as_str(), "rejected invalid_time -"),
    ];
    for (to, answer) in expected {
        // At least once: the first owner may have got one through before the topic was gone for it.
        assert!(told[to].iter().all(|told| told == answer), "{to}: {:?}", told[to]);
    }
    assert_eq!(told.len(), 4);
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0);
    until("the rows are there", || async {
        let stored = pipeline.tasks().await.len();
        if stored == 2 { Ok(()) } else { Err(stored) }
    })
    .await;
    second.stop().await;
    pipeline.finish().await;
}
