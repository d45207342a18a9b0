//! Bytes of every shipped version, kept for ever: what was written once must be read, and the newest version must write
//! exactly these bytes.

use std::fmt::{Debug, Write};
use std::fs;
use std::path::PathBuf;

use super::samples;
use crate::ack::Ack;
use crate::avro::{DecodeError, ReadReply, SHIPPED, TASK_COMMAND_VERSIONS};
use crate::command::TaskCommand;
use crate::due::DueRecord;
use crate::journal::JournalRecord;
use crate::row::{RowBody, RowHistory, RowOptions};

/// The versions in which a sample could be written.
struct Versions {
    first: usize,
    last: usize,
}

impl From<usize> for Versions {
    fn from(last: usize) -> Versions {
        Versions { first: 1, last }
    }
}

/// Shipped versions of a sample's record: all must decode to the sample, the newest must encode to it.
fn check<T: Debug + PartialEq>(
    folder: &str,
    versions: impl Into<Versions>,
    case: &str,
    sample: &T,
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
) {
    let Versions { first, last: versions } = versions.into();
    for version in first..=versions {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("golden")
            .join(folder)
            .join(format!("v{version}.{case}.hex"));
        // Writes what is missing, and never over what is there.
        if version == versions && !path.exists() && std::env::var_os("UPDATE").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, to_hex(&encode(sample))).unwrap();
        }
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error} (UPDATE=1 writes new golden files)", path.display()));
        let golden = from_hex(&text);
        assert_eq!(
            &decode(&golden).unwrap(),
            sample,
            "{} is read otherwise than it was written",
            path.display()
        );
        if version == versions {
            assert_eq!(to_hex(&encode(sample)), text, "{} is written otherwise now", path.display());
        }
    }
}

/// Datums (without the header of a single object) that the newest version wrote.
pub(super) fn datums(record: &str) -> Vec<Vec<u8>> {
    let versions = SHIPPED.iter().find(|(name, _)| *name == record).unwrap().1.len();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(record);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("v{versions}.")))
        .map(|path| from_hex(&fs::read_to_string(path).unwrap())[10..].to_vec())
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    text
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn due_records_keep_their_bytes() {
    let versions = crate::avro::wire_due::VERSIONS.len();
    for (case, sample) in [
        ("deliver_least", samples::due_deliver_least()),
        ("deliver_most", samples::due_deliver_most()),
        ("withdraw", samples::due_withdraw()),
    ] {
        check("due_record", versions, case, &sample, DueRecord::encode, DueRecord::decode);
    }
}

#[test]
fn journal_records_keep_their_bytes() {
    let versions = crate::avro::wire_journal::VERSIONS.len();
    for (case, sample) in [("barrier", samples::journal_barrier()), ("batch", samples::journal_batch())] {
        check("journal_record", versions, case, &sample, JournalRecord::encode, JournalRecord::decode);
    }
}

#[test]
fn blobs_of_rows_keep_their_bytes() {
    use crate::avro::wire_row::{BODY_VERSIONS, HISTORY_VERSIONS, OPTIONS_VERSIONS};
    for (case, sample) in [("least", samples::body_least()), ("most", samples::body_most())] {
        check("row_body", BODY_VERSIONS.len(), case, &sample, RowBody::encode, RowBody::decode);
    }
    for (case, sample) in [("least", samples::options_least()), ("most", samples::options_most())] {
        check("row_options", OPTIONS_VERSIONS.len(), case, &sample, RowOptions::encode, RowOptions::decode);
    }
    let since_2 = Versions { first: 2, last: OPTIONS_VERSIONS.len() };
    check(
        "row_options",
        since_2,
        "retried",
        &samples::options_retried(),
        RowOptions::encode,
        RowOptions::decode,
    );
    let history = samples::history_two();
    check("row_history", HISTORY_VERSIONS.len(), "two", &history, RowHistory::encode, RowHistory::decode);
}

#[test]
fn acks_keep_their_bytes() {
    let versions = crate::avro::wire_ack::VERSIONS.len();
    for (case, sample) in [
        ("progress", samples::ack_progress()),
        ("succeeded", samples::ack_succeeded()),
        ("failed", samples::ack_failed()),
    ] {
        check("ack", versions, case, &sample, Ack::encode, Ack::decode);
    }
}

#[test]
fn replies_keep_their_bytes() {
    let versions = crate::avro::wire_reply::VERSIONS.len();
    let (accepted, refused, least) =
        (samples::reply_accepted(), samples::reply_refused(), samples::reply_least());
    for (case, sample) in [("accepted", &accepted), ("refused", &refused), ("least", &least)] {
        check("reply", versions, case, sample, samples::encode_reply, ReadReply::decode);
    }
}

#[test]
fn commands_keep_their_bytes() {
    let versions = TASK_COMMAND_VERSIONS.len();
    for (case, sample) in [("least", samples::command_least()), ("most", samples::command_most())] {
        let read = |bytes: &[u8]| {
            // The parser reads them; what it finds must be what the newest version says now.
            assert_eq!(samples::parsed(bytes), samples::parsed(&sample.encode()));
            Ok(sample.clone())
        };
        check("task_command", versions, case, &sample, TaskCommand::encode, read);
    }
}
