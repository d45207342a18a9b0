//! A batch of records of `acks`, read.

use crate::tasks::admit::row_id;
use crate::tasks::rejection;
use protocol::ack::{Ack, Report};
use runtime::kafka::{OutRecord, Record};
use runtime::store::StoreError;
use schemas::ack::{AckOutcome, AckRecord};
use schemas::command::{HeaderView, ReasonCode, RecordView, Refusal};
use schemas::ids::{RowId, SourceId};
use schemas::topics::Names;
use std::collections::BTreeSet;

/// What a batch says.
pub struct Decoded<'r> {
    /// Acks in their order.
    pub acks: Vec<Ack>,
    /// What is none, and why.
    pub refused: Vec<(&'r Record, Refusal)>,
    /// When the last record was appended.
    pub last_at: Option<i64>,
}

impl<'r> Decoded<'r> {
    /// Reads a batch.
    pub fn of(source: SourceId, batch: &'r [Record]) -> Decoded<'r> {
        let mut decoded = Decoded {
            acks: Vec::with_capacity(batch.len()),
            refused: Vec::new(),
            last_at: batch.last().map(|r| r.at),
        };
        for record in batch {
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
            let read = if record.headers_intact {
                AckRecord::parse(&view)
            } else {
                let problem =
                    "the name of a header is not UTF-8 or holds a NUL byte, or there are too many headers";
                Err(Refusal::of_record(ReasonCode::InvalidHeader, problem))
            };
            match read {
                Ok(AckRecord::Tick) => {}
                Ok(AckRecord::Ack(said)) => decoded.acks.push(Ack {
                    command: row_id(source, record),
                    at: record.at,
                    id: said.delivery_id.id,
                    generation: said.delivery_id.generation,
                    report: match said.outcome {
                        AckOutcome::Progress => Report::Progress,
                        AckOutcome::Succeeded => Report::Succeeded,
                        AckOutcome::Failed { reason, permanent } => Report::Failed { reason, permanent },
                    },
                    progress: said.progress,
                }),
                Err(refusal) => decoded.refused.push((record, refusal)),
            }
        }
        decoded
    }

    /// MySQL refuses these records, whatever they say.
    pub fn refuse(&mut self, batch: &'r [Record], error: &StoreError) {
        let refusal = Refusal::of_record(ReasonCode::RefusedByStore, &error.to_string());
        self.acks.clear();
        self.refused = batch.iter().map(|record| (record, refusal.clone())).collect();
    }

    /// The rows that are spoken of.
    pub fn ids(&self) -> BTreeSet<RowId> {
        self.acks.iter().map(|ack| ack.id).collect()
    }

    /// The rows that are said to be done: one that waits again is judged by its cursor.
    pub fn finishing(&self) -> impl Iterator<Item = RowId> {
        self.acks.iter().filter(|ack| ack.report == Report::Succeeded).map(|ack| ack.id)
    }

    /// What goes to `rejected`.
    pub fn rejections(&self, names: &Names) -> Vec<OutRecord> {
        self.refused.iter().map(|(record, refusal)| rejection::of(record, refusal, names)).collect()
    }
}
