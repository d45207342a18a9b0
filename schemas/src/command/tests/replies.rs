//! Who is answered, and how.

use super::*;
use crate::avro::ReadReply;
use crate::delivery::{AddedHeader, Origin};
use crate::reply::{Answer, Reply};

fn asked(record: &Record) -> Option<Asked> {
    match record.read(&Rules::new("duestream."), &KnownSchemas::shipped()) {
        Ok(command) => command.reply,
        Err(ParseError::Refused(refused)) => refused.asked,
        Err(ParseError::NeedsSchema(id)) => panic!("schema {id} is wanted"),
    }
}

fn everything(as_avro: bool) -> Asked {
    Asked {
        correlation: Some(b"c".to_vec()),
        task_id: Some("t".into()),
        shard_key: Some("s".into()),
        as_avro,
    }
}

fn headers_with_reply() -> Record {
    by_headers()
        .header("duestream-reply", "true")
        .header("duestream-correlation", "c")
        .header("duestream-task-id", "t")
        .header("duestream-shard-key", "s")
}

fn json_with_reply(members: &str) -> Record {
    by_json(&format!(r#", "reply": true, "correlation": "c", "task_id": "t", "shard_key": "s"{members}"#))
}

fn avro_with_reply() -> TaskCommand {
    let text = |text: &str| Some(text.to_owned());
    TaskCommand {
        reply: Some(true),
        correlation: Some(b"c".to_vec()),
        task_id: text("t"),
        shard_key: text("s"),
        ..task_command()
    }
}

#[test]
fn a_command_asks_for_a_reply_in_every_form() {
    for (record, as_avro) in
        [(headers_with_reply(), false), (json_with_reply(""), false), (by_avro(&avro_with_reply()), true)]
    {
        assert_eq!(record.parse().unwrap().reply, Some(everything(as_avro)));
    }
    for record in [
        by_headers(),
        by_headers().header("duestream-reply", "false").header("duestream-correlation", "c"),
        by_json(r#", "reply": false, "correlation": "c""#),
        by_json(r#", "reply": null"#),
        by_avro(&TaskCommand { reply: Some(false), correlation: Some(vec![]), ..task_command() }),
    ] {
        assert_eq!(record.parse().unwrap().reply, None);
    }
}

#[test]
fn a_reply_is_no_content() {
    let plain = by_headers().header("duestream-task-id", "t").header("duestream-shard-key", "s");
    assert_eq!(
        headers_with_reply().parse().unwrap().content_hash,
        plain.parse().unwrap().content_hash,
        "a resubmission that asks otherwise is a duplicate"
    );
}

#[test]
fn a_refused_command_is_answered_as_far_as_it_can_be_read() {
    for record in [
        // Wherever the fault stands, before or behind what the reply needs.
        headers_with_reply().header("duestream-dueat", "1"),
        Record {
            headers: [vec![(b"duestream-dueat".to_vec(), None)], headers_with_reply().headers].concat(),
            ..Record::default()
        },
        headers_with_reply().header("duestream-partition", "x"),
        headers_with_reply().header("duestream-delay", "1s"),
        json_with_reply(r#", "dueat": 1"#),
        json_with_reply(r#", "value": {}"#),
        Record::default().value(
            r#"{"dueat": 1, "topic": 1, "reply": true, "correlation": "c", "task_id": "t", "shard_key": "s"}"#,
        ),
        json_with_reply(r#", "reply": false"#),
    ] {
        assert!(record.parse().is_err());
        assert_eq!(asked(&record), Some(everything(false)));
    }
    let record = by_avro(&TaskCommand { partition: Some(-1), ..avro_with_reply() });
    assert_eq!(asked(&record), Some(everything(true)));
    let mut trailing = avro_with_reply().encode();
    trailing.push(0);
    let record = Record::default().value(trailing);
    assert_eq!(record.refusal().code, ReasonCode::InvalidAvro);
    assert_eq!(asked(&record), Some(everything(true)));
}

#[test]
fn what_cannot_be_read_is_left_out_of_the_reply() {
    let record = by_headers()
        .header("duestream-reply", "true")
        .header("duestream-correlation", "c".repeat(256))
        .header("duestream-task-id", [0xff])
        .header("duestream-shard-key", "");
    let nothing = Asked { correlation: None, task_id: None, shard_key: None, as_avro: false };
    assert_eq!(asked(&record), Some(nothing.clone()));
    assert_eq!(asked(&by_headers().header("duestream-reply", "true")), Some(nothing));
    for record in [
        by_headers().header("duestream-reply", "yes"),
        by_headers().header("duestream-reply", "True"),
        Record::default().value(r#"{"reply": true, "#),
        Record::default().value([0xc3, 0x01]),
        Record::default(),
    ] {
        assert!(record.parse().is_err());
        assert_eq!(asked(&record), None);
    }
}

fn origin() -> Origin<'static> {
    Origin { topic: "duestream.tasks", partition: 3, offset: 1 << 41, timestamp_at: 0 }
}

fn texts(headers: &[AddedHeader]) -> Vec<String> {
    let text = |header: &AddedHeader| {
        format!("{}={}", header.name, String::from_utf8_lossy(header.value.as_deref().unwrap()))
    };
    headers.iter().map(text).collect()
}

#[test]
fn an_accepted_command_is_answered_with_its_due_time() {
    let reply = Reply {
        answer: Answer::Accepted,
        task_id: Some("t"),
        shard_key: Some("s"),
        due_at: Some(NOW_AT),
        refusal: None,
        correlation: Some(b"c"),
        origin: origin(),
    };
    assert_eq!(reply.key(), Some(&b"t"[..]));
    assert_eq!(
        texts(&reply.headers()),
        [
            "duestream-reply-answer=accepted",
            "duestream-reply-correlation=c",
            "duestream-reply-task-id=t",
            "duestream-reply-shard-key=s",
            "duestream-reply-due-at=1769850000000",
            "duestream-reply-topic=duestream.tasks",
            "duestream-reply-partition=3",
            "duestream-reply-offset=2199023255552",
        ]
    );
    assert_eq!(
        String::from_utf8(reply.value(false)).unwrap(),
        r#"{"answer":"accepted","correlation":"c","task_id":"t","shard_key":"s","due_at":1769850000000,"topic":"duestream.tasks","partition":3,"offset":2199023255552}"#
    );
    let read = ReadReply::decode(&reply.value(true)).unwrap();
    assert_eq!((read.answer.as_str(), read.due_at), ("accepted", Some(NOW_AT)));
}

#[test]
fn a_refused_command_is_answered_with_the_reason() {
    let refusal = Refusal::of_value(ReasonCode::InvalidPartition, "partition", b"x", "is none");
    let asked =
        Asked { correlation: Some(vec![0xff]), task_id: Some("t".into()), shard_key: None, as_avro: false };
    let reply = Reply::to_refused(&asked, &refusal, origin());
    assert_eq!((reply.answer, reply.shard_key), (Answer::Rejected, Some("t")));
    let headers = texts(&reply.headers());
    assert!(headers.contains(&"duestream-reply-reason=invalid_partition".into()), "{headers:?}");
    assert!(headers.contains(&"duestream-reply-field=partition".into()), "{headers:?}");
    let json: serde_json::Value = serde_json::from_slice(&reply.value(false)).unwrap();
    assert_eq!(
        (&json["correlation"], &json["correlation_base64"]),
        (&serde_json::Value::Null, &"/w==".into())
    );
    assert_eq!(json["message"], refusal.message.as_str());
    let read = ReadReply::decode(&reply.value(true)).unwrap();
    assert_eq!((read.correlation, read.reason), (Some(vec![0xff]), Some("invalid_partition".into())));

    let conflict = Refusal::of_record(ReasonCode::Conflict, "was submitted otherwise");
    assert_eq!(Reply::to_refused(&asked, &conflict, origin()).answer, Answer::Conflict);
    let nobody = Asked { task_id: None, ..asked };
    assert_eq!(Reply::to_refused(&nobody, &conflict, origin()).key(), None);
}

#[test]
fn a_reply_that_is_submitted_is_no_command() {
    let refusal = Refusal::of_record(ReasonCode::NotACommand, "is none");
    let nobody = Asked { correlation: None, task_id: None, shard_key: None, as_avro: true };
    let reply = Reply::to_refused(&nobody, &refusal, origin());
    let mut record = Record::default().value(reply.value(true));
    assert_eq!(record.refusal().code, ReasonCode::UnknownSchema);
    record.headers = reply.headers().into_iter().map(|h| (h.name.into(), h.value)).collect();
    assert_eq!(record.refusal().code, ReasonCode::UnknownField);
}
