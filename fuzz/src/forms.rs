//! A command written again in each form that can hold it.

use crate::record::{NOW_AT, Record};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemas::command::{Asked, AvroTime, Change, ChangeOp, Schedule, TaskCommand};
use schemas::due::Completion;
use schemas::options::{show_completion, show_duration};
use serde_json::json;

/// The command in every form, its due time as an instant. JSON is left out where its correlation is no text.
pub(crate) fn of(command: &Schedule) -> Vec<Record> {
    let mut records = vec![by_headers(command), by_avro(command)];
    records.extend(by_json(command));
    records
}

/// A change in every form that can hold it.
pub(crate) fn of_change(change: &Change) -> Vec<Record> {
    let asked = change.reply.as_ref();
    let correlation = asked.and_then(|asked: &Asked| asked.correlation.as_deref());
    let (op, due_at, expires_at) = match change.op {
        ChangeOp::Cancel => ("cancel", None, None),
        ChangeOp::Reschedule { due_at, expires_at } => ("reschedule", Some(due_at), expires_at),
    };
    let headers = Record::new()
        .header("duestream-op", op)
        .header("duestream-task-id", &change.task_id)
        .header_opt("duestream-shard-key", change.shard_key.as_ref())
        .header_opt("duestream-due-at", due_at.map(|at| at.to_string()))
        .header_opt("duestream-expires-at", expires_at.map(|at| at.to_string()))
        .header_opt("duestream-reply", asked.map(|_| "true"))
        .header_opt("duestream-correlation", correlation);
    let avro = TaskCommand {
        op: Some(op.to_owned()),
        task_id: Some(change.task_id.clone()),
        shard_key: change.shard_key.clone(),
        due_at: due_at.map(AvroTime::Ms),
        expires_at: expires_at.map(AvroTime::Ms),
        reply: asked.map(|_| true),
        correlation: correlation.map(<[u8]>::to_vec),
        ..TaskCommand::default()
    };
    let mut records = vec![headers, Record::of_value(avro.encode())];
    if let Ok(correlation) = correlation.map(std::str::from_utf8).transpose() {
        let fields = json!({
            "op": op,
            "task_id": change.task_id,
            "shard_key": change.shard_key,
            "due_at": due_at,
            "expires_at": expires_at,
            "reply": asked.map(|_| true),
            "correlation": correlation,
        });
        records.push(Record::of_value(fields.to_string().into_bytes()));
    }
    records
}

/// Options as a producer writes them, by the names of their JSON keys.
fn options(command: &Schedule) -> impl Iterator<Item = (&'static str, String)> {
    let options = &command.options;
    let on_ack = options.completion == Completion::OnAck;
    [
        ("completion", on_ack.then(|| show_completion(Completion::OnAck).to_owned())),
        ("max_attempts", options.max_attempts.map(|n| n.to_string())),
        ("backoff", options.backoff.map(|backoff| backoff.to_string())),
        ("ack_timeout", options.ack_timeout_ms.map(show_duration)),
        ("max_stalls", options.max_stalls.map(|n| n.to_string())),
        ("spread", command.spread.map(|spread| spread.to_string())),
        ("window", command.window.map(|window| window.to_string())),
    ]
    .into_iter()
    .filter_map(|(name, text)| Some((name, text?)))
}

fn by_headers(command: &Schedule) -> Record {
    let mut record = Record::new()
        .header("duestream-due-at", command.due_at.to_string())
        .header("duestream-topic", &command.callback_topic)
        .header_opt("duestream-task-id", command.task_id.as_ref())
        .header_opt("duestream-shard-key", command.shard_key.as_ref())
        .header_opt("duestream-partition", command.options.partition.map(|number| number.to_string()))
        .header_opt("duestream-expires-at", command.options.expires_at.map(|at| at.to_string()))
        .header_opt("duestream-reply", command.reply.as_ref().map(|_| "true"))
        .header_opt("duestream-correlation", correlation(command));
    for (name, text) in options(command) {
        record = record.header(&format!("duestream-{}", name.replace('_', "-")), text);
    }
    // The record's own key is another: the header decides.
    record.key = Some(b"another".to_vec());
    record.headers.push((b"duestream-key".to_vec(), command.body.key.clone()));
    record.value.clone_from(&command.body.value);
    record.headers.extend(travelling(command));
    record
}

fn by_json(command: &Schedule) -> Option<Record> {
    let correlation = correlation(command).map(|bytes| std::str::from_utf8(bytes)).transpose().ok()?;
    let mut fields = json!({
        "due_at": command.due_at,
        "topic": command.callback_topic,
        "task_id": command.task_id,
        "shard_key": command.shard_key,
        "partition": command.options.partition,
        "expires_at": command.options.expires_at,
        "reply": command.reply.as_ref().map(|_| true),
        "correlation": correlation,
    });
    for (name, text) in options(command) {
        fields[name] = text.into();
    }
    if let Some(value) = &command.body.value {
        fields["value_base64"] = BASE64.encode(value).into();
    }
    Some(Record {
        timestamp_at: NOW_AT,
        key: command.body.key.clone(),
        value: Some(fields.to_string().into_bytes()),
        headers: travelling(command).collect(),
    })
}

fn by_avro(command: &Schedule) -> Record {
    let text = |wanted: &str| options(command).find(|(name, _)| *name == wanted).map(|(_, text)| text);
    let record = TaskCommand {
        completion: text("completion"),
        max_attempts: command.options.max_attempts.map(i32::from),
        backoff: text("backoff"),
        ack_timeout: text("ack_timeout"),
        max_stalls: command.options.max_stalls.map(i32::from),
        spread: text("spread"),
        window: text("window"),
        due_at: Some(AvroTime::Ms(command.due_at)),
        topic: Some(command.callback_topic.clone()),
        task_id: command.task_id.clone(),
        shard_key: command.shard_key.clone(),
        key: command.body.key.clone(),
        no_key: command.body.key.is_none().then_some(true),
        value: command.body.value.clone(),
        headers: command.body.headers.clone(),
        partition: command.options.partition,
        expires_at: command.options.expires_at.map(AvroTime::Ms),
        reply: command.reply.as_ref().map(|_| true),
        correlation: correlation(command).map(<[u8]>::to_vec),
        ..TaskCommand::default()
    };
    Record { key: Some(b"another".to_vec()), ..Record::of_value(record.encode()) }
}

fn correlation(command: &Schedule) -> Option<&[u8]> {
    command.reply.as_ref()?.correlation.as_deref()
}

fn travelling(command: &Schedule) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
    command.body.headers.iter().map(|header| (header.name.clone().into_bytes(), header.value.clone()))
}
