//! Sets a pipeline up, or says how it differs: `duectl init`.
//!
//! ```text
//! database ─▶ migrations ─▶ settings (shards, slots: fixed for ever) ─▶ topics ─▶ shard rows, routes ─▶ sources, positions
//! ```
//!
//! Each step does only what is missing, so that it can be run again at any time, also after it was cut off in the middle.
//! Nothing that is there is ever changed: what is wrong is named with its remedy.

mod topics;

use crate::config::Redis;
use crate::kafka::{Admin, Disposition, KafkaFault};
use crate::slots::SlotClient;
use crate::store::{
    Db, Options, StoreError, database, migrate, position, route, server, setting, shard, source,
};
use protocol::route::default_slot;
use schemas::topics::Names;
use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

/// What a pipeline should be.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Its names.
    pub names: Names,
    /// Shards; `None`: what the database says, or 64.
    pub shards: Option<u16>,
    /// Slots; `None`: what the database says, or 8.
    pub slots: Option<u16>,
    /// Partitions of the topics whose partitions are no slots, where they are made.
    pub task_partitions: i32,
    /// Copies of each partition.
    pub replication: i32,
    /// Topics of commands besides `tasks`.
    pub sources: Vec<Source>,
}

/// A topic of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub topic: String,
    /// Its partitions, where it is made.
    pub partitions: i32,
}

/// Shards where nobody says otherwise.
pub const DEFAULT_SHARDS: u16 = 64;
/// Slots where nobody says otherwise.
pub const DEFAULT_SLOTS: u16 = 8;

/// Servers of a pipeline.
#[derive(Clone)]
pub struct Servers {
    /// Kafka.
    pub admin: Admin,
    /// URL with the database.
    pub mysql: Options,
    /// Looked at, where given; init writes nothing there.
    pub redis: Option<Redis>,
}

/// What to do about what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Make it.
    Apply,
    /// Only say so.
    Check,
}

/// Judgement of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// It was missing, and was made.
    Made,
    /// It is missing (only with [`Mode::Check`]).
    Missing,
    /// It works, and the operator should know this.
    Warning,
    /// It is there and wrong; the remedy is named.
    Wrong,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about: `topic duestream.due`.
    pub subject: String,
    /// Judgement.
    pub verdict: Verdict,
    /// Details; for what is wrong: rule and remedy.
    pub detail: String,
}

impl Finding {
    fn new(subject: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), verdict, detail: detail.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Fine => "ok",
            Verdict::Made => "made",
            Verdict::Missing => "MISSING",
            Verdict::Warning => "warning",
            Verdict::Wrong => "WRONG",
        };
        write!(f, "{verdict:8} {}: {}", self.subject, self.detail)
    }
}

/// All findings, in the order of the steps.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One per thing looked at.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether the pipeline is as it should be now.
    pub fn is_good(&self) -> bool {
        !self.findings.iter().any(|f| matches!(f.verdict, Verdict::Missing | Verdict::Wrong))
    }

    fn say(&mut self, subject: impl Into<String>, verdict: Verdict, detail: impl Into<String>) {
        self.findings.push(Finding::new(subject, verdict, detail));
    }
}

/// Why the work stopped in the middle.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Kafka.
    #[error(transparent)]
    Kafka(#[from] KafkaFault),
    /// MySQL.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pipeline that is asked for cannot be.
    #[error("{0}")]
    Asked(String),
}

/// Sets the pipeline up as far as it is not, or only says how it differs.
pub async fn run(servers: &Servers, pipeline: &Pipeline, mode: Mode) -> Result<Report, InitError> {
    let mut report = Report::default();
    check_redis(servers, &mut report).await;
    let db = open_database(servers, mode, &mut report).await?;
    let (shards, slots) = settings(db.as_ref(), pipeline, mode, &mut report).await?;
    let complete = make_topics(servers, pipeline, slots, mode, &mut report).await?;
    let Some(db) = db else {
        report.say("shards, routes, positions", Verdict::Missing, "they come with the database");
        return Ok(report);
    };
    if !migrate::difference(&mut db.session().await?).await?.is_none() {
        report.say("shards, routes, positions", Verdict::Missing, "they come with the schema");
        return Ok(report);
    }
    rows(&db, shards, slots, mode, &mut report).await?;
    if complete {
        sources(servers, &db, pipeline, mode, &mut report).await?;
        guarantees(servers, pipeline, &mut report).await?;
    } else {
        report.say("sources and positions", Verdict::Missing, "they come with the topics");
    }
    Ok(report)
}

async fn check_redis(servers: &Servers, report: &mut Report) {
    let Some(redis) = &servers.redis else { return };
    let checked = async {
        let mut client = SlotClient::connect(redis).await.map_err(|e| e.to_string())?;
        client.check(&format!("{}:{{0}}:meta", redis.prefix)).await.map_err(|e| e.to_string())
    };
    match checked.await {
        Err(error) => report.say("redis", Verdict::Wrong, error),
        Ok(server) => {
            report.say("redis", Verdict::Fine, server.version);
            for warning in server.warnings {
                report.say("redis", Verdict::Warning, warning.to_string());
            }
        }
    }
}

/// The database, migrated where `mode` says so. `None`: it is missing, and stays so.
async fn open_database(servers: &Servers, mode: Mode, report: &mut Report) -> Result<Option<Db>, InitError> {
    let url = servers.mysql.url.expose();
    match (database::look(url).await?, mode) {
        (database::Database::Present, _) => {}
        (database::Database::Missing, Mode::Check) => {
            report.say("database", Verdict::Missing, format!("{} does not exist", servers.mysql.url));
            return Ok(None);
        }
        (database::Database::Missing, Mode::Apply) => {
            database::create(url).await?;
            report.say("database", Verdict::Made, servers.mysql.url.to_string());
        }
    }
    let db = Db::connect(&servers.mysql).await?;
    report.say("mysql", Verdict::Fine, db.version().to_string());
    for warning in server::check(&mut db.session().await?).await? {
        report.say("mysql", Verdict::Warning, warning);
    }
    let difference = migrate::difference(&mut db.session().await?).await?;
    if difference.is_none() {
        report.say("schema", Verdict::Fine, format!("migration {}", migrate::newest()));
    } else if !difference.unknown.is_empty() || !difference.changed.is_empty() {
        // Says what is wrong and how to mend it.
        migrate::check(&mut db.session().await?).await?;
    } else if mode == Mode::Check {
        report.say("schema", Verdict::Missing, format!("migrations {}", difference.pending.join(", ")));
    } else {
        let ran = db.migrate().await?;
        report.say("schema", Verdict::Made, format!("migrations {}", ran.join(", ")));
    }
    Ok(Some(db))
}

/// Numbers of shards and slots: what the database says, where it says something.
async fn settings(
    db: Option<&Db>,
    pipeline: &Pipeline,
    mode: Mode,
    report: &mut Report,
) -> Result<(u16, u16), InitError> {
    let migrated = match db {
        None => None,
        Some(db) if migrate::difference(&mut db.session().await?).await?.is_none() => Some(db),
        Some(_) => None,
    };
    let known = match migrated {
        None => setting::Settings::default(),
        Some(db) => setting::all(&mut db.session().await?).await?,
    };
    let mut numbers =
        [(setting::SHARDS, pipeline.shards, DEFAULT_SHARDS), (setting::SLOTS, pipeline.slots, DEFAULT_SLOTS)]
            .map(|(name, asked, default)| {
                let stored = known.text(name).and_then(|text| text.parse::<u16>().ok());
                (name, asked, stored, stored.or(asked).unwrap_or(default))
            });
    // With few shards asked for and nothing said of slots: no more slots than shards.
    let shards = numbers[0].3;
    if numbers[1].1.is_none() && numbers[1].2.is_none() {
        numbers[1].3 = numbers[1].3.min(shards);
    }
    let slots = numbers[1].3;
    check_numbers(shards, slots, pipeline)?;
    for (name, asked, stored, number) in numbers {
        let subject = format!("setting {name}");
        match (stored, asked) {
            (Some(stored), Some(asked)) if stored != asked => report.say(
                subject,
                Verdict::Wrong,
                format!("is {stored}, asked for {asked}; it never changes: leave --{name} out, or use another database and --prefix"),
            ),
            (Some(stored), _) => report.say(subject, Verdict::Fine, stored.to_string()),
            (None, _) if mode == Mode::Check => report.say(subject, Verdict::Missing, format!("would be {number}")),
            (None, _) => {
                if let Some(db) = migrated {
                    setting::put_if_absent(&mut db.session().await?, name, &number.to_string()).await?;
                }
                report.say(subject, Verdict::Made, number.to_string());
            }
        }
    }
    if let (Some(db), Mode::Apply) = (migrated, mode) {
        setting::set(&mut db.session().await?, setting::SCHEMA, &migrate::newest().to_string()).await?;
    }
    Ok((shards, slots))
}

fn check_numbers(shards: u16, slots: u16, pipeline: &Pipeline) -> Result<(), InitError> {
    let ask = |holds: bool, text: String| if holds { Ok(()) } else { Err(InitError::Asked(text)) };
    ask(
        shards.is_power_of_two() && shards <= 4096,
        format!("--shards {shards}: must be a power of two, at most 4096"),
    )?;
    ask(
        slots.is_power_of_two() && slots <= shards && slots <= 1024,
        format!("--slots {slots}: must be a power of two, at most 1024 and not above --shards {shards}"),
    )?;
    let few = |partitions| (1..=schemas::ids::RowId::MAX_PARTITION + 1).contains(&partitions);
    let partitions = pipeline.task_partitions;
    ask(few(partitions), format!("--partitions-tasks {partitions}: must lie between 1 and 4096"))?;
    let mut seen = BTreeSet::from([pipeline.names.tasks()]);
    for Source { topic, partitions } in &pipeline.sources {
        ask(
            pipeline.names.may_be_source(topic),
            format!(
                "--source {topic}: must be a legal topic name, and none of Kafka's or the pipeline's own"
            ),
        )?;
        ask(few(*partitions), format!("--source {topic}:{partitions}: must have 1 to 4096 partitions"))?;
        ask(seen.insert(topic.clone()), format!("--source {topic}: is named twice (tasks is always made)"))?;
    }
    Ok(())
}

/// Topics. Answers whether all are there now.
async fn make_topics(
    servers: &Servers,
    pipeline: &Pipeline,
    slots: u16,
    mode: Mode,
    report: &mut Report,
) -> Result<bool, InitError> {
    let admin = &servers.admin;
    let wanted = topics::wanted(pipeline, slots);
    let mut present = admin.topics().await?;
    let missing: Vec<_> =
        wanted.iter().filter(|w| !present.contains_key(&w.spec.name)).map(|w| w.spec.clone()).collect();
    let mut complete = true;
    if mode == Mode::Apply && !missing.is_empty() {
        for (name, created) in admin.create_topics(&missing).await? {
            if let Err(fault) = created {
                complete = false;
                report.say(format!("topic {name}"), Verdict::Wrong, format!("cannot be made: {fault}"));
            }
        }
        let all: Vec<&str> = wanted.iter().map(|w| w.spec.name.as_str()).collect();
        if complete {
            present = wait_for_leaders(admin, &all).await?;
        }
    }
    for want in &wanted {
        let (name, subject) = (&want.spec.name, format!("topic {}", want.spec.name));
        let Some(found) = present.get(name) else {
            complete = false;
            if mode == Mode::Check {
                report.say(subject, Verdict::Missing, format!("{} partitions", want.spec.partitions));
            }
            continue;
        };
        let config = patiently(|| admin.topic_config(name)).await?.unwrap_or_default();
        let differences = topics::differences(want, found, &config);
        if differences.is_empty() {
            let made = missing.iter().any(|spec| spec.name == *name);
            let verdict = if made { Verdict::Made } else { Verdict::Fine };
            report.say(subject, verdict, format!("{} partitions", found.partition_count()));
        }
        report.findings.extend(differences);
    }
    Ok(complete)
}

/// How long brokers may take to make what they were asked to make.
const PATIENCE: Duration = Duration::from_secs(60);

/// Just after a topic was made some brokers do not know it yet, or say that they do not lead it.
async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, KafkaFault>
where
    F: Future<Output = Result<T, KafkaFault>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(fault) if fault.disposition() == Disposition::Retry && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            outcome => return outcome,
        }
    }
}

/// A new topic answers questions only once its partitions have leaders.
async fn wait_for_leaders(
    admin: &Admin,
    names: &[&str],
) -> Result<std::collections::BTreeMap<String, crate::kafka::TopicInfo>, InitError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let present = admin.topics().await?;
        let ready =
            |name: &&str| present.get(*name).is_some_and(|t| t.partition_count() > 0 && t.has_leaders());
        if names.iter().all(ready) {
            return Ok(present);
        }
        if Instant::now() > deadline {
            let waiting: Vec<&str> = names.iter().filter(|name| !ready(name)).copied().collect();
            return Err(InitError::Asked(format!(
                "made, but without a leader after {} s: {}; are enough brokers up? Run init again",
                PATIENCE.as_secs(),
                waiting.join(", ")
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Rows of `shard` and `route`.
async fn rows(db: &Db, shards: u16, slots: u16, mode: Mode, report: &mut Report) -> Result<(), InitError> {
    let mut session = db.session().await?;
    let with_row: BTreeSet<_> = shard::read_all(&mut session).await?.iter().map(|row| row.shard.0).collect();
    let with_route: BTreeSet<_> = route::all(&mut session).await?.iter().map(|row| row.shard.0).collect();
    let missing = |present: &BTreeSet<u16>| (0..shards).filter(|shard| !present.contains(shard)).count();
    for (subject, missing) in [("shards", missing(&with_row)), ("routes", missing(&with_route))] {
        match (missing, mode) {
            (0, _) => report.say(subject, Verdict::Fine, format!("{shards}")),
            (n, Mode::Check) => report.say(subject, Verdict::Missing, format!("{n} of {shards}")),
            (n, Mode::Apply) => report.say(subject, Verdict::Made, format!("{n} of {shards}")),
        }
    }
    if mode == Mode::Apply {
        shard::create(&mut session, shards).await?;
        route::create(&mut session, shards, |shard| default_slot(shard, slots)).await?;
    }
    Ok(())
}

/// Numbers of the topics that ingest reads, and a position for each of their partitions.
async fn sources(
    servers: &Servers,
    db: &Db,
    pipeline: &Pipeline,
    mode: Mode,
    report: &mut Report,
) -> Result<(), InitError> {
    let admin = &servers.admin;
    let mut names = vec![pipeline.names.tasks(), pipeline.names.journal(), pipeline.names.acks()];
    names.extend(pipeline.sources.iter().map(|source| source.topic.clone()));
    let ids = admin.topic_ids(&names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut session = db.session().await?;
    let registered = source::all(&mut session).await?;
    for name in &names {
        let Some(id) = ids.get(name) else { continue };
        let known = registered.iter().any(|s| s.topic == *name && s.topic_uuid == *id.as_bytes());
        let subject = format!("source {name}");
        let other = registered.iter().find(|s| s.topic == *name && s.topic_uuid != *id.as_bytes());
        if *name == pipeline.names.journal()
            && let (false, Some(_)) = (known, other)
        {
            report.say(
                subject,
                Verdict::Wrong,
                "the journal was deleted and made again: what was delivered before is no longer known, so the slots stand still; \
                 restore the topic, or start a new pipeline (another database and --prefix)",
            );
            continue;
        }
        if !known && mode == Mode::Check {
            report.say(subject, Verdict::Missing, "not registered");
            continue;
        }
        let number = source::register(&mut session, name, *id.as_bytes()).await?;
        let with_position: BTreeSet<i32> =
            position::read_all(&mut session, number).await?.iter().map(|p| p.partition).collect();
        let partitions = admin.topic(name).await?.map_or(0, |topic| topic.partition_count());
        let missing: Vec<i32> = (0..partitions).filter(|p| !with_position.contains(p)).collect();
        if !missing.is_empty() && mode == Mode::Apply {
            for &partition in &missing {
                let (start, _) = patiently(|| admin.watermarks(name, partition)).await?;
                position::create(&mut session, number, partition, start).await?;
            }
        }
        let verdict = match (missing.is_empty() && known, mode) {
            (true, _) => Verdict::Fine,
            (false, Mode::Apply) => Verdict::Made,
            (false, Mode::Check) => Verdict::Missing,
        };
        report.say(subject, verdict, format!("number {}, {partitions} positions", number.0));
    }
    Ok(())
}

async fn guarantees(servers: &Servers, pipeline: &Pipeline, report: &mut Report) -> Result<(), InitError> {
    let broken = servers.admin.check_guarantees(&pipeline.names.journal()).await?;
    if broken.is_empty() {
        report.say("kafka", Verdict::Fine, "gives what exactly-once delivery rests on");
    }
    for broken in broken {
        report.say("kafka", Verdict::Wrong, broken.to_string());
    }
    Ok(())
}
