//! Avro that nobody writes by mistake.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::avro::TASK_COMMAND_VERSIONS;

/// A schema with these fields.
fn schema_of(fields: serde_json::Value) -> String {
    let mut schema = json!({"type": "record", "name": "TaskCommand"});
    schema["fields"] = fields;
    schema.to_string()
}

/// What is said of these bytes, written with this schema.
fn refusal(schema: &str, datum: &[u8]) -> Refusal {
    let record = Record::default().value([&[0, 0, 0, 0, 7], datum].concat());
    match record.read(&Rules::new(""), &Registry::of(schema)) {
        Err(ParseError::Refused(refused)) => refused.refusal,
        other => panic!("{other:?}"),
    }
}

fn most() -> TaskCommand {
    let header = |name: &str| crate::record::Header { name: name.into(), value: Some(vec![1, 2, 3]) };
    TaskCommand {
        task_id: Some("t".into()),
        value: Some(vec![7; 300]),
        headers: vec![header("a"), header("b")],
        reply: Some(true),
        correlation: Some(vec![1]),
        ..task_command()
    }
}

#[test]
fn a_truncated_command_is_refused_wherever_it_ends() {
    let whole = most().encode();
    assert!(Record::default().value(&whole).parse().is_ok());
    for length in 2..whole.len() {
        let refusal = Record::default().value(&whole[..length]).refusal();
        assert_eq!(refusal.code, ReasonCode::InvalidAvro, "{length} of {}: {refusal}", whole.len());
    }
}

#[test]
fn trailing_bytes_are_refused() {
    let refusal = Record::default().value([most().encode(), vec![0, 0]].concat()).refusal();
    assert_eq!(refusal.code, ReasonCode::InvalidAvro);
    assert!(refusal.message.starts_with("the Avro value has 2 bytes after the end"), "{refusal}");
}

#[test]
fn broken_datums_are_refused_with_what_is_broken() {
    let one = |kind: serde_json::Value| schema_of(json!([{"name": "value", "type": kind}]));
    let other = |kind: serde_json::Value| schema_of(json!([{"name": "x", "type": kind}]));
    let (bytes, strings) = (one(json!("bytes")), other(json!({"type": "array", "items": "string"})));
    let least = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    for (schema, datum, problem) in [
        (&bytes, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x40][..], "ends in the middle"),
        (&bytes, &[0x01], "has a negative length"),
        (&bytes, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], "has a negative length"),
        (&bytes, &[0xff; 10], "has a number of more than 64 bits"),
        (&bytes, &[0x80; 11], "has a number of more than 64 bits"),
        (&bytes, &[], "ends in the middle"),
        (&other(json!("boolean")), &[2], "has a boolean that is neither 0 nor 1"),
        (&other(json!("int")), &[0x80, 0x80, 0x80, 0x80, 0x10], "has an int of more than 32 bits"),
        (&other(json!("float")), &[0, 0, 0], "ends in the middle"),
        (&other(json!(["null", "int"])), &[4], "has a branch that its union does not have"),
        (&other(json!(["null", "int"])), &[1], "has a branch that its union does not have"),
        (&other(json!({"type": "enum", "name": "E", "symbols": ["A"]})), &[2], "has a symbol that its enum"),
        // 2^40 items; -2^63 items; a block that says 5 bytes and has 2; a block that says more than there is.
        (&strings, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 0], "ends in the middle"),
        (&strings, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 2, 0], "ends in the middle"),
        (&strings, &[1, 10, 2, b'a', 0, 0, 0, 0, 0], "has a block of another size than it says"),
        (&strings, &[1, 10, 2, b'a', 0], "ends in the middle"),
        (&strings, &[1, 1, 2, b'a', 0], "has a negative length"),
        (&strings, &[2, 2, b'a'], "ends in the middle"),
        (&other(json!({"type": "fixed", "name": "F", "size": 1u64 << 40})), &[0], "ends in the middle"),
        (&strings, &least, "ends in the middle"),
    ] {
        let refusal = refusal(schema, datum);
        assert_eq!(refusal.code, ReasonCode::InvalidAvro, "{schema} {datum:?}: {refusal}");
        assert!(refusal.message.contains(problem), "{schema} {datum:?}: {refusal}");
    }
}

#[test]
fn blocks_with_their_size_are_read() {
    let fields = json!([
        {"name": "topic", "type": "string"}, {"name": "delay", "type": "string"},
        {"name": "headers", "type": {"type": "map", "values": "bytes"}},
    ]);
    let schema = schema_of(fields);
    // topic t, delay 1s, one header a = b in a block of 4 bytes, one header c = d without a size.
    let datum = [2, b't', 4, b'1', b's', 1, 8, 2, b'a', 2, b'b', 2, 2, b'c', 2, b'd', 0];
    let record = Record::default().value([&[0, 0, 0, 0, 7], &datum[..]].concat());
    let command = record.read(&Rules::new(""), &Registry::of(&schema)).unwrap();
    let names: Vec<_> = command.body.headers.iter().map(|header| header.name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
}

#[test]
fn text_that_is_not_utf_8_is_refused_by_field() {
    let name = |name: &str| schema_of(json!([{"name": name, "type": "string"}]));
    for (field, code) in [
        ("topic", ReasonCode::DueMissing),
        ("due_at", ReasonCode::InvalidField),
        ("delay", ReasonCode::InvalidField),
        ("op", ReasonCode::InvalidField),
        ("completion", ReasonCode::InvalidField),
        ("spread", ReasonCode::InvalidField),
        ("value", ReasonCode::InvalidField),
        ("key", ReasonCode::InvalidField),
    ] {
        assert_eq!(refusal(&name(field), &[2, 0xff]).code, code, "{field}");
    }
    let with = |field: &str| {
        schema_of(json!([{"name": "topic", "type": "string"}, {"name": "delay", "type": "string"},
                         {"name": field, "type": "string"}]))
    };
    let datum = [2, b't', 4, b'1', b's', 2, 0xff];
    for (field, code) in [
        ("task_id", ReasonCode::InvalidId),
        ("shard_key", ReasonCode::InvalidId),
        ("partition", ReasonCode::InvalidField),
        ("expires_at", ReasonCode::InvalidField),
        ("reply", ReasonCode::InvalidField),
    ] {
        let refusal = refusal(&with(field), &datum);
        assert_eq!((refusal.code, refusal.field.as_deref()), (code, Some(field)), "{refusal}");
    }
    let headers = with("headers").replace(
        r#""name":"headers","type":"string""#,
        r#""name":"headers","type":{"type":"map","values":"string"}"#,
    );
    assert_eq!(
        refusal(&headers, &[2, b't', 4, b'1', b's', 2, 2, 0xff, 2, b'x', 0]).code,
        ReasonCode::InvalidHeader
    );
    assert_eq!(
        refusal(&headers, &[2, b't', 4, b'1', b's', 2, 2, b'x', 2, 0xff, 0]).code,
        ReasonCode::InvalidField
    );
}

#[test]
fn hostile_schemas_are_refused() {
    let field = |kind: serde_json::Value| schema_of(json!([{"name": "x", "type": kind}]));
    let recursive = field(json!(["null", "TaskCommand"]));
    let indirect = field(json!(["null", {"type": "record", "name": "A", "fields": [
        {"name": "b", "type": {"type": "array", "items": {"type": "record", "name": "B", "fields": [
            {"name": "a", "type": "A"}]}}}]}]));
    let nulls = field(json!({"type": "array", "items": "null"}));
    let empties = field(json!({"type": "array", "items": {"type": "record", "name": "E", "fields": [
            {"name": "n", "type": "null"}, {"name": "f", "type": {"type": "fixed", "name": "F", "size": 0}}]}}));
    let mut deep = json!("int");
    for _ in 0..60 {
        deep = json!({"type": "array", "items": deep});
    }
    // Each type holds two of the one before: 2^40 of the first.
    let mut bomb = vec![json!({"name": "f0", "type": {"type": "record", "name": "T0", "fields": [
        {"name": "x", "type": "int"}]}})];
    for number in 1..40 {
        let (this, last) = (format!("T{number}"), format!("T{}", number - 1));
        bomb.push(json!({"name": format!("f{number}"), "type": {"type": "record", "name": this, "fields": [
            {"name": "a", "type": last}, {"name": "b", "type": last}]}}));
    }
    // 200 KB of names, used a thousand times each: 200 MB if they were copied.
    let symbols: Vec<_> = (0..20_000).map(|n| format!("s{n}")).collect();
    let mut named = vec![json!({"name": "f0", "type": {"type": "enum", "name": "E", "symbols": symbols}})];
    named.extend((1..1_000).map(|n| json!({"name": format!("f{n}"), "type": "E"})));
    let long_name = "x".repeat(200_000);
    let mut long = vec![json!({"name": "f0", "type": {"type": "record", "name": "L", "fields": [
        {"name": long_name, "type": "int"}]}})];
    long.extend((1..1_000).map(|n| json!({"name": format!("f{n}"), "type": "L"})));
    let wide: Vec<_> = (0..6_000).map(|n| json!({"name": format!("f{n}"), "type": "int"})).collect();
    for (text, problem) in [
        (recursive, "is recursive"),
        (indirect, "is recursive"),
        (nulls, "has an array whose items take no bytes"),
        (empties, "has an array whose items take no bytes"),
        (field(deep), "is nested deeper than 32 levels"),
        (schema_of(bomb.into()), "has more than 5000 types"),
        (schema_of(wide.into()), "has more than 5000 types"),
        (schema_of(named.into()), "has more than 1048576 bytes of names"),
        (schema_of(long.into()), "has more than 1048576 bytes of names"),
        (format!("{{\"type\": {}", "[".repeat(100_000)), "is no Avro schema"),
        ("[".repeat(200_000), "is no Avro schema"),
        (" ".repeat(300_000), "is longer than 262144 bytes"),
        (field(json!("NoSuchType")), "is no Avro schema"),
        (field(json!({"type": "fixed", "name": "F", "size": -1})), "is no Avro schema"),
        (String::new(), "is no Avro schema"),
        ("\"string\"".into(), "is not that of a record"),
        ("[\"null\", \"int\"]".into(), "is not that of a record"),
        (field(json!("int")).replace("TaskCommand", "Task"), "is of a record Task, not TaskCommand"),
    ] {
        let fault = WriterSchema::parse(&text).expect_err(&text).to_string();
        assert!(fault.contains(problem), "{fault}");
        assert!(fault.len() < 600 && !fault.contains('\n'), "{fault}");
    }
}

#[test]
fn a_schema_at_the_limits_is_taken() {
    // A named type may be used again and again; only itself it may not hold.
    let fields = json!([
        {"name": "a", "type": {"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "int"]}]}},
        {"name": "b", "type": ["null", "A"]},
        {"name": "c", "type": {"type": "array", "items": "A"}},
        {"name": "d", "type": {"type": "map", "values": "null"}},
    ]);
    let schema = WriterSchema::parse(&schema_of(fields)).unwrap();
    assert_eq!(schema.fingerprint(), WriterSchema::parse(&schema_of(json!([
        {"name": "a", "type": {"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "int"]}]}},
        {"name": "b", "type": ["null", "A"]},
        {"name": "c", "type": {"type": "array", "items": "A"}},
        {"name": "d", "type": {"type": "map", "values": "null"}},
    ])).replace("TaskCommand\"", "TaskCommand\", \"doc\": \"docs do not count\"")).unwrap().fingerprint());
}

/// Schemas that may or may not be sound.
fn any_schema() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "null", "boolean", "int", "long", "float", "double", "bytes", "string", "H"
        ])
        .prop_map(|name| json!(name)),
        prop::sample::select(vec![
            "date",
            "timestamp-micros",
            "local-timestamp-nanos",
            "uuid",
            "decimal",
            "duration"
        ])
        .prop_map(|name| json!({"type": "long", "logicalType": name})),
        (0u64..20).prop_map(|size| json!({"type": "fixed", "name": "F", "size": size})),
        Just(json!({"type": "enum", "name": "E", "symbols": ["A", "B"]})),
    ];
    let kind = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            inner.clone().prop_map(|values| json!({"type": "map", "values": values})),
            vec(inner.clone(), 0..4).prop_map(|branches| json!(branches)),
            vec(inner, 0..3).prop_map(|kinds| {
                let names = ["name", "value", "x"];
                let fields = kinds.iter().zip(names).map(|(kind, name)| json!({"name": name, "type": kind}));
                json!({"type": "record", "name": "H", "fields": fields.collect::<Vec<_>>()})
            }),
        ]
    });
    let names = field::Field::ALL.iter().map(|field| field.json()).chain(["value", "headers", "other"]);
    let names: Vec<_> = names.collect();
    vec((prop::sample::select(names), kind), 0..5).prop_map(|fields| {
        let fields = fields.iter().map(|(name, kind)| json!({"name": name, "type": kind}));
        schema_of(fields.collect::<Vec<_>>().into())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_schema_and_any_bytes_never_panic(schema in any_schema(), datum in vec(any::<u8>(), 0..80)) {
        let record = Record::default().value([&[0, 0, 0, 0, 7], &datum[..]].concat());
        if let Err(ParseError::Refused(refused)) = record.read(&Rules::new(""), &Registry::of(&schema)) {
            prop_assert!(refused.refusal.message.len() < 1500);
            prop_assert!(!refused.refusal.message.contains(|c: char| c.is_control()));
        }
    }

    #[test]
    fn a_command_with_bytes_overwritten_never_panics(
        place in any::<prop::sample::Index>(),
        bytes in vec(any::<u8>(), 1..20),
    ) {
        let mut value = most().encode();
        let start = place.index(value.len());
        for (old, new) in value[start..].iter_mut().zip(&bytes) {
            *old = *new;
        }
        hostile::check(&Record::default().value(value));
    }

    #[test]
    fn any_text_as_a_schema_never_panics(text in ".{0,200}", cut in any::<prop::sample::Index>()) {
        prop_assert!(WriterSchema::parse(&text).is_err());
        let ours = TASK_COMMAND_VERSIONS[0].trim_end();
        let cut = ours.floor_char_boundary(cut.index(ours.len()));
        prop_assert!(WriterSchema::parse(&ours[..cut]).is_err());
        if let Err(fault) = WriterSchema::parse(&format!("{}{text}{}", &ours[..cut], &ours[cut..])) {
            prop_assert!(fault.to_string().len() < 600);
        }
    }
}
