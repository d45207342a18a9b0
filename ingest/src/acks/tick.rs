//! Ticks: ingest's own records in the partitions of `acks` that it reads. What lies before one that was applied was
//! applied too, so deadlines up to its timestamp can be judged, however quiet the consumers are (PROTOCOL §3).

use crate::deps::Deps;
use crate::turn::Turn;
use runtime::kafka::OutRecord;
use schemas::ack::TICK;
use std::sync::Arc;
use tokio::time::{MissedTickBehavior, interval};

/// Writes ticks until the partition is gone.
pub async fn run(deps: Arc<Deps>, turn: Arc<Turn>) {
    let mut pause = interval(deps.cfg.acks.tick.get());
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let topic: Arc<str> = deps.names.acks().into();
    loop {
        tokio::select! {
            () = turn.gone.cancelled() => break,
            () = turn.stop.cancelled() => break,
            _ = pause.tick() => {}
        }
        let tick = OutRecord::to(topic.clone()).partition(turn.partition).header(TICK, "");
        match deps.emitter.send_all(vec![tick], &turn).await {
            Ok(refused) => {
                for (_, fault) in refused {
                    tracing::error!(partition = turn.partition, "Kafka refuses a tick of acks: {fault}");
                }
            }
            Err(_) => break,
        }
    }
}
