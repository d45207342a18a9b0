//! `duectl dead show`.

use super::filter::Filter;
use super::letters::{Found, Letters, Step};
use super::list;
use crate::ask::partition_of;
use crate::cli::ShowArgs;
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use runtime::clock::now_ms;
use runtime::kafka::KafkaFault;
use schemas::delivery::letter::user_headers;
use schemas::delivery::{DeliveryId, Letter};
use schemas::due::PastAttempt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

/// Characters of the payload that are shown.
const SHOWN: usize = 4_000;

pub(crate) async fn run(servers: &Servers, args: ShowArgs) -> Result<(), Failure> {
    let letters = Letters::open(servers).await?;
    let found = match (&args.at, &args.task) {
        (Some(at), _) => at_place(servers, &letters, at).await?,
        (None, Some(task)) => of_task(servers, &letters, task, args.shard_key.as_deref()).await?,
        (None, None) => return Err(Failure::Usage("give a task id, or --at PARTITION:OFFSET".into())),
    };
    if args.payload {
        let bytes = found.record.value.as_deref().unwrap_or_default();
        // A reader that closed the pipe has seen enough.
        drop(std::io::stdout().write_all(bytes));
    } else if args.json {
        show::say(&json_of(&found).to_string());
    } else {
        show::say(text_of(&found).trim_end());
    }
    Ok(())
}

async fn at_place(servers: &Servers, letters: &Letters, at: &str) -> Result<Found, Failure> {
    let place = at.split_once(':').and_then(|(p, o)| Some((p.parse::<i32>().ok()?, o.parse::<i64>().ok()?)));
    let Some((partition, offset)) = place else {
        return Err(Failure::Usage(format!("--at {at}: must be PARTITION:OFFSET, such as 3:17")));
    };
    let nothing =
        || Failure::NotFound(format!("there is no record at {}[{partition}]@{offset}", letters.topic));
    if !(0..letters.partitions).contains(&partition) {
        return Err(nothing());
    }
    let read =
        letters.at(partition, offset).await.map_err(|fault: KafkaFault| servers.kafka_failed(&fault))?;
    let record = read.ok_or_else(nothing)?;
    match Letter::read(&record.headers) {
        Ok(letter) => Ok(Found { letter, record }),
        Err(why) => Err(Failure::Failed(anyhow::anyhow!("{}[{partition}]@{offset}: {why}", letters.topic))),
    }
}

/// The newest letter of a task: where its key lies, or, as the topic may have grown, elsewhere.
async fn of_task(
    servers: &Servers,
    letters: &Letters,
    task: &str,
    shard_key: Option<&str>,
) -> Result<Found, Failure> {
    let first = partition_of(task.as_bytes(), letters.partitions);
    let others: Vec<i32> = letters.all().into_iter().filter(|partition| *partition != first).collect();
    for partitions in [vec![first], others] {
        // An identity that was purged and submitted again has letters of several rows.
        let mut newest: BTreeMap<String, Box<Found>> = BTreeMap::new();
        let mut steps = letters.newest(Filter::of_task(task, shard_key), partitions);
        while let Some(step) = steps.recv().await {
            match step {
                Step::Letter(found) => keep_newest(&mut newest, found),
                Step::NoLetter(_) => {}
                Step::Failed(fault) => return Err(servers.kafka_failed(&fault)),
            }
        }
        if newest.len() > 1 {
            let shard_keys: Vec<String> = newest.into_keys().collect();
            return Err(Failure::Usage(format!(
                "there are dead tasks {task} with several shard keys: give one of --shard-key {}",
                shard_keys.join(", ")
            )));
        }
        if let Some((_, found)) = newest.pop_first() {
            return Ok(*found);
        }
    }
    Err(Failure::NotFound(format!(
        "no dead letter of task {task} on {}; duectl get {task} says how it is",
        letters.topic
    )))
}

fn keep_newest(newest: &mut BTreeMap<String, Box<Found>>, found: Box<Found>) {
    let known = newest.get(&found.letter.shard_key);
    if known.is_none_or(|known| known.letter.dead_at <= found.letter.dead_at) {
        newest.insert(found.letter.shard_key.clone(), found);
    }
}

fn text_of(found: &Found) -> String {
    let Found { letter, record } = found;
    let ago = |at: i64| format!("{} ({} ago)", show::time(at), show::span(now_ms() - at));
    let mut out = format!("dead letter of task {}: {}: {}\n", letter.task_id, letter.reason, letter.message);
    let mut line = |name: &str, text: String| {
        // Writing into a String does not fail.
        writeln!(out, "  {name:10} {text}").ok();
    };
    line("buried", ago(letter.dead_at));
    line("lies at", format!("{}[{}]@{}", record.topic, record.partition, record.offset));
    if letter.shard_key != letter.task_id {
        line("shard key", letter.shard_key.clone());
    }
    let partition = letter.partition.map_or(String::new(), |partition| format!(", partition {partition}"));
    line("to", format!("{}{partition}", letter.topic));
    line("key", show::bytes(letter.key.as_deref(), 200));
    line("due", show::time(letter.due_at));
    if let Some(at) = letter.asked_at {
        line("asked for", show::time(at));
    }
    if let Some(at) = letter.expires_at {
        line("expires", show::time(at));
    }
    line("attempt", format!("{} (delivery {})", letter.attempt, letter.delivery_id));
    if !letter.options.is_empty() {
        let options = letter.options.iter();
        let options = options.map(|(name, text)| format!("{} {text}", name.trim_start_matches("duestream-")));
        line("options", options.collect::<Vec<_>>().join(", "));
    }
    if let Some(progress) = &letter.progress {
        line("progress", show::bytes(Some(progress), 200));
    }
    for (n, past) in letter.history.iter().enumerate() {
        line(if n == 0 { "history" } else { "" }, attempt_text(past, letter.delivery_id));
    }
    for (n, header) in user_headers(&record.headers).enumerate() {
        let text = format!("{}={}", header.name, show::bytes(header.value.as_deref(), 200));
        line(if n == 0 { "headers" } else { "" }, text);
    }
    line("payload", show::bytes(record.value.as_deref(), SHOWN));
    let shard_key = if letter.shard_key == letter.task_id {
        String::new()
    } else {
        format!(" --shard-key '{}'", letter.shard_key)
    };
    writeln!(
        out,
        "have it delivered after all: duectl dead replay --task-id '{}'{shard_key}",
        letter.task_id
    )
    .ok();
    out
}

/// One past attempt on one line: when, how, why, and where it can be looked up.
pub(crate) fn attempt_text(past: &PastAttempt, letter: DeliveryId) -> String {
    let reason = past.reason.as_deref();
    let reason =
        reason.map_or(String::new(), |text| format!(": {}", show::bytes(Some(text.as_bytes()), 300)));
    let made = past.made.map_or(String::new(), |made| {
        let id =
            DeliveryId { due_at: made.due_at, generation: made.generation, attempt: past.attempt, ..letter };
        format!("; due {}, delivery {id}", show::time(made.due_at))
    });
    let ack =
        past.ack.map_or(String::new(), |ack| format!("; ack acks[{}]@{}", ack.partition(), ack.offset()));
    format!("attempt {} {} at {}{reason}{made}{ack}", past.attempt, past.outcome, show::time(past.at))
}

/// The same for programs.
pub(crate) fn attempt_json(past: &PastAttempt) -> Value {
    json!({
        "attempt": past.attempt, "ended_at": past.at, "outcome": past.outcome, "reason": past.reason,
        "due_at": past.made.map(|made| made.due_at), "gen": past.made.map(|made| made.generation.0),
        "ack": past.ack.map(|ack| json!({"partition": ack.partition(), "offset": ack.offset()})),
    })
}

fn json_of(found: &Found) -> Value {
    let mut json = list::json_of(found);
    let headers = user_headers(&found.record.headers);
    let headers = headers.map(|h| json!([h.name, show::text_or_bytes(h.value.as_deref())]));
    json["headers"] = Value::Array(headers.collect());
    json["value"] = show::text_or_bytes(found.record.value.as_deref());
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead::list::tests::found;

    #[test]
    fn of_several_rows_of_one_identity_the_one_that_died_last_is_shown() {
        let mut newest = BTreeMap::new();
        for at in [5, 9, 7] {
            keep_newest(&mut newest, Box::new(found("t", at)));
        }
        assert_eq!(newest.into_values().map(|found| found.letter.dead_at).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn a_letter_is_shown_with_where_each_attempt_was_made() {
        let text = text_of(&found("t", 978_309_900_009));
        for wanted in [
            "dead letter of task t: failed: It failed.\n",
            "  lies at    duestream.dead[3]@978309900009\n",
            "  history    attempt 1 failed at 2001-01-01T00:45:00.008Z: no\\nroom; due 2001-01-01T00:45:00.000Z, \
             delivery 0.978309900000.116.1.1; ack acks[5]@77\n",
            "  payload    v\n",
            "duectl dead replay --task-id 't'\n",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        assert_eq!(json_of(&found("t", 5))["value"], json!("v"));
    }
}
