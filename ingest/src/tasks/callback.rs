//! Which callback topics there are. One that is there counts for a while; one that is missing is asked for each time,
//! because it may have been created a moment ago.

use crate::config::UnknownTopic;
use crate::turn::{Stop, Turn};
use runtime::kafka::{Admin, KafkaFault};
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
/// Topics that are remembered.
const MOST: usize = 100_000;

/// Topics that are asked for, each with the highest partition that is.
pub type Wanted<'t> = BTreeMap<&'t str, Option<i32>>;

/// What is known of callback topics.
pub struct CallbackTopics {
    admin: Admin,
    keep: Duration,
    seen: Mutex<HashMap<String, Seen>>,
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
        CallbackTopics { admin, keep, seen: Mutex::default() }
    }

    /// What is known of these topics, asked for where it is not known, or no longer.
    pub async fn look_up(
        &self,
        wanted: &Wanted<'_>,
        unknown: UnknownTopic,
        turn: &Turn,
    ) -> Result<Topics, Stop> {
        let mut unsure: BTreeSet<&str> =
            wanted.keys().copied().filter(|topic| !self.is_enough(topic, wanted[topic])).collect();
        let long_missing: BTreeSet<&str> =
            unsure.iter().copied().filter(|topic| self.was_missing(topic)).collect();
        if !unsure.is_empty() {
            self.ask(&unsure, turn).await?;
            unsure.retain(|topic| !long_missing.contains(topic));
            let again = if unknown == UnknownTopic::Refuse { &ASK_AGAIN_AFTER[..] } else { &[] };
            for pause in again {
                unsure.retain(|topic| !self.is_enough(topic, None));
                if unsure.is_empty() {
                    break;
                }
                turn.pause(*pause).await?;
                self.ask(&unsure, turn).await?;
            }
        }
        let seen = self.lock();
        let found = |topic: &str| seen.get(topic).and_then(|seen| seen.partitions);
        let partitions = wanted.keys().map(|topic| ((*topic).to_owned(), found(topic))).collect();
        Ok(Topics { unknown, partitions })
    }

    /// Whether nothing need be asked. A partition beyond those that were seen may have been added since.
    fn is_enough(&self, topic: &str, partition: Option<i32>) -> bool {
        self.lock().get(topic).is_some_and(|seen| {
            seen.partitions.is_some_and(|count| partition.is_none_or(|asked| asked < count))
                && seen.at.elapsed() < self.keep
        })
    }

    fn was_missing(&self, topic: &str) -> bool {
        self.lock()
            .get(topic)
            .is_some_and(|seen| seen.partitions.is_none() && seen.at.elapsed() < MISSING_FOR)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks until Kafka answers: without an answer nothing is refused.
    async fn ask(&self, topics: &BTreeSet<&str>, turn: &Turn) -> Result<(), Stop> {
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
                    seen.extend(
                        found.into_iter().map(|(topic, partitions)| (topic, Seen { partitions, at })),
                    );
                    return Ok(());
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
            let info = self.admin.topic(topic).await?;
            found.push(((*topic).to_owned(), info.map(|info| info.partition_count())));
        }
        Ok(found)
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
                let problem = "does not exist";
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
