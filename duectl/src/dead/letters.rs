//! Reads the topic `dead`: of each task its newest letter, within bounded memory.
//!
//! ```text
//! one partition after the other:  pass 1  headers ─▶ row ─▶ offset of its newest letter, and whether it is meant
//!                                 pass 2  those offsets ─▶ whole letters ─▶ channel of a few records
//! ```
//!
//! The letters of a task have one key, so they lie in one partition, the newest last. What is held is some 40 bytes per
//! task of one partition, and the records in the channel.

use super::filter::Filter;
use crate::exit::Failure;
use crate::servers::Servers;
use runtime::kafka::{Cluster, JournalReader, KafkaFault, Record};
use schemas::delivery::Letter;
use schemas::ids::RowId;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Without a record for so long, Kafka is as good as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Letters read ahead of whoever takes them: at 1 MiB each, the most memory that they take.
const AHEAD: usize = 16;
/// How far the clocks of those who wrote of one burial may lie apart.
const ABOUT_MS: i64 = 60_000;
const NAME: &str = "duectl-dead";

/// A letter, where it lies, and all of its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) letter: Letter,
    pub(crate) record: Record,
}

/// What the reading comes upon.
#[derive(Debug)]
pub(crate) enum Step {
    /// A letter that is meant.
    Letter(Box<Found>),
    /// A record that is none: where, and why.
    NoLetter(String),
    /// It ended.
    Failed(KafkaFault),
}

/// Where the letters are.
pub(crate) struct Letters {
    cluster: Cluster,
    pub(crate) topic: Arc<str>,
    pub(crate) partitions: i32,
}

impl Letters {
    pub(crate) async fn open(servers: &Servers) -> Result<Letters, Failure> {
        let topic = servers.names.dead();
        let admin = servers.admin()?;
        let partitions =
            servers.partitions(&admin, &topic, "run `duectl init`, or give another --prefix").await?;
        Ok(Letters { cluster: servers.cluster.clone(), topic: topic.into(), partitions })
    }

    /// The newest letter of each task that is meant, as far as they are visible now, in these partitions.
    pub(crate) fn newest(&self, filter: Filter, partitions: Vec<i32>) -> mpsc::Receiver<Step> {
        let (steps, taken) = mpsc::channel(AHEAD);
        let (cluster, topic) = (self.cluster.clone(), self.topic.clone());
        tokio::task::spawn_blocking(move || {
            let read = || {
                let reader = JournalReader::new(&cluster, NAME, &topic)?;
                for partition in partitions {
                    let ended = read_partition(&reader, partition, &filter, &steps)?;
                    if ended.is_break() {
                        break;
                    }
                }
                Ok(())
            };
            if let Err(fault) = read() {
                // Nobody listens any more: then nobody wants to know.
                drop(steps.blocking_send(Step::Failed(fault)));
            }
        });
        taken
    }

    /// All partitions.
    pub(crate) fn all(&self) -> Vec<i32> {
        (0..self.partitions).collect()
    }

    /// The newest letter of a row that was buried about then, if it is (still) there.
    pub(crate) async fn near(
        &self,
        partition: i32,
        at: i64,
        row: RowId,
    ) -> Result<Option<Found>, KafkaFault> {
        let (cluster, topic) = (self.cluster.clone(), self.topic.clone());
        let read = move || {
            let reader = JournalReader::new(&cluster, NAME, &topic)?;
            let (start, end) = reader.stable_range(partition, SILENCE)?;
            let from = reader.offset_at(partition, at - ABOUT_MS, SILENCE)?.max(start);
            let mut found = None;
            read(&reader, partition, from, end - 1, &mut |record| {
                if record.at > at + ABOUT_MS {
                    return ControlFlow::Break(());
                }
                match Letter::read(&record.headers) {
                    Ok(letter) if letter.delivery_id.id == row => found = Some(Found { letter, record }),
                    Ok(_) | Err(_) => {}
                }
                ControlFlow::Continue(())
            })?;
            Ok(found)
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| KafkaFault::Cancelled { op: "read dead" })?
    }

    /// The record at one place, if it is (still) there.
    pub(crate) async fn at(&self, partition: i32, offset: i64) -> Result<Option<Record>, KafkaFault> {
        let (cluster, topic) = (self.cluster.clone(), self.topic.clone());
        let read = move || {
            let reader = JournalReader::new(&cluster, NAME, &topic)?;
            let (start, end) = reader.stable_range(partition, SILENCE)?;
            if !(start..end).contains(&offset) {
                return Ok(None);
            }
            Ok(reader.read_all(partition, offset, offset, Instant::now() + SILENCE)?.pop())
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| KafkaFault::Cancelled { op: "read dead" })?
    }
}

/// `Break`: nobody listens any more.
fn read_partition(
    reader: &JournalReader,
    partition: i32,
    filter: &Filter,
    steps: &mpsc::Sender<Step>,
) -> Result<ControlFlow<()>, KafkaFault> {
    let (start, end) = reader.stable_range(partition, SILENCE)?;
    // What is older than wanted cannot be the newest of what is wanted. Timestamps are the times of the burials.
    let from = match filter.since {
        Some(since) => reader.offset_at(partition, since, SILENCE)?.max(start),
        None => start,
    };
    let mut newest = Newest::default();
    let mut listened = ControlFlow::Continue(());
    read(reader, partition, from, end - 1, &mut |record| {
        match Letter::read(&record.headers) {
            Ok(letter) => newest.note(record.offset, &letter, filter),
            Err(why) => {
                let stranger = Step::NoLetter(format!("[{partition}]@{}: {why}", record.offset));
                if steps.blocking_send(stranger).is_err() {
                    listened = ControlFlow::Break(());
                }
            }
        }
        if steps.is_closed() {
            listened = ControlFlow::Break(());
        }
        listened
    })?;
    if listened.is_break() {
        return Ok(listened);
    }
    let wanted = newest.into_offsets();
    let (Some(&first), Some(&last)) = (wanted.first(), wanted.last()) else {
        return Ok(ControlFlow::Continue(()));
    };
    let mut ended = ControlFlow::Continue(());
    let mut next = wanted.into_iter().peekable();
    read(reader, partition, first, last, &mut |record| {
        if next.next_if(|offset| *offset == record.offset).is_none() {
            return ControlFlow::Continue(());
        }
        // It was read a moment ago.
        let Ok(letter) = Letter::read(&record.headers) else { return ControlFlow::Continue(()) };
        if steps.blocking_send(Step::Letter(Box::new(Found { letter, record }))).is_err() {
            ended = ControlFlow::Break(());
        }
        ended
    })?;
    Ok(ended)
}

/// Of each row the place of its newest letter.
#[derive(Default)]
struct Newest {
    by_row: HashMap<RowId, (i64, bool)>,
}

impl Newest {
    /// Letters come in the order of the log. One that is not meant hides older ones that would be.
    fn note(&mut self, offset: i64, letter: &Letter, filter: &Filter) {
        self.by_row.insert(letter.delivery_id.id, (offset, filter.takes(letter)));
    }

    fn into_offsets(self) -> Vec<i64> {
        let meant = self.by_row.into_values().filter(|(_, meant)| *meant);
        let mut offsets: Vec<i64> = meant.map(|(offset, _)| offset).collect();
        offsets.sort_unstable();
        offsets
    }
}

/// Reads a stretch however long it takes, as long as something comes.
fn read(
    reader: &JournalReader,
    partition: i32,
    from: i64,
    through: i64,
    each: &mut dyn FnMut(Record) -> ControlFlow<()>,
) -> Result<(), KafkaFault> {
    let mut next = from;
    loop {
        let began_at = next;
        let read = reader.read(partition, next, through, Instant::now() + SILENCE, &mut |record| {
            next = record.offset + 1;
            each(record)
        });
        match read {
            Err(KafkaFault::Deadline { .. }) if next > began_at => {}
            other => return other,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use schemas::delivery::DeliveryId;
    use schemas::ids::{Generation, RowId, Shard};

    /// A letter to `callbacks`, buried as failed.
    pub(crate) fn letter(task_id: &str, dead_at: i64) -> Letter {
        Letter {
            task_id: task_id.to_owned(),
            shard_key: task_id.to_owned(),
            attempt: 1,
            due_at: dead_at,
            asked_at: None,
            delivery_id: DeliveryId {
                shard: Shard(0),
                due_at: dead_at,
                // One row for each task.
                id: RowId(task_id.bytes().map(u64::from).sum()),
                generation: Generation(1),
                attempt: 1,
            },
            topic: "callbacks".to_owned(),
            key: None,
            partition: None,
            expires_at: None,
            options: Vec::new(),
            progress: None,
            history: Vec::new(),
            reason: "failed".to_owned(),
            message: "It failed.".to_owned(),
            dead_at,
        }
    }

    #[test]
    fn the_newest_letter_of_a_task_counts_alone() {
        let filter = Filter::of_task("t", None);
        let mut newest = Newest::default();
        newest.note(1, &letter("t", 10), &filter);
        newest.note(2, &letter("u", 11), &filter);
        newest.note(7, &letter("t", 12), &filter);
        assert_eq!(newest.into_offsets(), [7]);
    }

    #[test]
    fn a_newer_letter_that_is_not_meant_hides_an_older_one_that_is() {
        let only_old = crate::cli::FilterArgs { until: Some("11".into()), ..Default::default() };
        let filter = Filter::of(only_old).unwrap();
        let mut newest = Newest::default();
        newest.note(1, &letter("t", 10), &filter);
        newest.note(2, &letter("u", 10), &filter);
        newest.note(3, &letter("t", 12), &filter);
        assert_eq!(newest.into_offsets(), [2]);
    }
}
