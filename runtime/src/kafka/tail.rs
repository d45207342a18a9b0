//! Follows topics live, outside any group: for people who watch, and for checks that count what became visible.
//!
//! Reads committed only. New partitions are not noticed.

use super::client::{Cluster, Quiet};
use super::error::KafkaFault;
use super::record::Record;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::{Message, Offset, TopicPartitionList};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const OP: &str = "follow topics";
const BROKER_CALL: Duration = Duration::from_secs(10);

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailFrom {
    /// The oldest record that is kept.
    Beginning,
    /// What comes after [`Tail::open`] has returned.
    End,
}

/// A reader of all partitions of some topics.
pub struct Tail {
    consumer: Arc<StreamConsumer<Quiet>>,
    topics: HashMap<String, Arc<str>>,
}

impl Tail {
    /// Opens topics, given with their partition counts. `name` shows in the brokers' logs; nothing is joined or committed.
    pub async fn open(
        cluster: &Cluster,
        name: &str,
        topics: &[(String, i32)],
        from: TailFrom,
    ) -> Result<Tail, KafkaFault> {
        let mut config =
            cluster.consumer_config(name, &[("fetch.wait.max.ms", "100"), ("fetch.error.backoff.ms", "100")]);
        config.set("isolation.level", "read_committed");
        let consumer: Arc<StreamConsumer<Quiet>> =
            Arc::new(config.create_with_context(Quiet { role: "tail" }).map_err(KafkaFault::at(OP))?);
        let (asked, wanted) = (consumer.clone(), topics.to_vec());
        let list = tokio::task::spawn_blocking(move || positions(&asked, &wanted, from))
            .await
            .map_err(|_| KafkaFault::Cancelled { op: OP })??;
        consumer.assign(&list).map_err(KafkaFault::at(OP))?;
        let topics = topics.iter().map(|(topic, _)| (topic.clone(), Arc::from(topic.as_str()))).collect();
        Ok(Tail { consumer, topics })
    }

    /// The next visible record of any partition. Cancel-safe.
    pub async fn recv(&self) -> Result<Record, KafkaFault> {
        let message = self.consumer.recv().await.map_err(KafkaFault::at(OP))?;
        let topic = self.topics.get(message.topic()).cloned().unwrap_or_else(|| message.topic().into());
        Ok(Record::copy_of(&message, &topic, 0))
    }
}

/// Blocks. Ends are fixed here and not by the consumer later, so that nothing falls into the gap.
fn positions(
    consumer: &StreamConsumer<Quiet>,
    topics: &[(String, i32)],
    from: TailFrom,
) -> Result<TopicPartitionList, KafkaFault> {
    let mut list = TopicPartitionList::new();
    for (topic, partitions) in topics {
        for partition in 0..*partitions {
            let (start, end) =
                consumer.fetch_watermarks(topic, partition, BROKER_CALL).map_err(KafkaFault::at(OP))?;
            let offset = match from {
                TailFrom::Beginning => start,
                TailFrom::End => end,
            };
            list.add_partition_offset(topic, partition, Offset::Offset(offset))
                .map_err(KafkaFault::at(OP))?;
        }
    }
    Ok(list)
}
