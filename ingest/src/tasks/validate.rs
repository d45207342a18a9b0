//! From bytes to commands: parsed, young enough, and meant for a topic that is there.

use super::Tasks;
use super::admit::{Candidate, Parsed, row_id};
use super::callback::Wanted;
use crate::registry::BatchSchemas;
use crate::turn::{Stop, Turn};
use protocol::admission;
use runtime::kafka::{Cut, Record};
use schemas::command::{
    Command, HEADER_PREFIX, HeaderView, ParseError, ReasonCode, RecordView, Refusal, Refused, WriterSchemas,
};
use std::collections::HashSet;

/// Parsed at a stretch.
const YIELD_BYTES: usize = 256 << 10;

/// Parses a batch. Nothing that a producer can send makes this fail: what is no command is a refusal.
pub async fn batch(tasks: &Tasks, batch: &[Record], turn: &Turn) -> Result<Vec<Parsed>, Stop> {
    let now = runtime::clock::now_ms();
    let mut schemas = tasks.deps.schemas.for_batch();
    let mut read: Vec<Result<Command, ParseError>> = Vec::with_capacity(batch.len());
    let mut bytes = 0;
    for record in batch {
        read.push(command(tasks, record, now, &schemas));
        // Megabytes that are no command take a while: the other partitions, and the journal, go on in between.
        bytes += record.weight_bytes();
        if bytes > YIELD_BYTES {
            bytes = 0;
            tokio::task::yield_now().await;
        }
    }
    fetch(&mut read, &mut schemas, turn, |at, schemas| command(tasks, &batch[at], now, schemas)).await?;

    let mut wanted = Wanted::new();
    for command in read.iter().filter_map(|read| read.as_ref().ok()) {
        let asked = wanted.entry(&command.callback_topic).or_default();
        *asked = command.options.partition.max(*asked);
    }
    let topics = tasks.deps.callbacks.look_up(&wanted, tasks.rules.unknown_topic, turn).await?;
    let parsed = batch.iter().zip(read).map(|(record, read)| {
        let id = row_id(tasks.source, record);
        let outcome = read.map_err(refused).and_then(|command| {
            let name = |field: &str| name_of(record, field);
            match topics.check(&command.callback_topic, command.options.partition, name) {
                Ok(()) => Ok(Candidate::new(id, command, record.at, tasks.deps.shards)),
                Err(refusal) => Err(Box::new(Refused { refusal, asked: command.reply })),
            }
        });
        Parsed { id, received_at: now, outcome }
    });
    Ok(parsed.collect())
}

/// Fetches the schemas that are asked for and reads again what was written with them.
async fn fetch(
    read: &mut [Result<Command, ParseError>],
    schemas: &mut BatchSchemas<'_>,
    turn: &Turn,
    again: impl Fn(usize, &BatchSchemas<'_>) -> Result<Command, ParseError>,
) -> Result<(), Stop> {
    let needed = |read: &Result<Command, ParseError>| match read {
        Err(ParseError::NeedsSchema(id)) => Some(*id),
        Err(ParseError::Refused(_)) | Ok(_) => None,
    };
    let ids: HashSet<u32> = read.iter().filter_map(needed).collect();
    if ids.is_empty() {
        return Ok(());
    }
    schemas.fetch(ids, turn).await?;
    for (at, read) in read.iter_mut().enumerate() {
        if needed(read).is_some() {
            *read = again(at, schemas);
        }
    }
    Ok(())
}

fn refused(error: ParseError) -> Box<Refused> {
    match error {
        ParseError::Refused(refused) => refused,
        // Everything that was asked for has been fetched; were it not so, this is what it comes to.
        ParseError::NeedsSchema(id) => {
            let problem = format!("schema {id} is not known");
            let refusal = Refusal::of_record(ReasonCode::UnknownSchema, &problem);
            Box::new(Refused { refusal, asked: None })
        }
    }
}

fn command(
    tasks: &Tasks,
    record: &Record,
    now: i64,
    schemas: &dyn WriterSchemas,
) -> Result<Command, ParseError> {
    let headers: Vec<HeaderView<'_>> = record
        .headers
        .iter()
        .map(|header| HeaderView { name: header.name.as_bytes(), value: header.value.as_deref() })
        .collect();
    let view = RecordView {
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
        timestamp_at: record.at,
    };
    let parsed = Command::parse(&view, &tasks.rules.rules, schemas);
    let broken = match &record.cut {
        Some(cut) => Some(cut_short(record, cut, tasks.rules.rules.max_body_bytes)),
        None if record.headers_intact => None,
        None => {
            let problem =
                "the name of a header is not UTF-8 or holds a NUL byte, or there are more than 99900 headers";
            Some(Refusal::of_record(ReasonCode::InvalidHeader, problem))
        }
    };
    if let Some(refusal) = broken {
        // Whatever else is wrong: what was read of its headers is not what was written.
        let asked = match parsed {
            Ok(command) => command.reply,
            Err(ParseError::Refused(refused)) => refused.asked,
            // Not worth a question: it is refused whatever its schema says.
            Err(ParseError::NeedsSchema(_)) => None,
        };
        return Err(ParseError::Refused(Box::new(Refused { refusal, asked })));
    }
    let command = parsed?;
    let refuse = |code, problem: &str| {
        let refused = Refused { refusal: Refusal::of_record(code, problem), asked: command.reply.clone() };
        Err(ParseError::Refused(Box::new(refused)))
    };
    if admission::is_past_window(record.at, now, tasks.deps.cfg.tasks.dedup_window.as_ms()) {
        let problem = format!("the record was written at {} (epoch ms)", record.at);
        return refuse(ReasonCode::TooOld, &problem);
    }
    Ok(command)
}

/// Why a record is refused of which only a part is here.
fn cut_short(record: &Record, cut: &Cut, limit: usize) -> Refusal {
    match cut {
        Cut::TooLarge { bytes, .. } => {
            let problem = format!("key, value and headers have {bytes} bytes unpacked, more than {limit}");
            Refusal::of_record(ReasonCode::TooLarge, &problem)
        }
        Cut::Undecodable { first } => {
            let problem =
                format!("the compressed batch at offsets {first} to {} cannot be unpacked", record.offset);
            Refusal::of_record(ReasonCode::Undecodable, &problem)
        }
    }
}

/// How a record names a field: by its header, or as JSON and Avro do.
fn name_of(record: &Record, field: &str) -> String {
    let by_header = |name: &str| {
        name.get(..HEADER_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(HEADER_PREFIX))
    };
    if record.headers.iter().any(|header| by_header(&header.name)) {
        format!("{HEADER_PREFIX}{}", field.replace('_', "-"))
    } else {
        field.to_owned()
    }
}
