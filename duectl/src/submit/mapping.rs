//! From a row to the record of a command.

use super::rows::Row;
use super::template::Template;
use super::timeline::Timeline;
use crate::cli::SubmitArgs;
use runtime::kafka::OutRecord;
use schemas::command::{Command, HEADER_PREFIX, HeaderView, KnownSchemas, ParseError, RecordView, Rules};
use schemas::record::Header;
use std::sync::Arc;

/// Fields that a template may fill, in the order of their headers.
const FIELDS: [&str; 11] = [
    "due-at",
    "delay",
    "topic",
    "task-id",
    "shard-key",
    "partition",
    "expires-at",
    "reply",
    "correlation",
    "key",
    "value",
];
/// How many of them are headers as they are: all but key and value.
const HEADER_FIELDS: usize = 9;

/// Which template fills which field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    fields: Vec<(&'static str, Template)>,
    headers: Vec<(String, Template)>,
    /// Value as given on the command line, any bytes.
    value: Option<Vec<u8>>,
    /// Where nothing says what the value is: the whole row.
    row_is_value: bool,
}

/// A command, checked as far as it can be without looking at the world.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) record: OutRecord,
    pub(crate) command: Command,
}

impl Mapping {
    /// What flags and `--map` say. `value`: what `--value` or `--value-file` gave.
    pub(crate) fn of(args: &SubmitArgs, value: Option<Vec<u8>>) -> Result<Mapping, String> {
        let mut mapping = Mapping { value, ..Mapping::default() };
        let flags = [
            ("due-at", &args.due_at),
            ("delay", &args.delay),
            ("topic", &args.topic),
            ("task-id", &args.task_id),
            ("shard-key", &args.shard_key),
            ("partition", &args.partition),
            ("expires-at", &args.expires_at),
            ("reply", &args.reply.then(|| "true".to_owned())),
            ("correlation", &args.correlation),
            ("key", &args.key),
        ];
        for (field, text) in flags {
            if let Some(text) = text {
                mapping.fields.push((field, Template::literal(text)));
            }
        }
        for pair in &args.headers {
            let (name, text) =
                pair.split_once('=').ok_or_else(|| format!("--header {pair}: must be name=value"))?;
            mapping.headers.push((name.to_owned(), Template::literal(text)));
        }
        for pair in &args.map {
            mapping.add(pair).map_err(|problem| format!("--map {pair}: {problem}"))?;
        }
        if mapping.has("due-at") && mapping.has("delay") {
            return Err("due-at and delay are both given: one says when".into());
        }
        mapping.row_is_value = args.file.is_some() && mapping.value.is_none() && !mapping.has("value");
        Ok(mapping)
    }

    fn add(&mut self, pair: &str) -> Result<(), String> {
        let (field, template) = pair.split_once('=').ok_or("must be field=template")?;
        let template = Template::parse(template)?;
        if let Some(name) = field.strip_prefix("header.") {
            self.headers.push((name.to_owned(), template));
            return Ok(());
        }
        let field = FIELDS
            .into_iter()
            .find(|known| *known == field)
            .ok_or_else(|| format!("unknown field {field}; fields are {}, header.NAME", FIELDS.join(", ")))?;
        if self.has(field) || (field == "value" && self.value.is_some()) {
            return Err(format!("{field} is given twice"));
        }
        self.fields.push((field, template));
        Ok(())
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|(of, _)| *of == field)
    }

    /// Columns that no file with these columns has.
    pub(crate) fn unknown_columns(&self, columns: &[String]) -> Vec<String> {
        let templates = self.fields.iter().map(|(_, t)| t).chain(self.headers.iter().map(|(_, t)| t));
        let mut unknown: Vec<String> = templates
            .flat_map(Template::columns)
            .filter(|c| !columns.iter().any(|known| known == c))
            .map(str::to_owned)
            .collect();
        unknown.sort();
        unknown.dedup();
        unknown
    }

    /// The command of a row, as the contract reads it. `now`: what a delay counts from, about.
    pub(crate) fn draft(
        &self,
        row: &Row,
        topic: &Arc<str>,
        rules: &Rules,
        now: i64,
    ) -> Result<Draft, String> {
        let field = |name: &str| match self.fields.iter().find(|(of, _)| *of == name) {
            None => Ok(None),
            Some((_, template)) => template.fill(row),
        };
        let mut record = OutRecord::to(topic.clone());
        for (name, template) in &self.headers {
            let value = template.fill(row)?.map(String::into_bytes);
            record.headers.push(Header { name: name.clone(), value });
        }
        for name in &FIELDS[..HEADER_FIELDS] {
            // An empty cell of CSV says nothing.
            if let Some(text) = field(name)?.filter(|text| !text.is_empty()) {
                let header = format!("{HEADER_PREFIX}{name}");
                record.headers.push(Header { name: header, value: Some(text.into_bytes()) });
            }
        }
        match field("key")? {
            Some(key) => record.key = Some(key.into_bytes().into()),
            None => {
                // All commands of one task carry the same Kafka key, also where the callback has none.
                let identity = match field("shard-key")?.filter(|text| !text.is_empty()) {
                    Some(shard_key) => Some(shard_key),
                    None => field("task-id")?.filter(|text| !text.is_empty()),
                };
                if let Some(identity) = identity {
                    record.key = Some(identity.into_bytes().into());
                    record.headers.push(Header { name: format!("{HEADER_PREFIX}key"), value: None });
                }
            }
        }
        record.value = match (&self.value, self.row_is_value) {
            (Some(value), _) => Some(value.clone().into()),
            (None, true) => Some(row.json().into_bytes().into()),
            (None, false) => field("value")?.map(|text| text.into_bytes().into()),
        };
        let command = read_back(&record, rules, now)?;
        Ok(Draft { record, command })
    }
}

/// What ingest will make of the record.
fn read_back(record: &OutRecord, rules: &Rules, now: i64) -> Result<Command, String> {
    let headers: Vec<HeaderView<'_>> = record
        .headers
        .iter()
        .map(|h| HeaderView { name: h.name.as_bytes(), value: h.value.as_deref() })
        .collect();
    let view = RecordView {
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
        timestamp_at: now,
    };
    Command::parse(&view, rules, &KnownSchemas::shipped()).map_err(|error| match error {
        ParseError::Refused(refused) => refused.refusal.message,
        ParseError::NeedsSchema(id) => format!("the value is framed with schema id {id} of a registry"),
    })
}

impl Draft {
    /// Moves its times.
    pub(crate) fn move_to(&mut self, timeline: &Timeline) {
        self.command.due_at = timeline.map(self.command.due_at);
        self.set("due-at", self.command.due_at);
        if let Some(expires_at) = self.command.options.expires_at.map(|at| timeline.map(at)) {
            self.command.options.expires_at = Some(expires_at);
            self.set("expires-at", expires_at);
        }
    }

    fn set(&mut self, field: &str, at: i64) {
        let name = format!("{HEADER_PREFIX}{field}");
        for header in self.record.headers.iter_mut().filter(|header| header.name == name) {
            header.value = Some(at.to_string().into_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
