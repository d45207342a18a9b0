//! What is read of the slot's two logs.

use super::strays::Stray;
use crate::slot_store::{MAX_BYTES, MAX_INTENT_BYTES};
use schemas::due::{DueKind, DueRecord};
use schemas::journal::JournalRecord;
use std::sync::Arc;

/// One record of `due[s]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DueItem {
    /// Its offset.
    pub offset: i64,
    /// Its bytes, as they will lie in Redis; none where it is a stray.
    pub bytes: Vec<u8>,
    /// What they say, or all there was of a record that says nothing we could use.
    pub record: Result<DueRecord, Arc<Stray>>,
}

impl DueItem {
    /// Reads the bytes of a record of `due`.
    pub fn read(offset: i64, bytes: Vec<u8>) -> DueItem {
        DueItem::of(Stray { offset, value: Some(bytes), ..Stray::default() })
    }

    /// Reads a record of `due`. It stays whole where it is no due record.
    pub fn of(mut raw: Stray) -> DueItem {
        let offset = raw.offset;
        match usable(raw.value.as_deref().unwrap_or_default()) {
            Ok(record) => DueItem { offset, bytes: raw.value.take().unwrap_or_default(), record: Ok(record) },
            Err(problem) => {
                raw.problem = problem;
                DueItem { offset, bytes: Vec::new(), record: Err(Arc::new(raw)) }
            }
        }
    }
}

/// A due record that fits a script call.
fn usable(bytes: &[u8]) -> Result<DueRecord, String> {
    let record = DueRecord::decode(bytes).map_err(|error| error.to_string())?;
    let limit = match record.kind {
        DueKind::Deliver(_) => MAX_BYTES + (256 << 10),
        DueKind::Withdraw => MAX_INTENT_BYTES - 1,
    };
    if bytes.len() > limit {
        return Err(format!("a due record of {} bytes, more than {limit}", bytes.len()));
    }
    if record.callback_topic.is_empty() {
        return Err("a due record without a callback topic".into());
    }
    Ok(record)
}

/// Bounds of the slot's two logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// The journal's topic id is the one that is registered.
    pub same_journal: bool,
    /// First offset of the journal.
    pub journal_start: i64,
    /// End of the journal (high watermark).
    pub journal_end: i64,
    /// First journal offset younger than W before the journal's last record.
    pub journal_window: i64,
    /// First journal offset younger than W before now (its end, if there is none).
    pub journal_recent: i64,
    /// First offset of `due[s]`.
    pub due_start: i64,
    /// End of `due[s]`.
    pub due_end: i64,
    /// First offset of `due[s]` younger than W before now (its end, if there is none).
    pub due_recent: i64,
}

/// A stretch of the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalChunk {
    /// Where reading really began: above `from` if the log begins later.
    pub start: i64,
    /// Records, ascending by offset.
    pub records: Vec<(i64, JournalItem)>,
    /// Everything below has been read.
    pub next: i64,
    /// Everything up to and including `to` has been read.
    pub done: bool,
}

/// One record of the journal.
#[derive(Clone, Debug, PartialEq)]
pub enum JournalItem {
    /// As we know it.
    Known(Box<JournalRecord>),
    /// Written after a schema that this build does not know: it may hold fates.
    Newer,
    /// Nothing of ours: it holds no fates.
    Garbage,
}

impl JournalItem {
    /// Reads a record of the journal.
    pub fn read(bytes: &[u8]) -> JournalItem {
        match JournalRecord::decode(bytes) {
            Ok(record) => JournalItem::Known(Box::new(record)),
            Err(schemas::avro::DecodeError::UnknownSchema { .. }) => JournalItem::Newer,
            Err(_) => JournalItem::Garbage,
        }
    }
}
