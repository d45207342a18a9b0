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
fn avro_is_refused_until_it_is_built() {
    for value in [&[0xc3, 0x01, 1, 2, 3][..], &[0, 0, 0, 0, 1], &[0]] {
        assert_refused(&Record::default().value(value), ReasonCode::Unsupported, None);
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
    let deep = format!("{}1{}", "{\"a\": ".repeat(100_000), "}".repeat(100_000));
    assert_refused(&Record::default().value(deep), ReasonCode::InvalidJson, None);
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
        assert_refused(&by_headers().header(name, "1"), ReasonCode::UnknownField, Some("the header"));
    }
    for key in ["dueat", "Topic", "", "due-at", "attempt"] {
        let record = by_json(&format!(r#", "{key}": 1"#));
        assert_refused(&record, ReasonCode::UnknownField, Some("the JSON key"));
    }
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
fn what_is_not_built_yet_is_refused_whatever_its_value() {
    for name in
        ["max-attempts", "backoff", "ack-timeout", "max-stalls", "spread", "window", "reply", "correlation"]
    {
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
        assert_refused(&by_headers().header(field, [0xff]), ReasonCode::InvalidField, Some(field));
    }
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
