//! The thread that never stops polling.

use super::context::{Change, MemberContext};
use super::stream::{PartitionStream, Shared};
use super::{MemberEvent, PartitionKey};
use crate::kafka::error::{Disposition, KafkaFault};
use crate::kafka::metrics;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Message, Offset, TopicPartitionList};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Longest time until a stop is noticed; a rebalance ends the wait at once.
const POLL: Duration = Duration::from_millis(100);
/// How long to wait for a seek that is on its way when leaving.
const LAST_CALLS: Duration = Duration::from_secs(5);

type Live = HashMap<(String, i32), Arc<Shared>>;

pub(super) fn run(
    consumer: BaseConsumer<MemberContext>,
    tell: &UnboundedSender<MemberEvent>,
    stop: &AtomicBool,
) {
    let consumer = Arc::new(consumer);
    let mut live = Live::new();
    let mut epoch = 0;
    let assigned = metrics::ASSIGNED.with(&[&consumer.context().group]);
    while !stop.load(Ordering::Acquire) && !tell.is_closed() {
        let trouble = match consumer.poll(POLL) {
            None => None,
            Some(Err(error)) => trouble_of(error),
            // Every partition is split off before it is assigned, so this cannot be; were it to happen, a record would
            // be missing from its stream.
            Some(Ok(stray)) => {
                tracing::error!(
                    topic = stray.topic(),
                    partition = stray.partition(),
                    "record outside its stream"
                );
                Some(KafkaFault::of(
                    "poll",
                    KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::Inconsistent),
                ))
            }
        };
        let mut events: Vec<MemberEvent> = trouble.map(MemberEvent::Trouble).into_iter().collect();
        while let Some(change) = consumer.context().next_change() {
            events.push(match change {
                Change::Assign(partitions) => {
                    epoch += 1;
                    assign(&consumer, &mut live, partitions, epoch)
                }
                Change::Revoke { partitions, lost } => revoke(&consumer, &mut live, partitions, lost),
            });
            assigned.set(live.len() as f64);
        }
        for event in events {
            if tell.send(event).is_err() {
                break;
            }
        }
    }
    leave(consumer, live);
    assigned.set(0.0);
}

/// Takes new partitions at END and paused: nothing is read until the program says from where.
fn assign(
    consumer: &Arc<BaseConsumer<MemberContext>>,
    live: &mut Live,
    partitions: Vec<(String, i32)>,
    epoch: u64,
) -> MemberEvent {
    const OP: &str = "assign";
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    let mut streams = Vec::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        let added = list.add_partition_offset(&topic, partition, Offset::End);
        let queue = consumer.split_partition_queue(&topic, partition);
        let (Ok(()), Some(queue)) = (added, queue) else {
            let error = KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::UnknownPartition);
            return MemberEvent::Trouble(KafkaFault::of(OP, error));
        };
        let shared = Shared::new(topic.as_str().into(), partition, epoch, consumer.clone(), queue);
        live.insert((topic, partition), shared.clone());
        streams.push(PartitionStream::new(shared));
    }
    let done = consumer.incremental_assign(&list).and_then(|()| consumer.pause(&list));
    count(consumer, "assigned", streams.len());
    match done {
        Ok(()) => MemberEvent::Assigned(streams),
        Err(error) => MemberEvent::Trouble(KafkaFault::of(OP, error)),
    }
}

fn revoke(
    consumer: &Arc<BaseConsumer<MemberContext>>,
    live: &mut Live,
    partitions: Vec<(String, i32)>,
    lost: bool,
) -> MemberEvent {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    let mut keys = Vec::with_capacity(partitions.len());
    for (topic, partition) in partitions {
        list.add_partition(&topic, partition);
        let topic_name = match live.remove(&(topic.clone(), partition)) {
            Some(shared) => {
                shared.end();
                shared.topic.clone()
            }
            None => topic.into(),
        };
        keys.push(PartitionKey { topic: topic_name, partition });
    }
    if let Err(error) = consumer.incremental_unassign(&list) {
        tracing::warn!(kafka.group = consumer.context().group, "giving up partitions: {error}");
    }
    count(consumer, if lost { "lost" } else { "revoked" }, keys.len());
    if lost { MemberEvent::Lost(keys) } else { MemberEvent::Revoked(keys) }
}

/// Ends the streams, then closes the consumer: it gives up its partitions and sends LeaveGroup while it is dropped.
fn leave(mut consumer: Arc<BaseConsumer<MemberContext>>, live: Live) {
    let group = consumer.context().group.clone();
    live.values().for_each(|shared| shared.end());
    drop(live);
    // What the callback noted and nobody carried out yet would hold the close up for ever.
    consumer.context().close();
    while let Some(change) = consumer.context().next_change() {
        let mut list = TopicPartitionList::new();
        let done = match change {
            Change::Assign(_) => consumer.incremental_assign(&list),
            Change::Revoke { partitions, .. } => {
                partitions.iter().for_each(|(topic, partition)| drop(list.add_partition(topic, *partition)));
                consumer.incremental_unassign(&list)
            }
        };
        if let Err(error) = done {
            tracing::warn!(kafka.group = group, "giving up partitions while leaving: {error}");
        }
    }
    // A seek on another thread may hold the consumer for a moment; whoever lets go last closes it.
    let step = Duration::from_millis(5);
    for _ in 0..LAST_CALLS.as_millis() / step.as_millis() {
        match Arc::try_unwrap(consumer) {
            Ok(last) => {
                drop(last);
                break;
            }
            Err(shared) => consumer = shared,
        }
        std::thread::sleep(step);
    }
}

/// What heals by itself is counted by the context and goes no further.
fn trouble_of(error: KafkaError) -> Option<KafkaFault> {
    let fault = KafkaFault::of("poll", error);
    match fault.disposition() {
        Disposition::Retry => None,
        Disposition::Poison(_) | Disposition::Fenced | Disposition::Fatal => Some(fault),
    }
}

fn count(consumer: &BaseConsumer<MemberContext>, change: &'static str, partitions: usize) {
    let group = &consumer.context().group;
    metrics::REBALANCES.with(&[group, change]).increment(1);
    tracing::info!(kafka.group = group, kafka.partitions = partitions, "partitions {change}");
}
