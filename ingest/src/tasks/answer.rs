//! What is said about a command besides carrying it out: that it was refused, on `rejected`, and the reply that it asked
//! for, on `replies`.

use super::rejection;
use crate::deps::Deps;
use crate::metrics::REPLIES;
use runtime::answering::reply_record;
use runtime::kafka::{OutRecord, Record};
use runtime::store::change::Owed;
use schemas::ids::RowId;
use std::collections::HashMap;

/// The records that say what is owed, for commands that are all among `records`.
pub fn records(deps: &Deps, owed: &[Owed], records: &HashMap<RowId, &Record>) -> Vec<OutRecord> {
    let mut out = Vec::with_capacity(owed.len());
    for owed in owed {
        let Some(record) = records.get(&owed.command) else { continue };
        let refusal = owed.refusal.as_ref().filter(|_| !owed.of_change);
        out.extend(refusal.map(|refusal| rejection::of(record, refusal, &deps.names)));
        if let Some(reply) = &owed.reply {
            REPLIES.with(&[&record.topic, reply.answer.as_str()]).increment(1);
            out.extend(reply_record(owed, &record.topic, &deps.names));
        }
    }
    out
}
