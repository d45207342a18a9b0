//! Each shipped version of a schema against the next, and the rules that keep that possible.

use apache_avro::Schema;
use apache_avro::schema_compatibility::{Compatibility, SchemaCompatibility};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::samples;
use crate::avro::codec::Codec;
use crate::avro::{DecodeError, SHIPPED, wire_row};
use crate::row::RowOptions;

/// Versions that cannot be read by the version before them, which the rule "upgrade readers before writers" allows
/// between the programs. `(record, version)`; each needs a line in CHANGELOG.md.
const READERS_FIRST: &[(&str, usize)] = &[];
/// What producers and consumers read and write: no program of ours is upgraded first.
const OUTWARD: &[&str] =
    &["ack", "callback_headers", "dead_headers", "rejection_headers", "reply", "task_command"];

/// What is wrong with a row of versions, oldest first.
fn faults(record: &str, versions: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, text) in versions.iter().enumerate() {
        named_faults(&serde_json::from_str(text).unwrap(), &format!("v{}", number + 1), &mut faults);
    }
    let schemas: Vec<Schema> = versions.iter().map(|text| Schema::parse_str(text).unwrap()).collect();
    for (number, pair) in schemas.windows(2).enumerate() {
        let (from, to) = (number + 1, number + 2);
        match SchemaCompatibility::can_read(&pair[0], &pair[1]) {
            Ok(Compatibility::Full) => {}
            other => faults.push(format!("v{to} cannot read every record of v{from}: {other:?}")),
        }
        match SchemaCompatibility::can_read(&pair[1], &pair[0]) {
            Ok(Compatibility::Full) => {}
            _ if READERS_FIRST.contains(&(record, to)) && !OUTWARD.contains(&record) => {}
            other => faults.push(format!("v{from} cannot read every record of v{to}: {other:?}")),
        }
        if pair[0].canonical_form() == pair[1].canonical_form() {
            faults.push(format!("v{to} has the fingerprint of v{from}"));
        }
        if record == "task_command" {
            unknowable_faults(&pair[0], &pair[1], to, &mut faults);
        }
    }
    faults
}

/// A new field of a command must be null where nothing is asked, or an older ingest has to refuse every command.
fn unknowable_faults(from: &Schema, to: &Schema, number: usize, faults: &mut Vec<String>) {
    let (Schema::Record(from), Schema::Record(to)) = (from, to) else { panic!("two records") };
    for field in to.fields.iter().filter(|field| !from.lookup.contains_key(&field.name)) {
        if field.default != Some(Value::Null) {
            faults.push(format!("v{number}.{} is not null by default", field.name));
        }
    }
}

/// Every record, field, enum and fixed has a doc; nothing has an alias, which apache-avro 0.22 does not follow.
fn named_faults(schema: &Value, path: &str, faults: &mut Vec<String>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| named_faults(item, path, faults)),
        Value::Object(members) => {
            let path = members
                .get("name")
                .map_or(path.to_owned(), |name| format!("{path}.{}", name.as_str().unwrap()));
            if members.contains_key("name")
                && members.get("doc").and_then(Value::as_str).is_none_or(str::is_empty)
            {
                faults.push(format!("{path} has no doc"));
            }
            if members.contains_key("aliases") {
                faults.push(format!("{path} has an alias"));
            }
            for member in ["type", "items", "fields"] {
                members.get(member).inspect(|inner| named_faults(inner, &path, faults));
            }
        }
        _ => {}
    }
}

#[test]
fn every_shipped_version_can_be_read_by_the_next_and_the_other_way_round() {
    for (record, versions) in SHIPPED {
        assert_eq!(faults(record, versions), Vec::<String>::new(), "{record}");
    }
}

#[test]
fn every_schema_file_is_shipped() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("avsc");
    let mut folders: Vec<_> = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(folders, SHIPPED.iter().map(|(record, _)| *record).collect::<Vec<_>>());
    for (record, versions) in SHIPPED {
        assert_eq!(std::fs::read_dir(root.join(record)).unwrap().count(), versions.len(), "{record}");
        for (number, text) in versions.iter().enumerate() {
            let path = root.join(record).join(format!("v{}.avsc", number + 1));
            assert_eq!(&std::fs::read_to_string(path).unwrap(), text, "{record}");
        }
    }
}

/// The newest `row_options` with one more field.
fn next_options(field: Value) -> String {
    let newest = wire_row::OPTIONS_VERSIONS.last().unwrap();
    let mut schema: Value = serde_json::from_str(newest).unwrap();
    schema["fields"].as_array_mut().unwrap().push(field);
    schema.to_string()
}

#[test]
fn a_change_that_breaks_old_records_is_found() {
    let now = *wire_row::OPTIONS_VERSIONS.last().unwrap();
    let good = json!({"name": "note", "type": ["null", "string"], "doc": "A note.", "default": null});
    assert_eq!(faults("row_options", &[now, &next_options(good)]), Vec::<String>::new());

    let no_default = json!({"name": "note", "type": "string", "doc": "A note."});
    let no_doc = json!({"name": "note", "type": "string", "default": ""});
    let renamed = now.replace(r#""name": "partition""#, r#""name": "part", "aliases": ["partition"]"#);
    let lost_symbol = now.replace(r#"["ON_DELIVERY", "ON_ACK"]"#, r#"["ON_DELIVERY"]"#);
    for (v2, fault) in [
        (next_options(no_default), "v2 cannot read"),
        (next_options(no_doc), "has no doc"),
        (renamed, "has an alias"),
        (now.replace(r#"["null", "int"]"#, r#"["null", "long"]"#), "v1 cannot read"),
        (lost_symbol, "v2 cannot read"),
        (now.replace("Column", "The column"), "v2 has the fingerprint of v1"),
    ] {
        assert!(
            faults("row_options", &[now, &v2]).iter().any(|found| found.contains(fault)),
            "{fault} not found in {v2}"
        );
    }
}

/// What the next version of `row_options` would look like in Rust.
#[derive(Serialize, Deserialize)]
#[serde(rename = "RowOptions")]
struct NextOptions {
    partition: Option<i32>,
    expires_at: Option<i64>,
    asked_at: Option<i64>,
    completion: NextCompletion,
    #[serde(with = "apache_avro::serde::bytes_opt")]
    progress: Option<Vec<u8>>,
    max_attempts: Option<i32>,
    backoff: Option<String>,
    ack_timeout_ms: Option<i64>,
    max_stalls: Option<i32>,
    note: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename = "Completion", rename_all = "SCREAMING_SNAKE_CASE")]
enum NextCompletion {
    OnDelivery,
    OnAck,
}

#[test]
fn a_newer_reader_takes_old_bytes_and_an_older_one_says_that_it_is_old() {
    let next = next_options(json!({"name": "note", "type": "string", "doc": "A note.", "default": "none"}));
    let versions: Vec<&str> = wire_row::OPTIONS_VERSIONS.iter().copied().chain([next.as_str()]).collect();
    let codec: Codec<NextOptions> = Codec::new("row options", &versions);

    let old = codec.decode(&samples::options_most().encode()).unwrap();
    assert_eq!(
        (old.partition, old.expires_at, old.asked_at),
        (Some(i32::MAX), Some(i64::MAX), Some(i64::MIN))
    );
    assert_eq!(
        (old.completion, old.progress, old.note.as_str()),
        (NextCompletion::OnAck, Some(vec![0xff]), "none")
    );
    let mut surplus = samples::options_most().encode();
    surplus.push(0);
    assert!(matches!(codec.decode(&surplus), Err(DecodeError::Surplus { surplus: 1, .. })));
    // apache-avro alone reads null for the progress that is missing.
    let whole = samples::options_most().encode();
    for length in 10..whole.len() {
        let cut = codec.decode(&whole[..length]);
        assert!(matches!(cut, Err(DecodeError::Truncated { .. })), "{length} of {} bytes", whole.len());
    }

    let new = NextOptions {
        partition: None,
        expires_at: None,
        asked_at: None,
        completion: NextCompletion::OnDelivery,
        progress: None,
        max_attempts: None,
        backoff: None,
        ack_timeout_ms: None,
        max_stalls: None,
        note: "new".into(),
    };
    let bytes = codec.encode(&new, 0);
    assert_eq!(codec.decode(&bytes).unwrap().note, "new");
    assert!(matches!(RowOptions::decode(&bytes), Err(DecodeError::UnknownSchema { .. })));
}

/// A command asks for something by a field; where the field is new, an older ingest must be able to tell.
#[test]
fn a_new_field_of_a_command_that_is_never_null_is_found() {
    let v1 = crate::avro::TASK_COMMAND_VERSIONS[0];
    let next = |field: Value| {
        let mut schema: Value = serde_json::from_str(v1).unwrap();
        schema["fields"].as_array_mut().unwrap().push(field);
        schema.to_string()
    };
    let good = next(json!({"name": "note", "type": ["null", "string"], "doc": "A note.", "default": null}));
    assert_eq!(faults("task_command", &[v1, &good]), Vec::<String>::new());
    let zero = next(json!({"name": "rank", "type": "int", "doc": "A rank.", "default": 0}));
    assert_eq!(faults("task_command", &[v1, &zero]), ["v2.rank is not null by default"]);
}
