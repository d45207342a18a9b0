//! Commands as Avro: by fingerprint and by id, with our schema and with others.

use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use apache_avro::{Schema, rabin::Rabin};
use serde_json::json;

use super::*;
use crate::avro::TASK_COMMAND_VERSIONS;
use crate::record::Header;

/// A datum in single-object encoding.
fn single_object(schema: &str, value: Value) -> Vec<u8> {
    let schema = Schema::parse_str(schema).unwrap();
    let mut out = [&[0xc3, 0x01][..], &schema.fingerprint::<Rabin>().bytes].concat();
    out.extend(datum(&schema, value));
    out
}

/// A datum framed as schema 7.
fn framed(schema: &str, value: Value) -> Vec<u8> {
    [vec![0, 0, 0, 0, 7], datum(&Schema::parse_str(schema).unwrap(), value)].concat()
}

fn datum(schema: &Schema, value: Value) -> Vec<u8> {
    let mut out = Vec::new();
    let writer = GenericDatumWriter::builder(schema).human_readable(false).build().unwrap();
    writer.write_value(&mut out, value).unwrap();
    out
}

fn record(fields: Vec<(&str, Value)>) -> Value {
    Value::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

/// A schema with these fields.
fn schema_of(fields: serde_json::Value) -> String {
    let mut schema = json!({"type": "record", "name": "TaskCommand", "namespace": "com.example"});
    schema["fields"] = fields;
    schema.to_string()
}

/// The newest version with one more field, and a command with it.
fn next() -> String {
    let mut schema: serde_json::Value = serde_json::from_str(TASK_COMMAND_VERSIONS.last().unwrap()).unwrap();
    let field =
        json!({"name": "not_yet", "type": ["null", "string"], "doc": "A new field.", "default": null});
    schema["fields"].as_array_mut().unwrap().insert(3, field);
    schema.to_string()
}

fn with_next_field(command: &TaskCommand, field: Option<&str>) -> Value {
    let Value::Record(mut fields) = command.to_value() else { panic!("a record") };
    let field =
        field.map_or(Value::Union(0, Box::new(Value::Null)), |it| Value::Union(1, Box::new(text(it))));
    fields.insert(3, ("not_yet".into(), field));
    Value::Record(fields)
}

fn code(record: &Record, schemas: &dyn WriterSchemas) -> (ReasonCode, String) {
    match record.read(&Rules::new("duestream."), schemas) {
        Err(ParseError::Refused(refused)) => {
            assert!(refused.refusal.message.ends_with(refused.refusal.code.remedy()), "{}", refused.refusal);
            (refused.refusal.code, refused.refusal.message)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_field_is_read() {
    let header = |name: &str, value: Option<&[u8]>| Header { name: name.into(), value: value.map(Vec::from) };
    let some = |text: &str| Some(text.to_owned());
    let avro = TaskCommand {
        op: some("schedule"),
        due_at: Some(AvroTime::Ms(1_769_904_000_000)),
        topic: some("callbacks"),
        task_id: some("t-ä"),
        shard_key: some("s"),
        key: Some(vec![0xff]),
        no_key: Some(false),
        value: Some(vec![0xc3, 0x01, 0]),
        headers: vec![header("b", Some(&[0xff])), header("a", None), header("b", Some(b""))],
        partition: Some(3),
        expires_at: Some(AvroTime::Text("2026-02-01T01:00:00+01:00".into())),
        completion: some("on_delivery"),
        ..TaskCommand::default()
    };
    let command = by_avro(&avro).key("k").header("record", "header").parse().unwrap();
    assert_eq!(command.due_at, 1_769_904_000_000);
    assert_eq!((command.task_id.as_deref(), command.shard_key.as_deref()), (Some("t-ä"), Some("s")));
    assert_eq!((command.options.partition, command.options.expires_at), (Some(3), Some(1_769_904_000_000)));
    let headers = [vec![header("record", Some(b"header"))], avro.headers].concat();
    assert_eq!(command.body, RowBody { key: Some(vec![0xff]), headers, value: Some(vec![0xc3, 0x01, 0]) });
}

#[test]
fn null_is_the_same_as_left_out_and_the_key_is_that_of_the_record() {
    let command = by_avro(&task_command()).key("k").parse().unwrap();
    assert_eq!(command, by_headers().key("k").parse().unwrap());
    let no_key = TaskCommand { no_key: Some(true), ..task_command() };
    assert_eq!(by_avro(&no_key).key("k").parse().unwrap().body.key, None);
    let empty = TaskCommand { key: Some(vec![]), value: Some(vec![]), ..task_command() };
    let body = by_avro(&empty).key("k").parse().unwrap().body;
    assert_eq!((body.key, body.value), (Some(vec![]), Some(vec![])));
}

#[test]
fn a_header_of_duestream_makes_it_the_headers_form_whatever_the_value_is() {
    let bytes = task_command().encode();
    let command = by_headers().value(&bytes).parse().unwrap();
    assert_eq!(command.body.value, Some(bytes));
}

#[test]
fn a_frame_names_the_schema_that_is_needed() {
    let record = Record::default().value(task_command().encode_framed(7));
    let rules = Rules::new("duestream.");
    let mut registry = Registry::default();
    assert_eq!(record.read(&rules, &registry), Err(ParseError::NeedsSchema(7)));
    registry = Registry::of(TASK_COMMAND_VERSIONS.last().unwrap());
    assert_eq!(record.read(&rules, &registry).unwrap(), by_headers().parse().unwrap());

    registry.ids.insert(7, Lookup::Missing);
    let (code_found, message) = code(&record, &registry);
    assert_eq!(code_found, ReasonCode::UnknownSchema);
    assert!(message.contains("the schema registry has no schema 7"), "{message}");
    registry = Registry::of(r#"{"type": "record", "name": "Order", "fields": []}"#);
    let (code_found, message) = code(&record, &registry);
    assert_eq!(code_found, ReasonCode::IncompatibleSchema);
    assert!(message.contains("is of a record Order, not TaskCommand"), "{message}");

    let (code_found, message) = code(&record, &KnownSchemas::shipped());
    assert_eq!(code_found, ReasonCode::UnknownSchema);
    assert!(message.contains("no schema registry is configured"), "{message}");
    let id = Record::default().value([0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(id.read(&rules, &Registry::default()), Err(ParseError::NeedsSchema(u32::MAX)));
}

#[test]
fn an_unknown_fingerprint_is_refused_and_named() {
    let record = Record::default().value([0xc3, 0x01, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    let (code_found, message) = code(&record, &KnownSchemas::shipped());
    assert_eq!(code_found, ReasonCode::UnknownSchema);
    assert!(message.contains("0807060504030201"), "{message}");
    for value in [&[0xc3, 0x01][..], &[0xc3, 0x01, 1, 2, 3, 4, 5, 6, 7], &[0], &[0, 0, 0, 7]] {
        let record = Record::default().value(value);
        assert_eq!(code(&record, &Registry::default()).0, ReasonCode::InvalidAvro, "{value:?}");
    }
}

#[test]
fn producers_of_the_next_version_and_of_this_one_run_side_by_side() {
    let mut known = KnownSchemas::shipped();
    known.add(&next()).unwrap();
    let mut registry = Registry::of(&next());
    registry.ids.insert(6, Registry::of(TASK_COMMAND_VERSIONS.last().unwrap()).ids[&7].clone());
    registry.known = known;
    let rules = Rules::new("duestream.");
    for number in 0..20 {
        let command = TaskCommand { task_id: Some(format!("t-{number}")), ..task_command() };
        let expected = by_avro(&command).parse().unwrap();
        for value in [
            command.encode(),
            single_object(&next(), with_next_field(&command, None)),
            command.encode_framed(6),
            framed(&next(), with_next_field(&command, None)),
        ] {
            let read = Record::default().value(value).read(&rules, &registry).unwrap();
            assert_eq!(read, expected);
        }
    }
}

#[test]
fn what_a_newer_producer_asks_for_is_refused_rather_than_ignored() {
    let record = Record::default().value(framed(&next(), with_next_field(&task_command(), Some("x"))));
    let (code_found, message) = code(&record, &Registry::of(&next()));
    assert_eq!(code_found, ReasonCode::UnknownField);
    assert!(
        message.starts_with(r#"the Avro field "not_yet" is not one that a command may have"#),
        "{message}"
    );
    // Without the schema it says so.
    let record = Record::default().value(single_object(&next(), with_next_field(&task_command(), None)));
    assert_eq!(code(&record, &KnownSchemas::shipped()).0, ReasonCode::UnknownSchema);
}

#[test]
fn a_schema_of_other_types_and_order_is_read_by_name() {
    let schema = schema_of(json!([
        {"name": "value", "type": "string"},
        {"name": "headers", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "extra", "type": ["null", {"type": "record", "name": "X", "fields": [{"name": "x", "type": "int"}]}]},
        {"name": "partition", "type": "long"},
        {"name": "completion", "type": {"type": "enum", "name": "C", "symbols": ["on_ack", "on_delivery"]}},
        {"name": "task_id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "due_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "key", "type": {"type": "fixed", "name": "K", "size": 2}},
        {"name": "shard_key", "type": "int"},
        {"name": "topic", "type": "bytes"},
    ]));
    let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let value = record(vec![
        ("value", text("hello")),
        ("headers", Value::Map([("h".to_owned(), Value::Union(1, Box::new(text("1"))))].into())),
        ("extra", Value::Union(0, Box::new(Value::Null))),
        ("partition", Value::Long(3)),
        ("completion", Value::Enum(1, "on_delivery".into())),
        ("task_id", Value::Uuid(uuid.parse().unwrap())),
        ("due_at", Value::TimestampMillis(NOW_AT + 1)),
        ("key", Value::Fixed(2, b"ab".to_vec())),
        ("shard_key", Value::Int(12)),
        ("topic", Value::Bytes(b"callbacks".to_vec())),
    ]);
    let read = Record::default().value(framed(&schema, value)).read(&Rules::new(""), &Registry::of(&schema));
    let expected = Record::default()
        .key("ab")
        .value("hello")
        .header("h", "1")
        .header("duestream-due-at", (NOW_AT + 1).to_string())
        .header("duestream-topic", "callbacks")
        .header("duestream-task-id", uuid)
        .header("duestream-shard-key", "12")
        .header("duestream-partition", "3");
    assert_eq!(read.unwrap(), expected.parse().unwrap());
}

/// What becomes of a due time in a schema of its own.
fn due_at(kind: serde_json::Value, value: Value) -> Result<i64, (ReasonCode, String)> {
    let mut fields = json!([{"name": "topic", "type": "string"}, {"name": "due_at"}]);
    fields[1]["type"] = kind;
    let schema = schema_of(fields);
    let value = framed(&schema, record(vec![("topic", text("t")), ("due_at", value)]));
    let record = Record::default().value(value);
    match record.read(&Rules::new(""), &Registry::of(&schema)) {
        Ok(command) => Ok(command.due_at),
        Err(_) => Err(code(&record, &Registry::of(&schema))),
    }
}

#[test]
fn a_timestamp_of_any_unit_is_read_as_what_it_is_and_never_early() {
    let logical = |name: &str| json!({"type": "long", "logicalType": name});
    let at = NOW_AT;
    assert_eq!(due_at(json!("long"), Value::Long(at)), Ok(at));
    assert_eq!(due_at(json!("string"), text("2026-01-31T09:00:00Z")), Ok(at));
    assert_eq!(due_at(logical("timestamp-millis"), Value::TimestampMillis(at)), Ok(at));
    assert_eq!(due_at(logical("timestamp-micros"), Value::TimestampMicros(at * 1_000)), Ok(at));
    assert_eq!(due_at(logical("timestamp-micros"), Value::TimestampMicros(at * 1_000 + 1)), Ok(at + 1));
    assert_eq!(due_at(logical("timestamp-nanos"), Value::TimestampNanos(at * 1_000_000 - 1)), Ok(at));
    assert_eq!(due_at(logical("no-such-type"), Value::Long(at)), Ok(at));
    for (kind, value) in [
        (logical("timestamp-millis"), Value::TimestampMillis(i64::MAX)),
        (logical("timestamp-micros"), Value::TimestampMicros(i64::MIN)),
        (logical("timestamp-nanos"), Value::TimestampNanos(i64::MIN)),
        (json!("int"), Value::Int(i32::MAX)),
    ] {
        assert_eq!(due_at(kind, value).unwrap_err().0, ReasonCode::TimeOutOfRange);
    }
    let local = due_at(logical("local-timestamp-millis"), Value::LocalTimestampMillis(at)).unwrap_err();
    assert_eq!(local.0, ReasonCode::TimeWithoutZone);
}

#[test]
fn a_branch_that_the_field_cannot_be_is_refused_where_it_is_used() {
    let kind = json!(["null", "long", "double", "boolean", {"type": "int", "logicalType": "date"}]);
    let branch = |index, value| due_at(kind.clone(), Value::Union(index, Box::new(value)));
    assert_eq!(branch(1, Value::Long(NOW_AT)), Ok(NOW_AT));
    assert_eq!(branch(0, Value::Null).unwrap_err().0, ReasonCode::DueMissing);
    for (index, value, what) in [
        (2, Value::Double(1.5), "due_at is a double"),
        (3, Value::Boolean(true), "due_at is a boolean"),
        (4, Value::Date(20_000), "due_at is a date"),
    ] {
        let (code_found, message) = branch(index, value).unwrap_err();
        assert_eq!(code_found, ReasonCode::InvalidField);
        assert!(message.starts_with(what), "{message}");
    }
}

#[test]
fn a_schema_whose_field_can_never_be_what_it_must_is_refused() {
    let header = |fields: serde_json::Value| json!({"type": "array", "items": {"type": "record", "name": "H", "fields": fields}});
    for (name, kind) in [
        ("due_at", json!("double")),
        ("due_at", json!({"type": "int", "logicalType": "date"})),
        ("due_at", json!(["null", "float"])),
        ("topic", json!({"type": "long", "logicalType": "timestamp-millis"})),
        ("topic", json!("boolean")),
        ("topic", json!({"type": "array", "items": "string"})),
        ("reply", json!("long")),
        ("value", json!("long")),
        ("value", json!({"type": "map", "values": "string"})),
        ("key", json!("int")),
        ("headers", json!("string")),
        ("headers", json!({"type": "map", "values": "int"})),
        ("headers", json!({"type": "array", "items": "string"})),
        ("headers", header(json!([{"name": "value", "type": "bytes"}]))),
        ("headers", header(json!([{"name": "name", "type": "string"}, {"name": "value", "type": "int"}]))),
    ] {
        let text = schema_of(json!([{"name": name, "type": kind}]));
        let fault = WriterSchema::parse(&text).expect_err(&text).to_string();
        let expected = format!("has a field {name} of a type");
        assert!(fault.contains(&expected), "{text}: {fault}");
    }
    // Null says nothing, whatever the field.
    let nothing =
        schema_of(json!([{"name": "due_at", "type": "null"}, {"name": "headers", "type": ["null"]}]));
    assert!(WriterSchema::parse(&nothing).is_ok());
}

#[test]
fn headers_of_other_schemas_keep_the_same_rules() {
    let read = |items: serde_json::Value, headers: Value| {
        let schema =
            schema_of(json!([{"name": "topic", "type": "string"}, {"name": "delay", "type": "string"},
                                      {"name": "headers", "type": items}]));
        let fields = vec![("topic", text("t")), ("delay", text("1s")), ("headers", headers)];
        let record = Record::default().value(framed(&schema, record(fields)));
        let registry = Registry::of(&schema);
        record.read(&Rules::new(""), &registry).map_err(|_| code(&record, &registry).0)
    };
    let map = json!({"type": "map", "values": "bytes"});
    let one = |name: &str| Value::Map([(name.to_owned(), Value::Bytes(vec![0xff]))].into());
    let header = Header { name: "h".into(), value: Some(vec![0xff]) };
    assert_eq!(read(map.clone(), one("h")).unwrap().body.headers, [header]);
    assert_eq!(read(map.clone(), one("DUESTREAM-x")).unwrap_err(), ReasonCode::UnknownField);
    assert_eq!(read(map, one("")).unwrap_err(), ReasonCode::InvalidHeader);

    let fields = json!([{"name": "name", "type": "string"}, {"name": "note", "type": ["null", "string"]}]);
    let items = json!({"type": "array", "items": {"type": "record", "name": "H", "fields": fields}});
    let array = |note: Value| Value::Array(vec![record(vec![("name", text("h")), ("note", note)])]);
    let header = Header { name: "h".into(), value: None };
    let null = Value::Union(0, Box::new(Value::Null));
    assert_eq!(read(items.clone(), array(null)).unwrap().body.headers, [header]);
    let note = Value::Union(1, Box::new(text("x")));
    assert_eq!(read(items, array(note)).unwrap_err(), ReasonCode::UnknownField);
}
