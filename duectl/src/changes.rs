//! `duectl cancel` and `duectl reschedule`: one command, and the answer to it.

use crate::ask::{self, Ear, Heard};
use crate::cli::{CancelArgs, RescheduleArgs, TaskArgs};
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use runtime::clock::now_ms;
use runtime::kafka::{OutRecord, Placed};
use runtime::store::{Db, StoreError, lookup, source};
use schemas::command::{HEADER_PREFIX, Rules, record_key};
use schemas::reply::Answer;
use schemas::row::RowBody;
use serde_json::json;

pub(crate) async fn cancel(servers: &Servers, args: CancelArgs) -> Result<(), Failure> {
    change(servers, &args.task, "cancel", &[]).await
}

pub(crate) async fn reschedule(servers: &Servers, args: RescheduleArgs) -> Result<(), Failure> {
    // A due time that has passed is due now, whatever the clock of the broker.
    let now = args.now.then(|| now_ms().to_string());
    let times = [("due-at", args.due_at.or(now)), ("delay", args.delay), ("expires-at", args.expires_at)];
    let times: Vec<(&str, String)> =
        times.into_iter().filter_map(|(name, text)| text.map(|text| (name, text))).collect();
    change(servers, &args.task, "reschedule", &times).await
}

async fn change(
    servers: &Servers,
    args: &TaskArgs,
    op: &str,
    times: &[(&str, String)],
) -> Result<(), Failure> {
    let known = known(servers, args).await;
    let topic = args.source.clone().or(known.source).unwrap_or_else(|| servers.names.tasks());
    let callback_key = args.key.as_ref().map(|key| key.clone().into_bytes()).or(known.callback_key);
    let key = record_key(callback_key.as_deref(), args.shard_key.as_deref(), Some(&args.task));
    let mut record = OutRecord::to(topic.as_str());
    record.key = key.map(|key| key.to_vec().into());
    let named = |name: &str| format!("{HEADER_PREFIX}{name}");
    record = record.header(named("op"), op).header(named("task-id"), args.task.as_str());
    if let Some(shard_key) = &args.shard_key {
        record = record.header(named("shard-key"), shard_key.as_str());
    }
    for (name, text) in times {
        record = record.header(named(name), text.as_str());
    }
    record = record.header(named("reply"), "true");
    ask::check(&record, &Rules::new(servers.names.prefix()), now_ms())
        .map_err(|problem| Failure::Usage(format!("the {op} would be refused: {problem}")))?;

    let admin = servers.admin()?;
    servers.partitions(&admin, &topic, "run `duectl init`, or give another --source or --prefix").await?;
    let ear = Ear::open(servers, &admin, Some(&args.task)).await?;
    record = record.header(named("correlation"), ear.correlation(0));
    let producer = ask::producer(servers)?;
    let placed = producer.send(&record).await.map_err(|e| servers.kafka_failed(&e))?;
    let heard = tokio::time::timeout(args.wait, ear.next(servers)).await;
    let Ok(heard) = heard else {
        return Err(Failure::NotFound(format!(
            "no answer within {}: the {op} stands at {topic}[{}] offset {} and will be carried out; is ingest running? \
             Look at the task: duectl get {}",
            show::span(i64::try_from(args.wait.as_millis()).unwrap_or(i64::MAX)),
            placed.partition,
            placed.offset,
            args.task
        )));
    };
    let (_, heard) = heard?;
    if args.json {
        show::say(&json_of(args, &heard, &topic, placed).to_string());
    }
    tell(args, op, &heard)
}

/// What the database knows that makes the command go the right way.
#[derive(Default)]
struct Known {
    callback_key: Option<Vec<u8>>,
    source: Option<String>,
}

/// Asks the database, if there is one. The command goes without it, too.
async fn known(servers: &Servers, args: &TaskArgs) -> Known {
    if servers.mysql().is_err() || (args.key.is_some() && args.source.is_some()) {
        return Known::default();
    }
    let asked = async {
        let db = servers.db().await?;
        look(&db, args).await.map_err(|e| servers.mysql_failed(&e))
    };
    asked.await.unwrap_or_else(|failure| {
        eprintln!("the key and topic of the command are the default ones, as the database does not tell:");
        failure.say();
        Known::default()
    })
}

async fn look(db: &Db, args: &TaskArgs) -> Result<Known, StoreError> {
    let mut session = db.session().await?;
    let found = lookup::task_called(&mut session, args.shard_key.as_deref(), &args.task).await?;
    let Some(task) = found else { return Ok(Known::default()) };
    let pending = lookup::pending(&mut session, &task).await?;
    let row = match pending {
        Some(row) => Some(row),
        None => lookup::running(&mut session, &task).await?.map(|running| running.row),
    };
    // A body that cannot be read is for others to cry about.
    let body = row.and_then(|row| RowBody::decode(&row.body).ok());
    let sources = source::all(&mut session).await?;
    let source = sources.into_iter().find(|source| source.id == task.id.source());
    Ok(Known { callback_key: body.and_then(|body| body.key), source: source.map(|source| source.topic) })
}

fn json_of(args: &TaskArgs, heard: &Heard, topic: &str, placed: Placed) -> serde_json::Value {
    let mut json = heard.json();
    json["task_id"] = json!(args.task);
    json["shard_key"] = json!(args.shard_key.as_deref().unwrap_or(&args.task));
    json["command"] = json!({"topic": topic, "partition": placed.partition, "offset": placed.offset});
    json
}

/// Says what became of it. What was not done is status 1, what is not there 3.
fn tell(args: &TaskArgs, op: &str, heard: &Heard) -> Result<(), Failure> {
    let task = &args.task;
    let say = |text: String| {
        if !args.json {
            show::say(&text);
        }
    };
    match Answer::from_code(&heard.answer) {
        Some(Answer::Cancelled) if op == "cancel" => {
            say(format!("cancelled: task {task} will not be delivered"));
            Ok(())
        }
        Some(Answer::Accepted) => {
            let due = heard.due_at.map_or(String::new(), |at| {
                format!(" at {} (in {})", show::time(at), show::span((at - now_ms()).max(0)))
            });
            say(format!("accepted: task {task} is due{due}"));
            Ok(())
        }
        Some(Answer::NotFound) => Err(Failure::NotFound(format!(
            "not_found: no task {task}: it was never accepted, or is purged by now{}; a command that came with another \
             Kafka key may still be on its way (--key)",
            if args.shard_key.is_none() {
                "; if it was submitted with a shard key, give --shard-key"
            } else {
                ""
            }
        ))),
        Some(Answer::AlreadySent) => {
            let more = if op == "cancel" {
                "; if it waits for its consumer's ack, it gets no further attempt"
            } else {
                ""
            };
            say(format!("already_sent: task {task} was delivered, or is being delivered{more}"));
            Err(Failure::Said)
        }
        Some(Answer::Cancelled) => {
            say(format!("cancelled: task {task} had been cancelled before, and stays so"));
            Err(Failure::Said)
        }
        Some(Answer::Rejected | Answer::Conflict | Answer::Duplicate) | None => {
            say(format!("{}: {}", heard.code(), heard.message.as_deref().unwrap_or("no reason was given")));
            Err(Failure::Said)
        }
    }
}
