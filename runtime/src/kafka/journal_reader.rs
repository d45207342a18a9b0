//! Reads a stretch of one partition, committed records only, outside any group: the journal at a take-over.
//!
//! Calls block and belong on the slot's own thread.

use super::client::{Cluster, Quiet};
use super::error::{Disposition, KafkaFault};
use super::record::Record;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::{Message, Offset, TopicPartitionList};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OP: &str = "read journal";
const POLL: Duration = Duration::from_millis(50);
const BROKER_CALL: Duration = Duration::from_secs(2);

/// A reader that is assigned a partition for as long as a read lasts.
pub struct JournalReader {
    consumer: BaseConsumer<Quiet>,
    topic: Arc<str>,
}

impl JournalReader {
    /// A reader of `topic`. `group` only names it to brokers that check: nothing is joined or committed.
    pub fn new(cluster: &Cluster, group: &str, topic: &str) -> Result<JournalReader, KafkaFault> {
        let mut config = cluster.consumer_config(
            group,
            &[
                ("fetch.wait.max.ms", "50"),
                ("fetch.queue.backoff.ms", "10"),
                ("fetch.error.backoff.ms", "50"),
                ("queued.max.messages.kbytes", "8192"),
            ],
        );
        config.set("isolation.level", "read_committed").set("enable.partition.eof", "true");
        let consumer = config
            .create_with_context(Quiet { role: "journal_reader" })
            .map_err(KafkaFault::at("make journal reader"))?;
        Ok(JournalReader { consumer, topic: topic.into() })
    }

    /// Gives `each` the visible records with `from ≤ offset ≤ through`, in order, until it breaks off.
    ///
    /// Ends once everything up to `through` is decided: the record there was read, or one beyond it, or no open
    /// transaction lies below. Offsets that are not there (markers, aborted records) are passed over.
    /// [`KafkaFault::OutsideLog`] where `from` is below the log's start or above its end.
    pub fn read(
        &self,
        partition: i32,
        from: i64,
        through: i64,
        deadline: Instant,
        each: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), KafkaFault> {
        if from > through {
            return Ok(());
        }
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&self.topic, partition, Offset::Offset(from))
            .map_err(KafkaFault::at(OP))?;
        self.consumer.assign(&list).map_err(KafkaFault::at(OP))?;
        let read = self.read_assigned(partition, from, through, deadline, each);
        let unassigned = self.consumer.unassign().map_err(KafkaFault::at(OP));
        read.and(unassigned)
    }

    /// The records of `read` in a list. For stretches that are known to be short.
    pub fn read_all(
        &self,
        partition: i32,
        from: i64,
        through: i64,
        deadline: Instant,
    ) -> Result<Vec<Record>, KafkaFault> {
        let mut out = Vec::new();
        self.read(partition, from, through, deadline, &mut |record| {
            out.push(record);
            ControlFlow::Continue(())
        })?;
        Ok(out)
    }

    /// The first offset whose record is at least as new as `at` (epoch ms); the log's end if none is.
    pub fn offset_at(&self, partition: i32, at: i64, within: Duration) -> Result<i64, KafkaFault> {
        super::admin::offset_at(&self.consumer, &self.topic, partition, at, within)
    }

    /// First offset, and the offset up to which every transaction is decided (the last stable offset).
    pub fn stable_range(&self, partition: i32, within: Duration) -> Result<(i64, i64), KafkaFault> {
        super::admin::watermarks(&self.consumer, &self.topic, partition, within)
    }

    fn read_assigned(
        &self,
        partition: i32,
        from: i64,
        through: i64,
        deadline: Instant,
        each: &mut dyn FnMut(Record) -> ControlFlow<()>,
    ) -> Result<(), KafkaFault> {
        let mut last = String::from("nothing was read");
        let mut next_look = Instant::now() + Duration::from_secs(1);
        loop {
            let error = match self.consumer.poll(POLL) {
                Some(Ok(message)) => {
                    let offset = message.offset();
                    if offset <= through {
                        let record = Record::copy_of(&message, &self.topic, 0);
                        if each(record).is_break() {
                            return Ok(());
                        }
                        last = format!("read up to {offset}");
                    }
                    if offset >= through {
                        return Ok(());
                    }
                    continue;
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            let at_end = matches!(error, Some(KafkaError::PartitionEOF(_)));
            if let Some(error) = error.filter(|_| !at_end) {
                if let Some(Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation) =
                    error.rdkafka_error_code()
                {
                    let (start, end) = self.stable_range(partition, BROKER_CALL).unwrap_or((-1, -1));
                    let topic = self.topic.to_string();
                    return Err(KafkaFault::OutsideLog { topic, partition, position: from, start, end });
                }
                let fault = KafkaFault::of(OP, error);
                match fault.disposition() {
                    Disposition::Retry => last = fault.to_string(),
                    Disposition::Poison(_) | Disposition::Fenced | Disposition::Fatal => return Err(fault),
                }
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(KafkaFault::Deadline { op: OP, last });
            }
            // Nothing more to read for now. Either all that is left below `through` are gaps, or a transaction is
            // still open there: the last stable offset tells which.
            if at_end || now >= next_look {
                next_look = now + Duration::from_secs(1);
                match self.stable_range(partition, BROKER_CALL.min(deadline - now)) {
                    Ok((_, stable)) if stable > through && at_end => return Ok(()),
                    Ok((_, stable)) => last = format!("decided up to {stable}, wanted {through}"),
                    Err(fault) => last = fault.to_string(),
                }
            }
        }
    }
}
