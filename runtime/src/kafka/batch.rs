//! Sends whole batches and waits for all their acks: for emissions, rejections, answers.
//!
//! One integer per record is all that travels through librdkafka; half the CPU of a future per record.

use super::client::{self, Cluster, MAX_LARGE_MESSAGE_BYTES};
use super::error::{Disposition, KafkaFault, Refusal};
use super::metrics;
use super::record::OutRecord;
use ::metrics::Counter;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Where a record came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Timestamp in epoch ms: append time where the topic says so. −1 if there is none.
    pub at: i64,
}

impl Placed {
    pub(super) fn of(message: &impl Message) -> Placed {
        let at = message.timestamp().to_millis().unwrap_or(-1);
        Placed { partition: message.partition(), offset: message.offset(), at }
    }
}

/// How a batch producer works.
#[derive(Clone, Debug)]
pub struct BatchSettings {
    /// Metric label.
    pub role: &'static str,
    /// Waits this long for records to share a request.
    pub linger: Duration,
    /// A record that is not acked within this time has failed (it may still be in the log).
    pub message_timeout: Duration,
    /// Memory for records under way, in KiB. `send_batch` waits while it is full.
    pub queue_kib: u32,
}

impl BatchSettings {
    /// Defaults: linger 1 ms, 30 s, 64 MiB.
    pub fn new(role: &'static str) -> BatchSettings {
        BatchSettings {
            role,
            linger: Duration::from_millis(1),
            message_timeout: Duration::from_secs(30),
            queue_kib: 64 * 1024,
        }
    }
}

/// Outcome of each record of a batch, in its order.
pub type BatchResult = Vec<Result<Placed, KafkaFault>>;

/// Bits of the opaque that number the record within its batch; the rest number the batch.
const INDEX_BITS: u32 = 24;
/// Most records of one batch.
pub const MAX_BATCH_RECORDS: usize = 1 << INDEX_BITS;
const OP: &str = "produce";

struct Waiting {
    results: BatchResult,
    missing: usize,
    done: oneshot::Sender<BatchResult>,
}

struct Book {
    role: &'static str,
    waiting: Mutex<HashMap<usize, Waiting>>,
    space: Notify,
    counters: Counters,
}

struct Counters {
    acked: Counter,
    refused: Counter,
    failed: Counter,
}

impl Book {
    fn new(role: &'static str) -> Book {
        let counter = |outcome| metrics::PRODUCED.with(&[role, outcome]);
        let counters =
            Counters { acked: counter("acked"), refused: counter("refused"), failed: counter("failed") };
        Book { role, waiting: Mutex::default(), space: Notify::new(), counters }
    }

    fn settle(&self, opaque: usize, result: Result<Placed, KafkaFault>) {
        let (batch, index) = (opaque >> INDEX_BITS, opaque & (MAX_BATCH_RECORDS - 1));
        let mut waiting = self.waiting.lock().expect("no holder panics");
        // A batch whose caller went away is no longer here.
        let Some(entry) = waiting.get_mut(&batch) else { return };
        entry.results[index] = result;
        entry.missing -= 1;
        if entry.missing == 0 {
            let whole = waiting.remove(&batch).expect("just seen");
            drop(waiting);
            // The caller may have gone away meanwhile: what was sent stays sent.
            drop(whole.done.send(whole.results));
        }
    }
}

impl ClientContext for Book {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        client::log(self.role, level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        client::count(self.role, &error, reason);
    }
}

impl ProducerContext for Book {
    type DeliveryOpaque = usize;

    fn delivery(&self, report: &DeliveryResult<'_>, opaque: usize) {
        self.settle(
            opaque,
            match report {
                Ok(message) => Ok(Placed::of(message)),
                Err((error, _)) => Err(KafkaFault::of(OP, error.clone())),
            },
        );
        self.space.notify_waiters();
    }
}

/// Forgets a batch whose caller went away before all of it was handed over.
struct Forget<'a> {
    book: &'a Book,
    batch: usize,
    armed: bool,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.book.waiting.lock().expect("no holder panics").remove(&self.batch);
        }
    }
}

/// An idempotent producer, acks = all, for batches from any number of tasks.
pub struct BatchProducer {
    producer: ThreadedProducer<Book>,
    next_batch: AtomicUsize,
}

impl BatchProducer {
    /// Makes the producer; connections are made when they are needed.
    pub fn new(cluster: &Cluster, settings: &BatchSettings) -> Result<BatchProducer, KafkaFault> {
        let mut config = cluster.producer_config(&[]);
        config
            .set("linger.ms", settings.linger.as_millis().to_string())
            .set("message.timeout.ms", settings.message_timeout.as_millis().to_string())
            .set("queue.buffering.max.kbytes", settings.queue_kib.to_string())
            // A topic that was made a moment ago is waited for this long before it counts as unknown.
            .set("topic.metadata.propagation.max.ms", "3000");
        let producer =
            config.create_with_context(Book::new(settings.role)).map_err(KafkaFault::at("make producer"))?;
        Ok(BatchProducer { producer, next_batch: AtomicUsize::new(0) })
    }

    /// Sends the records and waits until each is acked by all in-sync replicas or has failed.
    ///
    /// Records for one partition are written in order; one that is refused does not hold up the others. If the future
    /// is dropped, what was handed over is still sent.
    ///
    /// A broker that finds a *request's* batch too large refuses all its records, and librdkafka does not split it: so
    /// those are sent again in halves, until what is refused is refused alone. Only then may the order differ.
    pub async fn send_batch(&self, records: &[OutRecord]) -> BatchResult {
        let everything: Vec<usize> = (0..records.len()).collect();
        let mut results = self.send_once(records, &everything).await;
        let mut groups = vec![too_large(&everything, records, &results)];
        while let Some(mut group) = groups.pop() {
            if group.is_empty() {
                continue;
            }
            let rest = group.split_off(group.len().div_ceil(2));
            groups.push(rest);
            for (&index, result) in group.iter().zip(self.send_once(records, &group).await) {
                results[index] = result;
            }
            if group.len() > 1 {
                groups.push(too_large(&group, records, &results));
            }
        }
        count(&self.producer.context().counters, &results);
        results
    }

    async fn send_once(&self, records: &[OutRecord], indices: &[usize]) -> BatchResult {
        assert!(indices.len() <= MAX_BATCH_RECORDS, "a batch of {} records", indices.len());
        if indices.is_empty() {
            return Vec::new();
        }
        let book = self.producer.context();
        let batch = self.next_batch.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> INDEX_BITS);
        let (done, all) = oneshot::channel();
        let results = indices.iter().map(|_| Err(KafkaFault::Cancelled { op: OP })).collect();
        let waiting = Waiting { results, missing: indices.len(), done };
        book.waiting.lock().expect("no holder panics").insert(batch, waiting);
        let mut forget = Forget { book, batch, armed: true };
        for (place, &index) in indices.iter().enumerate() {
            self.hand_over(&records[index], batch << INDEX_BITS | place).await;
        }
        forget.armed = false;
        all.await.expect("a batch is only forgotten by its caller")
    }

    /// Sends one record. For answers and the like; batches are cheaper.
    pub async fn send(&self, record: &OutRecord) -> Result<Placed, KafkaFault> {
        self.send_batch(std::slice::from_ref(record)).await.remove(0)
    }

    async fn hand_over(&self, record: &OutRecord, opaque: usize) {
        let book = self.producer.context();
        let mut out = native(record, opaque);
        loop {
            let space = book.space.notified();
            match self.producer.send(out) {
                Ok(()) => return,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    out = back;
                    // Any report makes room. The time only covers a report that came just before we began to listen.
                    drop(tokio::time::timeout(Duration::from_millis(20), space).await);
                }
                Err((error, _)) => return book.settle(opaque, Err(KafkaFault::of(OP, error))),
            }
        }
    }

    /// Waits until nothing is under way. For a stop in good order, after the callers have ended.
    pub async fn flush(&self, within: Duration) -> Result<(), KafkaFault> {
        let producer = self.producer.clone();
        tokio::task::spawn_blocking(move || producer.flush(within))
            .await
            .map_err(|_| KafkaFault::Cancelled { op: "flush" })?
            .map_err(KafkaFault::at("flush"))
    }
}

/// Those of `indices` that were refused as too large and may have been so only together with others.
fn too_large(indices: &[usize], records: &[OutRecord], results: &BatchResult) -> Vec<usize> {
    let refused = |index: usize| {
        let disposition = results[index].as_ref().err().map(KafkaFault::disposition);
        disposition == Some(Disposition::Poison(Refusal::TooLarge))
            && records[index].weight_bytes() < MAX_LARGE_MESSAGE_BYTES as usize
    };
    indices.iter().copied().filter(|&index| refused(index)).collect()
}

pub(super) fn native(record: &OutRecord, opaque: usize) -> BaseRecord<'_, [u8], [u8], usize> {
    BaseRecord {
        topic: &record.topic,
        partition: record.partition,
        payload: record.value.as_deref(),
        key: record.key.as_deref(),
        timestamp: record.at,
        headers: record.native_headers(),
        delivery_opaque: opaque,
    }
}

fn count(counters: &Counters, results: &BatchResult) {
    let (mut acked, mut refused, mut failed) = (0, 0, 0);
    for result in results {
        match result.as_ref().map_err(KafkaFault::disposition) {
            Ok(_) => acked += 1,
            Err(Disposition::Poison(_)) => refused += 1,
            Err(Disposition::Retry | Disposition::Fenced | Disposition::Fatal) => failed += 1,
        }
    }
    counters.acked.increment(acked);
    counters.refused.increment(refused);
    counters.failed.increment(failed);
}
