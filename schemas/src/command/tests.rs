//! Commands as producers send them.

mod avro;
mod contract;
mod forms;
mod hashes;
mod hostile;
mod hostile_avro;
mod refused;
mod replies;
mod taken;

use super::*;

const NOW_AT: i64 = 1_769_850_000_000;

/// A record to be.
#[derive(Clone, Debug, Default)]
struct Record {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Record {
    fn key(mut self, key: &str) -> Record {
        self.key = Some(key.into());
        self
    }

    fn value(mut self, value: impl AsRef<[u8]>) -> Record {
        self.value = Some(value.as_ref().to_vec());
        self
    }

    fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Record {
        self.headers.push((name.into(), Some(value.as_ref().to_vec())));
        self
    }

    fn null_header(mut self, name: &str) -> Record {
        self.headers.push((name.into(), None));
        self
    }

    fn parse_with(&self, rules: &Rules) -> Result<Command, Refusal> {
        self.read(rules, &KnownSchemas::shipped()).map_err(|error| match error {
            ParseError::Refused(refused) => refused.refusal,
            ParseError::NeedsSchema(id) => panic!("schema {id} is wanted"),
        })
    }

    fn read(&self, rules: &Rules, schemas: &dyn WriterSchemas) -> Result<Command, ParseError> {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| HeaderView { name, value: value.as_deref() }).collect();
        let view = RecordView {
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
            timestamp_at: NOW_AT,
        };
        Command::parse(&view, rules, schemas)
    }

    fn parse(&self) -> Result<Command, Refusal> {
        self.parse_with(&Rules::new("duestream."))
    }

    fn refusal(&self) -> Refusal {
        self.parse().expect_err("the command is refused")
    }
}

/// The least command by headers.
fn by_headers() -> Record {
    Record::default().header("duestream-delay", "90s").header("duestream-topic", "callbacks")
}

/// The same by JSON, with more members.
fn by_json(members: &str) -> Record {
    Record::default().value(format!(r#"{{"delay": "90s", "topic": "callbacks"{members}}}"#))
}

/// A command as a single object.
fn by_avro(command: &TaskCommand) -> Record {
    Record::default().value(command.encode())
}

/// The least command by Avro.
fn task_command() -> TaskCommand {
    TaskCommand { delay: Some("90s".into()), topic: Some("callbacks".into()), ..TaskCommand::default() }
}

/// What ingest knows of schemas: a registry's by id.
#[derive(Default)]
struct Registry {
    known: KnownSchemas,
    ids: std::collections::HashMap<u32, Lookup>,
}

impl Registry {
    /// A registry in which `text` is schema 7.
    fn of(text: &str) -> Registry {
        let lookup = match WriterSchema::parse(text) {
            Ok(schema) => Lookup::Known(std::sync::Arc::new(schema)),
            Err(fault) => Lookup::Unusable(fault),
        };
        Registry { known: KnownSchemas::shipped(), ids: [(7, lookup)].into() }
    }
}

impl WriterSchemas for Registry {
    fn by_fingerprint(&self, fingerprint: u64) -> Option<std::sync::Arc<WriterSchema>> {
        self.known.by_fingerprint(fingerprint)
    }

    fn by_id(&self, id: u32) -> Lookup {
        self.ids.get(&id).cloned().unwrap_or(Lookup::Unfetched)
    }
}
