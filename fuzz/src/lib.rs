//! What must hold for any bytes that reach Duestream from outside or lie on its topics, as functions of bytes that
//! panic when it does not.
//!
//! ```text
//! corpus/<target>/*  ──┬─ tests/corpus.rs: every file, in each `cargo test`
//! libFuzzer's finds  ──┴─ fuzz_targets/<target>.rs: `./dev fuzz`
//! ```
//!
//! A find is mended in the crate it was found in, with a test there; its bytes become a file of the corpus.

pub mod command;
mod forms;
pub mod internal;
mod memory;
mod record;
pub mod texts;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: folder in `corpus`, file in `fuzz_targets`.
    pub name: &'static str,
    /// Panics when a property does not hold.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "command_avro", run: command::avro },
    Target { name: "command_headers", run: command::headers },
    Target { name: "command_json", run: command::json },
    Target { name: "internal_records", run: internal::records },
    Target { name: "texts", run: texts::all },
    Target { name: "writer_schema", run: command::writer_schema },
];
