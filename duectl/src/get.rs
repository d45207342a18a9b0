//! `duectl get`: what is known of a task, and where it is.

use crate::cli::GetArgs;
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use protocol::route::{RouteEntry, RouteTable};
use protocol::state::TaskState;
use runtime::slots::{SlotClient, peek};
use runtime::store::lookup::{self, Reemission};
use runtime::store::{Db, Session, StoreError, TaskRow, route, setting, shard, source};
use schemas::command::identities;
use schemas::ids::{RowGen, Slot};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(crate) async fn run(servers: &Servers, args: GetArgs) -> Result<(), Failure> {
    let db = servers.db().await?;
    let mut found = None;
    for identity in identities(args.shard_key.as_deref(), &args.task) {
        found = look(&db, &identity).await.map_err(|e| servers.mysql_failed(&e))?;
        if found.is_some() {
            break;
        }
    }
    let Some(mut found) = found else {
        let hint = match args.shard_key {
            None => "if it was submitted with a shard key, give --shard-key",
            Some(_) => "check id and shard key",
        };
        return Err(Failure::NotFound(format!(
            "no task {}: it was never accepted, or is purged by now; {hint}; what was refused is on {}",
            args.task,
            servers.names.rejected()
        )));
    };
    if let Whereabouts::Emitted { redis, .. } = &mut found.place {
        *redis = in_redis(servers, &found.task, found.slot).await;
    }
    if args.json {
        show::say(&found.json().to_string());
    } else {
        show::say(found.text().trim_end());
    }
    Ok(())
}

/// A task and where it is.
struct Found {
    task: TaskRow,
    /// The topic it was submitted to; `None`: its number is not in the table (any more).
    source: Option<String>,
    slot: Slot,
    intents: i64,
    now: i64,
    place: Whereabouts,
}

enum Whereabouts {
    /// Only in MySQL: the scanner has not come to it.
    BeyondCursor { cursor_at: i64 },
    /// A due record of it has been, is being or will be emitted.
    Emitted { cursor_at: i64, redis: InRedis, reemission: Option<Reemission> },
    /// Delivered, waits for its consumer.
    Running { deadline_at: i64 },
    /// It is over.
    Final,
    /// `task` says that it lives, and its row is not where it should be: it changed while it was read.
    Moving,
}

enum InRedis {
    /// No `--redis-url`.
    NotAsked,
    Failed(String),
    Place(peek::Place),
}

async fn look(db: &Db, identity: &[u8; 16]) -> Result<Option<Found>, StoreError> {
    let mut session = db.session().await?;
    let Some(task) = lookup::task(&mut session, identity).await? else { return Ok(None) };
    let slot = slot_of(&mut session, &task).await?;
    let row = RowGen { id: task.id, generation: task.generation };
    let place = place_of(&mut session, &task, row).await?;
    let intents = lookup::intents(&mut session, row).await?;
    let source = source::all(&mut session).await?.into_iter().find(|source| source.id == task.id.source());
    let source = source.map(|source| source.topic);
    let now = db.now().await?;
    Ok(Some(Found { task, source, slot, intents, now, place }))
}

async fn slot_of(session: &mut Session, task: &TaskRow) -> Result<Slot, StoreError> {
    let settings = setting::all(session).await?;
    let (shards, slots) = (settings.number(setting::SHARDS)?, settings.number(setting::SLOTS)?);
    let routes = route::all(session).await?;
    let entries =
        routes.into_iter().map(|r| RouteEntry { shard: r.shard, from_due_at: r.from_due_at, slot: r.slot });
    let table = RouteTable::new(shards, slots, entries)
        .map_err(|e| StoreError::World { what: format!("table route: {e}; run `duectl init`") })?;
    Ok(table.slot_at(task.shard, task.due_at))
}

async fn place_of(session: &mut Session, task: &TaskRow, row: RowGen) -> Result<Whereabouts, StoreError> {
    match TaskState::from_code(task.state) {
        Some(TaskState::Scheduled) => {}
        Some(TaskState::Running) => {
            let running = lookup::running(session, task).await?;
            return Ok(
                running.map_or(Whereabouts::Moving, |r| Whereabouts::Running { deadline_at: r.deadline_at })
            );
        }
        Some(TaskState::Done | TaskState::Dead | TaskState::Cancelled) | None => {
            return Ok(Whereabouts::Final);
        }
    }
    if lookup::pending(session, task).await?.is_none() {
        return Ok(Whereabouts::Moving);
    }
    let shards = shard::read(session, &BTreeSet::from([task.shard])).await?;
    let cursor_at = shards.first().map_or(0, |row| row.cursor_at);
    if task.due_at > cursor_at {
        return Ok(Whereabouts::BeyondCursor { cursor_at });
    }
    let reemission = lookup::reemission(session, task.shard, task.due_at, row).await?;
    Ok(Whereabouts::Emitted { cursor_at, redis: InRedis::NotAsked, reemission })
}

async fn in_redis(servers: &Servers, task: &TaskRow, slot: Slot) -> InRedis {
    let Some(redis) = servers.redis() else { return InRedis::NotAsked };
    let member = RowGen { id: task.id, generation: task.generation };
    let asked = async {
        let mut client = SlotClient::connect(&redis).await?;
        peek::place_of(&mut client, &redis.prefix, slot, &task.callback_topic, member).await
    };
    match asked.await {
        Ok(place) => InRedis::Place(place),
        Err(error) => InRedis::Failed(error.to_string()),
    }
}

impl Found {
    fn state(&self) -> String {
        TaskState::from_code(self.task.state)
            .map_or_else(|| format!("state {}", self.task.state), |s| s.name().to_owned())
    }

    fn text(&self) -> String {
        let task = &self.task;
        let due = match self.place {
            // `due_at` of a running row is its deadline.
            Whereabouts::Running { .. } => String::new(),
            _ => format!(", due {}", show::time(task.due_at)),
        };
        let mut out = format!("task {}: {}{due}\n", task.task_id, self.state());
        let mut line = |name: &str, text: String| {
            // Writing into a String does not fail.
            writeln!(out, "  {name:10} {text}").ok();
        };
        line("where", self.place_text());
        line("to", task.callback_topic.clone());
        if let Some(shard_key) = &task.shard_key {
            line("shard key", shard_key.clone());
        }
        line("attempt", format!("{} (generation {})", task.attempt, task.generation.0));
        let topic = self.source.as_deref().unwrap_or("a topic that is not registered");
        line("from", format!("{topic}, partition {}, offset {}", task.id.partition(), task.id.offset()));
        line("row", format!("{} (source {})", task.id, task.id.source().0));
        line("shard", format!("{}, slot {}", task.shard, self.slot));
        line("accepted", show::time(task.created_at));
        if let Some(finished_at) = task.finished_at {
            line("finished", show::time(finished_at));
        }
        if self.intents > 0 {
            line("changes", format!("{} not answered yet", self.intents));
        }
        out
    }

    fn place_text(&self) -> String {
        let due_in = self.task.due_at - self.now;
        match &self.place {
            Whereabouts::BeyondCursor { cursor_at } => format!(
                "in MySQL, beyond the cursor of its shard ({}): not emitted yet; due in {}",
                show::time(*cursor_at),
                show::span(due_in)
            ),
            Whereabouts::Emitted { redis, reemission, .. } => {
                let again = reemission.map_or(String::new(), |r| {
                    format!(
                        "; handed back or emitted again {} times, next not before {}",
                        r.count,
                        show::time(r.at)
                    )
                });
                format!("{}{again}", self.redis_text(redis, due_in))
            }
            Whereabouts::Running { deadline_at } => {
                format!("with its consumer, deadline {}", show::time(*deadline_at))
            }
            Whereabouts::Final => "nowhere: it is over, and kept so that it is not accepted twice".into(),
            Whereabouts::Moving => "changing just now: ask again".into(),
        }
    }

    fn redis_text(&self, redis: &InRedis, due_in: i64) -> String {
        match redis {
            InRedis::NotAsked => {
                format!("emitted to slot {} (give --redis-url to see whether Redis has it)", self.slot)
            }
            InRedis::Failed(error) => {
                format!("emitted to slot {}; Redis cannot be asked: {error}", self.slot)
            }
            InRedis::Place(peek::Place::Store { .. }) if due_in > 0 => {
                format!("in Redis, slot {}, delivered in {}", self.slot, show::span(due_in))
            }
            InRedis::Place(peek::Place::Store { .. }) => {
                format!(
                    "in Redis, slot {}, and due since {}: is the dispatcher running?",
                    self.slot,
                    show::span(-due_in)
                )
            }
            InRedis::Place(peek::Place::Prepare) => format!("in Redis, slot {}: being delivered", self.slot),
            InRedis::Place(peek::Place::Absent) => format!(
                "on its way to or from Redis (slot {}): emitted and not preloaded yet, or delivered and not recorded yet",
                self.slot
            ),
        }
    }

    fn json(&self) -> Value {
        let task = &self.task;
        let (place, detail) = match &self.place {
            Whereabouts::BeyondCursor { cursor_at } => ("beyond_cursor", json!({"cursor_at": cursor_at})),
            Whereabouts::Emitted { cursor_at, redis, reemission } => {
                let redis = match redis {
                    InRedis::NotAsked => json!(null),
                    InRedis::Failed(error) => json!({"error": error}),
                    InRedis::Place(peek::Place::Store { at }) => json!({"store": at}),
                    InRedis::Place(peek::Place::Prepare) => json!("prepare"),
                    InRedis::Place(peek::Place::Absent) => json!("absent"),
                };
                let reemission = reemission.map(|r| json!({"count": r.count, "at": r.at}));
                ("emitted", json!({"cursor_at": cursor_at, "redis": redis, "reemission": reemission}))
            }
            Whereabouts::Running { deadline_at } => ("running", json!({"deadline_at": deadline_at})),
            Whereabouts::Final => ("final", json!({})),
            Whereabouts::Moving => ("moving", json!({})),
        };
        json!({
            "task_id": task.task_id, "shard_key": task.shard_key, "state": self.state(), "topic": task.callback_topic,
            "due_at": task.due_at, "attempt": task.attempt, "gen": task.generation.0, "row": task.id.to_string(),
            "source": {"topic": self.source, "partition": task.id.partition(), "offset": task.id.offset()},
            "shard": task.shard.0, "slot": self.slot.0, "created_at": task.created_at, "finished_at": task.finished_at,
            "open_changes": self.intents, "where": place, "detail": detail,
        })
    }
}
