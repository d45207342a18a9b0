//! Records between the programs, blobs in MySQL, acks and replies in Avro: whatever the bytes, a record that is written again as it was read, or
//! an error that says what they are.

use crate::memory::bounded;
use schemas::ack::{Ack, AckOutcome};
use schemas::avro::{DecodeError, ReadReply};
use schemas::delivery::{DeliveryId, Origin};
use schemas::due::{DueKind, DueRecord};
use schemas::ids::{Generation, RowId, Shard};
use schemas::journal::{JournalKind, JournalRecord, OwnerToken};
use schemas::reply::{Answer, Reply};
use schemas::row::{RowBody, RowHistory, RowOptions};
use std::fmt::Debug;

const LONGEST_ERROR: usize = 1_000;

/// The first byte names a record (`D`ue, `J`ournal, `B`ody, `O`ptions, `H`istory, `A`ck, `R`eply): the rest is its datum, so that the
/// fuzzer need not find a fingerprint. After any other first byte comes a whole single object.
pub fn records(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let framed = |header: Vec<u8>| [&header[..10], rest].concat();
    bounded(data.len(), || match kind {
        b'D' => due(&framed(least_due().encode())),
        b'J' => journal(&framed(least_journal().encode())),
        b'B' => body(&framed(RowBody::default().encode())),
        b'O' => options(&framed(RowOptions::default().encode())),
        b'H' => history(&framed(RowHistory::default().encode())),
        b'A' => ack(&framed(least_ack().encode())),
        b'R' => reply(&framed(least_reply())),
        _ => [due, journal, body, options, history, ack, reply].iter().for_each(|read| read(rest)),
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

fn ack(bytes: &[u8]) {
    check(bytes, Ack::decode, Ack::encode);
}

/// Replies are read by those who asked for them: ours is the test's reader.
fn reply(bytes: &[u8]) {
    if let Err(error) = ReadReply::decode(bytes) {
        explained(&error);
    }
}

fn explained(error: &DecodeError) {
    let text = error.to_string();
    assert!((1..=LONGEST_ERROR).contains(&text.len()), "an error of {} bytes", text.len());
}

fn check<T: Debug + PartialEq>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    match decode(bytes) {
        Ok(record) => {
            // The same number can be written with more bytes than it needs: the record is the same, not its bytes. What
            // an older version wrote may grow by the fields that are new.
            let written = encode(&record);
            let same_version = bytes[..10] == written[..10];
            assert!(
                !same_version || written.len() <= bytes.len(),
                "{} bytes became {}",
                bytes.len(),
                written.len()
            );
            let again = decode(&written).unwrap_or_else(|error| panic!("own bytes are refused: {error}"));
            assert_eq!(again, record);
            assert_eq!(encode(&again), written);
        }
        Err(error) => explained(&error),
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

fn least_ack() -> Ack {
    let delivery_id =
        DeliveryId { shard: Shard(0), due_at: 0, id: RowId(0), generation: Generation(0), attempt: 0 };
    Ack { delivery_id, outcome: AckOutcome::Succeeded, progress: None }
}

fn least_reply() -> Vec<u8> {
    let origin = Origin { topic: "", partition: 0, offset: 0, timestamp_at: 0 };
    let reply = Reply {
        answer: Answer::Accepted,
        task_id: None,
        shard_key: None,
        due_at: None,
        refusal: None,
        correlation: None,
        origin,
    };
    reply.value(true)
}
