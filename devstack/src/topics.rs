//! Callback topics for demo and tests, and reading them back the way a careful consumer does.

use anyhow::{Context, Result, bail};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Creates topics that are not there yet.
pub async fn create(bootstrap: &str, names: &[&str], partitions: i32) -> Result<()> {
    create_with(bootstrap, names, partitions, &[]).await
}

/// The same with topic settings.
pub async fn create_with(
    bootstrap: &str,
    names: &[&str],
    partitions: i32,
    settings: &[(&str, &str)],
) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", bootstrap).create()?;
    let topics: Vec<NewTopic<'_>> = names
        .iter()
        .map(|name| {
            let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
            settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
        })
        .collect();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
    for outcome in admin.create_topics(&topics, &options).await? {
        match outcome {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, error)) => bail!("could not create topic {name}: {error}"),
        }
    }
    for name in names {
        led(&admin, name)?;
    }
    Ok(())
}

/// Waits until a topic that was created is known with all its leaders: on a busy machine brokers hear of it well after the
/// controller has said that it is there, and whoever used it at once would be told that it does not exist.
fn led(admin: &AdminClient<DefaultClientContext>, name: &str) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let metadata = admin.inner().fetch_metadata(Some(name), Duration::from_secs(10))?;
        let partitions = metadata.topics().first().map_or(&[][..], |topic| topic.partitions());
        if !partitions.is_empty() && partitions.iter().all(|partition| partition.leader() >= 0) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("topic {name} was created and is not known yet");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Timestamp, epoch ms.
    pub timestamp_at: i64,
    /// Key; `None` = null.
    pub key: Option<Vec<u8>>,
    /// Value; `None` = null.
    pub value: Option<Vec<u8>>,
    /// Headers in order, repeats kept.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    fn from_message(message: &BorrowedMessage<'_>) -> Record {
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
        });
        Record {
            topic: message.topic().to_owned(),
            partition: message.partition(),
            offset: message.offset(),
            timestamp_at: message.timestamp().to_millis().unwrap_or(-1),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers,
        }
    }

    /// Text of a header that stands once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.iter().find(|(key, _)| key == name)?.1.as_deref()?;
        std::str::from_utf8(value).ok()
    }

    /// A header that holds a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.header(name)?.parse().ok()
    }
}

/// Reads topics from their beginning, read-committed, without a group: what is really there for everyone to see.
pub struct Reader {
    consumer: BaseConsumer,
}

impl Reader {
    /// Assigns every partition of `topics` at its beginning.
    pub fn from_beginning(bootstrap: &str, topics: &[&str]) -> Result<Reader> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "devstack-reader")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed")
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "false")
            .set("allow.auto.create.topics", "false")
            .create()?;
        let mut assignment = TopicPartitionList::new();
        for topic in topics {
            let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(10))?;
            let partitions = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
            if partitions == 0 {
                bail!("topic {topic} does not exist");
            }
            for partition in 0..i32::try_from(partitions)? {
                assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
            }
        }
        consumer.assign(&assignment)?;
        Ok(Reader { consumer })
    }

    /// The next record, waiting at most `within`.
    pub fn next(&self, within: Duration) -> Result<Option<Record>> {
        let start = Instant::now();
        loop {
            match self.consumer.poll(within.saturating_sub(start.elapsed())) {
                None => return Ok(None),
                Some(Ok(message)) => return Ok(Some(Record::from_message(&message))),
                // Brokers that are killed by a test come back: librdkafka reconnects by itself.
                Some(Err(error)) if start.elapsed() < within && is_passing(&error) => {}
                Some(Err(error)) => return Err(error).context("read topics"),
            }
        }
    }

    /// Everything up to the last stable offset that each partition has now.
    pub fn read_to_end(&self, within: Duration) -> Result<Vec<Record>> {
        let mut ends = BTreeMap::new();
        for element in self.consumer.assignment()?.elements() {
            let (topic, partition) = (element.topic().to_owned(), element.partition());
            let (low, high) = self.consumer.fetch_watermarks(&topic, partition, Duration::from_secs(10))?;
            if high > low {
                ends.insert((topic, partition), high);
            }
        }
        let deadline = Instant::now() + within;
        let mut records = Vec::new();
        while !ends.is_empty() {
            let next = self.next(Duration::from_millis(100))?;
            let look = next.is_none() || records.len() % 500 == 0;
            records.extend(next);
            if !look {
                continue;
            }
            // A partition may end in markers or aborted records, which no consumer sees: ask where it stands.
            let positions = self.consumer.position()?;
            ends.retain(|(topic, partition), end| {
                match positions.find_partition(topic, *partition).map(|p| p.offset()) {
                    Some(Offset::Offset(at)) => at < *end,
                    _ => true,
                }
            });
            if Instant::now() > deadline {
                bail!("reading to the end of the topics took longer than {within:?}; left: {ends:?}");
            }
        }
        Ok(records)
    }
}

fn is_passing(error: &rdkafka::error::KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::OperationTimedOut
                | Code::Resolve
                | Code::NotLeaderForPartition
        )
    )
}
