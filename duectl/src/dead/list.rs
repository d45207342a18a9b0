//! `duectl dead list`.

use super::filter::Filter;
use super::letters::{Found, Letters, Step};
use super::show_one::attempt_json;
use crate::cli::ListArgs;
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) async fn run(servers: &Servers, args: ListArgs) -> Result<(), Failure> {
    let filter = Filter::of(args.filter)?;
    let names_tasks = filter.names_tasks();
    let letters = Letters::open(servers).await?;
    let mut steps = letters.newest(filter, letters.all());
    let (mut kept, mut counts) = (Kept::new(args.limit), Counts::default());
    while let Some(step) = steps.recv().await {
        match step {
            Step::Letter(found) => {
                counts.add(&found);
                let line = if args.json { json_of(&found).to_string() } else { line_of(&found) };
                kept.add(&found, line);
            }
            Step::NoLetter(text) => counts.stranger(&letters.topic, &text),
            Step::Failed(fault) => return Err(servers.kafka_failed(&fault)),
        }
    }
    if counts.all == 0 && names_tasks {
        return Err(Failure::NotFound(format!("no dead letter on {} matches", letters.topic)));
    }
    let shown = kept.lines.len() as u64;
    for line in kept.lines.values() {
        show::say(line);
    }
    if args.json {
        show::say(&counts.json().to_string());
    } else {
        eprintln!("{}", counts.text());
        if shown < counts.all {
            eprintln!("the newest {shown} are shown; --limit shows more, filters fewer");
        }
    }
    Ok(())
}

/// The newest lines, by the time of the burial.
struct Kept {
    limit: usize,
    lines: BTreeMap<(i64, i32, i64), String>,
}

impl Kept {
    fn new(limit: usize) -> Kept {
        Kept { limit, lines: BTreeMap::new() }
    }

    fn add(&mut self, found: &Found, line: String) {
        let record = &found.record;
        self.lines.insert((found.letter.dead_at, record.partition, record.offset), line);
        if self.lines.len() > self.limit {
            self.lines.pop_first();
        }
    }
}

/// How many there are, by reason and by topic.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) all: u64,
    reasons: BTreeMap<String, u64>,
    topics: BTreeMap<String, u64>,
    strangers: u64,
}

impl Counts {
    pub(super) fn add(&mut self, found: &Found) {
        self.all += 1;
        *self.reasons.entry(found.letter.reason.clone()).or_default() += 1;
        *self.topics.entry(found.letter.topic.clone()).or_default() += 1;
    }

    /// Notes a record that is no letter; the first few are told.
    pub(super) fn stranger(&mut self, topic: &str, text: &str) {
        self.strangers += 1;
        if self.strangers <= 3 {
            eprintln!("warning: no dead letter: {topic}{text}");
        }
    }

    pub(super) fn text(&self) -> String {
        let of = |counts: &BTreeMap<String, u64>| -> String {
            counts.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
        };
        let tasks = if self.all == 1 { "task" } else { "tasks" };
        let mut text = match self.all {
            0 => "no dead letters".to_owned(),
            all => format!("{all} {tasks}; by reason: {}; to: {}", of(&self.reasons), of(&self.topics)),
        };
        if self.strangers > 0 {
            text += &format!("; {} records are no dead letters", self.strangers);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        json!({"letters": self.all, "reasons": self.reasons, "topics": self.topics, "not_letters": self.strangers})
    }
}

/// A letter on one line.
pub(super) fn line_of(found: &Found) -> String {
    let (letter, record) = (&found.letter, &found.record);
    let shard_key = if letter.shard_key == letter.task_id {
        String::new()
    } else {
        format!("  shard key {}", letter.shard_key)
    };
    let last = letter.history.last().and_then(|past| past.reason.as_deref());
    let last = last.map_or(String::new(), |reason| format!("  {}", show::bytes(Some(reason.as_bytes()), 60)));
    format!(
        "{}  {:20} {}  attempt {}  task {}{shard_key}  {}:{}{last}",
        show::time(letter.dead_at),
        letter.reason,
        letter.topic,
        letter.attempt,
        letter.task_id,
        record.partition,
        record.offset,
    )
}

/// The same for programs, without payload and headers.
pub(super) fn json_of(found: &Found) -> Value {
    let (letter, record) = (&found.letter, &found.record);
    let history: Vec<Value> = letter.history.iter().map(attempt_json).collect();
    let options: BTreeMap<&str, &str> = letter
        .options
        .iter()
        .map(|(name, text)| (name.strip_prefix("duestream-").unwrap_or(name), text.as_str()))
        .collect();
    json!({
        "task_id": letter.task_id, "shard_key": letter.shard_key, "reason": letter.reason, "message": letter.message,
        "dead_at": letter.dead_at, "topic": letter.topic, "callback_partition": letter.partition,
        "key": show::text_or_bytes(letter.key.as_deref()), "attempt": letter.attempt, "due_at": letter.due_at,
        "asked_at": letter.asked_at, "expires_at": letter.expires_at, "options": options,
        "progress": show::text_or_bytes(letter.progress.as_deref()), "history": history,
        "delivery_id": letter.delivery_id.to_string(), "row": letter.delivery_id.id.to_string(),
        "partition": record.partition, "offset": record.offset, "value_bytes": record.value.as_ref().map(|value| value.len()),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::dead::letters::tests::letter;
    use runtime::kafka::Record;
    use schemas::due::{Made, PastAttempt};
    use schemas::ids::{Generation, RowId, SourceId};

    pub(crate) fn found(task_id: &str, dead_at: i64) -> Found {
        let record = Record {
            topic: "duestream.dead".into(),
            partition: 3,
            offset: dead_at,
            at: dead_at,
            epoch: 0,
            key: Some(task_id.to_owned().into()),
            value: Some(vec![b'v'].into()),
            headers: Vec::new(),
            headers_intact: true,
            cut: None,
        };
        let mut letter = letter(task_id, dead_at);
        letter.history.push(PastAttempt {
            attempt: 1,
            at: dead_at - 1,
            outcome: "failed".into(),
            reason: Some("no\nroom".into()),
            made: Some(Made { generation: Generation(1), due_at: dead_at - 9 }),
            ack: RowId::pack(SourceId(2), 5, 77),
        });
        Found { letter, record }
    }

    #[test]
    fn a_letter_is_one_line_with_its_last_failure() {
        assert_eq!(
            line_of(&found("t", 978_309_900_007)),
            "2001-01-01T00:45:00.007Z  failed               callbacks  attempt 1  task t  3:978309900007  no\\nroom"
        );
        let json = json_of(&found("t", 978_309_900_007));
        assert_eq!(json["history"][0]["ack"], json!({"partition": 5, "offset": 77}));
        assert_eq!((&json["task_id"], &json["value_bytes"]), (&json!("t"), &json!(1)));
    }

    #[test]
    fn the_newest_lines_are_kept_in_the_order_of_their_burial() {
        let mut kept = Kept::new(2);
        for at in [5, 1, 7, 3] {
            kept.add(&found("t", at), at.to_string());
        }
        assert_eq!(kept.lines.values().cloned().collect::<Vec<_>>(), ["5", "7"]);
    }

    #[test]
    fn all_are_counted_by_reason_and_topic() {
        let mut counts = Counts::default();
        assert_eq!(counts.text(), "no dead letters");
        counts.add(&found("t", 5));
        assert_eq!(counts.text(), "1 task; by reason: failed 1; to: callbacks 1");
        counts.add(&found("u", 5));
        assert_eq!(counts.json()["reasons"], json!({"failed": 2}));
    }
}
