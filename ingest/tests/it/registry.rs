//! Commands as Avro whose schema must be asked for, and a registry that is away.

use crate::pipeline::{Pipeline, header, now_ms, reason};
use runtime::kafka::OutRecord;
use schemas::avro::TASK_COMMAND_VERSIONS;
use schemas::command::{AvroTime, TaskCommand};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HOUR_MS: i64 = 3_600_000;
const NOT_FOUND: &str = r#"{"error_code":40403,"message":"Schema not found"}"#;

/// As much of a registry as is asked for: answers by schema id, and the requests that came.
struct Registry {
    address: SocketAddr,
    answers: Mutex<HashMap<u32, (u16, String)>>,
    /// What everybody is told while it is not `None`.
    outage: Mutex<Option<u16>>,
    requests: Mutex<Vec<String>>,
    /// Answer to `schemas/types`; `None`: nothing is found there.
    types: Mutex<Option<String>>,
}

impl Registry {
    async fn start() -> Arc<Registry> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let registry = Arc::new(Registry {
            address: listener.local_addr().unwrap(),
            answers: Mutex::default(),
            outage: Mutex::default(),
            requests: Mutex::default(),
            types: Mutex::default(),
        });
        let served = registry.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let served = served.clone();
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    let mut part = [0; 1024];
                    while !request.ends_with(b"\r\n\r\n") {
                        let read = stream.read(&mut part).await.unwrap_or(0);
                        if read == 0 {
                            return;
                        }
                        request.extend_from_slice(&part[..read]);
                    }
                    let (status, body) = served.answer(&String::from_utf8_lossy(&request));
                    let head = format!(
                        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                        body.len()
                    );
                    stream.write_all(head.as_bytes()).await.ok();
                    stream.write_all(body.as_bytes()).await.ok();
                });
            }
        });
        registry
    }

    fn answer(&self, request: &str) -> (u16, String) {
        self.requests.lock().unwrap().push(request.to_owned());
        if let Some(status) = *self.outage.lock().unwrap() {
            return (status, "away".to_owned());
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        if let (true, Some(types)) = (path == "/base/schemas/types", &*self.types.lock().unwrap()) {
            return (200, types.clone());
        }
        let id = path.strip_prefix("/base/schemas/ids/").and_then(|id| id.parse::<u32>().ok());
        let found = id.and_then(|id| self.answers.lock().unwrap().get(&id).cloned());
        found.unwrap_or_else(|| (404, NOT_FOUND.to_owned()))
    }

    fn set(&self, id: u32, status: u16, body: impl Into<String>) {
        self.answers.lock().unwrap().insert(id, (status, body.into()));
    }

    /// How often it was asked for a schema.
    fn asked_for(&self, id: u32) -> usize {
        let path = format!("GET /base/schemas/ids/{id} ");
        self.requests.lock().unwrap().iter().filter(|request| request.starts_with(&path)).count()
    }

    fn toml(&self) -> String {
        format!("[registry]\nurl = \"http://{}/base/\"\nunusable_for = \"1s\"\n", self.address)
    }
}

fn registered(text: &str) -> String {
    serde_json::json!({ "schema": text }).to_string()
}

fn newest() -> &'static str {
    TASK_COMMAND_VERSIONS.last().unwrap()
}

fn command(pipeline: &Pipeline, id: &str) -> TaskCommand {
    TaskCommand {
        task_id: Some(id.to_owned()),
        topic: Some(pipeline.callback.clone()),
        due_at: Some(AvroTime::Ms(now_ms() + HOUR_MS)),
        value: Some(b"v".to_vec()),
        ..TaskCommand::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn framed_commands_are_read_with_the_schema_of_the_registry_and_the_bad_ones_refused() {
    let pipeline = Pipeline::new().await;
    let registry = Registry::start().await;
    registry.set(7, 200, registered(newest()));
    registry.set(8, 200, r#"{"schema":"{}","schemaType":"JSON"}"#);
    registry.set(9, 200, registered(r#""string""#));
    registry.set(10, 200, format!(r#"{{"schema":"{}"}}"#, "x".repeat(2 << 20)));
    let ingest = pipeline.ingest(&(registry.toml() + "user = \"duestream\"\npassword = \"secret\"\n"));
    let framed = |id: &str, schema| OutRecord::to("").value(command(&pipeline, id).encode_framed(schema));
    let mut records =
        vec![framed("a", 7), framed("none", 6), framed("json", 8), framed("text", 9), framed("long", 10)];
    records.extend([pipeline.task("headers", now_ms() + HOUR_MS), framed("b", 7)]);
    pipeline.submit(records).await;
    pipeline.confirmed(&pipeline.names.tasks(), 7).await;
    assert_eq!(pipeline.tasks().await.into_keys().collect::<Vec<_>>(), ["a", "b", "headers"]);
    let mut refused: Vec<(String, String)> = Vec::new();
    for record in pipeline.rejected().await {
        refused.push((header(&record, "duestream-rejected-offset").unwrap(), reason(&record)));
    }
    refused.sort();
    let incompatible = "incompatible_schema";
    let expected = [("1", "unknown_schema"), ("2", incompatible), ("3", incompatible), ("4", incompatible)];
    assert_eq!(refused, expected.map(|(offset, code)| (offset.to_owned(), code.to_owned())));

    pipeline.submit(vec![framed("c", 7)]).await;
    pipeline.confirmed(&pipeline.names.tasks(), 8).await;
    assert_eq!(registry.asked_for(7), 1, "a schema is asked for once");
    let request = registry.requests.lock().unwrap()[0].to_lowercase();
    assert!(request.contains("authorization: basic zhvlc3ryzwftonnly3jlda=="), "{request}");

    // Whoever named an id before it was registered keeps nobody from using it.
    registry.set(6, 200, registered(newest()));
    let offsets = pipeline.submit(vec![framed("late", 6)]).await;
    pipeline.confirmed(&pipeline.names.tasks(), offsets[0] + 1).await;
    assert!(pipeline.tasks().await.contains_key("late"));

    // How Confluent's registry answers an id that its path cannot hold: as it answers a wrong path. No id stops the partition.
    registry.set(5, 404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#);
    registry.set(4, 422, r#"{"error_code":42201,"message":"Unprocessable"}"#);
    registry.types.lock().unwrap().replace(r#"["JSON","PROTOBUF","AVRO"]"#.to_owned());
    let last = [framed("path", 5), framed("entity", 4), framed("beyond", u32::MAX), framed("good", 7)];
    let offsets = pipeline.submit(last.to_vec()).await;
    pipeline.confirmed(&pipeline.names.tasks(), offsets[3] + 1).await;
    assert!(pipeline.tasks().await.contains_key("good"));
    let codes: Vec<String> = pipeline.rejected().await.iter().map(reason).collect();
    assert_eq!(codes.iter().filter(|code| *code == "unknown_schema").count(), 4, "{codes:?}");
    assert_eq!(registry.asked_for(u32::MAX), 0, "no registry has it");
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_away_is_waited_for_and_nothing_is_refused() {
    let pipeline = Pipeline::new().await;
    let registry = Registry::start().await;
    registry.set(7, 200, registered(newest()));
    let tenant = pipeline.own("tenant");
    pipeline.create_source(&tenant, 1).await;
    let sources = format!("[[sources]]\ntopic = \"{tenant}\"\n[[sources]]\ntopic = \"\"\n");
    let ingest = pipeline.ingest(&(registry.toml() + &sources));
    ingest.ready().await;
    for (n, outage) in [503, 401, 404].into_iter().enumerate() {
        *registry.outage.lock().unwrap() = Some(outage);
        let schema = 7 + u32::try_from(n).unwrap();
        registry.set(schema, 200, registered(newest()));
        let id = format!("through {outage}");
        let offsets = pipeline
            .submit(vec![OutRecord::to("").value(command(&pipeline, &id).encode_framed(schema))])
            .await;
        ingest
            .unready(&format!("waiting for the schema registry (schema {schema}): it answers {outage}"))
            .await;
        let other = pipeline
            .send(&tenant, vec![pipeline.task(&format!("beside {outage}"), now_ms() + HOUR_MS)])
            .await;
        pipeline.confirmed(&tenant, other[0] + 1).await;
        assert!(!pipeline.tasks().await.contains_key(&id), "it waits");
        *registry.outage.lock().unwrap() = None;
        pipeline.confirmed(&pipeline.names.tasks(), offsets[0] + 1).await;
        assert!(pipeline.tasks().await.contains_key(&id));
    }
    ingest.ready().await;
    assert!(pipeline.rejected().await.is_empty());
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_registry_framed_commands_are_refused_and_schema_files_make_newer_producers_readable() {
    let pipeline = Pipeline::new().await;
    let mut next: serde_json::Value = serde_json::from_str(newest()).unwrap();
    let fields = next["fields"].as_array_mut().unwrap();
    fields.push(serde_json::json!({"name": "colour", "type": ["null", "string"], "default": null}));
    let dir = std::env::temp_dir().join(format!("{}.avsc", pipeline.own("next")));
    std::fs::write(&dir, next.to_string()).unwrap();
    let schema = schemas::command::WriterSchema::parse(&next.to_string()).unwrap();
    // The datum of version n with one more null at its end is one of version n+1.
    let of_next = |id: &str| {
        let mut bytes = command(&pipeline, id).encode();
        bytes[2..10].copy_from_slice(&schema.fingerprint().to_le_bytes());
        bytes.push(0);
        OutRecord::to("").value(bytes)
    };
    let first = pipeline.ingest("");
    pipeline
        .submit(vec![
            of_next("too new"),
            OutRecord::to("").value(command(&pipeline, "framed").encode_framed(7)),
        ])
        .await;
    pipeline.confirmed(&pipeline.names.tasks(), 2).await;
    first.stop().await;
    let second = pipeline.ingest(&format!("[avro]\nschemas = [\"{}\"]\n", dir.display()));
    pipeline
        .submit(vec![of_next("newer"), OutRecord::to("").value(command(&pipeline, "known").encode())])
        .await;
    pipeline.confirmed(&pipeline.names.tasks(), 4).await;
    assert_eq!(pipeline.tasks().await.into_keys().collect::<Vec<_>>(), ["known", "newer"]);
    let reasons: Vec<String> = pipeline.rejected().await.iter().map(reason).collect();
    assert_eq!(reasons, ["unknown_schema", "unknown_schema"]);
    second.stop().await;
    std::fs::remove_file(dir).unwrap();
    pipeline.finish().await;
}
