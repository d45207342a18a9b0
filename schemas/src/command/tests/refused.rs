use super::*;

#[track_caller]
fn assert_refused(record: &Record, code: ReasonCode, field: Option<&str>) {
    let refusal = record.refusal();
    assert_eq!((refusal.code, refusal.field.as_deref()), (code, field), "{refusal}");
    assert!(refusal.message.ends_with(code.remedy()), "{refusal}");
}

#[test]
fn what_has_no_form_is_refused() {
    for record in [
        Record::default(),
        Record::default().value(""),
        Record::default().value("hello"),
        Record::default().value("[1]"),
        Record::default().value(" {}"),
        Record::default().value([0xff, 0xfe]),
        Record::default().value([0xc3]),
        Record::default().key("k").header("x", "y"),
    ] {
        assert_refused(&record, ReasonCode::NotACommand, None);
    }
}

#[test]
fn broken_json_is_refused() {
    for value in
        ["{", "{}x", "{} {}", r#"{"a": 1,}"#, "{\"topic\": \"\u{1}\"}", r#"{"a": "\ud800"}"#, "{'a': 1}"]
    {
        assert_refused(&Record::default().value(value), ReasonCode::InvalidJson, None);
    }
    assert_refused(&Record::default().value(b"{\"a\": \"\xff\"}"), ReasonCode::InvalidJson, None);
}

#[test]
fn nested_json_is_refused_at_any_depth() {
    for (open, close, code) in [
        ("{\"a\": ", "}", ReasonCode::InvalidJson),
        ("{\"value\": ", "}", ReasonCode::InvalidJson),
        ("{\"headers\": ", "}", ReasonCode::InvalidJson),
    ] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        assert_refused(&Record::default().value(deep), code, None);
        // Never closed.
        assert_refused(&Record::default().value(open.repeat(100_000)), code, None);
    }
    for depth in [1, 100, 100_000] {
        let array = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let refusal = by_json(&format!(r#", "value": {array}"#)).refusal();
        assert!(
            matches!(refusal.code, ReasonCode::InvalidField | ReasonCode::InvalidJson),
            "{depth}: {refusal}"
        );
    }
}

#[test]
fn an_unknown_name_is_refused() {
    for name in [
        "duestream-dueat",
        "duestream-",
        "Duestream-Topic",
        "duestream-attempt",
        "duestream-delivery-id",
        "duestream-rejected-reason",
        "duestream-due_at",
        "duestream-value",
    ] {
        assert_refused(&by_headers().header(name, "1"), ReasonCode::UnknownField, Some(name));
    }
    for key in ["dueat", "Topic", "due-at", "attempt"] {
        let record = by_json(&format!(r#", "{key}": 1"#));
        assert_refused(&record, ReasonCode::UnknownField, Some(key));
    }
    // A key of no name names no field (found by fuzzing).
    assert_refused(&by_json(r#", "": "90s""#), ReasonCode::UnknownField, None);
    let record = by_json(r#", "headers": {"duestream-topic": "x"}"#);
    assert_refused(&record, ReasonCode::UnknownField, Some("headers"));
}

#[test]
fn a_repeated_name_is_refused() {
    let record = by_headers().header("duestream-topic", "callbacks");
    assert_refused(&record, ReasonCode::RepeatedField, Some("duestream-topic"));
    let record = by_headers().null_header("duestream-key").header("duestream-key", "k");
    assert_refused(&record, ReasonCode::RepeatedField, Some("duestream-key"));
    for (members, field) in [
        (r#", "topic": "callbacks""#, "topic"),
        (r#", "task_id": null, "task_id": "t""#, "task_id"),
        (r#", "value": null, "value": "v""#, "value"),
        (r#", "headers": {}, "headers": {}"#, "headers"),
    ] {
        assert_refused(&by_json(members), ReasonCode::RepeatedField, Some(field));
    }
}

#[test]
fn a_field_of_the_wrong_type_is_refused() {
    let record = Record::default().header("duestream-delay", "1s").null_header("duestream-topic");
    assert_refused(&record, ReasonCode::InvalidField, Some("duestream-topic"));
    let record = Record::default().header("duestream-delay", "1s").header("duestream-topic", [0xff]);
    assert_refused(&record, ReasonCode::InvalidField, Some("duestream-topic"));
    for (members, field) in [
        (r#", "task_id": true"#, "task_id"),
        (r#", "task_id": 18446744073709551616"#, "task_id"),
        (r#", "reply": 1"#, "reply"),
        (r#", "no_key": [true]"#, "no_key"),
        (r#", "correlation": true"#, "correlation"),
        (r#", "task_id": 1.5"#, "task_id"),
        (r#", "task_id": [1]"#, "task_id"),
        (r#", "task_id": {"a": 1}"#, "task_id"),
        (r#", "value": {"a": 1}"#, "value"),
        (r#", "value": 1"#, "value"),
        (r#", "value_base64": 1"#, "value_base64"),
        (r#", "headers": ["a"]"#, "headers"),
        (r#", "headers": {"a": 1}"#, "headers \"a\""),
    ] {
        assert_refused(&by_json(members), ReasonCode::InvalidField, Some(field));
    }
}

#[test]
fn a_header_that_could_not_be_delivered_is_refused() {
    let mut record = by_headers();
    record.headers.push((vec![b'x', 0xff], None));
    assert_refused(&record, ReasonCode::InvalidHeader, Some("the header name"));
    assert_refused(&by_headers().header("", "x"), ReasonCode::InvalidHeader, Some("the header name"));
    let record = by_json(r#", "headers": {"a\u0000b": "1"}"#);
    assert_refused(&record, ReasonCode::InvalidHeader, Some("the header name"));
}

#[test]
fn more_headers_than_any_client_reads_are_refused() {
    let header = crate::record::Header { name: "h".into(), value: None };
    let most = TaskCommand { headers: vec![header.clone(); MAX_HEADERS], ..task_command() };
    let record = by_avro(&most);
    let body = record.parse().unwrap().body;
    assert_eq!(RowBody::decode(&body.encode()).unwrap(), body);
    assert_refused(&record.header("own", "1"), ReasonCode::InvalidHeader, None);
    let json = format!(r#", "headers": {{{}"h": null}}"#, r#""h": null, "#.repeat(MAX_HEADERS));
    assert_refused(&by_json(&json), ReasonCode::InvalidHeader, None);
}

#[test]
fn what_is_not_built_yet_is_refused_whatever_its_value() {
    for name in ["max-attempts", "backoff", "ack-timeout", "max-stalls", "spread", "window"] {
        let header = format!("duestream-{name}");
        assert_refused(&by_headers().header(&header, ""), ReasonCode::Unsupported, Some(&header));
        let key = name.replace('-', "_");
        assert_refused(&by_json(&format!(r#", "{key}": 3"#)), ReasonCode::Unsupported, Some(&key));
    }
    assert_refused(
        &by_headers().header("duestream-completion", "on_ack"),
        ReasonCode::Unsupported,
        Some("duestream-completion"),
    );
    // Before the due time, which a cancel does not have.
    for op in ["cancel", "reschedule"] {
        let record = Record::default().header("duestream-op", op);
        assert_refused(&record, ReasonCode::Unsupported, Some("duestream-op"));
    }
}

#[test]
fn an_option_out_of_its_values_is_refused() {
    assert_refused(
        &by_headers().header("duestream-op", "Schedule"),
        ReasonCode::InvalidOption,
        Some("duestream-op"),
    );
    assert_refused(&by_json(r#", "completion": "later""#), ReasonCode::InvalidOption, Some("completion"));
}

#[test]
fn the_due_time_is_given_once() {
    let record = Record::default().header("duestream-topic", "t");
    assert_refused(&record, ReasonCode::DueMissing, Some("duestream-due-at"));
    assert_refused(&Record::default().value("{}"), ReasonCode::DueMissing, Some("due_at"));
    let record = by_headers().header("duestream-due-at", "2026-01-31T09:00:00Z");
    assert_refused(&record, ReasonCode::DueAmbiguous, Some("duestream-due-at"));
}

#[test]
fn a_task_that_expires_before_it_is_due_is_refused() {
    let record = by_headers().header("duestream-expires-at", (NOW_AT + 89_999).to_string());
    assert_refused(&record, ReasonCode::ExpiresBeforeDue, Some("duestream-expires-at"));
    assert!(by_headers().header("duestream-expires-at", (NOW_AT + 90_000).to_string()).parse().is_ok());
    assert_refused(&by_json(r#", "expires_at": 1769850000"#), ReasonCode::TimeOutOfRange, Some("expires_at"));
}

#[test]
fn a_callback_topic_is_needed_and_must_be_allowed() {
    let record =
        |topic: &str| Record::default().header("duestream-delay", "1s").header("duestream-topic", topic);
    let field = Some("duestream-topic");
    assert_refused(&Record::default().header("duestream-delay", "1s"), ReasonCode::TopicMissing, field);
    assert_refused(&record(""), ReasonCode::InvalidTopic, field);
    assert_refused(&record("a b"), ReasonCode::InvalidTopic, field);
    assert_refused(&record("__consumer_offsets"), ReasonCode::TopicNotAllowed, field);
    assert_refused(&record("duestream.journal"), ReasonCode::TopicNotAllowed, field);
}

#[test]
fn ids_are_1_to_255_bytes() {
    for field in ["duestream-task-id", "duestream-shard-key"] {
        assert!(by_headers().header(field, "ä".repeat(127)).parse().is_ok());
        for id in [String::new(), "ä".repeat(128)] {
            assert_refused(&by_headers().header(field, id), ReasonCode::InvalidId, Some(field));
        }
        assert_refused(&by_headers().header(field, [0xff]), ReasonCode::InvalidId, Some(field));
    }
}

#[test]
fn numbers_at_the_edges_of_types_are_refused_as_times_in_every_form() {
    // 2^31, 2^32 and 2^53 as milliseconds; the ends of 64 bits; our time in other units.
    for at in [
        1 << 31,
        1 << 32,
        1 << 53,
        i64::MIN,
        i64::MAX,
        0,
        -1,
        NOW_AT / 1_000,
        NOW_AT * 1_000,
        NOW_AT * 1_000_000,
    ] {
        let code = ReasonCode::TimeOutOfRange;
        let headers =
            Record::default().header("duestream-topic", "t").header("duestream-due-at", at.to_string());
        assert_refused(&headers, code, Some("duestream-due-at"));
        let expires = by_headers().header("duestream-expires-at", at.to_string());
        assert_refused(&expires, code, Some("duestream-expires-at"));
        for json in
            [format!(r#"{{"topic": "t", "due_at": {at}}}"#), format!(r#"{{"topic": "t", "due_at": "{at}"}}"#)]
        {
            assert_refused(&Record::default().value(json), code, Some("due_at"));
        }
        for due_at in [AvroTime::Ms(at), AvroTime::Text(at.to_string())] {
            let topic = Some("t".to_owned());
            let command = TaskCommand { due_at: Some(due_at), topic, ..TaskCommand::default() };
            assert_refused(&by_avro(&command), code, Some("due_at"));
        }
    }
}

#[test]
fn a_leap_second_and_a_local_time_are_refused_in_every_form() {
    for (text, code) in [
        ("2016-12-31T23:59:60Z", ReasonCode::LeapSecond),
        ("2026-10-25T02:30:00", ReasonCode::TimeWithoutZone),
        ("2026-10-25T02:30:00[Europe/Berlin]", ReasonCode::TimeWithoutZone),
        ("2026-10-25T02:30:00+02:00[Europe/Berlin]", ReasonCode::InvalidTime),
    ] {
        let record = Record::default().header("duestream-topic", "t").header("duestream-due-at", text);
        assert_refused(&record, code, Some("duestream-due-at"));
        let record = Record::default().value(format!(r#"{{"topic": "t", "due_at": "{text}"}}"#));
        assert_refused(&record, code, Some("due_at"));
        let due_at = Some(AvroTime::Text(text.into()));
        let command = TaskCommand { due_at, topic: Some("t".into()), ..TaskCommand::default() };
        assert_refused(&by_avro(&command), code, Some("due_at"));
    }
}

#[test]
fn a_key_is_given_once() {
    let code = ReasonCode::ValueAmbiguous;
    let record = by_headers().header("duestream-key", "k").header("duestream-no-key", "true");
    assert_refused(&record, code, Some("duestream-no-key"));
    let record = by_headers().null_header("duestream-key").header("duestream-no-key", "true");
    assert_refused(&record, code, Some("duestream-no-key"));
    assert_refused(&by_json(r#", "key_base64": "", "no_key": true"#), code, Some("no_key"));
    let command = TaskCommand { key: Some(vec![]), no_key: Some(true), ..task_command() };
    assert_refused(&by_avro(&command), code, Some("no_key"));
    assert_refused(
        &by_headers().header("duestream-no-key", "yes"),
        ReasonCode::InvalidOption,
        Some("duestream-no-key"),
    );
}

#[test]
fn the_rules_of_a_command_hold_in_avro_too() {
    let text = |text: &str| Some(text.to_owned());
    let base = task_command;
    let ms = |at| Some(AvroTime::Ms(at));
    for (command, code, field) in [
        (TaskCommand { delay: None, ..base() }, ReasonCode::DueMissing, "due_at"),
        (TaskCommand { due_at: ms(NOW_AT), ..base() }, ReasonCode::DueAmbiguous, "due_at"),
        (TaskCommand { delay: text("90"), ..base() }, ReasonCode::InvalidDelay, "delay"),
        (TaskCommand { topic: None, ..base() }, ReasonCode::TopicMissing, "topic"),
        (TaskCommand { topic: text("a b"), ..base() }, ReasonCode::InvalidTopic, "topic"),
        (TaskCommand { topic: text("__x"), ..base() }, ReasonCode::TopicNotAllowed, "topic"),
        (TaskCommand { task_id: text(""), ..base() }, ReasonCode::InvalidId, "task_id"),
        (TaskCommand { shard_key: Some("x".repeat(256)), ..base() }, ReasonCode::InvalidId, "shard_key"),
        (TaskCommand { partition: Some(-1), ..base() }, ReasonCode::InvalidPartition, "partition"),
        (TaskCommand { expires_at: ms(NOW_AT), ..base() }, ReasonCode::ExpiresBeforeDue, "expires_at"),
        (TaskCommand { completion: text("on_ack"), ..base() }, ReasonCode::Unsupported, "completion"),
        (TaskCommand { max_attempts: Some(3), ..base() }, ReasonCode::Unsupported, "max_attempts"),
        (TaskCommand { op: text("cancel"), ..base() }, ReasonCode::Unsupported, "op"),
        (TaskCommand { op: text("SCHEDULE"), ..base() }, ReasonCode::InvalidOption, "op"),
        (TaskCommand { correlation: Some(vec![1]), ..base() }, ReasonCode::ReplyMissing, "correlation"),
        (
            TaskCommand { reply: Some(true), correlation: Some(vec![1; 256]), ..base() },
            ReasonCode::InvalidCorrelation,
            "correlation",
        ),
    ] {
        assert_refused(&by_avro(&command), code, Some(field));
    }
    let header = |name: &str| crate::record::Header { name: name.into(), value: None };
    let command = TaskCommand { headers: vec![header("")], ..base() };
    assert_refused(&by_avro(&command), ReasonCode::InvalidHeader, Some("the header name"));
    let command = TaskCommand { headers: vec![header("Duestream-Topic")], ..base() };
    assert_refused(&by_avro(&command), ReasonCode::UnknownField, Some("headers"));
}

#[test]
fn a_partition_is_a_whole_number() {
    for partition in ["-1", "", "1.0", "2147483648", "one", "0x1", " 1"] {
        let record = by_headers().header("duestream-partition", partition);
        assert_refused(&record, ReasonCode::InvalidPartition, Some("duestream-partition"));
    }
}

#[test]
fn base64_is_strict_and_alone() {
    for base64 in ["A", "AP8", "AP8=\n", "_w==", "*"] {
        let record = by_json(&format!(r#", "value_base64": {base64:?}"#));
        assert_refused(&record, ReasonCode::InvalidBase64, Some("value_base64"));
    }
    let both = by_json(r#", "value": "", "value_base64": """#);
    assert_refused(&both, ReasonCode::ValueAmbiguous, Some("value_base64"));
    let both = by_json(r#", "key": "", "key_base64": """#);
    assert_refused(&both, ReasonCode::ValueAmbiguous, Some("key_base64"));
}

#[test]
fn a_message_says_field_value_rule_and_remedy() {
    let record = Record::default().header("duestream-topic", "t").header("duestream-due-at", "tomorrow");
    assert_eq!(
        record.refusal().to_string(),
        "invalid_time: duestream-due-at \"tomorrow\" is neither RFC 3339 nor epoch milliseconds; \
         write it like 2026-01-31T09:00:00Z or 1769850000000"
    );
    let record = Record::default().header("duestream-topic", "t").header("duestream-due-at", "1769850000");
    assert_eq!(
        record.refusal().message,
        "duestream-due-at \"1769850000\" means 1970-01-21T11:37:30Z, outside 2001 to 2200: it looks like seconds; \
         give epoch milliseconds, not seconds, microseconds or nanoseconds"
    );
}
