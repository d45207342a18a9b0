//! What a writer's schema says about bytes, made ready to read them: references resolved, limits kept.
//!
//! A schema from a registry is input like any other. apache-avro 0.22 would follow a recursive schema down to the end of
//! the stack, allocate whatever a `fixed` says, and loop as often as an array of nulls asks (docs/adr/0005).

use apache_avro::Schema;
use apache_avro::schema::{InnerDecimalSchema, NamesRef, ResolvedSchema, UuidSchema};

/// Deepest nesting of a writer's schema.
const MAX_DEPTH: usize = 32;
/// Most types in a writer's schema, each counted as often as it is used.
const MAX_NODES: usize = 5_000;
/// Most bytes of names of fields and of symbols of enums, each counted as often as it is used.
const MAX_NAMES_BYTES: usize = 1 << 20;

/// Shape of a datum.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Vec<String>),
    Array(Box<Shape>),
    Map(Box<Shape>),
    Union(Vec<Shape>),
    Record(Vec<(String, Shape)>),
    /// A long that counts from the epoch: so many of it are a millisecond.
    Instant {
        per_ms: i64,
    },
    /// A long that is a local time, which names no instant.
    Local,
    /// Something that no field of ours is: what it is called, and how it lies in the bytes.
    Other(&'static str, Box<Shape>),
}

impl Shape {
    /// Makes a schema ready. `Err`: why it cannot be read.
    pub(super) fn of(schema: &Schema) -> Result<Shape, String> {
        let resolved = ResolvedSchema::new(schema).map_err(|error| error.to_string())?;
        Compiler { names: resolved.get_names(), open: Vec::new(), nodes: 0, names_bytes: 0 }
            .shape(schema, None, 0)
    }

    /// Bytes that a datum of this shape takes at least.
    fn least_bytes(&self) -> usize {
        match self {
            Shape::Null => 0,
            Shape::Fixed(size) => *size,
            Shape::Record(fields) => {
                fields.iter().fold(0, |sum: usize, (_, shape)| sum.saturating_add(shape.least_bytes()))
            }
            Shape::Other(_, base) => base.least_bytes(),
            Shape::Float => 4,
            Shape::Double => 8,
            Shape::Boolean
            | Shape::Int
            | Shape::Long
            | Shape::Bytes
            | Shape::Text
            | Shape::Enum(_)
            | Shape::Array(_)
            | Shape::Map(_)
            | Shape::Union(_)
            | Shape::Instant { .. }
            | Shape::Local => 1,
        }
    }
}

struct Compiler<'s> {
    names: &'s NamesRef<'s>,
    /// Named types that are being compiled.
    open: Vec<String>,
    nodes: usize,
    names_bytes: usize,
}

impl Compiler<'_> {
    /// Counts a name that is about to be copied. 24 bytes are what an empty one takes.
    fn name(&mut self, name: &str) -> Result<(), String> {
        self.names_bytes = self.names_bytes.saturating_add(name.len() + size_of::<String>());
        if self.names_bytes > MAX_NAMES_BYTES {
            return Err(format!(
                "has more than {MAX_NAMES_BYTES} bytes of names, counted as often as they are used"
            ));
        }
        Ok(())
    }

    fn shape(&mut self, schema: &Schema, namespace: Option<&str>, depth: usize) -> Result<Shape, String> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return Err(format!("is nested deeper than {MAX_DEPTH} levels"));
        }
        if self.nodes > MAX_NODES {
            return Err(format!("has more than {MAX_NODES} types"));
        }
        let other = |name, base| Ok(Shape::Other(name, Box::new(base)));
        match schema {
            Schema::Null => Ok(Shape::Null),
            Schema::Boolean => Ok(Shape::Boolean),
            Schema::Int => Ok(Shape::Int),
            Schema::Long => Ok(Shape::Long),
            Schema::Float => Ok(Shape::Float),
            Schema::Double => Ok(Shape::Double),
            Schema::Bytes | Schema::Uuid(UuidSchema::Bytes) => Ok(Shape::Bytes),
            Schema::String | Schema::Uuid(UuidSchema::String) => Ok(Shape::Text),
            Schema::Fixed(fixed) | Schema::Uuid(UuidSchema::Fixed(fixed)) => Ok(Shape::Fixed(fixed.size)),
            Schema::Enum(symbols) => {
                for symbol in &symbols.symbols {
                    self.name(symbol)?;
                }
                Ok(Shape::Enum(symbols.symbols.clone()))
            }
            Schema::Array(array) => {
                let items = self.shape(&array.items, namespace, depth + 1)?;
                // Else a few bytes could ask for 2^62 of them.
                if items.least_bytes() == 0 {
                    return Err("has an array whose items take no bytes".to_owned());
                }
                Ok(Shape::Array(Box::new(items)))
            }
            Schema::Map(map) => Ok(Shape::Map(Box::new(self.shape(&map.types, namespace, depth + 1)?))),
            Schema::Union(union) => union
                .variants()
                .iter()
                .map(|branch| self.shape(branch, namespace, depth + 1))
                .collect::<Result<_, _>>()
                .map(Shape::Union),
            Schema::Record(record) => {
                let name = record.name.fully_qualified_name(namespace);
                let full = name.fullname(None);
                if self.open.contains(&full) {
                    return Err("is recursive".to_owned());
                }
                self.open.push(full);
                let fields = record
                    .fields
                    .iter()
                    .map(|field| {
                        self.name(&field.name)?;
                        let shape = self.shape(&field.schema, name.namespace(), depth + 1)?;
                        Ok((field.name.clone(), shape))
                    })
                    .collect::<Result<_, String>>()?;
                self.open.pop();
                Ok(Shape::Record(fields))
            }
            Schema::Ref { name } => {
                let name = name.fully_qualified_name(namespace);
                let Some(named) = self.names.get(name.as_ref()).copied() else {
                    return Err("names a type that it does not define".to_owned());
                };
                self.shape(named, name.namespace(), depth + 1)
            }
            Schema::TimestampMillis => Ok(Shape::Instant { per_ms: 1 }),
            Schema::TimestampMicros => Ok(Shape::Instant { per_ms: 1_000 }),
            Schema::TimestampNanos => Ok(Shape::Instant { per_ms: 1_000_000 }),
            Schema::LocalTimestampMillis | Schema::LocalTimestampMicros | Schema::LocalTimestampNanos => {
                Ok(Shape::Local)
            }
            Schema::Date => other("a date", Shape::Int),
            Schema::TimeMillis => other("a time of day", Shape::Int),
            Schema::TimeMicros => other("a time of day", Shape::Long),
            Schema::BigDecimal => other("a decimal", Shape::Bytes),
            Schema::Decimal(decimal) => {
                let base = match &decimal.inner {
                    InnerDecimalSchema::Bytes => Shape::Bytes,
                    InnerDecimalSchema::Fixed(fixed) => Shape::Fixed(fixed.size),
                };
                other("a decimal", base)
            }
            Schema::Duration(fixed) => other("a duration", Shape::Fixed(fixed.size)),
        }
    }
}
