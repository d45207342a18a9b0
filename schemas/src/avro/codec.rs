//! One codec for each record: knows every shipped version of its schema, writes the newest, reads all.

use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::writer::datum::GenericDatumWriter;
use apache_avro::{Schema, rabin::Rabin};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read};
use std::marker::PhantomData;

use super::SINGLE_OBJECT_MARK;

/// Longest string, byte string or array (as apache-avro holds it in memory) that a decoder allocates for. A body of
/// 900 KiB may be 100,000 headers, which take 6 MB there.
const MAX_ALLOCATION_BYTES: usize = 8 << 20;
const HEADER_BYTES: usize = 10;

/// Why bytes are not a record of ours. Always poison: the same bytes will fail again.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Something else was written here.
    #[error(
        "{record}: not an Avro single object: {length} bytes that do not begin with C3 01 and a fingerprint"
    )]
    NotSingleObject {
        /// Record that was expected.
        record: &'static str,
        /// Length of what was found.
        length: usize,
    },
    /// Written after a schema that this build does not have.
    #[error(
        "{record}: written with schema {fingerprint:016x}, which this build does not know: \
         another record, or a newer program wrote it (upgrade the readers first)"
    )]
    UnknownSchema {
        /// Record that was expected.
        record: &'static str,
        /// Rabin fingerprint found in the bytes.
        fingerprint: u64,
    },
    /// The datum does not follow its schema.
    #[error("{record}: broken datum: {source}")]
    Datum {
        /// Record that was expected.
        record: &'static str,
        /// What Avro says.
        #[source]
        source: Box<apache_avro::Error>,
    },
    /// The datum ends before its schema does.
    #[error("{record}: the record ends in the middle")]
    Truncated {
        /// Record that was expected.
        record: &'static str,
    },
    /// The datum is followed by something.
    #[error("{record}: {surplus} bytes after the end of the record")]
    Surplus {
        /// Record that was expected.
        record: &'static str,
        /// How many bytes are too many.
        surplus: usize,
    },
    /// Avro accepts it, the contract does not.
    #[error("{record}: field {field}: {rule}")]
    Field {
        /// Record that was expected.
        record: &'static str,
        /// The field.
        field: &'static str,
        /// What the field must be.
        rule: &'static str,
    },
}

/// Codec of one record. `W` is its wire struct, whose serde name must equal the record's name in the schema.
pub(super) struct Codec<W> {
    record: &'static str,
    header: [u8; HEADER_BYTES],
    writer: GenericDatumWriter<'static>,
    /// Reads what the newest schema wrote, straight into the struct.
    reader: GenericDatumReader<'static>,
    /// Header and resolving reader of each older version.
    older: Vec<([u8; HEADER_BYTES], GenericDatumReader<'static>)>,
    wire: PhantomData<fn() -> W>,
}

impl<W: DeserializeOwned> Codec<W> {
    /// Codec from all versions of a schema, oldest first. Called once per record and process: schemas are leaked.
    ///
    /// # Panics
    /// If a schema is broken, which the tests of this crate exclude.
    pub(super) fn new(record: &'static str, versions: &[&str]) -> Codec<W> {
        apache_avro::util::max_allocation_bytes(MAX_ALLOCATION_BYTES);
        let parsed: Vec<&'static Schema> = versions.iter().map(|text| parse(record, text)).collect();
        let (newest, older) = parsed.split_last().expect("a record has at least one version");
        let older = older.iter().map(|schema| {
            let reader =
                GenericDatumReader::builder(schema).reader_schema(newest).human_readable(false).build();
            (header(schema), reader.expect("a checked schema resolves"))
        });
        Codec {
            record,
            header: header(newest),
            writer: GenericDatumWriter::builder(newest)
                .human_readable(false)
                .build()
                .expect("a checked schema resolves"),
            reader: GenericDatumReader::builder(newest)
                .human_readable(false)
                .build()
                .expect("a checked schema resolves"),
            older: older.collect(),
            wire: PhantomData,
        }
    }

    /// Encodes with the newest schema. `size_hint`: bytes of the datum, roughly.
    ///
    /// # Panics
    /// If the wire struct does not match its schema, which the tests of this crate exclude.
    pub(super) fn encode<T: Serialize>(&self, wire: &T, size_hint: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + size_hint);
        out.extend_from_slice(&self.header);
        self.writer
            .write_ser(&mut out, wire)
            .expect("a wire struct matches its schema, and a Vec takes every write");
        out
    }

    /// Decodes what any shipped version wrote.
    pub(super) fn decode(&self, bytes: &[u8]) -> Result<W, DecodeError> {
        let record = self.record;
        let datum_error = |source| DecodeError::Datum { record, source: Box::new(source) };
        let Some((header, mut datum)) = bytes
            .split_at_checked(HEADER_BYTES)
            .filter(|(header, _)| header.starts_with(&SINGLE_OBJECT_MARK))
        else {
            return Err(DecodeError::NotSingleObject { record, length: bytes.len() });
        };
        let wire = if header == self.header {
            self.reader.read_deser(&mut datum).map_err(datum_error)?
        } else if let Some((_, reader)) = self.older.iter().find(|(known, _)| known == header) {
            let mut whole = Whole { rest: datum, ran_dry: false };
            let value = reader.read_value(&mut whole);
            if whole.ran_dry {
                return Err(DecodeError::Truncated { record });
            }
            datum = whole.rest;
            apache_avro::from_value(&value.map_err(datum_error)?).map_err(datum_error)?
        } else {
            let fingerprint = header[2..].try_into().map(u64::from_le_bytes).expect("ten bytes less two");
            return Err(DecodeError::UnknownSchema { record, fingerprint });
        };
        if datum.is_empty() { Ok(wire) } else { Err(DecodeError::Surplus { record, surplus: datum.len() }) }
    }
}

/// Bytes that notice when more is wanted than there is: where a datum ends early, `read_value` of apache-avro 0.22
/// reads null for what is missing, and a record that was cut would become another record.
struct Whole<'a> {
    rest: &'a [u8],
    ran_dry: bool,
}

impl Read for Whole<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(buffer)?;
        self.ran_dry |= read < buffer.len();
        Ok(read)
    }
}

fn parse(record: &str, text: &str) -> &'static Schema {
    match Schema::parse_str(text) {
        Ok(schema) => Box::leak(Box::new(schema)),
        Err(error) => panic!("schema of {record}: {error}"),
    }
}

fn header(schema: &Schema) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&SINGLE_OBJECT_MARK);
    header[2..].copy_from_slice(&schema.fingerprint::<Rabin>().bytes);
    header
}
