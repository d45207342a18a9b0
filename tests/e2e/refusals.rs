//! Every refusal in every form that can say it, through Kafka: code, field, sentence, bytes and coordinates on `rejected`,
//! and a good record beside each bad one.

use anyhow::{Context, Result};
use devstack::topics::Record;
use schemas::command::{AvroTime, TaskCommand};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tests::{Task, World, now_ms};

/// `limits.body` as shipped.
const MOST_BODY_BYTES: usize = 921_600;

/// A command by its fields, named as in JSON, all as text.
#[derive(Clone, Debug)]
struct Fields {
    fields: BTreeMap<&'static str, String>,
    value: Vec<u8>,
}

impl Fields {
    fn with(mut self, name: &'static str, text: impl Into<String>) -> Fields {
        self.fields.insert(name, text.into());
        self
    }

    fn without(mut self, name: &str) -> Fields {
        self.fields.remove(name);
        self
    }

    fn value(mut self, bytes: usize) -> Fields {
        self.value = vec![b'x'; bytes];
        self
    }

    fn by_headers(&self) -> Task {
        let header = |name: &str| format!("duestream-{}", name.replace('_', "-"));
        self.fields.iter().fold(Task::bare(&self.value), |task, (name, text)| task.with(&header(name), text))
    }

    fn by_json(&self) -> Task {
        let mut object: Map<String, Value> =
            self.fields.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect();
        object.insert("value".into(), json!(String::from_utf8_lossy(&self.value)));
        Task::bare(Value::Object(object).to_string().as_bytes())
    }

    /// `None`: the schema has no such value.
    fn by_avro(&self) -> Option<Task> {
        let mut fields = self.fields.clone();
        let mut take = |name: &str| fields.remove(name);
        let command = TaskCommand {
            op: take("op"),
            due_at: take("due_at").map(AvroTime::Text),
            delay: take("delay"),
            topic: take("topic"),
            task_id: take("task_id"),
            shard_key: take("shard_key"),
            partition: take("partition").map(|text| text.parse()).transpose().ok()?,
            expires_at: take("expires_at").map(AvroTime::Text),
            completion: take("completion"),
            reply: take("reply").map(|text| text.parse()).transpose().ok()?,
            correlation: take("correlation").map(String::into_bytes),
            value: Some(self.value.clone()),
            ..TaskCommand::default()
        };
        fields.is_empty().then(|| Task::bare(&command.encode()))
    }
}

/// A record that is refused.
struct Bad {
    what: String,
    task: Task,
    code: &'static str,
    /// As it stands on `rejected`.
    field: Option<String>,
}

/// What every form can say, with the field that is at fault, named as in JSON.
fn in_every_form(
    good: &Fields,
    world: &World,
    topic: &str,
) -> Vec<(Fields, &'static str, Option<&'static str>)> {
    let due = |text: &str| good.clone().with("due_at", text);
    let to = |topic: &str| good.clone().with("topic", topic);
    let delay = |text: &str| good.clone().without("due_at").with("delay", text);
    let long = "ä".repeat(128);
    let mut all = vec![
        (good.clone().without("due_at"), "due_missing", Some("due_at")),
        (good.clone().with("delay", "5s"), "due_ambiguous", Some("due_at")),
        (due("tomorrow"), "invalid_time", Some("due_at")),
        (due("2030-01-01T00:00:00"), "time_without_zone", Some("due_at")),
        (due("2016-12-31T23:59:60Z"), "leap_second", Some("due_at")),
        (good.clone().without("topic"), "topic_missing", Some("topic")),
        (to("a b"), "invalid_topic", Some("topic")),
        (to("__consumer_offsets"), "topic_not_allowed", Some("topic")),
        (to(&world.pipeline.names().journal()), "topic_not_allowed", Some("topic")),
        (to(&format!("{topic}-missing")), "unknown_topic", Some("topic")),
        (good.clone().with("partition", "-1"), "invalid_partition", Some("partition")),
        (good.clone().with("partition", "2147483648"), "invalid_partition", Some("partition")),
        (good.clone().with("partition", "2"), "unknown_partition", Some("partition")),
        (good.clone().with("task_id", ""), "invalid_id", Some("task_id")),
        (good.clone().with("task_id", &long), "invalid_id", Some("task_id")),
        (good.clone().with("shard_key", &long), "invalid_id", Some("shard_key")),
        (good.clone().with("expires_at", "2020-01-01T00:00:00Z"), "expires_before_due", Some("expires_at")),
        (good.clone().with("completion", "never"), "invalid_option", Some("completion")),
        (good.clone().with("op", "explode"), "invalid_option", Some("op")),
        (good.clone().with("correlation", "x"), "reply_missing", Some("correlation")),
        (
            good.clone().with("reply", "true").with("correlation", &long),
            "invalid_correlation",
            Some("correlation"),
        ),
        (good.clone().with("colour", "red"), "unknown_field", Some("colour")),
        (good.clone().value(MOST_BODY_BYTES + 1), "too_large", None),
    ];
    // A due time in seconds, in microseconds, and what overflows on the way to milliseconds.
    for text in ["1900000000", "1900000000000000", "2147483648", "4294967296", "9007199254740992"] {
        all.push((due(text), "time_out_of_range", Some("due_at")));
    }
    for text in [i64::MIN.to_string(), i64::MAX.to_string(), "2201-01-01T00:00:00Z".into()] {
        all.push((due(&text), "time_out_of_range", Some("due_at")));
    }
    for text in ["10", "1y", "-5s", "1.5ms", "P1M"] {
        all.push((delay(text), "invalid_delay", Some("delay")));
    }
    all
}

/// What only one form can say.
fn in_one_form(good: &Fields) -> Vec<Bad> {
    let headers = good.by_headers();
    let json = |text: &str| Task::bare(text.as_bytes());
    let field = |name: &str| Some(name.to_owned());
    let bad = |what: &str, task: Task, code, field| Bad { what: what.to_owned(), task, code, field };
    let mut avro = good.by_avro().and_then(|task| task.value).unwrap_or_default();
    let mut unknown = avro.clone();
    unknown[4] ^= 1;
    let cut = avro[..avro.len() - 1].to_vec();
    avro.push(0);
    let id = &b"\xff\xfe"[..];
    let mut bare = Task::bare(b"");
    bare.value = None;
    vec![
        bad("nothing", bare, "not_a_command", None),
        bad("empty", Task::bare(b""), "not_a_command", None),
        bad("garbage", Task::bare(b"\xde\xad\0"), "not_a_command", None),
        bad(
            "repeated header",
            headers.clone().with("duestream-topic", "again"),
            "repeated_field",
            field("duestream-topic"),
        ),
        bad(
            "ours",
            headers.clone().with("duestream-attempt", "1"),
            "unknown_field",
            field("duestream-attempt"),
        ),
        bad(
            "wrong case",
            headers.clone().with("Duestream-Key", "k"),
            "unknown_field",
            field("Duestream-Key"),
        ),
        bad(
            "null header",
            headers.clone().with_bytes("duestream-reply", None),
            "invalid_field",
            field("duestream-reply"),
        ),
        bad(
            "id of bytes",
            headers.clone().with_bytes("duestream-shard-key", Some(id)),
            "invalid_id",
            field("duestream-shard-key"),
        ),
        bad("half a json", json("{\"topic\": "), "invalid_json", None),
        bad("two jsons", json("{}{}"), "invalid_json", None),
        bad("repeated key", json("{\"topic\":\"a\",\"topic\":\"b\"}"), "repeated_field", field("topic")),
        bad("a list", json("{\"topic\":[]}"), "invalid_field", field("topic")),
        bad(
            "no base64",
            json("{\"topic\":\"a\",\"value_base64\":\"?\"}"),
            "invalid_base64",
            field("value_base64"),
        ),
        bad(
            "twice",
            json("{\"topic\":\"a\",\"value\":\"a\",\"value_base64\":\"YQ==\"}"),
            "value_ambiguous",
            field("value_base64"),
        ),
        bad("avro, cut", Task::bare(&cut), "invalid_avro", None),
        bad("avro and more", Task::bare(&avro), "invalid_avro", None),
        bad("avro, unknown schema", Task::bare(&unknown), "unknown_schema", None),
        bad("framed", Task::bare(&[0, 0, 0, 0, 7, 0]), "unknown_schema", None),
    ]
}

#[tokio::test]
async fn every_refusal_in_every_form_is_on_rejected_as_it_came_and_harms_nothing_beside_it() -> Result<()> {
    let mut world = World::new("refusals").await?;
    world.start("ingest").await?;
    let topic = world.topic("out", 2).await?;
    let good = Fields { fields: BTreeMap::new(), value: b"payload".to_vec() }
        .with("due_at", (now_ms() + 3_600_000).to_string())
        .with("topic", &topic);
    let mut bads = in_one_form(&good);
    for (fields, code, field) in in_every_form(&good, &world, &topic) {
        let what = |form: &str| format!("{form} {:?}", fields.fields);
        let header = field.map(|name| format!("duestream-{}", name.replace('_', "-")));
        bads.push(Bad { what: what("headers"), task: fields.by_headers(), code, field: header });
        let field = field.map(str::to_owned);
        bads.push(Bad { what: what("json"), task: fields.by_json(), code, field: field.clone() });
        bads.extend(fields.by_avro().map(|task| Bad { what: what("avro"), task, code, field }));
    }
    // Each bad one has a key of its own, by which it is known again, and a good one behind it.
    let (mut tasks, mut ids) = (Vec::new(), BTreeSet::new());
    for (n, bad) in bads.iter_mut().enumerate() {
        bad.task = bad
            .task
            .clone()
            .key(Some(format!("{n}\0é").as_bytes()))
            .on_partition(0)
            .with("mine", &n.to_string());
        tasks.push(bad.task.clone());
        ids.insert(format!("good {n}"));
        let beside = good.clone().with("task_id", format!("good {n}"));
        tasks.push(if n % 2 == 0 { beside.by_headers() } else { beside.by_json() }.on_partition(0));
    }
    // The largest that is accepted, in each form, one byte less, and as large in the key.
    for (n, bytes) in [MOST_BODY_BYTES - 1, MOST_BODY_BYTES].into_iter().enumerate() {
        let fields = good.clone().value(bytes);
        for (form, task) in
            [Some(fields.by_headers()), Some(fields.by_json()), fields.by_avro()].into_iter().enumerate()
        {
            tasks.push(task.context("no task")?.on_partition(1));
            ids.insert(format!("largest {n} {form}"));
        }
    }
    world.submit(&tasks).await?;
    world.await_accepted(ids.len()).await?;
    let rejected = world.delivered(&[&world.pipeline.names().rejected()], bads.len()).await?;
    assert_eq!(rejected.len(), bads.len(), "each once");
    let by_key: BTreeMap<&[u8], &Record> =
        rejected.iter().filter_map(|record| Some((record.key.as_deref()?, record))).collect();
    let mut wrong = Vec::new();
    for (n, bad) in bads.iter().enumerate() {
        let record =
            by_key.get(bad.task.key.as_deref().unwrap_or_default()).with_context(|| bad.what.clone())?;
        let of = |name: &str| record.header(&format!("duestream-rejected-{name}")).unwrap_or("-");
        let told = (of("reason"), of("field"));
        if told != (bad.code, bad.field.as_deref().unwrap_or("-")) {
            wrong.push(format!(
                "{}: {told:?}, not {:?} {:?}: {}",
                bad.what,
                bad.code,
                bad.field,
                of("message")
            ));
        }
        assert!(of("message").len() > 20 && of("message").contains("; "), "{}: {}", bad.what, of("message"));
        let place = (of("topic").to_owned(), of("partition"), of("offset").to_owned());
        assert_eq!(place, (world.pipeline.names().tasks(), "0", (2 * n).to_string()), "{}", bad.what);
        assert!(
            of("timestamp").parse::<i64>().is_ok_and(|at| (now_ms() - at).abs() < 600_000),
            "{}",
            bad.what
        );
        assert_eq!(record.value, bad.task.value, "{}: the bytes as they came", bad.what);
        assert_eq!(record.headers[..bad.task.headers.len()], bad.task.headers[..], "{}", bad.what);
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), bads.len(), wrong.join("\n"));
    eprintln!(
        "{} refusals of {} codes",
        bads.len(),
        bads.iter().map(|bad| bad.code).collect::<BTreeSet<_>>().len()
    );
    Ok(())
}
