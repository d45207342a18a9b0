//! From bytes to commands: parsed, young enough, and meant for a topic that is there.

use super::admit::{Candidate, Parsed, row_id};
use crate::deps::Deps;
use crate::turn::{Stop, Turn};
use protocol::admission;
use runtime::kafka::Record;
use schemas::command::{Command, HeaderView, ReasonCode, RecordView, Refusal};
use schemas::ids::SourceId;
use std::collections::BTreeSet;

/// Parses a batch. Nothing that a producer can send makes this fail: what is no command is a refusal.
pub async fn batch(
    deps: &Deps,
    source: SourceId,
    batch: &[Record],
    turn: &Turn,
) -> Result<Vec<Parsed>, Stop> {
    let now = runtime::clock::now_ms();
    let mut parsed: Vec<Parsed> = batch.iter().map(|record| one(deps, source, record, now)).collect();
    let wanted: BTreeSet<&str> = parsed
        .iter()
        .filter_map(|parsed| Some(parsed.outcome.as_ref().ok()?.command.callback_topic.as_str()))
        .collect();
    let topics = deps.callbacks.look_up(&wanted, turn).await?;
    let unknown: Vec<Option<Refusal>> = parsed
        .iter()
        .map(|parsed| {
            let command = &parsed.outcome.as_ref().ok()?.command;
            topics.check(&command.callback_topic, command.options.partition).err()
        })
        .collect();
    for (parsed, refusal) in parsed.iter_mut().zip(unknown) {
        if let Some(refusal) = refusal {
            parsed.outcome = Err(refusal);
        }
    }
    Ok(parsed)
}

fn one(deps: &Deps, source: SourceId, record: &Record, now: i64) -> Parsed {
    let id = row_id(source, record);
    let outcome =
        command(deps, record, now).map(|command| Candidate::new(id, command, record.at, deps.shards));
    Parsed { id, received_at: now, outcome }
}

fn command(deps: &Deps, record: &Record, now: i64) -> Result<Command, Refusal> {
    if !record.headers_intact {
        return Err(Refusal::of_record(ReasonCode::InvalidHeader, "the name of a header is not UTF-8"));
    }
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
    let command = Command::parse(&view, &deps.rules)?;
    if admission::is_past_window(record.at, now, deps.cfg.tasks.dedup_window.as_ms()) {
        let problem = format!("the record was written at {} (epoch ms)", record.at);
        return Err(Refusal::of_record(ReasonCode::TooOld, &problem));
    }
    Ok(command)
}
