//! Every schema as its next version may be: the newest shipped one with more fields. Records are really written and
//! really resolved, because apache-avro's `can_read` promises more than its reader keeps.

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use serde_json::json;

use super::golden;
use crate::avro::{SHIPPED, wire_row};
use crate::command::MAX_HEADERS;
use crate::record::Header;
use crate::row::RowBody;

/// The newest version with two more fields. (Both null by default, as the fields of a command must be.)
fn next(text: &str) -> Schema {
    let mut schema: serde_json::Value = serde_json::from_str(text).unwrap();
    let fields = schema["fields"].as_array_mut().unwrap();
    fields.insert(
        1,
        json!({"name": "next_text", "type": ["null", "string"], "doc": "A new field.", "default": null}),
    );
    fields.push(json!({"name": "next_number", "type": ["null", "long"], "doc": "Another.", "default": null}));
    Schema::parse_str(&schema.to_string()).unwrap()
}

fn write(schema: &Schema, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let writer = GenericDatumWriter::builder(schema).human_readable(false).build().unwrap();
    writer.write_value(&mut out, value.clone()).unwrap();
    out
}

fn read(writer: &Schema, reader: &Schema, mut datum: &[u8]) -> Value {
    let reader =
        GenericDatumReader::builder(writer).reader_schema(reader).human_readable(false).build().unwrap();
    let value = reader.read_value(&mut datum).unwrap();
    assert!(datum.is_empty());
    value
}

fn fields(value: Value) -> Vec<(String, Value)> {
    let Value::Record(fields) = value else { panic!("a record") };
    fields
}

/// Datums of a record of each shipped version: golden ones, or for a document of headers one that is made up.
fn datums(record: &str, schema: &Schema) -> Vec<Vec<u8>> {
    if !record.ends_with("_headers") {
        return golden::datums(record);
    }
    let Schema::Record(record) = schema else { panic!("a record") };
    let value = record.fields.iter().map(|field| {
        let value = match &field.schema {
            Schema::String => Value::String("text".into()),
            Schema::Int => Value::Int(7),
            Schema::Long => Value::Long(7),
            Schema::Union(_) => Value::Union(0, Box::new(Value::Null)),
            other => panic!("{other:?} in a document of headers"),
        };
        (field.name.clone(), value)
    });
    vec![write(schema, &Value::Record(value.collect()))]
}

#[test]
fn a_reader_of_the_next_version_takes_what_this_one_wrote() {
    for (record, versions) in SHIPPED {
        let text = versions.last().unwrap();
        let (this, next) = (Schema::parse_str(text).unwrap(), next(text));
        let all = datums(record, &this);
        assert!(!all.is_empty(), "{record} has no golden bytes");
        for datum in all {
            let value = fields(read(&this, &next, &datum));
            for name in ["next_text", "next_number"] {
                let found = value.iter().find(|(field, _)| field == name);
                assert_eq!(found.unwrap().1, Value::Union(0, Box::new(Value::Null)), "{record}");
            }
            let rest = value.into_iter().filter(|(name, _)| !name.starts_with("next_")).collect();
            assert_eq!(write(&this, &Value::Record(rest)), datum, "{record} is read otherwise");
        }
    }
}

#[test]
fn a_reader_of_this_version_takes_what_the_next_one_writes() {
    for (record, versions) in SHIPPED {
        let text = versions.last().unwrap();
        let (this, next) = (Schema::parse_str(text).unwrap(), next(text));
        for datum in datums(record, &this) {
            let mut value = fields(read(&this, &next, &datum));
            for (name, field) in &mut value {
                match name.as_str() {
                    "next_text" => *field = Value::Union(1, Box::new(Value::String("new".into()))),
                    "next_number" => *field = Value::Union(1, Box::new(Value::Long(i64::MIN))),
                    _ => {}
                }
            }
            let newer = write(&next, &Value::Record(value));
            assert_ne!(newer, datum);
            assert_eq!(write(&this, &read(&next, &this, &newer)), datum, "{record} is read otherwise");
        }
    }
}

#[test]
fn the_most_headers_of_an_older_version_fit_the_bound_on_allocations() {
    let header = Header { name: "h".into(), value: None };
    let body = RowBody { key: None, headers: vec![header; MAX_HEADERS], value: None };
    // Encoding sets the bound for the whole process.
    let bytes = body.encode();
    let text = wire_row::BODY_VERSIONS.last().unwrap();
    let value = fields(read(&Schema::parse_str(text).unwrap(), &next(text), &bytes[10..]));
    let headers = value.into_iter().find(|(name, _)| name == "headers").unwrap().1;
    assert!(matches!(headers, Value::Array(headers) if headers.len() == MAX_HEADERS));
}
