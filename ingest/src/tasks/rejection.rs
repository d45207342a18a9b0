//! What goes to `rejected`: the record as it was, and why.

use crate::deps::Deps;
use crate::metrics::ALARMS;
use crate::turn::{Stop, Turn};
use runtime::kafka::{Cut, OutRecord, Record};
use runtime::rejection::shortened;
use schemas::command::Refusal;
use schemas::delivery::rejected::WholeValue;
use schemas::delivery::{Origin, rejected_headers};
use schemas::record::Header;
use schemas::topics::Names;

/// The rejection of a record.
pub fn of(record: &Record, refusal: &Refusal, names: &Names) -> OutRecord {
    let origin = Origin {
        topic: &record.topic,
        partition: record.partition,
        offset: record.offset,
        timestamp_at: record.at,
    };
    let added = rejected_headers(refusal, &origin).into_iter();
    let mut out = OutRecord {
        key: record.key.clone(),
        value: record.value.clone(),
        headers: record.headers.clone(),
        ..OutRecord::to(names.rejected())
    };
    out.headers.extend(added.map(|added| Header { name: added.name.to_owned(), value: added.value }));
    match &record.cut {
        Some(Cut::TooLarge { value_bytes, value_sha256, .. }) => {
            shortened(out, Some(WholeValue { bytes: *value_bytes, sha256: *value_sha256 }))
        }
        Some(Cut::Undecodable { .. }) | None => out,
    }
}

/// Sends rejections, and replies among them, until they are acked.
pub async fn send(deps: &Deps, rejected: Vec<OutRecord>, turn: &Turn) -> Result<(), Stop> {
    let refused = deps.emitter.send_all(rejected, turn).await?;
    if refused.is_empty() {
        return Ok(());
    }
    // Those that were shortened already fit.
    let cut = refused.into_iter().map(|(record, _)| shortened(record, None)).collect();
    for (record, fault) in deps.emitter.send_all(cut, turn).await? {
        ALARMS.with(&["emission_refused"]).increment(1);
        tracing::error!(headers = ?record.headers, "Kafka refuses a rejection, even cut: {fault}");
    }
    Ok(())
}
