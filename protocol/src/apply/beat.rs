//! What reaches scanner and compensator through `stream_position`: the state of a slot as its owner reports it.

use schemas::journal::{JournalKind, JournalRecord};

/// What a batch of journal records says of its slot. `None` leaves the column as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// When the last record was appended, by the broker's clock.
    pub hb_at: i64,
    /// Members in Redis. A barrier is written before its owner has counted them, so it says nothing.
    pub backlog: Option<i64>,
    /// How many more records the slot takes.
    pub credit: Option<i64>,
    /// After a cold barrier: due times up to which everything still pending may be emitted again at once. Whatever
    /// is due later was emitted within the stretch of `due` that the new owner reads again.
    pub cold_upto: Option<i64>,
}

impl Beat {
    /// Folds records in their order, each with the time at which it was appended. `None` for an empty batch.
    pub fn fold<'a>(records: impl IntoIterator<Item = (i64, &'a JournalRecord)>) -> Option<Beat> {
        let mut beat: Option<Beat> = None;
        for (appended_at, record) in records {
            let beat =
                beat.get_or_insert(Beat { hb_at: appended_at, backlog: None, credit: None, cold_upto: None });
            beat.hb_at = appended_at;
            match record.kind {
                JournalKind::Batch => {
                    beat.backlog = Some(record.backlog);
                    beat.credit = Some(record.credit);
                }
                JournalKind::Barrier if record.cold => beat.cold_upto = Some(appended_at),
                JournalKind::Barrier => {}
            }
        }
        beat
    }
}
