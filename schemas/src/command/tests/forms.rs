//! The same command in every form gives the same task.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use super::*;
use crate::avro::TASK_COMMAND_VERSIONS;
use crate::record::Header;

/// What somebody wants, before it takes a form.
#[derive(Clone, Debug)]
struct Wish {
    due: Due,
    topic: String,
    task_id: Option<String>,
    shard_key: Option<String>,
    /// Kafka key of the command.
    record_key: Option<Vec<u8>>,
    key: WishedKey,
    value: Option<Vec<u8>>,
    /// Headers of the record: any bytes.
    own_headers: Vec<Header>,
    /// Headers that JSON and Avro carry in the value: text.
    more_headers: Vec<(String, Option<String>)>,
    partition: Option<i32>,
    /// After the due time.
    expires_ms: Option<i64>,
    reply: Option<bool>,
    correlation: Option<String>,
    /// Whether JSON writes bytes that are text as base64 all the same, and Avro times as text.
    roundabout: bool,
}

#[derive(Clone, Debug)]
enum Due {
    At { at: i64, rfc3339: bool },
    After { seconds: u32 },
}

#[derive(Clone, Debug)]
enum WishedKey {
    OfRecord,
    None,
    Other(Vec<u8>),
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![".{0,12}".prop_map(String::into_bytes), vec(any::<u8>(), 0..30)]
}

fn wish() -> impl Strategy<Value = Wish> {
    let due = prop_oneof![
        (978_307_200_000i64..7_200_000_000_000, any::<bool>())
            .prop_map(|(at, rfc3339)| Due::At { at, rfc3339 }),
        (0u32..1_000_000).prop_map(|seconds| Due::After { seconds }),
    ];
    let key =
        prop_oneof![Just(WishedKey::OfRecord), Just(WishedKey::None), bytes().prop_map(WishedKey::Other),];
    let name = "[a-zA-Z0-9_ä-]{1,8}";
    let own = (name, option::of(bytes())).prop_map(|(name, value)| Header { name, value });
    let ids = (option::of(".{1,20}"), option::of("[a-z]{1,20}"));
    let body = (
        option::of(bytes()),
        key,
        option::of(bytes()),
        vec(own, 0..4),
        vec((name, option::of(".{0,8}")), 0..4),
    );
    let reply = (option::of(any::<bool>()), option::of(".{0,20}"));
    let rest = (option::of(0..i32::MAX), option::of(0i64..1_000_000), reply, any::<bool>());
    (due, "[a-zA-Z0-9][a-zA-Z0-9_-]{0,30}", ids, body, rest).prop_map(|(due, topic, ids, body, rest)| Wish {
        due,
        topic,
        task_id: ids.0,
        shard_key: ids.1,
        record_key: body.0,
        key: body.1,
        value: body.2,
        own_headers: body.3,
        more_headers: body.4,
        partition: rest.0,
        expires_ms: rest.1,
        reply: rest.2.0,
        // A correlation needs a word about the reply.
        correlation: rest.2.1.filter(|_| rest.2.0.is_some()),
        roundabout: rest.3,
    })
}

fn rfc3339(at: i64) -> String {
    jiff::Timestamp::from_millisecond(at).unwrap().to_string()
}

impl Wish {
    fn due_at(&self) -> i64 {
        match self.due {
            Due::At { at, .. } => at,
            Due::After { seconds } => NOW_AT + i64::from(seconds) * 1_000,
        }
    }

    fn expires_at(&self) -> Option<i64> {
        self.expires_ms.map(|ms| self.due_at() + ms)
    }

    /// Key and own headers.
    fn record(&self) -> Record {
        let headers = self.own_headers.iter();
        let headers = headers.map(|header| (header.name.clone().into_bytes(), header.value.clone()));
        Record { key: self.record_key.clone(), value: None, headers: headers.collect() }
    }

    fn by_headers(&self) -> Record {
        let mut record = self.record();
        let mut push = |name: &str, value: Option<Vec<u8>>| record.headers.push((name.into(), value));
        for (name, value) in &self.more_headers {
            push(name, value.clone().map(String::into_bytes));
        }
        let mut say = |name: &str, text: Option<String>| {
            if let Some(text) = text {
                push(&format!("duestream-{name}"), Some(text.into_bytes()));
            }
        };
        match self.due {
            Due::At { at, rfc3339: true } => say("due-at", Some(rfc3339(at))),
            Due::At { at, rfc3339: false } => say("due-at", Some(at.to_string())),
            Due::After { seconds } => say("delay", Some(format!("{seconds}s"))),
        }
        say("topic", Some(self.topic.clone()));
        say("task-id", self.task_id.clone());
        say("shard-key", self.shard_key.clone());
        say("partition", self.partition.map(|partition| partition.to_string()));
        say("expires-at", self.expires_at().map(|at| at.to_string()));
        say("reply", self.reply.map(|reply| reply.to_string()));
        say("correlation", self.correlation.clone());
        match &self.key {
            WishedKey::OfRecord => {}
            WishedKey::None if self.roundabout => say("no-key", Some("true".into())),
            WishedKey::None => push("duestream-key", None),
            WishedKey::Other(key) => push("duestream-key", Some(key.clone())),
        }
        record.value = self.value.clone();
        record
    }

    fn by_json(&self) -> Record {
        let mut json = Map::new();
        match self.due {
            Due::At { at, rfc3339: true } => json.insert("due_at".into(), rfc3339(at).into()),
            Due::At { at, rfc3339: false } => json.insert("due_at".into(), at.into()),
            Due::After { seconds } => json.insert("delay".into(), format!("PT{seconds}S").into()),
        };
        let mut bytes = |name: &str, bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) if !self.roundabout => json.insert(name.into(), text.into()),
            _ => json.insert(format!("{name}_base64"), BASE64.encode(bytes).into()),
        };
        if let Some(value) = &self.value {
            bytes("value", value);
        }
        if let WishedKey::Other(key) = &self.key {
            bytes("key", key);
        }
        if matches!(self.key, WishedKey::None) {
            json.insert("no_key".into(), true.into());
        }
        for (name, value) in [
            ("topic", json!(self.topic)),
            ("task_id", json!(self.task_id)),
            ("shard_key", json!(self.shard_key)),
            ("partition", json!(self.partition)),
            ("expires_at", json!(self.expires_at())),
            ("reply", json!(self.reply)),
            ("correlation", json!(self.correlation)),
        ] {
            json.insert(name.into(), value);
        }
        // Names may repeat, which a map of serde_json cannot hold.
        let headers =
            self.more_headers.iter().map(|(name, value)| format!("{}: {}", json!(name), json!(value)));
        let headers = format!("{{{}}}", headers.collect::<Vec<_>>().join(", "));
        let object = Value::Object(json).to_string();
        let value = format!("{}, \"headers\": {headers}}}", &object[..object.len() - 1]);
        self.record().value(value)
    }

    fn task_command(&self) -> TaskCommand {
        let time = |at: i64| if self.roundabout { AvroTime::Text(rfc3339(at)) } else { AvroTime::Ms(at) };
        let (due_at, delay) = match self.due {
            Due::At { at, .. } => (Some(time(at)), None),
            Due::After { seconds } => (None, Some(format!("{seconds} seconds"))),
        };
        let header = |(name, value): &(String, Option<String>)| Header {
            name: name.clone(),
            value: value.clone().map(String::into_bytes),
        };
        TaskCommand {
            due_at,
            delay,
            topic: Some(self.topic.clone()),
            task_id: self.task_id.clone(),
            shard_key: self.shard_key.clone(),
            key: match &self.key {
                WishedKey::Other(key) => Some(key.clone()),
                WishedKey::OfRecord | WishedKey::None => None,
            },
            no_key: matches!(self.key, WishedKey::None).then_some(true),
            value: self.value.clone(),
            headers: self.more_headers.iter().map(header).collect(),
            partition: self.partition,
            expires_at: self.expires_at().map(time),
            reply: self.reply,
            correlation: self.correlation.clone().map(String::into_bytes),
            ..TaskCommand::default()
        }
    }
}

/// What a record says, but for the form in which the reply will come.
fn task(record: &Record, registry: &Registry) -> Result<Command, TestCaseError> {
    let command = record.read(&Rules::new("duestream."), registry);
    let mut command = command.map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
    if let Some(reply) = &mut command.reply {
        reply.as_avro = false;
    }
    Ok(command)
}

/// `FORMS_SEED=7 cargo test --release -p schemas the_same_command` repeats a run.
#[test]
fn the_same_command_in_every_form_gives_the_same_task() {
    let seed: u64 = match std::env::var("FORMS_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
    };
    println!("FORMS_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: 2_000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let registry = Registry::of(TASK_COMMAND_VERSIONS.last().unwrap());
    let run = TestRunner::new_with_rng(config, rng).run(&wish(), |wish| {
        let expected = task(&wish.by_headers(), &registry)?;
        prop_assert_eq!(expected.due_at, wish.due_at());
        prop_assert_eq!(expected.reply.is_some(), wish.reply == Some(true));
        let avro = wish.task_command();
        for (form, record) in [
            ("JSON", wish.by_json()),
            ("single object", wish.record().value(avro.encode())),
            ("Confluent", wish.record().value(avro.encode_framed(7))),
        ] {
            // Equal in every part, the hash of the content included.
            prop_assert_eq!(&task(&record, &registry)?, &expected, "{}", form);
        }
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}\nFORMS_SEED={seed}");
    }
}
