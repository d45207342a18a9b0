//! Records between the programs and blobs in MySQL: whatever the bytes, a record that is written again as it was read, or
//! an error that says what they are.

use crate::memory::bounded;
use schemas::avro::DecodeError;
use schemas::due::{Completion, DueKind, DueRecord};
use schemas::ids::{Generation, RowId, Shard};
use schemas::journal::{JournalKind, JournalRecord, OwnerToken};
use schemas::row::{RowBody, RowHistory, RowOptions};
use std::fmt::Debug;

const LONGEST_ERROR: usize = 1_000;

/// The first byte names a record (`D`ue, `J`ournal, `B`ody, `O`ptions, `H`istory): the rest is its datum, so that the
/// fuzzer need not find a fingerprint. After any other first byte comes a whole single object.
pub fn records(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let framed = |header: Vec<u8>| [&header[..10], rest].concat();
    bounded(data.len(), || match kind {
        b'D' => due(&framed(least_due().encode())),
        b'J' => journal(&framed(least_journal().encode())),
        b'B' => body(&framed(RowBody::default().encode())),
        b'O' => options(&framed(least_options().encode())),
        b'H' => history(&framed(RowHistory::default().encode())),
        _ => [due, journal, body, options, history].iter().for_each(|read| read(rest)),
    });
}

fn due(bytes: &[u8]) {
    check(bytes, DueRecord::decode, DueRecord::encode);
}

fn journal(bytes: &[u8]) {
    check(bytes, JournalRecord::decode, JournalRecord::encode);
}

fn body(bytes: &[u8]) {
    check(bytes, RowBody::decode, RowBody::encode);
}

fn options(bytes: &[u8]) {
    check(bytes, RowOptions::decode, RowOptions::encode);
}

fn history(bytes: &[u8]) {
    check(bytes, RowHistory::decode, RowHistory::encode);
}

fn check<T: Debug + PartialEq>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    match decode(bytes) {
        Ok(record) => {
            // The same number can be written with more bytes than it needs: the record is the same, not its bytes.
            let written = encode(&record);
            assert!(written.len() <= bytes.len(), "{} bytes became {}", bytes.len(), written.len());
            let again = decode(&written).unwrap_or_else(|error| panic!("own bytes are refused: {error}"));
            assert_eq!(again, record);
            assert_eq!(encode(&again), written);
        }
        Err(error) => {
            let text = error.to_string();
            assert!((1..=LONGEST_ERROR).contains(&text.len()), "an error of {} bytes", text.len());
        }
    }
}

fn least_due() -> DueRecord {
    DueRecord {
        id: RowId(0),
        generation: Generation(0),
        shard: Shard(0),
        due_at: 0,
        fence: 0,
        callback_topic: String::new(),
        kind: DueKind::Withdraw,
    }
}

fn least_journal() -> JournalRecord {
    JournalRecord {
        token: OwnerToken(0),
        kind: JournalKind::Batch,
        cold: false,
        backlog: 0,
        credit: 0,
        local_at: 0,
        redis_at: 0,
        entries: Vec::new(),
    }
}

fn least_options() -> RowOptions {
    RowOptions {
        partition: None,
        expires_at: None,
        asked_at: None,
        completion: Completion::OnDelivery,
        progress: None,
    }
}
