use super::*;

fn hash(record: &Record) -> [u8; 16] {
    record.parse().unwrap().content_hash
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[test]
fn a_resubmission_has_the_same_content() {
    let at = |timestamp_at| {
        let headers = [
            HeaderView { name: b"duestream-delay", value: Some(b"90s") },
            HeaderView { name: b"duestream-topic", value: Some(b"callbacks") },
        ];
        let view = RecordView { key: None, value: None, headers: &headers, timestamp_at };
        Command::parse(&view, &Rules::new("duestream."), &KnownSchemas::shipped()).unwrap()
    };
    let (first, second) = (at(NOW_AT), at(NOW_AT + 5));
    assert_ne!(first.due_at, second.due_at);
    assert_eq!(first.content_hash, second.content_hash);
}

#[test]
fn how_a_command_is_written_does_not_matter() {
    assert_eq!(hash(&by_headers()), hash(&by_json("")));
    let minutes =
        Record::default().header("duestream-topic", "callbacks").header("duestream-delay", "PT1M30S");
    assert_eq!(hash(&by_headers()), hash(&minutes));
    assert_eq!(
        hash(&by_headers().header("traceparent", "00-1")),
        hash(&by_headers().header("traceparent", "00-2"))
    );
}

#[test]
fn every_part_of_the_content_matters() {
    let base = || by_headers().key("k").value("v").header("h", "1");
    let (due, topic) = ("duestream-due-at", "duestream-topic");
    let records = [
        base(),
        by_headers().value("v").header("h", "1"),
        base().key(""),
        base().value(""),
        by_headers().key("k").header("h", "1"),
        by_headers().key("kv").value("").header("h", "1"),
        base().header("h", "1"),
        base().null_header("h"),
        base().header("h", ""),
        by_headers().key("k").value("v").header("h1", ""),
        base().header("duestream-partition", "0"),
        base().header("duestream-expires-at", "2027-01-01T00:00:00Z"),
        Record::default().header("duestream-delay", "91s").header(topic, "callbacks"),
        Record::default().header("duestream-delay", "90s").header(topic, "callback"),
        Record::default().header(due, (NOW_AT + 90_000).to_string()).header(topic, "callbacks"),
    ];
    let mut hashes: Vec<_> = records.iter().map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), records.len());
}

#[test]
fn identities_differ_where_ids_do() {
    assert_ne!(identity("a", "bc"), identity("ab", "c"));
    assert_ne!(
        row_identity(None, RowId(7)),
        identity("7", "7"),
        "an id that a producer chose is never a row's"
    );
    assert_eq!(identities(None, "7"), [identity("7", "7"), row_identity(None, RowId(7))]);
    assert_eq!(identities(Some("k"), "007"), [identity("k", "007")], "no row is called so");
    assert_ne!(identity("a", "b"), identity("b", "a"));
    assert_eq!(identity("a", "b"), identity("a", "b"));
}

#[test]
fn hashes_stay_what_they_are() {
    // They lie in MySQL: a change would turn every resubmission into a conflict or a second task.
    assert_eq!(hex(identity("kunde-12", "bestellung-4711")), "d3da8276e9657c914f28d05a71bd35e7");
    let full = by_headers()
        .key("k")
        .value("v")
        .header("h", "1")
        .null_header("n")
        .header("duestream-partition", "3")
        .header("duestream-expires-at", "2027-01-01T00:00:00Z");
    assert_eq!(hex(hash(&full)), "3ec870f876c2a6306ebda59fb5e897d7");
}
