//! Takes rebalances from librdkafka's callback over to the poll thread.

use crate::kafka::client::{self, Cluster};
use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::util::Timeout;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One rebalance step as librdkafka told it.
#[derive(Debug)]
pub(super) enum Change {
    Assign(Vec<(String, i32)>),
    Revoke { partitions: Vec<(String, i32)>, lost: bool },
}

/// The callback only notes what is wanted. The poll thread carries it out as soon as `poll` returns, because streams need
/// the consumer's `Arc`, which the callback does not have; the group waits for it.
#[derive(Debug)]
pub(super) struct MemberContext {
    pub(super) group: String,
    /// For further clients.
    pub(super) cluster: Cluster,
    changes: Mutex<VecDeque<Change>>,
    /// While the consumer is being closed nobody comes back from `poll`: the callback acts itself.
    closing: AtomicBool,
}

impl MemberContext {
    pub(super) fn new(group: String, cluster: Cluster) -> MemberContext {
        MemberContext { group, cluster, changes: Mutex::default(), closing: AtomicBool::new(false) }
    }

    pub(super) fn next_change(&self) -> Option<Change> {
        self.changes.lock().expect("no holder panics").pop_front()
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Answers a rebalance with nothing: while closing, no partition is taken and none is left to give up.
    pub(super) fn answer(&self, consumer: &BaseConsumer<MemberContext>, assign: bool) {
        let nothing = TopicPartitionList::new();
        let done = if assign {
            consumer.incremental_assign(&nothing)
        } else {
            consumer.incremental_unassign(&nothing)
        };
        if let Err(error) = done {
            tracing::warn!(kafka.group = self.group, "giving up partitions while leaving: {error}");
        }
    }
}

impl ClientContext for MemberContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        client::log("member", level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        client::count("member", &error, reason);
    }
}

impl ConsumerContext for MemberContext {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<MemberContext>,
        err: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let assign = err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Acquire) {
            self.answer(consumer, assign);
            return;
        }
        let names = partitions.elements().iter().map(|e| (e.topic().to_owned(), e.partition())).collect();
        let change = if assign {
            Change::Assign(names)
        } else {
            Change::Revoke { partitions: names, lost: consumer.assignment_lost() }
        };
        self.changes.lock().expect("no holder panics").push_back(change);
    }

    fn main_queue_min_poll_interval(&self) -> Timeout {
        Timeout::After(Duration::from_millis(100))
    }
}
