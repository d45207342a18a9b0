//! Topics, their settings and their ends: for `duectl init` and the check of the world at every start.

use super::client::{Cluster, Quiet};
use super::error::{Disposition, KafkaFault};
use super::native;
use super::topic_id::TopicId;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::{Metadata, MetadataTopic};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause before a question that brokers could not answer yet is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A topic as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// Name.
    pub name: String,
    /// Partitions.
    pub partitions: i32,
    /// Copies; −1 = what the brokers have as default.
    pub replication: i32,
    /// Settings of the topic, such as `cleanup.policy`.
    pub config: BTreeMap<String, String>,
}

/// Whether a topic had to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was made.
    New,
    /// It was there already; its settings were left alone.
    Existed,
}

/// A topic as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Name.
    pub name: String,
    /// Partitions, by number.
    pub partitions: Vec<PartitionInfo>,
}

impl TopicInfo {
    /// Number of partitions.
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.partitions.len()).expect("Kafka numbers partitions with 31 bits")
    }

    /// Whether every partition has a leader just now.
    pub fn has_leaders(&self) -> bool {
        self.partitions.iter().all(|p| p.leader.is_some())
    }
}

/// A partition as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Number.
    pub partition: i32,
    /// Broker that leads it.
    pub leader: Option<i32>,
    /// Brokers that should have a copy.
    pub replicas: Vec<i32>,
    /// Brokers whose copy is up to date.
    pub in_sync: Vec<i32>,
}

/// A client for questions and for creating topics. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    admin: Arc<AdminClient<Quiet>>,
    /// Answers what only consumers may ask; it joins nothing and reads nothing.
    consumer: Arc<BaseConsumer<Quiet>>,
    within: Duration,
}

impl Admin {
    /// A client whose calls take at most ten seconds each.
    pub fn new(cluster: &Cluster) -> Result<Admin, KafkaFault> {
        const OP: &str = "make admin client";
        let mut config = cluster.config(&[]);
        // These clients are not polled between calls, so what they would say piles up: keep them quiet.
        config.set_log_level(RDKafkaLogLevel::Critical);
        let admin = config.create_with_context(Quiet { role: "admin" }).map_err(KafkaFault::at(OP))?;
        config.set("isolation.level", "read_uncommitted").set("enable.auto.commit", "false");
        let consumer = config.create_with_context(Quiet { role: "admin" }).map_err(KafkaFault::at(OP))?;
        Ok(Admin { admin: Arc::new(admin), consumer: Arc::new(consumer), within: Duration::from_secs(10) })
    }

    /// The same client with another limit for each call.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Admin {
        self.within = within;
        self
    }

    /// Creates what is missing and waits for its leaders. A topic that is there is left as it is. Other failures come per
    /// topic.
    pub async fn create_topics(
        &self,
        specs: &[TopicSpec],
    ) -> Result<Vec<(String, Result<Created, KafkaFault>)>, KafkaFault> {
        const OP: &str = "create topics";
        let topics: Vec<NewTopic<'_>> = specs
            .iter()
            .map(|spec| {
                let topic =
                    NewTopic::new(&spec.name, spec.partitions, TopicReplication::Fixed(spec.replication));
                spec.config.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
            })
            .collect();
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.admin.create_topics(&topics, &self.options()).await.map_err(KafkaFault::at(OP))?;
        let created: Vec<_> = answers
            .into_iter()
            .map(|answer| match answer {
                Ok(name) => (name, Ok(Created::New)),
                Err((name, Code::TopicAlreadyExists)) => (name, Ok(Created::Existed)),
                Err((name, code)) => (name, Err(KafkaFault::of(OP, KafkaError::AdminOp(code)))),
            })
            .collect();
        for (name, outcome) in &created {
            if matches!(outcome, Ok(Created::New)) {
                self.wait_for_leaders(name).await?;
            }
        }
        Ok(created)
    }

    /// A topic is made before brokers and clients know who leads it: whoever used it at once would fail.
    async fn wait_for_leaders(&self, name: &str) -> Result<(), KafkaFault> {
        let deadline = Instant::now() + self.within;
        while !self.topic(name).await?.is_some_and(|topic| topic.has_leaders()) {
            if Instant::now() >= deadline {
                let last = format!("{name} has partitions without a leader");
                return Err(KafkaFault::Deadline { op: "create topics", last });
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        Ok(())
    }

    /// Deletes topics; one that is not there is fine.
    pub async fn delete_topics(&self, names: &[&str]) -> Result<(), KafkaFault> {
        const OP: &str = "delete topics";
        let answers = self.admin.delete_topics(names, &self.options()).await.map_err(KafkaFault::at(OP))?;
        for answer in answers {
            match answer {
                Ok(_) | Err((_, Code::UnknownTopicOrPartition)) => {}
                Err((_, code)) => return Err(KafkaFault::of(OP, KafkaError::AdminOp(code))),
            }
        }
        Ok(())
    }

    /// One topic; `None` if it does not exist.
    pub async fn topic(&self, name: &str) -> Result<Option<TopicInfo>, KafkaFault> {
        let metadata = self.metadata(Some(name.to_owned())).await?;
        let Some(topic) = metadata.topics().iter().find(|t| t.name() == name) else { return Ok(None) };
        match topic.error().map(Code::from) {
            None | Some(Code::LeaderNotAvailable) => Ok(Some(info_of(topic))),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(None),
            Some(code) => Err(KafkaFault::of("topic metadata", KafkaError::MetadataFetch(code))),
        }
    }

    /// All topics that the principal may see, by name.
    pub async fn topics(&self) -> Result<BTreeMap<String, TopicInfo>, KafkaFault> {
        let metadata = self.metadata(None).await?;
        Ok(metadata.topics().iter().map(|topic| (topic.name().to_owned(), info_of(topic))).collect())
    }

    /// Numbers of the brokers that are up.
    pub async fn brokers(&self) -> Result<Vec<i32>, KafkaFault> {
        let metadata = self.metadata(None).await?;
        Ok(metadata.brokers().iter().map(|broker| broker.id()).collect())
    }

    /// Settings in force for a topic, defaults included. `None` if it does not exist.
    pub async fn topic_config(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, KafkaFault> {
        match self.config_of(ResourceSpecifier::Topic(name)).await {
            // A topic that exists has settings; of one that does not, brokers describe none.
            Ok(config) => Ok((!config.is_empty()).then_some(config)),
            Err(KafkaFault::Refused { refusal: super::Refusal::UnknownTopic, .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Settings in force for a broker.
    pub async fn broker_config(&self, broker: i32) -> Result<BTreeMap<String, String>, KafkaFault> {
        self.config_of(ResourceSpecifier::Broker(broker)).await
    }

    /// Ids of topics; those that do not exist are not in the answer.
    pub async fn topic_ids(&self, names: &[&str]) -> Result<BTreeMap<String, TopicId>, KafkaFault> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let (admin, within) = (self.admin.clone(), self.within);
        let answers = blocking("describe topics", move || {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            native::describe_topic_ids(admin.inner(), &names, within)
        })
        .await??;
        let mut ids = BTreeMap::new();
        for (name, answer) in answers {
            match answer {
                Ok(id) => {
                    ids.insert(name, id);
                }
                Err(Code::UnknownTopicOrPartition) => {}
                Err(code) => return Err(KafkaFault::of("describe topics", KafkaError::AdminOp(code))),
            }
        }
        Ok(ids)
    }

    /// Id of one topic; `None` if it does not exist.
    pub async fn topic_id(&self, name: &str) -> Result<Option<TopicId>, KafkaFault> {
        Ok(self.topic_ids(&[name]).await?.remove(name))
    }

    /// First offset of a partition and the offset after its last record, decided or not.
    pub async fn watermarks(&self, topic: &str, partition: i32) -> Result<(i64, i64), KafkaFault> {
        let (consumer, topic, within) = (self.consumer.clone(), topic.to_owned(), self.within);
        blocking("watermarks", move || watermarks(&consumer, &topic, partition, within)).await?
    }

    /// The first offset whose record is at least as new as `at` (epoch ms); the log's end if none is.
    pub async fn offset_at(&self, topic: &str, partition: i32, at: i64) -> Result<i64, KafkaFault> {
        let (consumer, topic, within) = (self.consumer.clone(), topic.to_owned(), self.within);
        blocking("offset at time", move || offset_at(&consumer, &topic, partition, at, within)).await?
    }

    async fn metadata(&self, topic: Option<String>) -> Result<Metadata, KafkaFault> {
        let (admin, within) = (self.admin.clone(), self.within);
        blocking("topic metadata", move || admin.inner().fetch_metadata(topic.as_deref(), within))
            .await?
            .map_err(KafkaFault::at("topic metadata"))
    }

    async fn config_of(
        &self,
        resource: ResourceSpecifier<'_>,
    ) -> Result<BTreeMap<String, String>, KafkaFault> {
        const OP: &str = "describe settings";
        let answers =
            self.admin.describe_configs([&resource], &self.options()).await.map_err(KafkaFault::at(OP))?;
        let mut out = BTreeMap::new();
        for answer in answers {
            let resource = answer.map_err(|code| KafkaFault::of(OP, KafkaError::AdminOp(code)))?;
            out.extend(resource.entries.into_iter().filter_map(|e| Some((e.name, e.value?))));
        }
        Ok(out)
    }

    fn options(&self) -> AdminOptions {
        AdminOptions::new().request_timeout(Some(self.within)).operation_timeout(Some(self.within))
    }
}

/// First offset and end of a partition, as the consumer's isolation has it. Blocks.
pub(super) fn watermarks<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
    within: Duration,
) -> Result<(i64, i64), KafkaFault> {
    const OP: &str = "watermarks";
    again(within, |left| consumer.fetch_watermarks(topic, partition, left).map_err(KafkaFault::at(OP)))
}

/// The first offset at least as new as `at`, else the end. Blocks.
pub(super) fn offset_at<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
    at: i64,
    within: Duration,
) -> Result<i64, KafkaFault> {
    const OP: &str = "offset at time";
    let found = again(within, |left| {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(topic, partition, Offset::Offset(at)).map_err(KafkaFault::at(OP))?;
        let answer = consumer.offsets_for_times(list, left).map_err(KafkaFault::at(OP))?;
        let found = answer.find_partition(topic, partition).map(|e| e.error().map(|()| e.offset()));
        found.transpose().map_err(KafkaFault::at(OP))
    })?;
    match found {
        Some(Offset::Offset(offset)) => Ok(offset),
        _ => watermarks(consumer, topic, partition, within).map(|(_, end)| end),
    }
}

/// Asks again while brokers are not ready (a leader that just moved answers so), until the time is up.
fn again<T>(
    within: Duration,
    mut ask: impl FnMut(Duration) -> Result<T, KafkaFault>,
) -> Result<T, KafkaFault> {
    let deadline = Instant::now() + within;
    loop {
        // librdkafka takes zero for "do not wait at all".
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match ask(left) {
            Err(fault)
                if fault.disposition() == Disposition::Retry && Instant::now() + AGAIN_AFTER < deadline =>
            {
                std::thread::sleep(AGAIN_AFTER);
            }
            answer => return answer,
        }
    }
}

fn info_of(topic: &MetadataTopic) -> TopicInfo {
    let mut partitions: Vec<_> = topic
        .partitions()
        .iter()
        .map(|p| PartitionInfo {
            partition: p.id(),
            leader: (p.leader() >= 0).then(|| p.leader()),
            replicas: p.replicas().to_vec(),
            in_sync: p.isr().to_vec(),
        })
        .collect();
    partitions.sort_by_key(|p| p.partition);
    TopicInfo { name: topic.name().to_owned(), partitions }
}

/// Runs a blocking call of librdkafka off the worker threads.
async fn blocking<T: Send + 'static>(
    op: &'static str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, KafkaFault> {
    tokio::task::spawn_blocking(call).await.map_err(|_| KafkaFault::Cancelled { op })
}
