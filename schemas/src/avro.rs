//! Avro codecs of what crosses an internal topic or lies in MySQL as a blob: single-object encoding (`C3 01`, the
//! fingerprint of the writer's schema, the datum) after the files in `schemas/avsc`.
//!
//! ```text
//! domain struct ──▶ wire struct (same fields and names as the .avsc) ──▶ C3 01 fingerprint datum
//! ```
//!
//! A version, once shipped, stays in `avsc/` for ever and its golden bytes in `golden/`. To change a record, add
//! `v2.avsc` with a default for each new field (in a `TaskCommand`: null, so that an older ingest can tell that nothing
//! is asked of it), name it in the record's codec (`wire_*.rs`), write its golden bytes. Never rename a field
//! (apache-avro 0.22 does not follow aliases). Between the programs, readers are upgraded before writers.

mod codec;
mod wire_ack;
mod wire_due;
mod wire_journal;
mod wire_parts;
mod wire_reply;
mod wire_row;

#[cfg(test)]
mod tests;

pub use codec::DecodeError;
pub use wire_reply::ReadReply;
pub(crate) use wire_reply::encode_reply;

/// Every schema that was ever shipped: the folder in `schemas/avsc`, and the texts of its versions, oldest first.
/// Those of headers are documents, not encodings.
pub const SHIPPED: &[(&str, &[&str])] = &[
    ("ack", wire_ack::VERSIONS),
    ("callback_headers", &[include_str!("../avsc/callback_headers/v1.avsc")]),
    ("dead_headers", &[include_str!("../avsc/dead_headers/v1.avsc")]),
    ("due_record", wire_due::VERSIONS),
    ("journal_record", wire_journal::VERSIONS),
    ("rejection_headers", &[include_str!("../avsc/rejection_headers/v1.avsc")]),
    ("reply", wire_reply::VERSIONS),
    ("row_body", wire_row::BODY_VERSIONS),
    ("row_history", wire_row::HISTORY_VERSIONS),
    ("row_options", wire_row::OPTIONS_VERSIONS),
    ("task_command", TASK_COMMAND_VERSIONS),
];

/// All shipped versions of `TaskCommand`, oldest first. Read by [`Command::parse`](crate::command::Command::parse).
pub const TASK_COMMAND_VERSIONS: &[&str] = &[include_str!("../avsc/task_command/v1.avsc")];

/// First two bytes of a single-object encoding.
pub const SINGLE_OBJECT_MARK: [u8; 2] = [0xc3, 0x01];
