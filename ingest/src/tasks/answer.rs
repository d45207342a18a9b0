//! What is said about a command besides carrying it out: that it was refused, on `rejected`, and the reply that it asked
//! for, on `replies`.

use super::rejection;
use crate::deps::Deps;
use crate::metrics::REPLIES;
use runtime::kafka::{OutRecord, Record};
use runtime::store::change::{Owed, OwedReply};
use schemas::delivery::Origin;
use schemas::ids::RowId;
use schemas::record::Header;
use schemas::reply::Reply;
use schemas::topics::Names;
use std::collections::HashMap;

/// The records that say what is owed, for commands that are all among `records`.
pub fn records(deps: &Deps, owed: &[Owed], records: &HashMap<RowId, &Record>) -> Vec<OutRecord> {
    let mut out = Vec::with_capacity(owed.len());
    for owed in owed {
        let Some(record) = records.get(&owed.command) else { continue };
        out.extend(owed.refusal.as_ref().map(|refusal| rejection::of(record, refusal, &deps.names)));
        if let Some(reply) = &owed.reply {
            REPLIES.with(&[&record.topic, reply.answer.as_str()]).increment(1);
            out.push(reply_record(record, owed, reply, &deps.names));
        }
    }
    out
}

fn reply_record(record: &Record, owed: &Owed, reply: &OwedReply, names: &Names) -> OutRecord {
    let said = Reply {
        answer: reply.answer,
        task_id: reply.task_id.as_deref(),
        shard_key: reply.shard_key.as_deref(),
        due_at: reply.due_at,
        refusal: owed.refusal.as_ref(),
        correlation: reply.correlation.as_deref(),
        origin: Origin {
            topic: &record.topic,
            partition: record.partition,
            offset: record.offset,
            timestamp_at: record.at,
        },
    };
    let headers = said.headers().into_iter();
    OutRecord {
        key: said.key().map(|key| key.to_vec().into()),
        headers: headers.map(|added| Header { name: added.name.to_owned(), value: added.value }).collect(),
        ..OutRecord::to(names.replies()).value(said.value(reply.as_avro))
    }
}
