//! Which callback topics there are. One that is there counts for a while; one that is missing is asked for each time,
//! because it may have been created a moment ago.

use crate::config::UnknownTopic;
use crate::turn::{Stop, Turn};
use runtime::kafka::{Admin, Disposition, KafkaFault};
use schemas::command::{ReasonCode, Refusal};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// From so many topics on, all of the cluster's are asked for at once.
const ASK_FOR_ALL: usize = 4;
/// Brokers hear of a new topic a moment after its creator does: before it counts as missing, ask again after each of these.
const ASK_AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(150), Duration::from_millis(350), Duration::from_millis(1_000)];
/// A topic that was missing this recently is asked for once only.
const MISSING_FOR: Duration = Duration::from_secs(10);
/// After asking again and again for so long, nothing is asked for again for this many times as long: invented names may
/// cost their neighbours a tenth of the time, not more.
const REST_FACTOR: u32 = 9;
/// Topics that are remembered.
const MOST: usize = 100_000;

/// Topics that are asked for, each with the highest partition that is.
pub type Wanted<'t> = BTreeMap<&'t str, Option<i32>>;

/// What is known of callback topics.
pub struct CallbackTopics {
    admin: Admin,
    keep: Duration,
    seen: Mutex<HashMap<String, Seen>>,
    /// Until then no topic is asked for again.
    rest_until: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    partitions: Option<i32>,
    at: Instant,
}

/// The topics of a batch.
#[derive(Debug)]
pub struct Topics {
    unknown: UnknownTopic,
    partitions: HashMap<String, Option<i32>>,
}

impl CallbackTopics {
    /// Nothing is known yet.
    pub fn new(admin: Admin, keep: Duration) -> CallbackTopics {
        CallbackTopics { admin, keep, seen: Mutex::default(), rest_until: Mutex::default() }
    }

    /// What is known of these topics, asked for where it is not known, or no longer.
    pub async fn look_up(
        &self,
        wanted: &Wanted<'_>,
        unknown: UnknownTopic,
        turn: &Turn,
    ) -> Result<Topics, Stop> {
        // What the batch goes by stays with it, whatever becomes of what is remembered for all.
        let mut partitions: HashMap<String, Option<i32>> = HashMap::new();
        let mut unsure: BTreeSet<&str> = BTreeSet::new();
        let mut fresh: BTreeSet<&str> = BTreeSet::new();
        for (topic, partition) in wanted {
            let seen = self.lock().get(*topic).copied();
            match seen.filter(|seen| seen.is_enough(*partition, self.keep)) {
                Some(seen) => {
                    partitions.insert((*topic).to_owned(), seen.partitions);
                }
                None => {
                    unsure.insert(topic);
                    if !seen.is_some_and(|seen| seen.was_missing()) {
                        fresh.insert(topic);
                    }
                }
            }
        }
        if !unsure.is_empty() {
            partitions.extend(self.ask(&unsure, turn).await?);
        }
        if unknown == UnknownTopic::Refuse {
            self.ask_again(fresh, &mut partitions, turn).await?;
        }
        Ok(Topics { unknown, partitions })
    }

    /// Asks again for topics that were never missing before: they may have been created a moment ago.
    async fn ask_again(
        &self,
        mut fresh: BTreeSet<&str>,
        partitions: &mut HashMap<String, Option<i32>>,
        turn: &Turn,
    ) -> Result<(), Stop> {
        fresh.retain(|topic| partitions.get(*topic).is_none_or(Option::is_none));
        let began = Instant::now();
        if fresh.is_empty() || self.rest().is_some_and(|until| began < until) {
            return Ok(());
        }
        for pause in ASK_AGAIN_AFTER {
            turn.pause(pause).await?;
            partitions.extend(self.ask(&fresh, turn).await?);
            fresh.retain(|topic| partitions.get(*topic).is_none_or(Option::is_none));
            if fresh.is_empty() {
                return Ok(());
            }
        }
        *self.rest() = Some(Instant::now() + began.elapsed() * REST_FACTOR);
        Ok(())
    }

    fn rest(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.rest_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until Kafka answers: without an answer nothing is refused.
    async fn ask(&self, topics: &BTreeSet<&str>, turn: &Turn) -> Result<Vec<(String, Option<i32>)>, Stop> {
        let mut tries = 0;
        loop {
            let answer = tokio::select! {
                () = turn.gone.cancelled() => return Err(Stop::Gone),
                () = turn.stop.cancelled() => return Err(Stop::Gone),
                answer = self.partitions(topics) => answer,
            };
            let fault = match answer {
                Ok(found) => {
                    turn.kafka.well();
                    let at = Instant::now();
                    let mut seen = self.lock();
                    if seen.len() > MOST {
                        seen.clear();
                    }
                    let each = found.iter().cloned();
                    seen.extend(each.map(|(topic, partitions)| (topic, Seen { partitions, at })));
                    return Ok(found);
                }
                Err(fault) => fault,
            };
            tries += 1;
            turn.kafka.trouble(fault.to_string());
            tracing::warn!(tries, "cannot ask for callback topics: {fault}");
            turn.pause(turn.backoff(tries, Duration::from_millis(100))).await?;
        }
    }

    async fn partitions(&self, topics: &BTreeSet<&str>) -> Result<Vec<(String, Option<i32>)>, KafkaFault> {
        if topics.len() >= ASK_FOR_ALL {
            let all = self.admin.topics().await?;
            let count = |topic: &str| all.get(topic).map(runtime::kafka::TopicInfo::partition_count);
            return Ok(topics.iter().map(|topic| ((*topic).to_owned(), count(topic))).collect());
        }
        let mut found = Vec::with_capacity(topics.len());
        for topic in topics {
            let info = match self.admin.topic(topic).await {
                Ok(info) => info,
                // As in the list of all topics: what may not be described is not seen. It must not stop its neighbours.
                Err(fault) if matches!(fault.disposition(), Disposition::Poison(_)) => None,
                Err(fault) => return Err(fault),
            };
            found.push(((*topic).to_owned(), info.map(|info| info.partition_count())));
        }
        Ok(found)
    }
}

impl Seen {
    /// Whether nothing need be asked. A partition beyond those that were seen may have been added since.
    fn is_enough(&self, partition: Option<i32>, keep: Duration) -> bool {
        self.partitions.is_some_and(|count| partition.is_none_or(|asked| asked < count))
            && self.at.elapsed() < keep
    }

    fn was_missing(&self) -> bool {
        self.partitions.is_none() && self.at.elapsed() < MISSING_FOR
    }
}

impl Topics {
    /// Whether a task may be meant for this topic and partition. `name`: how the producer names a field.
    pub fn check(
        &self,
        topic: &str,
        partition: Option<i32>,
        name: impl Fn(&str) -> String,
    ) -> Result<(), Refusal> {
        match (self.partitions.get(topic).copied().flatten(), partition) {
            (None, _) if self.unknown == UnknownTopic::Accept => Ok(()),
            (None, _) => {
                let problem = "does not exist, or ingest may not see it";
                Err(Refusal::of_value(ReasonCode::UnknownTopic, &name("topic"), topic.as_bytes(), problem))
            }
            (Some(count), Some(asked)) if asked >= count => {
                let problem = format!("is no partition of {topic}, which has {count}");
                let value = asked.to_string();
                let name = name("partition");
                Err(Refusal::of_value(ReasonCode::UnknownPartition, &name, value.as_bytes(), &problem))
            }
            (Some(_), _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(unknown: UnknownTopic) -> Topics {
        let partitions = HashMap::from([("three".to_owned(), Some(3)), ("gone".to_owned(), None)]);
        Topics { unknown, partitions }
    }

    fn code(checked: Result<(), Refusal>) -> Option<ReasonCode> {
        checked.err().map(|refusal| refusal.code)
    }

    #[test]
    fn a_topic_that_does_not_exist_is_refused_unless_it_may_come_later() {
        assert_eq!(
            code(topics(UnknownTopic::Refuse).check("gone", None, str::to_owned)),
            Some(ReasonCode::UnknownTopic)
        );
        assert_eq!(code(topics(UnknownTopic::Accept).check("gone", Some(9), str::to_owned)), None);
    }

    #[test]
    fn a_partition_that_the_topic_does_not_have_is_refused() {
        let topics = topics(UnknownTopic::Accept);
        assert_eq!(code(topics.check("three", Some(3), str::to_owned)), Some(ReasonCode::UnknownPartition));
        assert_eq!(code(topics.check("three", Some(2), str::to_owned)), None);
        assert_eq!(code(topics.check("three", None, str::to_owned)), None);
    }
}
