//! A Kafka record as a file of the corpus: parts separated by `1E` (record separator), names and values of headers by
//! `1F` (unit separator), so that a mutation of one part leaves the others alone and people can read and write seeds.
//!
//! ```text
//! timestamp 1E key 1E value 1E name 1F value 1E name …
//! ```
//!
//! A key or value is null where it is left out or empty, else the bytes after its `=`. A header without `1F` is null.

use schemas::command::{HeaderView, RecordView};

const PART: u8 = 0x1e;
const UNIT: u8 = 0x1f;

/// 2026-01-31T09:00:00Z: the timestamp where a file has none that can be read.
pub(crate) const NOW_AT: i64 = 1_769_850_000_000;

/// A record to be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) timestamp_at: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Record {
    /// An empty record of today.
    pub(crate) fn new() -> Record {
        Record { timestamp_at: NOW_AT, ..Record::default() }
    }

    /// A record of today that has a value and nothing else.
    pub(crate) fn of_value(value: Vec<u8>) -> Record {
        Record { value: Some(value), ..Record::new() }
    }

    /// Reads any bytes as a record.
    pub(crate) fn read(bytes: &[u8]) -> Record {
        let mut parts = bytes.split(|byte| *byte == PART);
        let timestamp = parts.next().and_then(|part| std::str::from_utf8(part).ok()?.parse().ok());
        let mut nullable = || parts.next().and_then(|part| part.split_first()).map(|(_, rest)| rest.to_vec());
        let (key, value) = (nullable(), nullable());
        let header = |part: &[u8]| match part.iter().position(|byte| *byte == UNIT) {
            Some(at) => (part[..at].to_vec(), Some(part[at + 1..].to_vec())),
            None => (part.to_vec(), None),
        };
        Record { timestamp_at: timestamp.unwrap_or(NOW_AT), key, value, headers: parts.map(header).collect() }
    }

    /// Adds a header.
    #[must_use]
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Record {
        self.headers.push((name.into(), Some(value.as_ref().to_vec())));
        self
    }

    /// Adds a header where there is a value for it.
    #[must_use]
    pub(crate) fn header_opt(self, name: &str, value: Option<impl AsRef<[u8]>>) -> Record {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    /// Calls `read` with the record as the parser wants it.
    pub(crate) fn with_view<T>(&self, read: impl FnOnce(&RecordView<'_>) -> T) -> T {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| HeaderView { name, value: value.as_deref() }).collect();
        read(&RecordView {
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
            timestamp_at: self.timestamp_at,
        })
    }
}
