//! Sharing the slots among the processes of one kind: the group protocol hands them out over the empty topic `slots`.
//!
//! ```text
//! Assigned ─▶ one worker per slot, told to stop by its own token
//! Revoked, Lost ─▶ the token is cancelled; the new owner need not wait, for what the worker still does is fenced
//! stop ─▶ all workers are told, awaited, and then the group is left
//! ```
//!
//! The assignment only says who *should* work on a slot. Two may believe it at once; what makes that harmless are the
//! epochs in MySQL (scanner) and the fences of every due record.

use crate::kafka::{Disposition, KafkaFault, Member, MemberEvent};
use crate::probes::Gate;
use schemas::ids::Slot;
use std::collections::BTreeMap;
use std::future::Future;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

struct Worker {
    stop: CancellationToken,
    /// Number of the assignment: a worker of an older one may still be ending.
    number: u64,
}

/// Runs `work` for every slot that the group assigns to this member, until `stop`. An error of a worker, or a trouble of
/// the group that does not heal, ends it. A worker that ends by itself is an error of the caller's making.
pub async fn run<W, F>(mut member: Member, gate: Gate, stop: CancellationToken, work: W) -> anyhow::Result<()>
where
    W: Fn(Slot, CancellationToken) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut workers: BTreeMap<Slot, Worker> = BTreeMap::new();
    let mut running: JoinSet<(Slot, u64, anyhow::Result<()>)> = JoinSet::new();
    let mut number = 0;
    // No arm can starve another: ends of workers and rebalances are rare, and `stop` ends the loop.
    let outcome = loop {
        tokio::select! {
            () = stop.cancelled() => break Ok(()),
            Some(ended) = running.join_next() => {
                if let Err(error) = judge(ended, &workers) {
                    break Err(error);
                }
            }
            event = member.event() => match event {
                Some(MemberEvent::Assigned(streams)) => {
                    gate.open();
                    for stream in streams {
                        let Some(slot) = slot_of(stream.partition()) else { continue };
                        number += 1;
                        let token = stop.child_token();
                        if let Some(old) = workers.insert(slot, Worker { stop: token.clone(), number }) {
                            old.stop.cancel();
                        }
                        let (work, number) = (work(slot, token), number);
                        running.spawn(async move { (slot, number, work.await) });
                    }
                }
                Some(MemberEvent::Revoked(keys) | MemberEvent::Lost(keys)) => {
                    for slot in keys.iter().filter_map(|key| slot_of(key.partition)) {
                        if let Some(worker) = workers.remove(&slot) {
                            worker.stop.cancel();
                        }
                    }
                }
                Some(MemberEvent::Trouble(fault)) => {
                    tracing::warn!("group of the slots: {fault}");
                    if is_lasting(&fault) {
                        break Err(fault.into());
                    }
                }
                None => break Err(anyhow::anyhow!("the membership ended by itself")),
            },
        }
    };
    for worker in workers.values() {
        worker.stop.cancel();
    }
    workers.clear();
    while let Some(ended) = running.join_next().await {
        if let Err(error) = judge(ended, &workers) {
            tracing::warn!("while stopping: {error:#}");
        }
    }
    member.leave().await;
    outcome
}

fn slot_of(partition: i32) -> Option<Slot> {
    u16::try_from(partition).ok().map(Slot)
}

fn is_lasting(fault: &KafkaFault) -> bool {
    match fault.disposition() {
        Disposition::Retry | Disposition::Fenced => false,
        Disposition::Poison(_) | Disposition::Fatal => true,
    }
}

fn judge(
    ended: Result<(Slot, u64, anyhow::Result<()>), JoinError>,
    workers: &BTreeMap<Slot, Worker>,
) -> anyhow::Result<()> {
    let (slot, number, outcome) = ended?;
    let wanted =
        workers.get(&slot).is_some_and(|worker| worker.number == number && !worker.stop.is_cancelled());
    match outcome {
        Err(error) => Err(error.context(format!("slot {slot}"))),
        Ok(()) if wanted => Err(anyhow::anyhow!("the worker of slot {slot} ended by itself")),
        Ok(()) => Ok(()),
    }
}
