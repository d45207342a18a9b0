//! The check of the world at start: servers reachable, schema and settings ours, topics there with the right partitions.
//! Topics of commands are no part of it: one that is missing or wrong must not stop the others (see `tasks::Side`).
//!
//! Not `World::connect` of the runtime: a journal that was created again must not end this program, but halt its side
//! and say so in `/ready` (see `journal::Side`).

use crate::config::Config;
use crate::deps::Deps;
use crate::registry::Schemas;
use anyhow::bail;
use runtime::kafka::{Admin, Cluster};
use runtime::lifecycle::Lifecycle;
use runtime::store::{Backoff, Db, migrate, server, setting};
use runtime::world::{routes, wait_out};
use schemas::ids::SourceId;
use schemas::topics::Names;
use std::sync::Arc;
use tokio::sync::watch;

/// Where the journal's side says under which number the journal is registered.
pub type Registrar = watch::Sender<Option<SourceId>>;

/// Connects and checks. `None`: the program was stopped before the servers were there.
pub async fn establish(cfg: Arc<Config>, life: &Lifecycle) -> anyhow::Result<Option<(Deps, Registrar)>> {
    let stop = life.token();
    tokio::select! {
        () = stop.cancelled() => Ok(None),
        done = connect(cfg, life) => done.map(Some),
    }
}

async fn connect(cfg: Arc<Config>, life: &Lifecycle) -> anyhow::Result<(Deps, Registrar)> {
    let names = cfg.topics.names();
    let backoff = Backoff::of(&cfg.mysql);
    let gate = life.readiness().gate("mysql", "connecting");
    let (db, settings) = wait_out(&backoff, |why| gate.close(why), async || database(&cfg).await).await?;
    let (shards, slots) = (settings.number(setting::SHARDS)?, settings.number(setting::SLOTS)?);
    let routes = wait_out(&backoff, |why| gate.close(why), async || routes(&db, shards, slots).await).await?;
    gate.open();

    let cluster = Cluster::of(&cfg.kafka, "duestream-ingest");
    let admin = Admin::new(&cluster)?.within(cfg.kafka.request_timeout.get());
    let gate = life.readiness().gate("kafka", "connecting");
    wait_out(&backoff, |why| gate.close(why), async || topics(&admin, &names, slots).await).await?;
    gate.open();

    let known = cfg.avro.read().map_err(|(path, fault)| anyhow::anyhow!("avro.schemas: {path}: {fault}"))?;
    let schemas = Schemas::new(known, &cfg.registry);
    let (registrar, journal) = watch::channel(None);
    let deps = Deps::new(cfg, names, db, cluster, admin, schemas, shards, routes, journal);
    Ok((deps, registrar))
}

async fn database(cfg: &Config) -> anyhow::Result<(Db, setting::Settings)> {
    let db = Db::connect(&(&cfg.mysql).into()).await?;
    let mut session = db.session().await?;
    migrate::check(&mut session).await?;
    for warning in server::check(&mut session).await? {
        tracing::warn!("mysql: {warning}");
    }
    let settings = setting::all(&mut session).await?;
    drop(session);
    Ok((db, settings))
}

async fn topics(admin: &Admin, names: &Names, slots: u16) -> anyhow::Result<()> {
    let found = admin.topics().await?;
    let mut wrong = Vec::new();
    for topic in [names.due(), names.journal(), names.rejected(), names.replies()] {
        let Some(info) = found.get(&topic) else {
            wrong.push(format!("topic {topic} is missing"));
            continue;
        };
        let partitions = info.partition_count();
        let by_slot = topic == names.due() || topic == names.journal();
        if by_slot && partitions != i32::from(slots) {
            wrong.push(format!(
                "topic {topic} has {partitions} partitions, but the pipeline has {slots} slots"
            ));
        }
    }
    if !wrong.is_empty() {
        bail!("{}: run `duectl init`, or correct topics.prefix and mysql.url", wrong.join("; "));
    }
    Ok(())
}
