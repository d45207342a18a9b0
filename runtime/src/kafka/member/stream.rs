//! The records of one assigned partition.

use super::PartitionKey;
use super::context::MemberContext;
use super::skip;
use crate::kafka::error::{Disposition, KafkaFault};
use crate::kafka::record::Record;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

const BROKER_CALL: Duration = Duration::from_secs(5);
const START: &str = "start partition";
const PASS: &str = "pass over a batch";

/// What a stream and the poll thread share about one partition of one assignment.
pub(super) struct Shared {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    epoch: u64,
    /// `None` once the partition is revoked. It keeps the consumer alive: nobody else may hold on to it.
    open: Mutex<Option<Open>>,
    wake: Arc<Notify>,
    next: AtomicI64,
}

/// What is started, and how often it was.
#[derive(Default)]
struct Started {
    times: u64,
    /// Stands for a batch that was passed over, until it is read.
    passed: Option<Record>,
}

struct Open {
    consumer: Arc<BaseConsumer<MemberContext>>,
    /// Set once started: only then does librdkafka have the partition.
    queue: Option<PartitionQueue<MemberContext>>,
    started: Started,
}

impl Shared {
    pub(super) fn new(
        topic: Arc<str>,
        partition: i32,
        epoch: u64,
        consumer: Arc<BaseConsumer<MemberContext>>,
    ) -> Arc<Shared> {
        let open = Mutex::new(Some(Open { consumer, queue: None, started: Started::default() }));
        let (wake, next) = (Arc::new(Notify::new()), AtomicI64::new(-1));
        Arc::new(Shared { topic, partition, epoch, open, wake, next })
    }

    /// The partition is gone: the stream ends. Whether librdkafka has it still, to be unassigned by the caller.
    pub(super) fn end(&self) -> bool {
        let open = self.open.lock().expect("no holder panics").take();
        self.wake.notify_one();
        open.is_some_and(|open| open.queue.is_some())
    }

    fn consumer(&self, op: &'static str) -> Result<Arc<BaseConsumer<MemberContext>>, KafkaFault> {
        let open = self.open.lock().expect("no holder panics");
        open.as_ref().map(|open| open.consumer.clone()).ok_or(KafkaFault::NotAssigned { op })
    }

    fn list(&self, offset: Offset) -> Result<TopicPartitionList, KafkaFault> {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&self.topic, self.partition, offset).map_err(KafkaFault::at("position"))?;
        Ok(list)
    }

    fn poll(&self) -> Polled {
        let mut open = self.open.lock().expect("no holder panics");
        let Some(open) = open.as_mut() else { return Polled::Ended };
        if let Some(passed) = open.started.passed.take() {
            return Polled::Record(passed);
        }
        let Some(queue) = &open.queue else { return Polled::Empty };
        match queue.poll(Duration::ZERO) {
            None => Polled::Empty,
            Some(Ok(message)) => {
                let record = Record::copy_of(&message, &self.topic, self.epoch);
                self.next.store(record.offset + 1, Ordering::Relaxed);
                Polled::Record(record)
            }
            Some(Err(error)) => match error.rdkafka_error_code() {
                Some(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation) => {
                    Polled::OutsideLog
                }
                Some(Code::BadCompression | Code::NotImplemented) => {
                    Polled::Undecodable { times: open.started.times }
                }
                _ => Polled::Error(error),
            },
        }
    }

    /// Hands the partition to librdkafka with the offset to read from; if it has it already, takes it back first, which
    /// also makes everything fetched before outdated. Under the lock, so that a revoke comes before or after, not between.
    fn start(&self, offset: i64) -> Result<(), KafkaFault> {
        let mut open = self.open.lock().expect("no holder panics");
        let open = open.as_mut().ok_or(KafkaFault::NotAssigned { op: START })?;
        self.start_open(open, offset)
    }

    fn start_open(&self, open: &mut Open, offset: i64) -> Result<(), KafkaFault> {
        const OP: &str = START;
        open.started = Started { times: open.started.times + 1, passed: None };
        let list = self.list(Offset::Offset(offset))?;
        if open.queue.take().is_some() {
            open.consumer.incremental_unassign(&list).map_err(KafkaFault::at(OP))?;
        }
        // Before the assignment, so that no record takes the way of the poll thread.
        let unknown = KafkaError::MessageConsumptionFatal(Code::UnknownPartition);
        let mut queue = open
            .consumer
            .split_partition_queue(&self.topic, self.partition)
            .ok_or_else(|| KafkaFault::of(OP, unknown))?;
        let wake = self.wake.clone();
        queue.set_nonempty_callback(move || wake.notify_one());
        open.consumer.incremental_assign(&list).map_err(KafkaFault::at(OP))?;
        self.next.store(offset, Ordering::Relaxed);
        open.queue = Some(queue);
        Ok(())
    }

    /// Passes over the batch at the position, which cannot be unpacked: what is read next stands for it, then comes what
    /// lies behind it. Does nothing if the partition was started anew meanwhile. Blocks.
    fn pass_over(&self, times: u64) -> Result<(), KafkaFault> {
        let first = self.next.load(Ordering::Relaxed);
        let consumer = self.consumer(PASS)?;
        let context = consumer.context();
        let end = skip::end_of_batch(&context.cluster, &context.group, (&self.topic, self.partition), first)?;
        let mut open = self.open.lock().expect("no holder panics");
        let open = open.as_mut().ok_or(KafkaFault::NotAssigned { op: PASS })?;
        if open.started.times != times {
            return Ok(());
        }
        self.start_open(open, end.unwrap_or(first))?;
        if let Some(end) = end {
            let place = (&self.topic, self.partition);
            tracing::error!(
                topic = &*self.topic,
                partition = self.partition,
                first,
                end,
                "a batch that cannot be unpacked"
            );
            open.started.passed = Some(Record::undecodable(place, (first, end - 1), self.epoch));
        }
        Ok(())
    }

    /// The ends of the log, for the person who has to decide. Blocks.
    fn ends(&self) -> Option<(i64, i64)> {
        let consumer = self.consumer("watermarks").ok()?;
        consumer.fetch_watermarks(&self.topic, self.partition, BROKER_CALL).ok()
    }

    fn outside_log(&self, ends: Option<(i64, i64)>) -> KafkaFault {
        let (start, end) = ends.unwrap_or((-1, -1));
        KafkaFault::OutsideLog {
            topic: self.topic.to_string(),
            partition: self.partition,
            position: self.next.load(Ordering::Relaxed),
            start,
            end,
        }
    }
}

enum Polled {
    Record(Record),
    Empty,
    Ended,
    OutsideLog,
    Undecodable { times: u64 },
    Error(KafkaError),
}

/// When a batch is full.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Records.
    pub max_records: usize,
    /// Bytes, as [`Record::weight_bytes`] counts them. One record may go beyond it.
    pub max_bytes: usize,
    /// How long to wait for more after the first record. Zero: take what is there.
    pub linger: Duration,
}

/// The records of one assigned partition, until it is revoked.
pub struct PartitionStream {
    shared: Arc<Shared>,
    failed: Option<KafkaFault>,
    /// A batch cannot be unpacked, as seen after so many starts.
    undecodable: Option<u64>,
}

impl std::fmt::Debug for PartitionStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PartitionStream({}[{}], epoch {})", self.topic(), self.partition(), self.epoch())
    }
}

impl PartitionStream {
    pub(super) fn new(shared: Arc<Shared>) -> PartitionStream {
        PartitionStream { shared, failed: None, undecodable: None }
    }

    /// Topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.shared.topic
    }

    /// Partition.
    pub fn partition(&self) -> i32 {
        self.shared.partition
    }

    /// Topic and partition.
    pub fn key(&self) -> PartitionKey {
        PartitionKey { topic: self.topic().clone(), partition: self.partition() }
    }

    /// Number of the assignment: grows within a member, so that work of an older one can be told apart.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch
    }

    /// Whether the partition still is this stream's. No promise for the next instant.
    pub fn is_assigned(&self) -> bool {
        self.shared.open.lock().expect("no holder panics").is_some()
    }

    /// Reads from `offset` on: at first, or again from elsewhere. Records that were fetched before are dropped.
    ///
    /// Whether the log has the offset shows only when it is read: `recv` then fails with [`KafkaFault::OutsideLog`]
    /// and the partition stands still until it is started again.
    pub async fn start(&mut self, offset: i64) -> Result<(), KafkaFault> {
        let shared = self.shared.clone();
        self.failed = None;
        self.undecodable = None;
        let op = START;
        tokio::task::spawn_blocking(move || shared.start(offset))
            .await
            .map_err(|_| KafkaFault::Cancelled { op })?
    }

    /// Stops fetching. Not needed for backpressure (do not call `recv` then); what was fetched ahead is thrown away.
    pub fn pause(&self) -> Result<(), KafkaFault> {
        const OP: &str = "pause partition";
        self.shared.consumer(OP)?.pause(&self.shared.list(Offset::Invalid)?).map_err(KafkaFault::at(OP))
    }

    /// Goes on after `pause` where it was.
    pub fn resume(&self) -> Result<(), KafkaFault> {
        const OP: &str = "resume partition";
        self.shared.consumer(OP)?.resume(&self.shared.list(Offset::Invalid)?).map_err(KafkaFault::at(OP))
    }

    /// The next record; `None` when the partition was revoked. May be dropped and called again without losing one.
    pub async fn recv(&mut self) -> Result<Option<Record>, KafkaFault> {
        loop {
            if let Some(fault) = &self.failed {
                if matches!(fault, KafkaFault::OutsideLog { start: -1, .. }) {
                    let shared = self.shared.clone();
                    let told = tokio::task::spawn_blocking(move || shared.outside_log(shared.ends())).await;
                    self.failed = told.ok().or_else(|| self.failed.take());
                }
                if let Some(fault) = self.failed.take() {
                    return Err(fault);
                }
            }
            if let Some(times) = self.undecodable {
                let shared = self.shared.clone();
                let passed = tokio::task::spawn_blocking(move || shared.pass_over(times)).await;
                passed.map_err(|_| KafkaFault::Cancelled { op: PASS })??;
                self.undecodable = None;
            }
            match self.try_recv() {
                Tried::Record(record) => return Ok(Some(record)),
                Tried::Ended => return Ok(None),
                Tried::Failed => {}
                // What came since the look has left a permit, so nothing is slept through.
                Tried::Empty => self.shared.wake.notified().await,
            }
        }
    }

    /// A record that is there already, without waiting. `None` says nothing about why.
    pub fn recv_now(&mut self) -> Option<Record> {
        if self.failed.is_some() || self.undecodable.is_some() {
            return None;
        }
        match self.try_recv() {
            Tried::Record(record) => Some(record),
            // A failure is kept for `recv` to tell.
            Tried::Ended | Tried::Empty | Tried::Failed => None,
        }
    }

    /// Adds records to `batch` until it is full or `linger` after the first of this call. `false`: revoked, `batch`
    /// holds what came before. May be dropped: what was read is in `batch`.
    pub async fn recv_batch(
        &mut self,
        batch: &mut Vec<Record>,
        limits: BatchLimits,
    ) -> Result<bool, KafkaFault> {
        let Some(first) = self.recv().await? else { return Ok(false) };
        let mut bytes = first.weight_bytes();
        batch.push(first);
        let until = tokio::time::Instant::now() + limits.linger;
        while batch.len() < limits.max_records && bytes < limits.max_bytes {
            let record = match self.recv_now() {
                Some(record) => record,
                None if limits.linger.is_zero() || self.failed.is_some() || self.undecodable.is_some() => {
                    break;
                }
                None => match tokio::time::timeout_at(until, self.recv()).await {
                    Ok(Ok(Some(record))) => record,
                    Ok(Ok(None)) => return Ok(false),
                    // The batch first, the fault with the next call.
                    Ok(Err(fault)) => {
                        self.failed = Some(fault);
                        break;
                    }
                    Err(_) => break,
                },
            };
            bytes += record.weight_bytes();
            batch.push(record);
        }
        Ok(true)
    }

    /// Commits a position for tools that show lag. Nothing ever reads it back, and it may be lost.
    pub fn commit_for_lag_tools(&self, next: i64) -> Result<(), KafkaFault> {
        const OP: &str = "commit for lag tools";
        let list = self.shared.list(Offset::Offset(next))?;
        self.shared.consumer(OP)?.commit(&list, CommitMode::Async).map_err(KafkaFault::at(OP))
    }

    fn try_recv(&mut self) -> Tried {
        match self.shared.poll() {
            Polled::Record(record) => Tried::Record(record),
            Polled::Empty => Tried::Empty,
            Polled::Ended => Tried::Ended,
            Polled::OutsideLog => {
                self.failed = Some(self.shared.outside_log(None));
                Tried::Failed
            }
            Polled::Undecodable { times } => {
                self.undecodable = Some(times);
                Tried::Failed
            }
            Polled::Error(error) => {
                let fault = KafkaFault::of("fetch", error);
                match fault.disposition() {
                    // librdkafka tries again by itself; the context has counted it.
                    Disposition::Retry => {}
                    Disposition::Poison(_) | Disposition::Fenced | Disposition::Fatal => {
                        self.failed = Some(fault)
                    }
                }
                Tried::Failed
            }
        }
    }
}

enum Tried {
    Record(Record),
    Empty,
    Ended,
    /// An error was seen; look again.
    Failed,
}
