//! Records as the programs see them: owned, with what Kafka tells apart (null and empty) told apart.

use super::native;
use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Header as KafkaHeader, Message, OwnedHeaders};
use schemas::record::Header;
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
}

impl Record {
    /// Copies a borrowed message. Topic names are shared, not copied.
    pub(crate) fn copy_of(message: &BorrowedMessage<'_>, topic: &Arc<str>, epoch: u64) -> Record {
        let (headers, headers_intact) = native::headers_of(message);
        Record {
            topic: topic.clone(),
            partition: message.partition(),
            offset: message.offset(),
            at: message.timestamp().to_millis().unwrap_or(-1),
            epoch,
            key: message.key().map(Bytes::copy_from_slice),
            value: message.payload().map(Bytes::copy_from_slice),
            headers,
            headers_intact,
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
