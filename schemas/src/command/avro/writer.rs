//! Writers' schemas: the shipped ones, those that an operator adds, those of a registry.

use apache_avro::Schema;
use apache_avro::rabin::Rabin;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::shape::Shape;
use crate::avro::TASK_COMMAND_VERSIONS;
use crate::command::field::Field;

/// Name that the record must have, in whatever namespace: what Avro's resolution asks for.
const RECORD: &str = "TaskCommand";
/// Longest text of a schema. Ours has 5 KiB.
const MAX_SCHEMA_BYTES: usize = 256 << 10;

/// A schema with which a producer writes commands, made ready to read them.
#[derive(Debug)]
pub struct WriterSchema {
    fingerprint: u64,
    pub(super) fields: Vec<WriterField>,
}

/// One field of a writer's schema, in the order in which it is written.
#[derive(Debug)]
pub(super) struct WriterField {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) shape: Shape,
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Field(Field),
    Value,
    Headers,
    /// May only be null: this version does not know what it would ask for.
    Unknown,
}

/// Why a schema cannot be the writer's of a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema {problem}")]
pub struct SchemaFault {
    problem: String,
}

impl SchemaFault {
    /// A fault in these words, which follow *the schema*.
    pub fn new(problem: impl Into<String>) -> SchemaFault {
        SchemaFault { problem: problem.into() }
    }
}

impl WriterSchema {
    /// Reads a schema (`.avsc`) and checks that commands written with it can be read.
    pub fn parse(text: &str) -> Result<WriterSchema, SchemaFault> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaFault::new(format!("is longer than {MAX_SCHEMA_BYTES} bytes")));
        }
        let schema = Schema::parse_str(text)
            .map_err(|error| SchemaFault::new(format!("is no Avro schema: {}", cut(&error.to_string()))))?;
        let name = match &schema {
            Schema::Record(record) => record.name.name().to_owned(),
            _ => return Err(SchemaFault::new("is not that of a record")),
        };
        if name != RECORD {
            return Err(SchemaFault::new(format!("is of a record {}, not {RECORD}", cut(&name))));
        }
        let Shape::Record(fields) = Shape::of(&schema).map_err(|problem| SchemaFault::new(cut(&problem)))?
        else {
            return Err(SchemaFault::new("is not that of a record"));
        };
        let fields = fields
            .into_iter()
            .map(|(name, shape)| {
                let target = Target::of(&name);
                if target.takes(&shape) {
                    Ok(WriterField { name, target, shape })
                } else {
                    let problem = format!("has a field {name} of a type that it cannot have in a command");
                    Err(SchemaFault::new(problem))
                }
            })
            .collect::<Result<_, _>>()?;
        let fingerprint = schema.fingerprint::<Rabin>().bytes;
        let fingerprint = fingerprint.try_into().map(u64::from_le_bytes);
        Ok(WriterSchema { fingerprint: fingerprint.expect("a Rabin fingerprint has eight bytes"), fields })
    }

    /// Whether the same bytes say the same in both.
    fn reads_as(&self, other: &WriterSchema) -> bool {
        // Fields that may only be null say nothing.
        let fields = |schema: &WriterSchema| {
            let known = schema.fields.iter().filter(|field| field.target != Target::Unknown);
            known.map(|field| (field.name.clone(), plain(&field.shape))).collect::<Vec<_>>()
        };
        fields(self) == fields(other)
    }

    /// Rabin fingerprint, as it stands in a single-object encoding (there little-endian).
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Target {
    fn of(name: &str) -> Target {
        match name {
            "value" => Target::Value,
            "headers" => Target::Headers,
            name => Field::ALL
                .iter()
                .find(|field| field.json() == name)
                .map_or(Target::Unknown, |field| Target::Field(*field)),
        }
    }

    /// Whether at least one kind of what may be written is what the field can be. (Null alone is: it says nothing.)
    fn takes(self, shape: &Shape) -> bool {
        match (self, shape) {
            (Target::Unknown, _) | (_, Shape::Null) => true,
            (_, Shape::Union(branches)) => {
                let mut given = branches.iter().filter(|branch| **branch != Shape::Null).peekable();
                given.peek().is_none() || given.any(|branch| self.takes(branch))
            }
            (Target::Headers, Shape::Array(items)) => match items.as_ref() {
                Shape::Record(fields) => {
                    let named = |name, texts: fn(&Shape) -> bool| {
                        fields.iter().find(|(field, _)| field == name).map(|(_, shape)| any(shape, texts))
                    };
                    named("name", is_text) == Some(true) && named("value", is_bytes) != Some(false)
                }
                _ => false,
            },
            (Target::Headers, Shape::Map(values)) => any(values, is_bytes),
            (Target::Headers, _) => false,
            (Target::Value | Target::Field(Field::Key), shape) => is_bytes(shape),
            (Target::Field(field), shape) => match shape {
                Shape::Boolean => field.is_switch(),
                Shape::Instant { .. } | Shape::Local => field.is_time(),
                Shape::Int | Shape::Long => !field.is_switch(),
                shape => is_text(shape),
            },
        }
    }
}

/// A shape, its milliseconds since the epoch as the plain numbers that they are read as.
fn plain(shape: &Shape) -> Shape {
    match shape {
        Shape::Instant { per_ms: 1 } => Shape::Long,
        Shape::Union(branches) => Shape::Union(branches.iter().map(plain).collect()),
        shape => shape.clone(),
    }
}

/// Whether one of the branches, or the shape itself, is what is wanted; null alone is.
fn any(shape: &Shape, wanted: fn(&Shape) -> bool) -> bool {
    match shape {
        Shape::Union(branches) => branches.iter().any(wanted),
        shape => wanted(shape) || *shape == Shape::Null,
    }
}

fn is_text(shape: &Shape) -> bool {
    matches!(shape, Shape::Text | Shape::Bytes | Shape::Enum(_))
}

fn is_bytes(shape: &Shape) -> bool {
    matches!(shape, Shape::Text | Shape::Bytes | Shape::Fixed(_))
}

/// A problem in the words of a library or of the schema, cut to a bearable length.
fn cut(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text[..text.floor_char_boundary(300)].to_owned()
}

static SHIPPED: LazyLock<HashMap<u64, Arc<WriterSchema>>> = LazyLock::new(|| {
    TASK_COMMAND_VERSIONS
        .iter()
        .map(|text| WriterSchema::parse(text).expect("a shipped schema is one of commands"))
        .map(|schema| (schema.fingerprint, Arc::new(schema)))
        .collect()
});

/// What is known of the schema that a Confluent frame names.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// Here it is.
    Known(Arc<WriterSchema>),
    /// It was not fetched yet: the parser answers [`ParseError::NeedsSchema`](crate::command::ParseError).
    Unfetched,
    /// The registry has no schema of this id.
    Missing,
    /// The registry has one, but not of commands.
    Unusable(SchemaFault),
    /// There is no registry.
    NoRegistry,
}

/// Finds the schema with which a command was written. Never waits: what must be fetched, the caller fetches.
pub trait WriterSchemas {
    /// By the Rabin fingerprint of a single-object encoding.
    fn by_fingerprint(&self, fingerprint: u64) -> Option<Arc<WriterSchema>>;

    /// By the id of a Confluent frame.
    fn by_id(&self, id: u32) -> Lookup;
}

/// Schemas that need no registry: all shipped versions, and those that an operator adds so that producers may be
/// upgraded before ingest.
#[derive(Clone, Debug, Default)]
pub struct KnownSchemas {
    added: HashMap<u64, Arc<WriterSchema>>,
}

impl KnownSchemas {
    /// The shipped versions.
    pub fn shipped() -> KnownSchemas {
        KnownSchemas::default()
    }

    /// Adds one more (the text of an `.avsc` file).
    pub fn add(&mut self, text: &str) -> Result<(), SchemaFault> {
        let schema = WriterSchema::parse(text)?;
        // A fingerprint says nothing of logical types: of two schemas that differ in them alone, a command in single-object
        // encoding does not say which one wrote it.
        if self.by_fingerprint(schema.fingerprint).is_some_and(|known| !known.reads_as(&schema)) {
            return Err(SchemaFault::new(
                "has the fingerprint of another one, from which only logical types tell it apart",
            ));
        }
        self.added.insert(schema.fingerprint, Arc::new(schema));
        Ok(())
    }
}

impl WriterSchemas for KnownSchemas {
    fn by_fingerprint(&self, fingerprint: u64) -> Option<Arc<WriterSchema>> {
        SHIPPED.get(&fingerprint).or_else(|| self.added.get(&fingerprint)).cloned()
    }

    fn by_id(&self, _: u32) -> Lookup {
        Lookup::NoRegistry
    }
}
