//! What goes to `rejected`: the record as it was, and why.

use crate::deps::Deps;
use crate::metrics::ALARMS;
use crate::turn::{Stop, Turn};
use runtime::kafka::{OutRecord, Record};
use schemas::command::Refusal;
use schemas::delivery::rejected::VALUE_BYTES;
use schemas::delivery::{Origin, rejected_headers};
use schemas::record::Header;
use schemas::topics::Names;

/// Kept of a value that is too large for `rejected` too (it came compressed).
const CUT_BYTES: usize = 256 * 1024;

/// The rejection of a record.
pub fn of(record: &Record, refusal: &Refusal, names: &Names) -> OutRecord {
    let origin = Origin {
        topic: &record.topic,
        partition: record.partition,
        offset: record.offset,
        timestamp_at: record.at,
    };
    let mut headers = record.headers.clone();
    headers.extend(
        rejected_headers(refusal, &origin)
            .into_iter()
            .map(|added| Header { name: added.name.to_owned(), value: added.value }),
    );
    OutRecord {
        topic: names.rejected().into(),
        partition: None,
        key: record.key.clone(),
        value: record.value.clone(),
        headers,
        at: None,
    }
}

/// Sends rejections, and replies among them, until they are acked.
pub async fn send(deps: &Deps, rejected: Vec<OutRecord>, turn: &Turn) -> Result<(), Stop> {
    let refused = deps.emitter.send_all(rejected, turn).await?;
    if refused.is_empty() {
        return Ok(());
    }
    let cut = refused.into_iter().map(|(record, _)| shortened(record)).collect();
    for (record, fault) in deps.emitter.send_all(cut, turn).await? {
        ALARMS.with(&["emission_refused"]).increment(1);
        tracing::error!(headers = ?record.headers, "Kafka refuses a rejection, even cut: {fault}");
    }
    Ok(())
}

/// Larger than the topic takes: the head of the value, and a header that says so.
fn shortened(mut record: OutRecord) -> OutRecord {
    let whole = record.value.as_ref().map_or(0, bytes::Bytes::len);
    record.value = record.value.map(|value| value.slice(..value.len().min(CUT_BYTES)));
    record.key = record.key.map(|key| key.slice(..key.len().min(CUT_BYTES)));
    record.header(VALUE_BYTES, whole.to_string())
}
