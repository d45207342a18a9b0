//! Records as the programs see them: owned, with what Kafka tells apart (null and empty) told apart.

use super::native;
use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Header as KafkaHeader, Message, OwnedHeaders};
use schemas::record::Header;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A record read from Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Timestamp in epoch ms: append time on `tasks` and `journal`, else the producer's. −1 if there is none.
    pub at: i64,
    /// Assignment that the record was read under; 0 for readers outside a group.
    pub epoch: u64,
    /// Key; `None` = null, which is not empty.
    pub key: Option<Bytes>,
    /// Value; `None` = null (a tombstone), which is not empty.
    pub value: Option<Bytes>,
    /// Headers, in order.
    pub headers: Vec<Header>,
    /// Whether every header name was UTF-8 without NUL, and there were at most 99,900. Where not, the headers above are an
    /// approximation: refuse the record.
    pub headers_intact: bool,
    /// What is above is not all of it: refuse the record.
    pub cut: Option<Cut>,
}

/// Why a record is not here as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It came compressed and is larger than any topic of the pipeline takes. What is kept of it is the beginning of its
    /// key and value, and the headers that fit.
    TooLarge {
        /// Bytes of key, value, and names and values of headers.
        bytes: usize,
        /// Bytes of the value.
        value_bytes: usize,
        /// SHA-256 of the whole value.
        value_sha256: [u8; 32],
    },
    /// It stands for all records of a compressed batch that cannot be unpacked, and is the last of them.
    Undecodable {
        /// Offset of the first.
        first: i64,
    },
}

/// Largest record that is kept whole; none of the pipeline's topics takes one as large.
const MOST_BYTES: usize = 2 << 20;
/// Kept of key, and of value, of a larger one.
const CUT_BYTES: usize = 256 << 10;

impl Record {
    /// Copies a borrowed message. Topic names are shared, not copied.
    pub(crate) fn copy_of(message: &BorrowedMessage<'_>, topic: &Arc<str>, epoch: u64) -> Record {
        let of = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let (key_bytes, value_bytes) = (of(message.key()), of(message.payload()));
        let (headers, headers_intact, header_bytes) = native::headers_of(message, MOST_BYTES);
        let bytes = key_bytes + value_bytes + header_bytes;
        let cut = (bytes > MOST_BYTES).then(|| Cut::TooLarge {
            bytes,
            value_bytes,
            value_sha256: Sha256::digest(message.payload().unwrap_or_default()).into(),
        });
        let keep = |bytes: &[u8]| match cut {
            None => Bytes::copy_from_slice(bytes),
            Some(_) => Bytes::copy_from_slice(&bytes[..bytes.len().min(CUT_BYTES)]),
        };
        Record {
            topic: topic.clone(),
            partition: message.partition(),
            offset: message.offset(),
            at: message.timestamp().to_millis().unwrap_or(-1),
            epoch,
            key: message.key().map(keep),
            value: message.payload().map(keep),
            headers,
            headers_intact,
            cut,
        }
    }

    /// What stands for the records from `first` to `last`, whose batch cannot be unpacked.
    pub(crate) fn undecodable(
        (topic, partition): (&Arc<str>, i32),
        (first, last): (i64, i64),
        epoch: u64,
    ) -> Record {
        Record {
            topic: topic.clone(),
            partition,
            offset: last,
            at: crate::clock::now_ms(),
            epoch,
            key: None,
            value: None,
            headers: Vec::new(),
            headers_intact: true,
            cut: Some(Cut::Undecodable { first }),
        }
    }

    /// What the record weighs in memory, about: for caps, not for accounts.
    pub fn weight_bytes(&self) -> usize {
        let of = |b: &Option<Bytes>| b.as_ref().map_or(0, Bytes::len);
        let headers: usize =
            self.headers.iter().map(|h| h.name.len() + h.value.as_ref().map_or(0, Vec::len) + 48).sum();
        of(&self.key) + of(&self.value) + headers + 128
    }
}

/// A record to be produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutRecord {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition; without one it is the murmur2 hash of the key, as Java producers have it, or any if there is no key.
    pub partition: Option<i32>,
    /// Key; `None` = null.
    pub key: Option<Bytes>,
    /// Value; `None` = null.
    pub value: Option<Bytes>,
    /// Headers, in order.
    pub headers: Vec<Header>,
    /// Timestamp in epoch ms; without one it is when the client takes the record. Topics with `LogAppendTime` have their own.
    pub at: Option<i64>,
}

impl OutRecord {
    /// A record with null key and value.
    pub fn to(topic: impl Into<Arc<str>>) -> OutRecord {
        let headers = Vec::new();
        OutRecord { topic: topic.into(), partition: None, key: None, value: None, headers, at: None }
    }

    /// Sets the partition.
    #[must_use]
    pub fn partition(mut self, partition: i32) -> OutRecord {
        self.partition = Some(partition);
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> OutRecord {
        self.key = Some(key.into());
        self
    }

    /// Sets the value.
    #[must_use]
    pub fn value(mut self, value: impl Into<Bytes>) -> OutRecord {
        self.value = Some(value.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> OutRecord {
        self.headers.push(Header { name: name.into(), value: Some(value.into()) });
        self
    }

    /// What the record weighs on the wire, about.
    pub fn weight_bytes(&self) -> usize {
        let of = |b: &Option<Bytes>| b.as_ref().map_or(0, Bytes::len);
        let headers: usize =
            self.headers.iter().map(|h| h.name.len() + h.value.as_ref().map_or(0, Vec::len) + 4).sum();
        of(&self.key) + of(&self.value) + headers + 32
    }

    /// The form rdkafka takes. Not called for records without headers.
    pub(crate) fn native_headers(&self) -> Option<OwnedHeaders> {
        if self.headers.is_empty() {
            return None;
        }
        let mut out = OwnedHeaders::new_with_capacity(self.headers.len());
        for header in &self.headers {
            out = out.insert(KafkaHeader { key: &header.name, value: header.value.as_ref() });
        }
        Some(out)
    }
}
