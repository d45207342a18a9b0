//! What must be so before a slot is touched: topics, their partitions, brokers, Redis.

use crate::config::Config;
use anyhow::{Context as _, bail};
use runtime::kafka::{Admin, Cluster, KafkaFault, TopicId};
use runtime::lifecycle::Lifecycle;
use runtime::slots::SlotClient;
use schemas::topics::Names;
use std::time::Duration;
use tracing::{info, warn};

/// The world as it was found.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) admin: Admin,
    pub(crate) names: Names,
    /// The journal's topic id: another one later means another journal.
    pub(crate) journal_id: TopicId,
}

impl World {
    /// Looks until it can see: servers that are away are waited for, what is wrong is an error.
    pub(crate) async fn see(cfg: &Config, life: &Lifecycle) -> anyhow::Result<World> {
        let cluster = Cluster::of(&cfg.kafka, "duestream-dispatcher");
        let admin = Admin::new(&cluster)?.within(*cfg.kafka.request_timeout);
        let names = cfg.topics.names();
        let gate = life.readiness().gate("world", "looking for Kafka and Redis");
        let stop = life.token();
        let mut said = String::new();
        loop {
            let reason = match look(cfg, &admin, &names).await {
                Ok(journal_id) => {
                    gate.open();
                    info!(kafka.journal_id = %journal_id, "Kafka and Redis are as they must be");
                    return Ok(World { cluster, admin, names, journal_id });
                }
                Err(Wrong::Away(reason)) => reason,
                Err(Wrong::Never(error)) => return Err(error),
            };
            if reason != said {
                warn!("waiting: {reason}");
                gate.close(reason.clone());
                said = reason;
            }
            tokio::select! {
                () = stop.cancelled() => bail!("stopped before Kafka and Redis were there"),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }
}

enum Wrong {
    Away(String),
    Never(anyhow::Error),
}

impl From<KafkaFault> for Wrong {
    fn from(fault: KafkaFault) -> Wrong {
        match fault.disposition() {
            runtime::kafka::Disposition::Retry => Wrong::Away(fault.to_string()),
            runtime::kafka::Disposition::Poison(_)
            | runtime::kafka::Disposition::Fenced
            | runtime::kafka::Disposition::Fatal => Wrong::Never(fault.into()),
        }
    }
}

async fn look(cfg: &Config, admin: &Admin, names: &Names) -> Result<TopicId, Wrong> {
    let never = |text: String| Wrong::Never(anyhow::anyhow!("{text}"));
    let mut counts = Vec::new();
    for topic in [names.due(), names.slots(), names.journal(), names.dead()] {
        let info = admin.topic(&topic).await?;
        let info = info.ok_or_else(|| never(format!("topic {topic} does not exist: run duectl init")))?;
        counts.push((topic, info.partition_count()));
    }
    let slots = counts[0].1;
    for (topic, count) in &counts[..3] {
        if *count != slots {
            let text = format!(
                "{topic} has {count} partitions and {} has {slots}: each slot is one partition of each",
                counts[0].0
            );
            return Err(never(text));
        }
    }
    let broken = admin.check_guarantees(&names.journal()).await?;
    if !broken.is_empty() {
        let lines: Vec<String> = broken.iter().map(|rule| format!("  {rule}")).collect();
        return Err(never(format!("exactly-once delivery cannot be kept here:\n{}", lines.join("\n"))));
    }
    let journal = names.journal();
    let id = admin.topic_id(&journal).await?;
    let id = id.ok_or_else(|| never(format!("topic {journal} does not exist: run duectl init")))?;
    check_redis(cfg).await?;
    Ok(id)
}

async fn check_redis(cfg: &Config) -> Result<(), Wrong> {
    let away = |error: runtime::slots::SlotError| match error {
        runtime::slots::SlotError::Policy(policy) => {
            Wrong::Never(anyhow::Error::new(policy).context("Redis cannot hold slots"))
        }
        other => Wrong::Away(format!("{:#}", anyhow::Error::new(other))),
    };
    let mut client = SlotClient::connect(&cfg.redis).await.map_err(away)?;
    let report = client.check(&cfg.redis.prefix).await.map_err(away)?;
    for warning in report.warnings {
        warn!("Redis: {warning}");
    }
    Ok(())
}

/// The number of a slot from its partition.
pub(crate) fn slot_of(partition: i32) -> anyhow::Result<schemas::ids::Slot> {
    u16::try_from(partition)
        .map(schemas::ids::Slot)
        .with_context(|| format!("partition {partition} is no slot"))
}
