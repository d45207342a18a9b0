//! Cancel, reschedule and replay, in every form that can say them.

use super::*;
use crate::delivery::{AddedHeader, DeadReason, dead_headers};
use crate::due::{Completion, Deliver, DueKind, DueRecord, PastAttempt, RetryOptions};
use crate::ids::{Generation, Shard};
use crate::record::Header;
use crate::row::RowHistory;

fn cancel() -> Record {
    Record::default().key("k").header("duestream-op", "cancel").header("duestream-task-id", "t")
}

fn reschedule() -> Record {
    cancel_as("reschedule").header("duestream-delay", "90s")
}

fn cancel_as(op: &str) -> Record {
    Record::default().key("k").header("duestream-op", op).header("duestream-task-id", "t")
}

fn change(record: &Record) -> Change {
    match record.command().unwrap() {
        Command::Change(change) => *change,
        other => panic!("{other:?} changes nothing"),
    }
}

#[track_caller]
fn refused(record: &Record, code: ReasonCode, field: &str) {
    let refusal = record.refusal();
    assert_eq!((refusal.code, refusal.field.as_deref()), (code, Some(field)), "{refusal}");
}

#[test]
fn a_task_is_cancelled_and_moved_in_every_form() {
    let text = |text: &str| Some(text.to_owned());
    let expected = |op, as_avro| Change {
        task_id: "t".into(),
        shard_key: Some("s".into()),
        op,
        reply: Some(Asked {
            correlation: Some(b"c".to_vec()),
            task_id: Some("t".into()),
            shard_key: Some("s".into()),
            as_avro,
        }),
    };
    let moved = ChangeOp::Reschedule { due_at: NOW_AT + 90_000, expires_at: Some(NOW_AT + 100_000) };
    for (name, op, times) in [("cancel", ChangeOp::Cancel, false), ("reschedule", moved, true)] {
        let mut headers = cancel_as(name)
            .header("duestream-shard-key", "s")
            .header("duestream-reply", "true")
            .header("duestream-correlation", "c");
        let mut json = r#"{"task_id": "t", "shard_key": "s", "reply": true, "correlation": "c""#.to_owned();
        let mut avro = TaskCommand {
            op: text(name),
            task_id: text("t"),
            shard_key: text("s"),
            reply: Some(true),
            correlation: Some(b"c".to_vec()),
            ..TaskCommand::default()
        };
        if times {
            let expires_at = NOW_AT + 100_000;
            headers = headers
                .header("duestream-delay", "90s")
                .header("duestream-expires-at", expires_at.to_string());
            json += &format!(r#", "due_at": {}, "expires_at": {expires_at}"#, NOW_AT + 90_000);
            avro.due_at = Some(AvroTime::Ms(NOW_AT + 90_000));
            avro.expires_at = Some(AvroTime::Ms(expires_at));
        }
        let json = Record::default().key("k").value(format!(r#"{json}, "op": "{name}"}}"#));
        assert_eq!(change(&headers), expected(op, false));
        assert_eq!(change(&json), expected(op, false));
        assert_eq!(change(&by_avro(&avro).key("k")), expected(op, true));
    }
    assert_eq!(change(&cancel()).identities(), [identity("t", "t")]);
    assert_eq!(change(&cancel().header("duestream-shard-key", "s")).identities(), [identity("s", "t")]);
}

#[test]
fn a_change_names_its_task_and_a_reschedule_its_time() {
    let nameless = Record::default().header("duestream-op", "cancel");
    refused(&nameless, ReasonCode::TaskIdMissing, "duestream-task-id");
    refused(&Record::default().value(r#"{"op": "cancel"}"#), ReasonCode::TaskIdMissing, "task_id");
    let avro = TaskCommand { op: Some("cancel".into()), ..TaskCommand::default() };
    refused(&by_avro(&avro), ReasonCode::TaskIdMissing, "task_id");
    refused(&cancel().header("duestream-shard-key", ""), ReasonCode::InvalidId, "duestream-shard-key");
    refused(&cancel_as("reschedule"), ReasonCode::DueMissing, "duestream-due-at");
    let both = reschedule().header("duestream-due-at", NOW_AT.to_string());
    refused(&both, ReasonCode::DueAmbiguous, "duestream-due-at");
    let early = reschedule().header("duestream-expires-at", (NOW_AT + 89_999).to_string());
    refused(&early, ReasonCode::ExpiresBeforeDue, "duestream-expires-at");
    let past = cancel_as("reschedule").header("duestream-due-at", "2001-01-01T00:00:00Z");
    assert!(matches!(change(&past).op, ChangeOp::Reschedule { due_at: 978_307_200_000, expires_at: None }));
    refused(
        &cancel().header("duestream-correlation", "c"),
        ReasonCode::ReplyMissing,
        "duestream-correlation",
    );
}

#[test]
fn what_a_change_would_ignore_is_refused_in_every_form() {
    for op in ["cancel", "reschedule"] {
        let due = |record: Record| {
            if op == "reschedule" { record.header("duestream-delay", "90s") } else { record }
        };
        let base = || due(cancel_as(op));
        for (name, text) in [
            ("topic", "callbacks"),
            ("partition", "0"),
            ("completion", "on_ack"),
            ("max-attempts", "3"),
            ("backoff", "standard"),
            ("ack-timeout", "1m"),
            ("max-stalls", "1"),
            ("spread", "10x10s"),
            ("window", "1m"),
            ("key", "k"),
            ("no-key", "true"),
        ] {
            let header = format!("duestream-{name}");
            refused(&base().header(&header, text), ReasonCode::OutOfPlace, &header);
            let json = |key: &str, text: &str| {
                let delay = if op == "reschedule" { r#", "delay": "90s""# } else { "" };
                let json = format!(r#"{{"op": "{op}", "task_id": "t"{delay}, "{key}": "{text}"}}"#);
                Record::default().value(json)
            };
            let key = name.replace('-', "_");
            refused(&json(&key, text), ReasonCode::OutOfPlace, &key);
            refused(&json("value", "v"), ReasonCode::OutOfPlace, "value");
            refused(&json("value_base64", "AP8="), ReasonCode::OutOfPlace, "value");
            refused(&json("key_base64", "AP8="), ReasonCode::OutOfPlace, "key");
        }
        refused(&base().value("v"), ReasonCode::OutOfPlace, "value");
        let delay = (op == "reschedule").then(|| "90s".to_owned());
        let avro =
            TaskCommand { op: Some(op.into()), task_id: Some("t".into()), delay, ..TaskCommand::default() };
        assert!(by_avro(&avro).command().is_ok());
        let header = Header { name: "h".into(), value: None };
        for (command, field) in [
            (TaskCommand { topic: Some("callbacks".into()), ..avro.clone() }, "topic"),
            (TaskCommand { key: Some(vec![]), ..avro.clone() }, "key"),
            (TaskCommand { headers: vec![header], ..avro.clone() }, "headers"),
            (TaskCommand { value: Some(vec![1]), ..avro.clone() }, "value"),
        ] {
            refused(&by_avro(&command), ReasonCode::OutOfPlace, field);
        }
        // Not content: the key that keeps commands in order, what a tracer puts on a record, an empty value.
        assert_eq!(change(&base().key("other").value("").header("traceparent", "00-1")), change(&base()));
    }
    refused(&cancel().header("duestream-delay", "90s"), ReasonCode::OutOfPlace, "duestream-delay");
    let expiry = cancel().header("duestream-expires-at", "2027-01-01T00:00:00Z");
    refused(&expiry, ReasonCode::OutOfPlace, "duestream-expires-at");
    refused(&cancel().header("duestream-attempt", "1"), ReasonCode::UnknownField, "duestream-attempt");
}

/// A dead letter as the dispatcher writes it, with the word that makes it a replay.
fn letter() -> Record {
    let attempts = vec![PastAttempt {
        attempt: 1,
        at: 5,
        outcome: "failed".into(),
        reason: Some("disk".into()),
        ..PastAttempt::default()
    }];
    let deliver = Deliver {
        attempt: 2,
        task_id: "t".into(),
        shard_key: Some("s".into()),
        partition: Some(3),
        key: None,
        headers: vec![],
        value: None,
        expires_at: Some(NOW_AT - 1),
        asked_at: Some(NOW_AT - 9),
        completion: Completion::OnDelivery,
        progress: Some(b"page 3".to_vec()),
        history: attempts,
        bury: None,
        retry: RetryOptions::default(),
    };
    let due = DueRecord {
        id: RowId(77),
        generation: Generation(4),
        shard: Shard(3),
        due_at: NOW_AT - 5,
        fence: 0,
        callback_topic: "callbacks".into(),
        kind: DueKind::Withdraw,
    };
    let added = dead_headers(&due, &deliver, DeadReason::Failed.as_str(), "it failed", NOW_AT - 2);
    let mut record = Record::default().key("t").value("v").header("own", "1");
    for AddedHeader { name, value } in added {
        record.headers.push((name.as_bytes().to_vec(), value));
    }
    record.header("duestream-op", "replay")
}

fn without(mut record: Record, name: &str) -> Record {
    record.headers.retain(|(of, _)| of != name.as_bytes());
    record
}

#[test]
fn a_dead_letter_with_one_more_header_is_its_replay() {
    let record = letter().header("duestream-reply", "true");
    let Command::Replay(replay) = record.command().unwrap() else { panic!("no replay") };
    assert_eq!((replay.task_id.as_str(), replay.shard_key()), ("t", "s"));
    assert_eq!((replay.delivery_id.id, replay.delivery_id.generation), (RowId(77), Generation(4)));
    assert_eq!(replay.callback_topic, "callbacks");
    let own = Header { name: "own".into(), value: Some(b"1".to_vec()) };
    assert_eq!(replay.body, RowBody { key: None, headers: vec![own], value: Some(b"v".to_vec()) });
    // The times of the old due time are left out.
    let options =
        RowOptions { partition: Some(3), progress: Some(b"page 3".to_vec()), ..RowOptions::default() };
    assert_eq!(replay.options, options);
    assert_eq!(replay.history.attempts.len(), 1);
    assert_eq!(replay.reply.unwrap().task_id.as_deref(), Some("t"));
    let with_key = without(letter(), "duestream-key").header("duestream-key", "k");
    let Command::Replay(replay) = with_key.command().unwrap() else { panic!("no replay") };
    assert_eq!(replay.body.key, Some(b"k".to_vec()));
    let on_ack = letter()
        .header("duestream-completion", "on_ack")
        .header("duestream-max-attempts", "7")
        .header("duestream-backoff", "fixed:3s")
        .header("duestream-ack-timeout", "10m")
        .header("duestream-max-stalls", "0");
    let Command::Replay(replay) = on_ack.command().unwrap() else { panic!("no replay") };
    let RowOptions { completion, max_attempts, backoff, ack_timeout_ms, max_stalls, .. } = replay.options;
    assert_eq!((completion, max_attempts, max_stalls), (Completion::OnAck, Some(7), Some(0)));
    assert_eq!((backoff, ack_timeout_ms), ("fixed:3s".parse().ok(), Some(600_000)));
}

#[test]
fn a_replay_that_is_no_whole_dead_letter_is_refused() {
    let code = ReasonCode::InvalidReplay;
    for name in ["duestream-delivery-id", "duestream-key"] {
        refused(&without(letter(), name), code, name);
    }
    refused(&without(letter(), "duestream-task-id"), ReasonCode::TaskIdMissing, "duestream-task-id");
    refused(&without(letter(), "duestream-topic"), ReasonCode::TopicMissing, "duestream-topic");
    for (name, bytes) in [
        ("duestream-delivery-id", b"7".to_vec()),
        ("duestream-history", b"garbage".to_vec()),
        ("duestream-history", vec![0; 5_000]),
        ("duestream-progress", vec![0; 1_025]),
    ] {
        refused(&without(letter(), name).header(name, bytes), code, name);
    }
    let twice = letter().header("duestream-attempt", "1");
    refused(&twice, ReasonCode::RepeatedField, "duestream-attempt");
    refused(&letter().header("duestream-spread", "10x10s"), ReasonCode::OutOfPlace, "duestream-spread");
    refused(&letter().header("duestream-max-attempts", "3"), ReasonCode::NotOnAck, "duestream-max-attempts");
    refused(&Record::default().value(r#"{"op": "replay", "task_id": "t"}"#), code, "op");
    // A dead letter that is put on `tasks` as it is is no command: it would go round in circles.
    let plain = without(letter(), "duestream-op");
    refused(&plain, ReasonCode::UnknownField, "duestream-delivery-id");
    assert!(RowHistory::decode(&RowHistory::default().encode()).is_ok());
}
