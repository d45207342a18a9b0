use super::*;
use crate::due::Completion;
use crate::ids::SourceId;
use crate::record::Header;

fn header(name: &str, value: Option<&[u8]>) -> Header {
    Header { name: name.into(), value: value.map(Vec::from) }
}

#[test]
fn two_headers_schedule_a_task() {
    let command = by_headers().value("hello").parse().unwrap();
    assert_eq!(command.due_at, NOW_AT + 90_000);
    assert_eq!(command.callback_topic, "callbacks");
    assert_eq!(command.body, RowBody { key: None, headers: vec![], value: Some(b"hello".to_vec()) });
    assert_eq!((command.task_id, command.shard_key), (None, None));
    assert_eq!((command.options.partition, command.options.expires_at), (None, None));
    assert_eq!(command.options.completion, Completion::OnDelivery);
}

#[test]
fn every_header_is_read() {
    let command = Record::default()
        .key("k")
        .header("duestream-op", "schedule")
        .header("duestream-due-at", "2026-02-01T00:00:00Z")
        .header("duestream-topic", "callbacks")
        .header("duestream-task-id", "t-ä")
        .header("duestream-shard-key", "s")
        .header("duestream-partition", "3")
        .header("duestream-expires-at", "1769904000000")
        .header("duestream-completion", "on_delivery")
        .parse()
        .unwrap();
    assert_eq!(command.due_at, 1_769_904_000_000);
    assert_eq!((command.task_id.as_deref(), command.shard_key.as_deref()), (Some("t-ä"), Some("s")));
    assert_eq!((command.options.partition, command.options.expires_at), (Some(3), Some(1_769_904_000_000)));
    assert_eq!(command.body, RowBody { key: Some(b"k".to_vec()), headers: vec![], value: None });
}

#[test]
fn bytes_pass_untouched_and_null_is_not_empty() {
    let bytes = [0xc3, 0x01, 0, 0xff, b'{'];
    assert_eq!(by_headers().value(bytes).parse().unwrap().body.value.as_deref(), Some(&bytes[..]));
    assert_eq!(by_headers().value("").parse().unwrap().body.value.as_deref(), Some(&b""[..]));
    assert_eq!(by_headers().parse().unwrap().body.value, None);
    assert_eq!(by_headers().key("").parse().unwrap().body.key.as_deref(), Some(&b""[..]));
}

#[test]
fn user_headers_travel_in_order_with_repeats() {
    let command = Record::default()
        .header("b", "1")
        .header("duestream-delay", "90s")
        .header("a", [0xff])
        .null_header("b")
        .header("duestream-topic", "callbacks")
        .header("traceparent", "00-x")
        .parse()
        .unwrap();
    let expected = vec![
        header("b", Some(b"1")),
        header("a", Some(&[0xff])),
        header("b", None),
        header("traceparent", Some(b"00-x")),
    ];
    assert_eq!(command.body.headers, expected);
}

#[test]
fn the_callback_key_may_differ_from_the_key_of_the_command() {
    let key = |record: Record| record.parse().unwrap().body.key;
    assert_eq!(key(by_headers().key("order")), Some(b"order".to_vec()));
    assert_eq!(key(by_headers().key("order").header("duestream-key", [0xff])), Some(vec![0xff]));
    assert_eq!(key(by_headers().key("order").null_header("duestream-key")), None);
    assert_eq!(key(by_headers().key("order").header("duestream-no-key", "true")), None);
    assert_eq!(key(by_headers().key("order").header("duestream-no-key", "false")), Some(b"order".to_vec()));
    assert_eq!(key(by_json(r#", "no_key": true"#).key("order")), None);
    assert_eq!(key(by_json(r#", "no_key": "true""#).key("order")), None);
    assert_eq!(key(by_json(r#", "no_key": false, "key": "k""#).key("order")), Some(b"k".to_vec()));
    assert_eq!(key(by_json("").key("order")), Some(b"order".to_vec()));
    assert_eq!(key(by_json(r#", "key": "k""#).key("order")), Some(b"k".to_vec()));
    assert_eq!(key(by_json(r#", "key_base64": "/w==""#).key("order")), Some(vec![0xff]));
}

#[test]
fn every_json_key_is_read() {
    let command = Record::default()
        .header("record", "header")
        .value(
            r#"{"op": "schedule", "due_at": 1769904000000, "topic": "callbacks", "task_id": "t", "shard_key": "s",
                "key": "k", "partition": 3, "expires_at": "2026-02-01T01:00:00+01:00", "completion": "on_delivery",
                "headers": {"a": "1", "n": null}, "value": "h\u00e4llo"}"#,
        )
        .parse()
        .unwrap();
    assert_eq!(command.due_at, 1_769_904_000_000);
    assert_eq!((command.task_id.as_deref(), command.shard_key.as_deref()), (Some("t"), Some("s")));
    assert_eq!((command.options.partition, command.options.expires_at), (Some(3), Some(1_769_904_000_000)));
    let headers = vec![header("record", Some(b"header")), header("a", Some(b"1")), header("n", None)];
    assert_eq!(command.body, RowBody { key: Some(b"k".to_vec()), headers, value: Some("hällo".into()) });
}

#[test]
fn json_carries_bytes_as_base64_and_null_as_not_given() {
    let value = |members| by_json(members).parse().unwrap().body.value;
    assert_eq!(value(r#", "value_base64": "AP8=""#), Some(vec![0, 0xff]));
    assert_eq!(value(r#", "value": """#), Some(vec![]));
    assert_eq!(value(r#", "value": null"#), None);
    assert_eq!(
        value(r#", "value": null, "value_base64": null, "task_id": null, "spread": null, "headers": null"#),
        None
    );
    assert_eq!(value(""), None);
}

#[test]
fn both_forms_give_the_same_command() {
    let headers = by_headers().key("k").value("v").header("duestream-task-id", "t").header("h", "1");
    let json = by_json(r#", "task_id": "t", "value": "v", "headers": {"h": "1"}"#).key("k");
    assert_eq!(headers.parse().unwrap(), json.parse().unwrap());
}

#[test]
fn a_due_time_in_the_past_is_taken() {
    let record =
        Record::default().header("duestream-due-at", "2001-01-01T00:00:00Z").header("duestream-topic", "t");
    assert_eq!(record.parse().unwrap().due_at, 978_307_200_000);
}

#[test]
fn the_row_id_serves_where_there_is_no_task_id() {
    let id = RowId::pack(SourceId(1), 2, 3).unwrap();
    let plain = by_headers().parse().unwrap();
    assert_eq!(plain.task_id(id), id.to_string());
    assert_eq!(plain.shard_key(id), id.to_string());
    assert_eq!(plain.identity(id), row_identity(None, id));

    let named = by_headers().header("duestream-task-id", "t").parse().unwrap();
    assert_eq!((named.task_id(id), named.shard_key(id)), ("t".into(), "t".into()));
    let sharded = by_headers().header("duestream-shard-key", "s").parse().unwrap();
    assert_eq!((sharded.task_id(id), sharded.shard_key(id)), (id.to_string().into(), "s".into()));
}

#[test]
fn a_body_at_the_limit_is_taken() {
    let rules = Rules { max_body_bytes: 100, ..Rules::new("duestream.") };
    // key 1, header 1 + 1 + 8, value 89.
    let record = by_headers().key("k").header("h", "1");
    assert!(record.clone().value([0; 89]).parse_with(&rules).is_ok());
    let refusal = record.value([0; 90]).parse_with(&rules).unwrap_err();
    assert_eq!(refusal.code, ReasonCode::TooLarge);
    assert!(refusal.message.contains("101 bytes, more than the limit of 100"), "{refusal}");
}
