//! Records on their way to `rejected` that are too large even for it.

use crate::kafka::OutRecord;
use schemas::delivery::rejected::{REASON, VALUE_BYTES, VALUE_SHA256, WholeValue};
use sha2::{Digest as _, Sha256};

/// Kept of key, of value and of headers.
const CUT_BYTES: usize = 256 * 1024;

/// Larger than the topic takes: the beginning of key and value, the headers that fit, and headers that say so.
/// `whole`: what is known of the value, where only its beginning is here already.
pub fn shortened(mut record: OutRecord, whole: Option<WholeValue>) -> OutRecord {
    let whole = whole.unwrap_or_else(|| {
        let value = record.value.as_deref().unwrap_or_default();
        WholeValue { bytes: value.len(), sha256: Sha256::digest(value).into() }
    });
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
    let sha256: String = whole.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    record.header(VALUE_BYTES, whole.bytes.to_string()).header(VALUE_SHA256, sha256)
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
        let cut = shortened(record, Some(WholeValue { bytes: 3_000_000, sha256: [0xab; 32] }));
        let (key, value) = (cut.key.clone().unwrap(), cut.value.clone().unwrap());
        assert_eq!((key.len(), value.len()), (CUT_BYTES, CUT_BYTES));
        assert!(cut.weight_bytes() < 1_000_000, "{}", cut.weight_bytes());
        let names: Vec<&str> = cut.headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names[..2], ["mine 0", "mine 1"]);
        assert_eq!(names[8..], [REASON, "duestream-rejected-offset", VALUE_BYTES, VALUE_SHA256]);
        assert_eq!(cut.headers.last().unwrap().value.as_deref(), Some("ab".repeat(32).as_bytes()));
    }
}
