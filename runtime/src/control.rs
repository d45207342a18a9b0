//! Follows `control`: what it says stands in memory, the same in every program that follows it, and is never older than
//! the last record that Kafka handed over. Whatever happens to Kafka, what was read last holds.
//!
//! ```text
//! read all ─▶ ready ─▶ follow ──(the client is of no more use, the position is gone)──▶ read all again
//! ```

use crate::kafka::{
    BatchProducer, BatchSettings, Cluster, Disposition, JournalReader, KafkaFault, OutRecord, Record, Tail,
    TailFrom,
};
use crate::lifecycle::Lifecycle;
use protocol::limits::Board;
use schemas::control::ControlKey;
use schemas::topics::Names;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// One try to read the whole topic.
const READ: Duration = Duration::from_secs(20);
const CALL: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);
/// A record that is not acked by then is not written; whoever wrote it writes again.
const MESSAGE: Duration = Duration::from_secs(3);

/// What to do with a record that is none of ours: the record, why, and whether it came while following (and not from what
/// had been read before).
pub type Foreign = Box<dyn Fn(&Record, &str, bool) + Send + Sync>;

/// `control` as far as it was read.
pub struct Control {
    cluster: Cluster,
    topic: Arc<str>,
    group: String,
    board: RwLock<Board>,
    /// Records applied since the start; 0: the topic was not read to its end yet.
    version: watch::Sender<u64>,
    producer: Mutex<Option<Arc<BatchProducer>>>,
    foreign: Foreign,
}

impl Control {
    /// Begins to follow. `program` names the readers to the brokers.
    pub fn follow(
        cluster: &Cluster,
        names: &Names,
        program: &str,
        life: &Lifecycle,
        foreign: Foreign,
    ) -> Arc<Control> {
        let control = Arc::new(Control {
            cluster: cluster.clone(),
            topic: names.control().into(),
            group: names.group(program),
            board: RwLock::default(),
            version: watch::Sender::new(0),
            producer: Mutex::default(),
            foreign,
        });
        let (following, stop) = (Arc::clone(&control), life.token());
        let gate = life.readiness().gate("control", "reading the limits of callback topics");
        life.spawn("control", async move {
            loop {
                let trouble = tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    fault = following.run(|| gate.open()) => fault,
                };
                // The last known limits hold. Before the first read there are none: the gate stays shut.
                tracing::warn!("control is read again from its beginning: {trouble}");
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        });
        control
    }

    /// What it says.
    pub fn board(&self) -> RwLockReadGuard<'_, Board> {
        self.board.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of changes: a number that grows with each.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits until all that stood there at the start was read.
    pub async fn ready(&self) {
        // The sender lives as long as `self`.
        drop(self.changes().wait_for(|version| *version > 0).await);
    }

    /// Writes records, `None` as a tombstone. What cannot be written is said in the log and forgotten: it shows as a record
    /// that does not come back, and is written again by who wants it there.
    pub async fn write(&self, records: Vec<(ControlKey, Option<Vec<u8>>)>) {
        let records: Vec<OutRecord> = records
            .into_iter()
            .map(|(key, value)| {
                let record = OutRecord::to(Arc::clone(&self.topic)).partition(0).key(key.to_string());
                match value {
                    Some(value) => record.value(value),
                    None => record,
                }
            })
            .collect();
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(fault) => return tracing::warn!("nothing can be written on control: {fault}"),
        };
        for result in producer.send_batch(&records).await {
            let Err(fault) = result else { continue };
            if matches!(fault.disposition(), Disposition::Fatal | Disposition::Fenced) {
                // The client is of no more use: the next call makes another.
                *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            tracing::warn!("a record was not written on control: {fault}");
        }
    }

    fn producer(&self) -> Result<Arc<BatchProducer>, KafkaFault> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*producer {
            return Ok(Arc::clone(producer));
        }
        let settings = BatchSettings { message_timeout: MESSAGE, ..BatchSettings::new("control") };
        let made = Arc::new(BatchProducer::new(&self.cluster, &settings)?);
        *producer = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Reads all, then follows until something breaks.
    async fn run(&self, ready: impl Fn()) -> KafkaFault {
        let (cluster, group, topic) = (self.cluster.clone(), self.group.clone(), Arc::clone(&self.topic));
        let read = tokio::task::spawn_blocking(move || read(&cluster, &group, &topic)).await;
        let All { board, foreign, next } = match read {
            Ok(Ok(all)) => all,
            Ok(Err(fault)) => return fault,
            Err(_) => return KafkaFault::Cancelled { op: "read control" },
        };
        foreign.iter().for_each(|(record, problem)| (self.foreign)(record, problem, false));
        *self.board.write().unwrap_or_else(PoisonError::into_inner) = board;
        self.version.send_modify(|version| *version += 1);
        ready();
        let topics = [(self.topic.to_string(), 1)];
        let tail = match Tail::open(&self.cluster, &self.group, &topics, TailFrom::Offset(next)).await {
            Ok(tail) => tail,
            Err(fault) => return fault,
        };
        loop {
            match tail.recv().await {
                Ok(record) => {
                    let applied =
                        apply(&mut self.board.write().unwrap_or_else(PoisonError::into_inner), &record);
                    if let Err(problem) = applied {
                        (self.foreign)(&record, &problem, true);
                    }
                    self.version.send_modify(|version| *version += 1);
                }
                // The client goes on by itself.
                Err(fault) if fault.disposition() == Disposition::Retry => {
                    tracing::debug!("control: {fault}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(fault) => return fault,
            }
        }
    }
}

/// Records of others that are remembered of one reading.
const MOST_FOREIGN: usize = 100;

/// The whole topic.
struct All {
    board: Board,
    foreign: Vec<(Record, String)>,
    /// The offset behind it.
    next: i64,
}

fn apply(board: &mut Board, record: &Record) -> Result<(), String> {
    if record.cut.is_some() {
        return Err("it is larger than any record of control".into());
    }
    let key = record.key.as_deref().unwrap_or_default();
    board.apply(record.offset, key, record.value.as_deref()).map_err(|problem| problem.to_string())
}

/// Blocks.
fn read(cluster: &Cluster, group: &str, topic: &str) -> Result<All, KafkaFault> {
    let reader = JournalReader::new(cluster, group, topic)?;
    let (start, end) = reader.stable_range(0, CALL)?;
    let mut all = All { board: Board::default(), foreign: Vec::new(), next: end };
    reader.read(0, start, end - 1, Instant::now() + READ, &mut |record| {
        if let Err(problem) = apply(&mut all.board, &record)
            && all.foreign.len() < MOST_FOREIGN
        {
            all.foreign.push((record, problem));
        }
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

/// What `control` says now, for who looks once. Records that are none of ours are passed over.
pub async fn look(cluster: &Cluster, names: &Names, name: &str) -> Result<Board, KafkaFault> {
    let (cluster, group, topic) = (cluster.clone(), name.to_owned(), names.control());
    let read = tokio::task::spawn_blocking(move || read(&cluster, &group, &topic)).await;
    Ok(read.map_err(|_| KafkaFault::Cancelled { op: "read control" })??.board)
}
