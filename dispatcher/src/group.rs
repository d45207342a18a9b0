//! Membership in the dispatchers' group, and one thread for each slot that it brings.

use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::driver::Driver;
use crate::strays::Keeper;
use crate::world::{World, slot_of};
use anyhow::{Context as _, bail};
use runtime::kafka::{Disposition, Member, MemberEvent, MemberSettings, PartitionStream};
use runtime::lifecycle::Lifecycle;
use runtime::probes::Gate;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Joins, and spawns the loop that waits for slots.
pub(crate) fn join(cfg: Arc<Config>, world: Arc<World>, life: &Lifecycle) -> anyhow::Result<()> {
    let settings = MemberSettings {
        session_timeout: *cfg.kafka.session_timeout,
        fetch_buffer_kib: cfg.memory.fetch_buffer_kib,
        ..MemberSettings::new(world.names.group("dispatcher"), [world.names.due()])
    };
    let member = Member::join(&world.cluster, &settings)?;
    let gate = life.readiness().gate("group", "waiting for slots");
    let catalogue = Catalogue::new(world.admin.clone(), *cfg.delivery.topic_refresh);
    let keeper = Keeper::new(world.cluster.clone());
    let group = Group { cfg, world, catalogue, keeper, life: life.clone() };
    life.spawn("group", group.run(member, gate));
    Ok(())
}

struct Group {
    cfg: Arc<Config>,
    world: Arc<World>,
    catalogue: Catalogue,
    keeper: Keeper,
    life: Lifecycle,
}

impl Group {
    async fn run(self, mut member: Member, gate: Gate) -> anyhow::Result<()> {
        let stop = self.life.token();
        // Every slot's thread holds a sender: the channel closes when the last one has ended.
        let (ended, mut all_ended) = mpsc::channel::<()>(1);
        loop {
            // A stop comes first: nothing new is begun then. Events are rare.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                event = member.event() => event,
            };
            match event.context("the group member ended by itself")? {
                MemberEvent::Assigned(streams) => {
                    for stream in streams {
                        self.start(stream, ended.clone())?;
                    }
                    gate.open();
                }
                MemberEvent::Revoked(slots) => info!(slots = ?partitions(&slots), "slots went to others"),
                MemberEvent::Lost(slots) => {
                    warn!(slots = ?partitions(&slots), "slots were taken: the group took this program for dead")
                }
                MemberEvent::Trouble(fault) => match fault.disposition() {
                    Disposition::Retry => warn!("group: {fault}"),
                    Disposition::Poison(_) | Disposition::Fenced | Disposition::Fatal => {
                        bail!("group: {fault}")
                    }
                },
            }
        }
        drop(ended);
        // Transactions are finished and settled first; then the slots are given up at once.
        all_ended.recv().await;
        member.leave().await;
        Ok(())
    }

    fn start(&self, stream: PartitionStream, ended: mpsc::Sender<()>) -> anyhow::Result<()> {
        let slot = slot_of(stream.partition())?;
        let driver = Driver::new(
            &self.cfg,
            Arc::clone(&self.world),
            (self.catalogue.clone(), self.keeper.clone()),
            stream,
            slot,
            self.life.token(),
            self.life.readiness().gate(format!("slot {slot}"), "being taken over"),
        )?;
        let runtime = tokio::runtime::Handle::current();
        self.life.spawn_thread(format!("slot {slot}"), move || {
            let _ended = ended;
            runtime.block_on(driver.run());
            Ok(())
        })?;
        Ok(())
    }
}

fn partitions(keys: &[runtime::kafka::PartitionKey]) -> Vec<i32> {
    keys.iter().map(|key| key.partition).collect()
}
