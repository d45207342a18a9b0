//! Emitting rows of `pending`: they become due records on their slot's partition of `due`, and every ack is awaited.

use crate::kafka::{BatchProducer, Disposition, KafkaFault, OutRecord, Refusal};
use crate::store::PendingRow;
use schemas::ids::{RowGen, Slot};
use std::sync::Arc;

/// Puts rows on `due`. Cheap to clone.
#[derive(Clone)]
pub struct Emission {
    producer: Arc<BatchProducer>,
    due: Arc<str>,
}

/// What became of a batch that was not held up by Kafka.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emitted {
    /// Records acked.
    pub acked: u64,
    /// Rows of which no record can be made, or whose record `due` never takes, and why. They stay pending.
    pub unemittable: Vec<(RowGen, String)>,
}

impl Emission {
    /// Emits on this topic.
    pub fn new(producer: Arc<BatchProducer>, due: impl Into<Arc<str>>) -> Emission {
        Emission { producer, due: due.into() }
    }

    /// Emits rows of one slot, in their order. `fence` was read before they were read as pending.
    ///
    /// An error says that at least one record was not acked: emit the same rows again, or start again from what is
    /// confirmed. A row that can never be emitted holds up no other.
    pub async fn emit(&self, slot: Slot, fence: i64, rows: Vec<PendingRow>) -> Result<Emitted, KafkaFault> {
        let mut emitted = Emitted::default();
        let mut sent = Vec::with_capacity(rows.len());
        let mut records = Vec::with_capacity(rows.len());
        for row in rows {
            let row_gen = row.row_gen();
            match row.due_record(fence) {
                Ok(record) => {
                    let out = OutRecord::to(self.due.clone())
                        .partition(i32::from(slot.0))
                        .key(record.id.to_string());
                    records.push(out.value(record.encode()));
                    sent.push(row_gen);
                }
                Err(error) => emitted.unemittable.push((row_gen, error.to_string())),
            }
        }
        for (row_gen, result) in sent.into_iter().zip(self.producer.send_batch(&records).await) {
            match result {
                Ok(_) => emitted.acked += 1,
                Err(fault) if never_fits(&fault) => emitted.unemittable.push((row_gen, fault.to_string())),
                Err(fault) => return Err(fault),
            }
        }
        Ok(emitted)
    }
}

/// Whether it is the record's fault. A missing topic or a missing right is the world's: it is waited out.
fn never_fits(fault: &KafkaFault) -> bool {
    match fault.disposition() {
        Disposition::Poison(Refusal::TooLarge | Refusal::Invalid) => true,
        Disposition::Poison(Refusal::UnknownTopic | Refusal::UnknownPartition | Refusal::NotAuthorized)
        | Disposition::Retry
        | Disposition::Fenced
        | Disposition::Fatal => false,
    }
}
