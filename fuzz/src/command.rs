//! Commands of producers: whatever the bytes, a sound command or a refusal with a reason; and a command that was taken
//! from one form is the same in the others.

use crate::memory::bounded;
use crate::record::{NOW_AT, Record};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemas::command::{Command, HEADER_PREFIX, MAX_ID_BYTES, ReasonCode, Refusal, Rules, body_bytes};
use schemas::delivery::{delivered_headers, rejected_headers};
use schemas::due::{Deliver, DueKind, DueRecord};
use schemas::ids::{Generation, RowId, Shard};
use schemas::row::{RowBody, RowOptions};
use serde_json::json;

/// First instant that is accepted, and first that is not (docs/CONTRACT.md, "Times").
pub(crate) const INSTANTS: std::ops::Range<i64> = 978_307_200_000..7_289_654_400_000;

/// Longest sentence of a refusal, in bytes: its field and value are shortened, the rest is ours.
const LONGEST_MESSAGE: usize = 1_500;

/// A whole record: key, value, headers and timestamp (see `record`), in whichever form its headers and value say.
pub fn headers(data: &[u8]) {
    bounded(data.len(), || judge(&Record::read(data)));
}

/// The value of a record without headers: JSON where it begins with `{`.
pub fn json(data: &[u8]) {
    bounded(data.len(), || judge(&Record { value: Some(data.to_vec()), ..Record::new() }));
}

pub(crate) fn parse(record: &Record) -> Result<Command, Refusal> {
    record.with_view(|view| Command::parse(view, &Rules::new("duestream.")))
}

fn judge(record: &Record) {
    match parse(record) {
        Ok(command) => {
            sound(&command);
            survives_storage(&command);
            same_in_every_form(&command);
        }
        Err(refusal) => explained(&refusal),
    }
}

fn sound(command: &Command) {
    let rules = Rules::new("duestream.");
    assert!(INSTANTS.contains(&command.due_at), "due at {}", command.due_at);
    assert!(command.options.expires_at.is_none_or(|at| at >= command.due_at && INSTANTS.contains(&at)));
    assert!(command.options.partition.is_none_or(|partition| partition >= 0));
    assert!(rules.check_topic("topic", &command.callback_topic).is_ok(), "{:?}", command.callback_topic);
    assert!(body_bytes(&command.body) <= rules.max_body_bytes);
    for id in [&command.task_id, &command.shard_key].into_iter().flatten() {
        assert!((1..=MAX_ID_BYTES).contains(&id.len()), "{id:?}");
    }
    for header in &command.body.headers {
        let name = header.name.to_ascii_lowercase();
        assert!(!name.is_empty() && !name.starts_with(HEADER_PREFIX) && !name.contains('\0'), "{name:?}");
    }
}

fn survives_storage(command: &Command) {
    let row = RowId(u64::MAX);
    assert_eq!(RowBody::decode(&command.body.encode()).ok().as_ref(), Some(&command.body));
    assert_eq!(RowOptions::decode(&command.options.encode()).ok().as_ref(), Some(&command.options));
    let deliver = Deliver {
        attempt: 1,
        task_id: command.task_id(row).into_owned(),
        shard_key: command.shard_key.clone(),
        partition: command.options.partition,
        key: command.body.key.clone(),
        headers: command.body.headers.clone(),
        value: command.body.value.clone(),
        expires_at: command.options.expires_at,
        asked_at: command.options.asked_at,
        completion: command.options.completion,
        progress: None,
        history: Vec::new(),
        bury: None,
    };
    let due = DueRecord {
        id: row,
        generation: Generation(1),
        shard: Shard(u16::MAX),
        due_at: command.due_at,
        fence: i64::MAX,
        callback_topic: command.callback_topic.clone(),
        kind: DueKind::Deliver(Box::new(deliver.clone())),
    };
    let bytes = due.encode();
    assert!(bytes.len() <= 1 << 20, "a due record of {} bytes", bytes.len());
    assert_eq!(DueRecord::decode(&bytes).ok().as_ref(), Some(&due));
    let added = delivered_headers(&due, &deliver, command.due_at);
    assert!(added.iter().all(|header| header.name.starts_with(HEADER_PREFIX)));
}

/// The command as the producer could have written it in each form, with its due time as an instant.
fn same_in_every_form(command: &Command) {
    let forms = [as_headers(command), as_json(command)];
    let [by_headers, by_json] = forms.map(|record| match parse(&record) {
        Ok(command) => command,
        Err(refusal) => panic!("taken once, refused in another form: {refusal}\n{record:?}"),
    });
    // The hash tells a delay from an instant, so it may differ from the original's, never between the forms.
    assert_eq!(by_headers, by_json);
    assert_eq!(Command { content_hash: command.content_hash, ..by_headers }, *command);
}

fn as_headers(command: &Command) -> Record {
    let mut record = Record::new()
        .header("duestream-due-at", command.due_at.to_string())
        .header("duestream-topic", &command.callback_topic)
        .header_opt("duestream-task-id", command.task_id.as_ref())
        .header_opt("duestream-shard-key", command.shard_key.as_ref())
        .header_opt("duestream-partition", command.options.partition.map(|number| number.to_string()))
        .header_opt("duestream-expires-at", command.options.expires_at.map(|at| at.to_string()));
    // The record's own key is another: the header decides.
    record.key = Some(b"another".to_vec());
    record.headers.push((b"duestream-key".to_vec(), command.body.key.clone()));
    record.value.clone_from(&command.body.value);
    let travelling = command.body.headers.iter();
    record.headers.extend(travelling.map(|header| (header.name.clone().into_bytes(), header.value.clone())));
    record
}

fn as_json(command: &Command) -> Record {
    let mut fields = json!({
        "due_at": command.due_at,
        "topic": command.callback_topic,
        "task_id": command.task_id,
        "shard_key": command.shard_key,
        "partition": command.options.partition,
        "expires_at": command.options.expires_at,
    });
    if let Some(value) = &command.body.value {
        fields["value_base64"] = BASE64.encode(value).into();
    }
    let travelling = command.body.headers.iter();
    Record {
        timestamp_at: NOW_AT,
        key: command.body.key.clone(),
        value: Some(fields.to_string().into_bytes()),
        headers: travelling.map(|header| (header.name.clone().into_bytes(), header.value.clone())).collect(),
    }
}

fn explained(refusal: &Refusal) {
    let message = &refusal.message;
    assert!(ReasonCode::ALL.contains(&refusal.code));
    assert!(message.ends_with(refusal.code.remedy()), "no remedy: {message}");
    assert!(message.len() <= LONGEST_MESSAGE, "a sentence of {} bytes", message.len());
    assert!(!message.contains(char::is_control), "control characters: {message:?}");
    assert!(refusal.field.as_ref().is_none_or(|field| (1..=LONGEST_MESSAGE).contains(&field.len())));
    let origin = schemas::delivery::Origin { topic: "t", partition: 0, offset: 0, timestamp_at: NOW_AT };
    assert!(rejected_headers(refusal, &origin).iter().all(|header| header.name.starts_with(HEADER_PREFIX)));
}
