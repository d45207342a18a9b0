//! The record on `replies` for an answer that was owed in MySQL, whoever sends it.

use crate::kafka::OutRecord;
use crate::store::change::Owed;
use schemas::delivery::Origin;
use schemas::record::Header;
use schemas::reply::Reply;
use schemas::topics::Names;

/// The reply to a command of `topic`. `None`: nobody asked for one.
pub fn reply_record(owed: &Owed, topic: &str, names: &Names) -> Option<OutRecord> {
    let reply = owed.reply.as_ref()?;
    let said = Reply {
        answer: reply.answer,
        task_id: reply.task_id.as_deref(),
        shard_key: reply.shard_key.as_deref(),
        due_at: reply.due_at,
        refusal: owed.refusal.as_ref(),
        correlation: reply.correlation.as_deref(),
        origin: Origin {
            topic,
            partition: owed.command.partition(),
            offset: owed.command.offset(),
            // Not repeated in a reply.
            timestamp_at: owed.received_at,
        },
    };
    let headers = said.headers().into_iter();
    Some(OutRecord {
        key: said.key().map(|key| key.to_vec().into()),
        headers: headers.map(|added| Header { name: added.name.to_owned(), value: added.value }).collect(),
        ..OutRecord::to(names.replies()).value(said.value(reply.as_avro))
    })
}
