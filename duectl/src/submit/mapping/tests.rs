use super::super::timeline::Pace;
use super::*;

const NOW: i64 = 1_700_000_000_000;

fn args(map: &[&str]) -> SubmitArgs {
    SubmitArgs {
        file: Some("flights.csv".into()),
        map: map.iter().map(|&pair| pair.to_owned()).collect(),
        ..SubmitArgs::default()
    }
}

fn row(text: &str) -> Row {
    Row::from_json(2, text).unwrap()
}

fn draft(args: &SubmitArgs, text: &str) -> Result<Draft, String> {
    Mapping::of(args, None)?.draft(&row(text), &"duestream.tasks".into(), &Rules::new("duestream."), NOW)
}

fn shown(record: &OutRecord) -> Vec<String> {
    let text =
        |bytes: Option<&[u8]>| bytes.map_or("null".into(), |b| String::from_utf8_lossy(b).into_owned());
    let headers = record.headers.iter().map(|h| format!("{}: {}", h.name, text(h.value.as_deref())));
    let mut out = vec![
        format!("key: {}", text(record.key.as_deref())),
        format!("value: {}", text(record.value.as_deref())),
    ];
    out.extend(headers);
    out
}

const FLIGHT: &str = r#"{"departure":"2001-01-01T00:47:00Z","origin":"DTW","destination":"LAS"}"#;

#[test]
fn a_row_becomes_a_command_and_its_own_value() {
    let args = args(&[
        "due-at={departure}",
        "topic=departures.{origin}",
        "key={origin}",
        "task-id={line}-{origin}-{destination}",
        "header.source=file",
    ]);
    let draft = draft(&args, FLIGHT).unwrap();
    assert_eq!(
        shown(&draft.record),
        [
            "key: DTW",
            &format!("value: {FLIGHT}"),
            "source: file",
            "duestream-due-at: 2001-01-01T00:47:00Z",
            "duestream-topic: departures.DTW",
            "duestream-task-id: 2-DTW-LAS",
        ]
    );
    assert_eq!(draft.command.due_at, 978_310_020_000);
    assert_eq!(draft.command.body.key.as_deref(), Some(&b"DTW"[..]));
}

#[test]
fn a_reply_is_asked_for_each_row_with_a_correlation_of_its_own() {
    let mut args = args(&["due-at={departure}", "topic=t", "correlation={origin}-{line}", "value=x"]);
    assert!(
        draft(&args, FLIGHT).unwrap_err().contains("duestream-reply"),
        "a correlation alone is of no use"
    );
    args.reply = true;
    let draft = draft(&args, FLIGHT).unwrap();
    let reply = draft.command.reply.unwrap();
    assert_eq!(reply.correlation.as_deref(), Some(&b"DTW-2"[..]));
}

#[test]
fn without_a_callback_key_all_commands_of_a_task_still_share_a_kafka_key() {
    let args = args(&["due-at={departure}", "topic=t", "task-id={origin}", "value={origin}"]);
    let draft = draft(&args, FLIGHT).unwrap();
    assert_eq!(
        shown(&draft.record),
        [
            "key: DTW",
            "value: DTW",
            "duestream-due-at: 2001-01-01T00:47:00Z",
            "duestream-topic: t",
            "duestream-task-id: DTW",
            "duestream-key: null",
        ]
    );
    assert_eq!(draft.command.body.key, None);
}

#[test]
fn flags_apply_to_every_row_and_empty_cells_say_nothing() {
    let mut args = args(&["due-at={at}", "partition={p}", "expires-at={e}", "value={missing}"]);
    args.topic = Some("callbacks".into());
    let draft = draft(&args, r#"{"at":"1700000000000","p":"","e":null}"#).unwrap();
    assert_eq!(
        shown(&draft.record),
        ["key: null", "value: null", "duestream-due-at: 1700000000000", "duestream-topic: callbacks"]
    );
}

#[test]
fn a_moved_draft_says_its_new_times() {
    let mut draft = draft(
        &args(&["due-at={at}", "topic=t", "expires-at={e}"]),
        r#"{"at":1000000000000,"e":1000000006000}"#,
    )
    .unwrap();
    let timeline = Timeline {
        first_at: 1_000_000_000_000,
        last_at: 1_000_000_060_000,
        start_at: NOW,
        pace: Pace::Window(6_000),
    };
    draft.move_to(&timeline);
    assert!(shown(&draft.record).contains(&format!("duestream-due-at: {NOW}")));
    assert!(shown(&draft.record).contains(&format!("duestream-expires-at: {}", NOW + 600)));
}

#[test]
fn what_ingest_would_refuse_is_refused_at_once() {
    for (map, problem) in [
        (&["due-at={origin}", "topic=t"][..], "is neither RFC 3339 nor epoch milliseconds"),
        (&["due-at={departure}", "topic=duestream.due"], "is a topic of Duestream itself"),
        (&["topic=t"], "due"),
        (&["due-at={departure}"], "topic"),
        (&["due-at={departure}", "topic=t", "task-id=x-{gate}"], "has no gate"),
    ] {
        let refused = draft(&args(map), FLIGHT).unwrap_err();
        assert!(refused.contains(problem), "{refused}");
    }
}

#[test]
fn a_wrong_map_is_named_with_what_is_known() {
    for (map, problem) in [
        (
            "due={x}",
            "--map due={x}: unknown field due; fields are due-at, delay, topic, task-id, shard-key, partition, expires-at, reply, correlation, key, value, header.NAME",
        ),
        ("due-at", "--map due-at: must be field=template"),
        (
            "topic={x",
            "--map topic={x: \"{x\": a brace without its partner; write {column}, or {{ for a brace",
        ),
    ] {
        assert_eq!(Mapping::of(&args(&[map]), None).unwrap_err(), problem);
    }
    assert_eq!(
        Mapping::of(&args(&["topic=a", "topic=b"]), None).unwrap_err(),
        "--map topic=b: topic is given twice"
    );
    assert!(Mapping::of(&args(&["due-at=a", "delay=b"]), None).is_err());
}

#[test]
fn columns_that_a_csv_file_lacks_are_known_before_it_is_read() {
    let mapping = Mapping::of(&args(&["due-at={departure}", "topic={gate}{line}"]), None).unwrap();
    assert_eq!(mapping.unknown_columns(&["departure".into(), "origin".into()]), ["gate"]);
}
