//! The thread that never stops polling.

use super::context::{Change, MemberContext};
use super::stream::{PartitionStream, Shared};
use super::{MemberEvent, PartitionKey};
use crate::kafka::error::{Disposition, KafkaFault};
use crate::kafka::metrics;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Message, TopicPartitionList};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Longest time until a stop is noticed; a rebalance ends the wait at once.
const POLL: Duration = Duration::from_millis(100);
/// How long to wait for calls of streams that are on their way when leaving.
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
            // Every partition is split off before it is started, so this cannot be; were it to happen, a record would
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

/// Tells the group that the partitions are taken; librdkafka itself gets each only when its stream is started, with
/// the offset to read from. (Assigned at END and moved by a seek later it may jump back to END: an answer to the END
/// query that comes after the seek starts that query again, librdkafka 2.12, `rd_kafka_toppar_handle_Offset`.)
fn assign(
    consumer: &Arc<BaseConsumer<MemberContext>>,
    live: &mut Live,
    partitions: Vec<(String, i32)>,
    epoch: u64,
) -> MemberEvent {
    let streams: Vec<_> = partitions
        .into_iter()
        .map(|(topic, partition)| {
            let shared = Shared::new(topic.as_str().into(), partition, epoch, consumer.clone());
            if let Some(before) = live.insert((topic, partition), shared.clone()) {
                before.end();
            }
            PartitionStream::new(shared)
        })
        .collect();
    count(consumer, "assigned", streams.len());
    match consumer.incremental_assign(&TopicPartitionList::new()) {
        Ok(()) => MemberEvent::Assigned(streams),
        Err(error) => MemberEvent::Trouble(KafkaFault::of("assign", error)),
    }
}

/// Gives partitions up: those that were started leave librdkafka's assignment, and the group is told.
fn revoke(
    consumer: &Arc<BaseConsumer<MemberContext>>,
    live: &mut Live,
    partitions: Vec<(String, i32)>,
    lost: bool,
) -> MemberEvent {
    let keys = partitions
        .iter()
        .map(|(topic, partition)| PartitionKey { topic: topic.as_str().into(), partition: *partition })
        .collect::<Vec<_>>();
    let ended = partitions.into_iter().filter_map(|key| live.remove(&key));
    give_up(consumer, ended.collect());
    count(consumer, if lost { "lost" } else { "revoked" }, keys.len());
    if lost { MemberEvent::Lost(keys) } else { MemberEvent::Revoked(keys) }
}

fn give_up(consumer: &BaseConsumer<MemberContext>, ended: Vec<Arc<Shared>>) {
    let mut started = TopicPartitionList::new();
    for shared in ended {
        if shared.end() {
            started.add_partition(&shared.topic, shared.partition);
        }
    }
    if let Err(error) = consumer.incremental_unassign(&started) {
        tracing::warn!(kafka.group = consumer.context().group, "giving up partitions: {error}");
    }
}

/// Ends the streams, then closes the consumer: it gives up its partitions and sends `LeaveGroup` while it is dropped.
fn leave(mut consumer: Arc<BaseConsumer<MemberContext>>, live: Live) {
    // From here on the callback answers by itself, that nothing is left to give up.
    consumer.context().close();
    give_up(&consumer, live.into_values().collect());
    // What the callback noted and nobody carried out yet would hold the close up for ever.
    while let Some(change) = consumer.context().next_change() {
        consumer.context().answer(&consumer, matches!(change, Change::Assign(_)));
    }
    // A call of a stream on another thread may hold the consumer for a moment; whoever lets go last closes it.
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
