//! Builds what is produced: callback records, dead letters, journal records.

use protocol::slot::{Outgoing, Stray, Target};
use runtime::kafka::{MAX_LARGE_MESSAGE_BYTES, OutRecord};
use runtime::rejection;
use schemas::command::{ReasonCode, Refusal};
use schemas::delivery::{AddedHeader, DeadReason, Origin, dead_headers, delivered_headers, rejected_headers};
use schemas::due::{Deliver, DueKind, DueRecord};
use schemas::ids::Slot;
use schemas::journal::JournalRecord;
use schemas::record::Header;
use schemas::topics::Names;
use std::sync::Arc;

/// Left for the headers that say why.
const REASON_BYTES: usize = 4 * 1024;

/// Topics of one slot, by name.
pub(crate) struct Addresses {
    pub(crate) journal: Arc<str>,
    pub(crate) dead: Arc<str>,
    pub(crate) due: Arc<str>,
    pub(crate) rejected: Arc<str>,
    pub(crate) partition: i32,
}

impl Addresses {
    pub(crate) fn of(names: &Names, slot: Slot) -> Addresses {
        Addresses {
            journal: names.journal().into(),
            dead: names.dead().into(),
            due: names.due().into(),
            rejected: names.rejected().into(),
            partition: i32::from(slot.0),
        }
    }

    /// A record of the slot's journal.
    pub(crate) fn journal(&self, record: &JournalRecord) -> OutRecord {
        OutRecord::to(Arc::clone(&self.journal)).partition(self.partition).value(record.encode())
    }

    /// A callback record or a dead letter.
    pub(crate) fn outgoing(&self, outgoing: &Outgoing) -> OutRecord {
        let record = &*outgoing.record;
        let DueKind::Deliver(deliver) = &record.kind else {
            // A withdraw never flies; were one here, it would be buried, without a body.
            return OutRecord::to(Arc::clone(&self.dead)).key(record.id.to_string().into_bytes());
        };
        match &outgoing.target {
            Target::Callback { partition, .. } => callback(record, deliver, *partition, outgoing.at),
            Target::Dead { reason } => self.dead(record, deliver, reason, outgoing.at),
        }
    }

    fn dead(&self, record: &DueRecord, deliver: &Deliver, reason: &str, at: i64) -> OutRecord {
        let meaning = DeadReason::from_code(reason)
            .map_or("Buried as its producer or consumer asked.", DeadReason::meaning);
        let added = dead_headers(record, deliver, reason, meaning, at);
        OutRecord {
            topic: Arc::clone(&self.dead),
            partition: None,
            key: Some(deliver.task_id.clone().into_bytes().into()),
            value: deliver.value.clone().map(Into::into),
            headers: headers(&deliver.headers, added),
            at: Some(at),
        }
    }

    /// The copy of a record of `due` that is none. What `rejected` would not take is cut, and says so.
    pub(crate) fn rejected(&self, stray: &Stray) -> OutRecord {
        let refusal = Refusal::of_record(ReasonCode::ForeignRecord, &stray.problem);
        let (topic, partition, offset) = (&*self.due, self.partition, stray.offset);
        let origin = Origin { topic, partition, offset, timestamp_at: stray.at };
        let record = OutRecord {
            topic: Arc::clone(&self.rejected),
            partition: None,
            key: stray.key.clone().map(Into::into),
            value: stray.value.clone().map(Into::into),
            headers: headers(&stray.headers, rejected_headers(&refusal, &origin)),
            at: None,
        };
        let fits = record.weight_bytes() + REASON_BYTES <= MAX_LARGE_MESSAGE_BYTES.unsigned_abs() as usize;
        match stray.whole_value {
            None if fits => record,
            whole => rejection::shortened(record, whole),
        }
    }
}

/// Value, key, user headers and partition exactly as submitted, and ours behind them. Its timestamp is its `delivered-at`.
fn callback(record: &DueRecord, deliver: &Deliver, partition: i32, at: i64) -> OutRecord {
    OutRecord {
        topic: record.callback_topic.as_str().into(),
        partition: Some(partition),
        key: deliver.key.clone().map(Into::into),
        value: deliver.value.clone().map(Into::into),
        headers: headers(&deliver.headers, delivered_headers(record, deliver, at)),
        at: Some(at),
    }
}

fn headers(own: &[Header], added: Vec<AddedHeader>) -> Vec<Header> {
    let added = added.into_iter().map(|header| Header { name: header.name.to_owned(), value: header.value });
    own.iter().cloned().chain(added).collect()
}
