//! Commands of producers: whatever the bytes, a sound command or a refusal with a reason; and a command that was taken
//! from one form is the same in the others.

use crate::forms;
use crate::memory::bounded;
use crate::record::{NOW_AT, Record};
use schemas::avro::ReadReply;
use schemas::command::{
    Asked, Command, HEADER_PREFIX, KnownSchemas, Lookup, MAX_CORRELATION_BYTES, MAX_ID_BYTES, ParseError,
    ReasonCode, Refusal, Refused, Rules, TaskCommand, WriterSchema, WriterSchemas, body_bytes,
};
use schemas::delivery::{Origin, delivered_headers, rejected_headers};
use schemas::due::{Deliver, DueKind, DueRecord};
use schemas::ids::{Generation, RowId, Shard};
use schemas::reply::{Answer, Reply};
use schemas::row::{RowBody, RowOptions};
use std::sync::{Arc, LazyLock};

/// First instant that is accepted, and first that is not (docs/CONTRACT.md, "Times").
pub(crate) const INSTANTS: std::ops::Range<i64> = 978_307_200_000..7_289_654_400_000;

/// Longest sentence of a refusal, in bytes: its field and value are shortened, the rest is ours.
const LONGEST_MESSAGE: usize = 1_500;

static SHIPPED: LazyLock<KnownSchemas> = LazyLock::new(KnownSchemas::shipped);

/// Where a record stood, for what is written about it.
const ORIGIN: Origin<'static> =
    Origin { topic: "duestream.tasks", partition: 0, offset: 0, timestamp_at: NOW_AT };

/// A whole record: key, value, headers and timestamp (see `record`), in whichever form its headers and value say.
pub fn headers(data: &[u8]) {
    bounded(data.len(), || judge(&Record::read(data), &*SHIPPED));
}

/// The value of a record without headers: JSON where it begins with `{`.
pub fn json(data: &[u8]) {
    bounded(data.len(), || judge(&Record::of_value(data.to_vec()), &*SHIPPED));
}

/// The datum of a `TaskCommand`, behind the fingerprint that the fuzzer need not find. A first byte other than `T` makes
/// the rest a whole value, whose fingerprint or schema id may be any.
pub fn avro(data: &[u8]) {
    let value = match data.split_first() {
        Some((b'T', datum)) => [&TaskCommand::default().encode()[..10], datum].concat(),
        Some((_, value)) => value.to_vec(),
        None => return,
    };
    bounded(data.len(), || judge(&Record::of_value(value), &*SHIPPED));
}

/// A schema as a registry might answer it, `1E`, and a datum that is read with it.
pub fn writer_schema(data: &[u8]) {
    let (text, datum) = match data.iter().position(|byte| *byte == 0x1e) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    bounded(data.len(), || {
        let found = match WriterSchema::parse(text) {
            Ok(schema) => Lookup::Known(Arc::new(schema)),
            Err(fault) => {
                assert!((1..=LONGEST_MESSAGE).contains(&fault.to_string().len()), "{fault}");
                Lookup::Unusable(fault)
            }
        };
        judge(&Record::of_value([&[0, 0, 0, 0, 7], datum].concat()), &Registry(found));
    });
}

/// A registry that knows one schema.
struct Registry(Lookup);

impl WriterSchemas for Registry {
    fn by_fingerprint(&self, fingerprint: u64) -> Option<Arc<WriterSchema>> {
        SHIPPED.by_fingerprint(fingerprint)
    }

    fn by_id(&self, _: u32) -> Lookup {
        self.0.clone()
    }
}

fn read(record: &Record, schemas: &dyn WriterSchemas) -> Result<Command, Box<Refused>> {
    match record.with_view(|view| Command::parse(view, &Rules::new("duestream."), schemas)) {
        Ok(command) => Ok(command),
        Err(ParseError::Refused(refused)) => Err(refused),
        Err(ParseError::NeedsSchema(id)) => {
            panic!("schema {id} is asked for, and every lookup here is final")
        }
    }
}

pub(crate) fn parse(record: &Record) -> Result<Command, Refusal> {
    read(record, &*SHIPPED).map_err(|refused| refused.refusal)
}

fn judge(record: &Record, schemas: &dyn WriterSchemas) {
    match read(record, schemas) {
        Ok(command) => {
            sound(&command);
            survives_storage(&command);
            same_in_every_form(&command);
        }
        Err(refused) => {
            let Refused { refusal, asked } = *refused;
            explained(&refusal);
            if let Some(asked) = asked {
                answerable(&asked, &Reply::to_refused(&asked, &refusal, ORIGIN));
            }
        }
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
    if let Some(asked) = &command.reply {
        assert_eq!((&asked.task_id, &asked.shard_key), (&command.task_id, &command.shard_key));
        let (task_id, shard_key) = (command.task_id(RowId(1)), command.shard_key(RowId(1)));
        let reply = Reply {
            answer: Answer::Accepted,
            task_id: Some(&task_id),
            shard_key: Some(&shard_key),
            due_at: Some(command.due_at),
            refusal: None,
            correlation: asked.correlation.as_deref(),
            origin: ORIGIN,
        };
        answerable(asked, &reply);
    }
}

/// What is written on `replies` says the same in its headers, as JSON and as Avro.
fn answerable(asked: &Asked, reply: &Reply<'_>) {
    assert!(asked.correlation.as_ref().is_none_or(|bytes| bytes.len() <= MAX_CORRELATION_BYTES));
    let correlation = reply.headers().into_iter().find(|header| header.name == schemas::reply::CORRELATION);
    assert_eq!(correlation.and_then(|header| header.value), asked.correlation);
    serde_json::from_slice::<serde_json::Value>(&reply.value(false)).expect("a reply is JSON");
    let read = ReadReply::decode(&reply.value(true)).expect("a reply is Avro");
    assert_eq!(read.correlation, asked.correlation);
    assert_eq!(read.task_id.as_deref(), reply.task_id);
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
    let mut first: Option<Command> = None;
    for record in forms::of(command) {
        let taken = match parse(&record) {
            Ok(command) => command,
            Err(refusal) => panic!("taken once, refused in another form: {refusal}\n{record:?}"),
        };
        // The hash tells a delay from an instant, so it may differ from the original's, never between the forms. An
        // Avro command is answered in Avro.
        let reply = taken.reply.clone().map(|asked| Asked {
            as_avro: command.reply.as_ref().is_some_and(|asked| asked.as_avro),
            ..asked
        });
        let taken = Command { reply, ..taken };
        match &first {
            None => {
                assert_eq!(Command { content_hash: command.content_hash, ..taken.clone() }, *command);
                first = Some(taken);
            }
            Some(first) => assert_eq!(&taken, first),
        }
    }
}

fn explained(refusal: &Refusal) {
    let message = &refusal.message;
    assert!(ReasonCode::ALL.contains(&refusal.code));
    assert!(message.ends_with(refusal.code.remedy()), "no remedy: {message}");
    assert!(message.len() <= LONGEST_MESSAGE, "a sentence of {} bytes", message.len());
    assert!(!message.contains(char::is_control), "control characters: {message:?}");
    assert!(refusal.field.as_ref().is_none_or(|field| (1..=LONGEST_MESSAGE).contains(&field.len())));
    assert!(rejected_headers(refusal, &ORIGIN).iter().all(|header| header.name.starts_with(HEADER_PREFIX)));
}
