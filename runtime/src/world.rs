//! What every program checks before it does anything: that MySQL and Kafka are there, and that they are one pipeline.
//!
//! An outage is waited out (`/ready` says which); what a wait does not mend ends the program with its remedy.

use crate::config;
use crate::kafka::{Admin, Cluster, Disposition as KafkaDisposition, KafkaFault, TopicId};
use crate::lifecycle::Lifecycle;
use crate::store::{self, Backoff, Db, Disposition, StoreError, migrate, server, setting, source};
use anyhow::{Context as _, bail, ensure};
use protocol::route::{RouteEntry, RouteTable};
use schemas::ids::SourceId;
use schemas::topics::Names;
use std::collections::BTreeMap;
use std::time::Duration;

/// A pipeline, checked.
pub struct World {
    /// Every Kafka client is made from it.
    pub cluster: Cluster,
    /// Questions to the brokers.
    pub admin: Admin,
    /// The database.
    pub db: Db,
    /// Names of topics and groups.
    pub names: Names,
    /// How many base shards there are.
    pub shards: u16,
    /// How many slots there are: partitions of `due`, `slots` and `journal`.
    pub slots: u16,
    /// Number of the journal: its positions are the fences.
    pub journal: SourceId,
}

impl World {
    /// Connects and checks. `program` names the Kafka clients.
    pub async fn connect(
        program: &str,
        kafka: &config::Kafka,
        topics: &config::Topics,
        mysql: &config::Mysql,
        life: &Lifecycle,
    ) -> anyhow::Result<World> {
        let names = topics.names();
        let backoff = Backoff::of(mysql);
        let gate = life.readiness().gate("mysql", "connecting");
        let (db, settings) = wait_out(&backoff, |why| gate.close(why), || checked_db(mysql)).await?;
        gate.open();
        let (shards, slots) = (settings.number(setting::SHARDS)?, settings.number(setting::SLOTS)?);

        let cluster =
            Cluster::new(kafka.bootstrap.clone(), kafka.properties.clone(), format!("duestream-{program}"));
        let admin = Admin::new(&cluster)?.within(kafka.request_timeout.get());
        let gate = life.readiness().gate("kafka", "connecting");
        let journal_name = names.journal();
        let journal_id = wait_out(
            &backoff,
            |why| gate.close(why),
            || async {
                check_slot_topics(&admin, &names, slots).await?;
                let id = admin.topic_id(&journal_name).await?;
                id.with_context(|| format!("topic {journal_name} is missing: run `duectl init`"))
            },
        )
        .await?;
        gate.open();
        let journal = wait_out(&backoff, |_| (), || registered(&db, &journal_name, journal_id)).await?;
        Ok(World { cluster, admin, db, names, shards, slots, journal })
    }

    /// Reads the routing table.
    pub async fn routes(&self) -> anyhow::Result<RouteTable> {
        routes(&self.db, self.shards, self.slots).await
    }
}

/// Reads the routing table of a database.
pub async fn routes(db: &Db, shards: u16, slots: u16) -> anyhow::Result<RouteTable> {
    let rows = store::route::all(&mut db.session().await?).await?;
    let entry = |row: store::route::RouteRow| {
        let store::route::RouteRow { shard, from_due_at, slot } = row;
        RouteEntry { shard, from_due_at, slot }
    };
    RouteTable::new(shards, slots, rows.into_iter().map(entry)).context("table route")
}

async fn checked_db(mysql: &config::Mysql) -> anyhow::Result<(Db, setting::Settings)> {
    let db = Db::connect(&mysql.into()).await?;
    let mut session = db.session().await?;
    migrate::check(&mut session).await?;
    for warning in server::check(&mut session).await? {
        tracing::warn!("mysql: {warning}");
    }
    let settings = setting::all(&mut session).await?;
    drop(session);
    Ok((db, settings))
}

/// A slot is one partition of each of these.
async fn check_slot_topics(admin: &Admin, names: &Names, slots: u16) -> anyhow::Result<()> {
    let found: BTreeMap<_, _> = admin.topics().await?;
    for name in [names.due(), names.slots(), names.journal()] {
        let Some(topic) = found.get(&name) else { bail!("topic {name} is missing: run `duectl init`") };
        let partitions = topic.partition_count();
        ensure!(
            partitions == i32::from(slots),
            "topic {name} has {partitions} partitions, but the pipeline has {slots} slots: partitions of it must never be added"
        );
    }
    Ok(())
}

/// The number of the journal. Another topic of that name is not the journal: what it held is gone.
async fn registered(db: &Db, name: &str, id: TopicId) -> anyhow::Result<SourceId> {
    let mut session = db.session().await?;
    if let Some(number) = source::find(&mut session, name, *id.as_bytes()).await? {
        return Ok(number);
    }
    let known = source::all(&mut session).await?.into_iter().any(|source| source.topic == name);
    if known {
        bail!(
            "topic {name} was deleted and created again: the fate of what was delivered is lost with it. Nothing is \
             delivered until an operator decides between maybe twice and maybe never"
        );
    }
    bail!("topic {name} is not registered in this database: run `duectl init`")
}

/// Whether waiting may mend it.
pub fn is_outage(error: &anyhow::Error) -> bool {
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return match error.disposition() {
            Disposition::Retry { .. } => true,
            Disposition::Poison | Disposition::Fenced | Disposition::Fatal => false,
        };
    }
    if let Some(fault) = error.downcast_ref::<KafkaFault>() {
        return match fault.disposition() {
            KafkaDisposition::Retry => true,
            KafkaDisposition::Poison(_) | KafkaDisposition::Fenced | KafkaDisposition::Fatal => false,
        };
    }
    false
}

/// Tries until it works or until waiting cannot mend it. The caller ends it by dropping the future.
pub async fn wait_out<T, F>(
    backoff: &Backoff,
    say: impl Fn(String),
    mut attempt: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let mut tries = 0;
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if is_outage(&error) => error,
            Err(error) => return Err(error),
        };
        tries += 1;
        say(format!("{error:#}"));
        if tries == 1 || tries % 16 == 0 {
            tracing::warn!("waiting: {error:#}");
        }
        tokio::time::sleep(backoff.pause(tries, Duration::ZERO, rand::random())).await;
    }
}
