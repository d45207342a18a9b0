//! A command written again in each form that can hold it.

use crate::record::{NOW_AT, Record};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemas::command::{AvroTime, Command, TaskCommand};
use serde_json::json;

/// The command in every form, its due time as an instant. JSON is left out where its correlation is no text.
pub(crate) fn of(command: &Command) -> Vec<Record> {
    let mut records = vec![by_headers(command), by_avro(command)];
    records.extend(by_json(command));
    records
}

fn by_headers(command: &Command) -> Record {
    let mut record = Record::new()
        .header("duestream-due-at", command.due_at.to_string())
        .header("duestream-topic", &command.callback_topic)
        .header_opt("duestream-task-id", command.task_id.as_ref())
        .header_opt("duestream-shard-key", command.shard_key.as_ref())
        .header_opt("duestream-partition", command.options.partition.map(|number| number.to_string()))
        .header_opt("duestream-expires-at", command.options.expires_at.map(|at| at.to_string()))
        .header_opt("duestream-reply", command.reply.as_ref().map(|_| "true"))
        .header_opt("duestream-correlation", correlation(command));
    // The record's own key is another: the header decides.
    record.key = Some(b"another".to_vec());
    record.headers.push((b"duestream-key".to_vec(), command.body.key.clone()));
    record.value.clone_from(&command.body.value);
    record.headers.extend(travelling(command));
    record
}

fn by_json(command: &Command) -> Option<Record> {
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

fn by_avro(command: &Command) -> Record {
    let record = TaskCommand {
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

fn correlation(command: &Command) -> Option<&[u8]> {
    command.reply.as_ref()?.correlation.as_deref()
}

fn travelling(command: &Command) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
    command.body.headers.iter().map(|header| (header.name.clone().into_bytes(), header.value.clone()))
}
