//! Bytes that are no record, or not quite.

use proptest::prelude::*;

use super::samples;
use crate::avro::DecodeError;
use crate::due::DueRecord;
use crate::journal::JournalRecord;
use crate::row::{RowBody, RowHistory, RowOptions};

#[test]
fn other_bytes_are_refused_by_name() {
    for bytes in [&b""[..], b"\xc3\x01", b"{\"id\": 1, \"gen\": 1}", &[0; 40]] {
        assert!(matches!(DueRecord::decode(bytes), Err(DecodeError::NotSingleObject { .. })), "{bytes:?}");
    }
    let journal = samples::journal_batch().encode();
    let error = DueRecord::decode(&journal).unwrap_err();
    assert!(matches!(error, DecodeError::UnknownSchema { .. }));
    assert!(error.to_string().starts_with("due record: written with schema "), "{error}");
}

#[test]
fn trailing_bytes_are_refused() {
    let mut bytes = samples::due_deliver_most().encode();
    bytes.extend_from_slice(b"xy");
    assert!(matches!(DueRecord::decode(&bytes), Err(DecodeError::Surplus { surplus: 2, .. })));
}

#[test]
fn a_truncated_record_is_refused_wherever_it_ends() {
    for bytes in [samples::due_deliver_most().encode(), samples::due_withdraw().encode()] {
        for length in 0..bytes.len() {
            assert!(DueRecord::decode(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn a_huge_length_is_refused_without_allocating_it() {
    let empty = samples::body_least().encode();
    let header = &empty[..10];
    // key = bytes of a length of 2^40, then of -1.
    for length in [&[0x80, 0x80, 0x80, 0x80, 0x80, 0x40][..], &[0x01]] {
        let bytes = [header, &[2], length].concat();
        assert!(matches!(RowBody::decode(&bytes), Err(DecodeError::Datum { .. })));
    }
}

#[test]
fn a_shard_or_attempt_out_of_range_is_refused() {
    let bytes = samples::due_deliver_least().encode();
    // id 1, gen 1, then the shard as zig-zag: -1.
    let mut negative = bytes.clone();
    assert_eq!(negative[10..13], [2, 2, 0]);
    negative[12] = 1;
    let error = DueRecord::decode(&negative).unwrap_err();
    assert_eq!(error.to_string(), "due record: field shard: must be 0 to 65535");
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), place in any::<prop::sample::Index>()) {
        decode_all(&bytes);
        // A sound header, and a sound record with bytes overwritten, get further in.
        for sound in [samples::due_deliver_most().encode(), samples::journal_batch().encode(),
                      samples::body_most().encode(), samples::history_two().encode()] {
            decode_all(&[&sound[..10], &bytes].concat());
            let mut spoiled = sound;
            let start = place.index(spoiled.len());
            for (old, new) in spoiled[start..].iter_mut().zip(&bytes) {
                *old = *new;
            }
            decode_all(&spoiled);
        }
    }
}

fn decode_all(bytes: &[u8]) {
    let outcomes = [
        DueRecord::decode(bytes).is_ok(),
        JournalRecord::decode(bytes).is_ok(),
        RowBody::decode(bytes).is_ok(),
        RowOptions::decode(bytes).is_ok(),
        RowHistory::decode(bytes).is_ok(),
    ];
    // No bytes are two records.
    assert!(outcomes.iter().filter(|ok| **ok).count() <= 1);
}
