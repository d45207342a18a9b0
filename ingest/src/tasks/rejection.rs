//! What goes to `rejected`: the record as it was, and why.

use crate::deps::Deps;
use crate::metrics::ALARMS;
use crate::turn::{Stop, Turn};
use runtime::kafka::{Cut, OutRecord, Record};
use schemas::command::Refusal;
use schemas::delivery::rejected::{REASON, VALUE_BYTES, VALUE_SHA256};
use schemas::delivery::{Origin, rejected_headers};
use schemas::record::Header;
use schemas::topics::Names;
use sha2::{Digest, Sha256};

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
    let added = rejected_headers(refusal, &origin).into_iter();
    let mut out = OutRecord {
        key: record.key.clone(),
        value: record.value.clone(),
        headers: record.headers.clone(),
        ..OutRecord::to(names.rejected())
    };
    out.headers.extend(added.map(|added| Header { name: added.name.to_owned(), value: added.value }));
    match &record.cut {
        Some(Cut::TooLarge { value_bytes, value_sha256, .. }) => shortened(out, *value_bytes, value_sha256),
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
    let cut = refused.into_iter().map(|(record, _)| {
        let value = record.value.clone().unwrap_or_default();
        shortened(record, value.len(), &Sha256::digest(&value).into())
    });
    let cut = cut.collect();
    for (record, fault) in deps.emitter.send_all(cut, turn).await? {
        ALARMS.with(&["emission_refused"]).increment(1);
        tracing::error!(headers = ?record.headers, "Kafka refuses a rejection, even cut: {fault}");
    }
    Ok(())
}

/// Larger than the topic takes: the beginning of key and value, the headers that fit, and headers that say so.
fn shortened(mut record: OutRecord, value_bytes: usize, value_sha256: &[u8; 32]) -> OutRecord {
    let cut = |bytes: bytes::Bytes| bytes.slice(..bytes.len().min(CUT_BYTES));
    record.value = record.value.map(cut);
    record.key = record.key.map(cut);
    // Ours stand behind the producer's.
    let own = record.headers.iter().rposition(|header| header.name == REASON).unwrap_or(record.headers.len());
    let mut room = CUT_BYTES;
    let mut at = 0;
    record.headers.retain(|header| {
        at += 1;
        let bytes = header.name.len() + header.value.as_ref().map_or(0, Vec::len) + 8;
        let keep = at > own || bytes <= room;
        if keep && at <= own {
            room -= bytes;
        }
        keep
    });
    let sha256: String = value_sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    record.header(VALUE_BYTES, value_bytes.to_string()).header(VALUE_SHA256, sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_cut_to_what_the_topic_takes_whichever_part_is_too_large() {
        let large = vec![7; 900_000];
        let record = OutRecord::to("rejected").key(large.clone()).value(large.clone());
        let record = (0..30).fold(record, |record, n| record.header(format!("mine {n}"), vec![1; 30_000]));
        let record = record.header(REASON, "too_large").header("duestream-rejected-offset", "5");
        let cut = shortened(record, 3_000_000, &[0xab; 32]);
        let (key, value) = (cut.key.clone().unwrap(), cut.value.clone().unwrap());
        assert_eq!((key.len(), value.len()), (CUT_BYTES, CUT_BYTES));
        assert!(cut.weight_bytes() < 1_000_000, "{}", cut.weight_bytes());
        let names: Vec<&str> = cut.headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names[..2], ["mine 0", "mine 1"]);
        assert_eq!(names[8..], [REASON, "duestream-rejected-offset", VALUE_BYTES, VALUE_SHA256]);
        assert_eq!(cut.headers.last().unwrap().value.as_deref(), Some("ab".repeat(32).as_bytes()));
    }
}
