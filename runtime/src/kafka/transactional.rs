//! The producer of one lane of a slot: transactions whose outcome is never guessed (PROTOCOL §2, outcome rule).
//!
//! All calls block and belong on the slot's own thread. One transaction:
//! `begin` → `send`* → `wait_reports` → every report [`Report::Acked`] ? `commit` : `abort`.

use super::batch::{Placed, native};
use super::client::{self, Cluster};
use super::error::{Disposition, KafkaFault, Refusal, disposition_of, disposition_of_code};
use super::record::OutRecord;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{Producer, ProducerContext, PurgeConfig, ThreadedProducer};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How a lane works.
#[derive(Clone, Copy, Debug)]
pub struct LaneSettings {
    /// The coordinator aborts a transaction that is older.
    pub transaction_timeout: Duration,
    /// A record that is not acked within this time has failed. Must not exceed `transaction_timeout`.
    pub message_timeout: Duration,
    /// Memory for records under way, in KiB.
    pub queue_kib: u32,
}

impl Default for LaneSettings {
    fn default() -> LaneSettings {
        LaneSettings {
            transaction_timeout: Duration::from_secs(10),
            message_timeout: Duration::from_secs(3),
            queue_kib: 64 * 1024,
        }
    }
}

/// What became of one record of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Not known yet.
    Pending,
    /// In the log; visible once the transaction commits.
    Acked(Placed),
    /// Not in the log, as far as anybody knows.
    Failed(SendFault),
}

/// Why a record failed.
#[derive(Clone, Debug, PartialEq)]
pub enum SendFault {
    /// Swept away because *another* record of the transaction failed, or by an abort: not a culprit.
    Purged,
    /// Will never succeed: `dead` + `buried`. But [`Refusal::TooLarge`] is said of all records that shared a request's
    /// batch: it proves something only of a record that was the only one of its partition in the transaction.
    Permanent(Refusal),
    /// Time-outs, leaders that moved: may succeed later.
    Transient(KafkaError),
    /// Another owner has taken over.
    Fenced(KafkaError),
    /// The client is unusable.
    Fatal(KafkaError),
}

impl SendFault {
    fn of(error: KafkaError) -> SendFault {
        let code = error.rdkafka_error_code();
        if matches!(code, Some(Code::PurgeQueue | Code::PurgeInflight | Code::InvalidDifferentRecord)) {
            return SendFault::Purged;
        }
        match disposition_of(&error) {
            Disposition::Retry => SendFault::Transient(error),
            Disposition::Poison(refusal) => SendFault::Permanent(refusal),
            Disposition::Fenced => SendFault::Fenced(error),
            Disposition::Fatal => SendFault::Fatal(error),
        }
    }
}

/// How `commit` or `abort` ended. Only `Committed` proves a commit and only `Aborted` proves an abort.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The transaction is committed.
    Committed,
    /// The transaction is aborted.
    Aborted,
    /// Not decided yet: the same call again.
    Retriable(KafkaError),
    /// The transaction cannot be committed; `abort` may still succeed.
    Abortable(KafkaError),
    /// Another owner has taken over; what became of the transaction only the journal tells.
    Fenced(KafkaError),
    /// The client is unusable; what became of the transaction only the journal tells.
    Fatal(KafkaError),
    /// What became of the transaction only the journal tells.
    Unknown(KafkaError),
}

impl Outcome {
    fn of(error: KafkaError) -> Outcome {
        let KafkaError::Transaction(e) = &error else {
            // The wrapper's own flush, before librdkafka was asked to commit.
            return match error {
                KafkaError::Flush(_) => Outcome::Retriable(error),
                _ => Outcome::Unknown(error),
            };
        };
        if disposition_of_code(e.code()) == Disposition::Fenced {
            Outcome::Fenced(error)
        } else if e.is_fatal() {
            Outcome::Fatal(error)
        } else if e.is_retriable() {
            Outcome::Retriable(error)
        } else if e.txn_requires_abort() {
            Outcome::Abortable(error)
        } else {
            Outcome::Unknown(error)
        }
    }
}

/// Bits of the opaque that number the record within its transaction; the rest number the transaction.
const INDEX_BITS: u32 = 24;

#[derive(Default)]
struct Sent {
    transaction: usize,
    reports: Vec<Report>,
    missing: usize,
}

impl Sent {
    fn settle(&mut self, opaque: usize, report: Report) {
        // Reports of an earlier transaction come late after an abort: they say nothing about this one.
        if opaque >> INDEX_BITS == self.transaction {
            self.reports[opaque & ((1 << INDEX_BITS) - 1)] = report;
            self.missing -= 1;
        }
    }
}

#[derive(Default)]
struct LaneContext {
    sent: Mutex<Sent>,
    complete: Condvar,
}

impl ClientContext for LaneContext {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        client::log("lane", level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        client::count("lane", &error, reason);
    }
}

impl ProducerContext for LaneContext {
    type DeliveryOpaque = usize;

    fn delivery(&self, report: &DeliveryResult<'_>, opaque: usize) {
        let report = match report {
            Ok(message) => Report::Acked(Placed::of(message)),
            Err((error, _)) => Report::Failed(SendFault::of(error.clone())),
        };
        let mut sent = self.sent.lock().expect("no holder panics");
        sent.settle(opaque, report);
        if sent.missing == 0 {
            self.complete.notify_all();
        }
    }
}

/// The producer of one lane. A new one is made at every take-over; `init` is called once on each.
pub struct TxnProducer {
    producer: ThreadedProducer<LaneContext>,
    transactional: bool,
}

impl TxnProducer {
    /// A producer with a transactional id: whoever initialises it next fences this one.
    pub fn exactly_once(
        cluster: &Cluster,
        transactional_id: &str,
        settings: LaneSettings,
    ) -> Result<TxnProducer, KafkaFault> {
        TxnProducer::make(cluster, Some(transactional_id), settings)
    }

    /// The same calls without transactions: `init` and `begin` do nothing, `commit` only says that all was acked,
    /// and `abort` that nothing more is under way.
    pub fn at_least_once(cluster: &Cluster, settings: LaneSettings) -> Result<TxnProducer, KafkaFault> {
        TxnProducer::make(cluster, None, settings)
    }

    fn make(
        cluster: &Cluster,
        transactional_id: Option<&str>,
        settings: LaneSettings,
    ) -> Result<TxnProducer, KafkaFault> {
        let millis = |d: Duration| d.as_millis().to_string();
        let mut config = cluster.producer_config(&[("retry.backoff.ms", "20")]);
        config
            .set("linger.ms", "0")
            .set("message.timeout.ms", millis(settings.message_timeout))
            .set("queue.buffering.max.kbytes", settings.queue_kib.to_string())
            // Shorter than the message time-out, so that a missing topic is told from a slow one.
            .set("topic.metadata.propagation.max.ms", millis(settings.message_timeout / 2));
        if let Some(id) = transactional_id {
            config
                .set("transactional.id", id)
                .set("transaction.timeout.ms", millis(settings.transaction_timeout));
        }
        let producer =
            config.create_with_context(LaneContext::default()).map_err(KafkaFault::at("make lane"))?;
        Ok(TxnProducer { producer, transactional: transactional_id.is_some() })
    }

    /// Fences every earlier owner and waits until its open transaction is decided. Until Ok, `deadline`, or
    /// `cancelled` says so (asked twice a second).
    pub fn init(&self, deadline: Instant, cancelled: &dyn Fn() -> bool) -> Result<(), KafkaFault> {
        const OP: &str = "init transactions";
        if !self.transactional {
            return Ok(());
        }
        loop {
            // A call that timed out goes on in the background; the next one joins it.
            let Err(error) = self.producer.init_transactions(Duration::from_millis(500)) else {
                return Ok(());
            };
            let retriable = matches!(&error, KafkaError::Transaction(e) if e.is_retriable() && !e.is_fatal());
            if !retriable {
                return Err(KafkaFault::of(OP, error));
            }
            if cancelled() {
                return Err(KafkaFault::Cancelled { op: OP });
            }
            if Instant::now() >= deadline {
                return Err(KafkaFault::Deadline { op: OP, last: error.to_string() });
            }
            // Some retriable errors come at once.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Learns what the brokers say of a topic now. librdkafka asks for the partitions of a topic that it knows only once in
    /// five minutes, and refuses a partition that was added since.
    pub fn learn(&self, topic: &str, within: Duration) -> Result<(), KafkaFault> {
        let learned = self.producer.client().fetch_metadata(Some(topic), within);
        learned.map(drop).map_err(KafkaFault::at("topic metadata"))
    }

    /// Begins a transaction and forgets the reports of the last one.
    pub fn begin(&mut self) -> Result<(), KafkaFault> {
        if self.transactional {
            self.producer.begin_transaction().map_err(KafkaFault::at("begin transaction"))?;
        }
        let mut sent = self.sent();
        let transaction = (sent.transaction + 1) & (usize::MAX >> INDEX_BITS);
        *sent = Sent { transaction, ..Sent::default() };
        Ok(())
    }

    /// Hands a record over and answers its number among the reports. A refusal on the spot is a report like any other.
    pub fn send(&mut self, record: &OutRecord) -> usize {
        let (index, opaque) = {
            let mut sent = self.sent();
            let index = sent.reports.len();
            sent.reports.push(Report::Pending);
            sent.missing += 1;
            (index, sent.transaction << INDEX_BITS | index)
        };
        if let Err((error, _)) = self.producer.send(native(record, opaque)) {
            self.sent().settle(opaque, Report::Failed(SendFault::of(error)));
        }
        index
    }

    /// Waits until every record has its report. `false`: the deadline came first.
    pub fn wait_reports(&self, deadline: Instant) -> bool {
        let context = self.producer.context();
        let mut sent = self.sent();
        while sent.missing > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                return false;
            };
            sent = context.complete.wait_timeout(sent, left).expect("no holder panics").0;
        }
        drop(sent);
        // The last report counts as under way for some microseconds more; committing now would cost 100 ms in the
        // flush of rdkafka's wrapper.
        while self.producer.in_flight_count() > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        true
    }

    /// The reports of the running transaction, in the order of `send`.
    pub fn reports(&self) -> Vec<Report> {
        self.sent().reports.clone()
    }

    /// Whether every record of the running transaction is acked.
    pub fn all_acked(&self) -> bool {
        self.sent().reports.iter().all(|r| matches!(r, Report::Acked(_)))
    }

    /// Commits. Waits for reports that are missing first.
    pub fn commit(&mut self, within: Duration) -> Outcome {
        let deadline = Instant::now() + within;
        if !self.wait_reports(deadline) {
            return Outcome::Retriable(KafkaError::Flush(Code::OperationTimedOut));
        }
        if !self.transactional {
            return if self.all_acked() {
                Outcome::Committed
            } else {
                Outcome::Abortable(KafkaError::Flush(Code::Fail))
            };
        }
        match self.producer.commit_transaction(deadline.saturating_duration_since(Instant::now())) {
            Ok(()) => Outcome::Committed,
            Err(error) => Outcome::of(error),
        }
    }

    /// Aborts. Records that are still queued are purged, what is on its way is waited for; afterwards every record has
    /// its report.
    pub fn abort(&mut self, within: Duration) -> Outcome {
        let deadline = Instant::now() + within;
        if self.transactional {
            // librdkafka purges by itself; purging what is in flight would leave a gap in the sequence.
            if let Err(error) = self.producer.abort_transaction(within) {
                return Outcome::of(error);
            }
        } else {
            self.producer.purge(PurgeConfig::default().queue());
        }
        if self.wait_reports(deadline) || self.transactional {
            Outcome::Aborted
        } else {
            Outcome::Retriable(KafkaError::Flush(Code::OperationTimedOut))
        }
    }

    fn sent(&self) -> std::sync::MutexGuard<'_, Sent> {
        self.producer.context().sent.lock().expect("no holder panics")
    }
}
