//! `TaskCommand` as a typed record, for those who write commands as Avro. Reading one is [`Command::parse`].

use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use apache_avro::{Schema, rabin::Rabin};
use std::sync::LazyLock;

#[cfg(doc)]
use super::Command;
use crate::avro::{SINGLE_OBJECT_MARK, TASK_COMMAND_VERSIONS};
use crate::record::Header;

/// Newest shipped version.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let text = TASK_COMMAND_VERSIONS.last().expect("there is a version");
    Schema::parse_str(text).expect("a shipped schema is sound")
});

/// An instant in a [`TaskCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AvroTime {
    /// Epoch milliseconds.
    Ms(i64),
    /// RFC 3339 with an offset, or epoch milliseconds in decimal.
    Text(String),
}

/// Fields as in `schemas/avsc/task_command`, which documents them; not checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the schema documents the fields")]
pub struct TaskCommand {
    pub op: Option<String>,
    pub due_at: Option<AvroTime>,
    pub delay: Option<String>,
    pub topic: Option<String>,
    pub task_id: Option<String>,
    pub shard_key: Option<String>,
    pub key: Option<Vec<u8>>,
    pub no_key: Option<bool>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<Header>,
    pub partition: Option<i32>,
    pub expires_at: Option<AvroTime>,
    pub completion: Option<String>,
    pub max_attempts: Option<i32>,
    pub backoff: Option<String>,
    pub ack_timeout: Option<String>,
    pub max_stalls: Option<i32>,
    pub spread: Option<String>,
    pub window: Option<String>,
    pub reply: Option<bool>,
    pub correlation: Option<Vec<u8>>,
}

impl TaskCommand {
    /// Avro single-object encoding with the newest version of the schema.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = SINGLE_OBJECT_MARK.to_vec();
        out.extend_from_slice(&SCHEMA.fingerprint::<Rabin>().bytes);
        self.write(&mut out);
        out
    }

    /// Confluent framing: `schema_id` is that under which a registry has the newest version of the schema.
    pub fn encode_framed(&self, schema_id: u32) -> Vec<u8> {
        let mut out = vec![super::avro::FRAME_MARK];
        out.extend_from_slice(&schema_id.to_be_bytes());
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        GenericDatumWriter::builder(&SCHEMA)
            .human_readable(false)
            .build()
            .and_then(|writer| writer.write_value(out, self.to_value()))
            .expect("the value matches its schema, and a Vec takes every write");
    }

    pub(super) fn to_value(&self) -> Value {
        let text = |text: &Option<String>| optional(1, text.as_ref().map(|text| Value::String(text.clone())));
        let bytes = |bytes: &Option<Vec<u8>>| optional(1, bytes.as_ref().map(|b| Value::Bytes(b.clone())));
        let int = |number: Option<i32>| optional(1, number.map(Value::Int));
        let switch = |switch: Option<bool>| optional(1, switch.map(Value::Boolean));
        let time = |time: &Option<AvroTime>| match time {
            None => optional(0, None),
            Some(AvroTime::Ms(at)) => optional(1, Some(Value::Long(*at))),
            Some(AvroTime::Text(text)) => optional(2, Some(Value::String(text.clone()))),
        };
        let headers = self.headers.iter().map(|header| {
            let name = Value::String(header.name.clone());
            Value::Record(vec![("name".into(), name), ("value".into(), bytes(&header.value))])
        });
        let fields = [
            ("op", text(&self.op)),
            ("due_at", time(&self.due_at)),
            ("delay", text(&self.delay)),
            ("topic", text(&self.topic)),
            ("task_id", text(&self.task_id)),
            ("shard_key", text(&self.shard_key)),
            ("key", bytes(&self.key)),
            ("no_key", switch(self.no_key)),
            ("value", bytes(&self.value)),
            ("headers", Value::Array(headers.collect())),
            ("partition", int(self.partition)),
            ("expires_at", time(&self.expires_at)),
            ("completion", text(&self.completion)),
            ("max_attempts", int(self.max_attempts)),
            ("backoff", text(&self.backoff)),
            ("ack_timeout", text(&self.ack_timeout)),
            ("max_stalls", int(self.max_stalls)),
            ("spread", text(&self.spread)),
            ("window", text(&self.window)),
            ("reply", switch(self.reply)),
            ("correlation", optional(2, self.correlation.as_ref().map(|b| Value::Bytes(b.clone())))),
        ];
        Value::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// A branch of a union, or its null.
fn optional(branch: u32, value: Option<Value>) -> Value {
    match value {
        Some(value) => Value::Union(branch, Box::new(value)),
        None => Value::Union(0, Box::new(Value::Null)),
    }
}
