//! What is known of callback topics, shared by all slots of this process. A known topic is answered from memory and asked
//! for again in the background. Nothing is buried for it: before that the brokers are asked anew, and a moment later than
//! before, because one broker may hear of a change after another.

use protocol::slot::{Facts, Lookup};
use protocol::slot_store::Topic;
use runtime::kafka::{Admin, Disposition, KafkaFault, MAX_LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES, Refusal};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An answer other than *known* is asked again after so long.
const DOUBT_AGE: Duration = Duration::from_secs(1);
/// Answers this far apart are two answers.
const SETTLE: Duration = Duration::from_millis(100);
/// From so many topics on, the list of all is asked for first.
const ASK_FOR_ALL: usize = 4;
/// Topics remembered; beyond, all are forgotten and asked again.
const MOST_TOPICS: usize = 20_000;

struct Known {
    lookup: Lookup,
    at: Instant,
    asking: bool,
    /// The second answer.
    confirmed: bool,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Catalogue {
    admin: Admin,
    refresh: Duration,
    topics: Arc<Mutex<HashMap<Topic, Known>>>,
}

impl Catalogue {
    pub(crate) fn new(admin: Admin, refresh: Duration) -> Catalogue {
        Catalogue { admin, refresh, topics: Arc::default() }
    }

    /// What is known of each. `fresh`: something is to be buried for the answer.
    pub(crate) async fn look_up(&self, topics: Vec<Topic>, fresh: bool) -> Vec<(Topic, Lookup)> {
        if fresh {
            self.let_settle(&topics).await;
        }
        let mut facts = Vec::with_capacity(topics.len());
        let mut unsure = Vec::new();
        for topic in topics {
            let remembered = if fresh { self.confirmed(&topic) } else { self.remembered(&topic) };
            match remembered {
                Some(lookup) => facts.push((topic, lookup)),
                None => unsure.push(topic),
            }
        }
        // One after the other, thousands that are missing would hold up everything that is due in all slots (I-8).
        let all = if unsure.len() >= ASK_FOR_ALL { self.admin.topics().await.ok() } else { None };
        for topic in unsure {
            let lookup = match &all {
                Some(all) if !all.contains_key(&*topic) => self.keep(&topic, Lookup::Unknown, fresh),
                Some(_) | None => self.ask(&topic, fresh).await,
            };
            facts.push((topic, lookup));
        }
        facts
    }

    /// What was just heard is heard again a moment later.
    async fn let_settle(&self, topics: &[Topic]) {
        let rest = {
            let known = self.locked();
            let ages = topics.iter().filter_map(|topic| known.get(topic)).filter(|known| !known.confirmed);
            ages.map(|known| SETTLE.saturating_sub(known.at.elapsed())).max().unwrap_or_default()
        };
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
    }

    fn confirmed(&self, topic: &Topic) -> Option<Lookup> {
        let topics = self.locked();
        let known = topics.get(topic)?;
        (known.confirmed && known.at.elapsed() < DOUBT_AGE).then(|| known.lookup.clone())
    }

    /// A producer did not know the topic: ask before it is used again.
    pub(crate) fn doubt(&self, topic: &str) {
        self.locked().remove(topic);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<Topic, Known>> {
        self.topics.lock().expect("no holder panics")
    }

    fn remembered(&self, topic: &Topic) -> Option<Lookup> {
        let mut topics = self.locked();
        let known = topics.get_mut(topic)?;
        let age = known.at.elapsed();
        if !matches!(known.lookup, Lookup::Known(_)) {
            return (age < DOUBT_AGE).then(|| known.lookup.clone());
        }
        if age >= 2 * self.refresh {
            // Nobody has asked for it in a long time: keys must follow a number of partitions that holds.
            return None;
        }
        if age >= self.refresh && !known.asking {
            known.asking = true;
            let (catalogue, topic) = (self.clone(), Topic::clone(topic));
            tokio::spawn(async move { catalogue.ask(&topic, false).await });
        }
        Some(known.lookup.clone())
    }

    async fn ask(&self, topic: &Topic, confirmed: bool) -> Lookup {
        let lookup = match self.facts(topic).await {
            Ok(lookup) => lookup,
            Err(fault) => match fault.disposition() {
                Disposition::Poison(Refusal::UnknownTopic) => Lookup::Unknown,
                Disposition::Poison(Refusal::NotAuthorized) => Lookup::Denied,
                Disposition::Poison(_) | Disposition::Retry | Disposition::Fenced | Disposition::Fatal => {
                    tracing::warn!(kafka.topic = &**topic, "nothing is known of a callback topic: {fault}");
                    Lookup::Unavailable
                }
            },
        };
        self.keep(topic, lookup, confirmed)
    }

    fn keep(&self, topic: &Topic, lookup: Lookup, confirmed: bool) -> Lookup {
        let mut topics = self.locked();
        if topics.len() >= MOST_TOPICS {
            topics.clear();
        }
        let known = Known { lookup: lookup.clone(), at: Instant::now(), asking: false, confirmed };
        topics.insert(Topic::clone(topic), known);
        lookup
    }

    async fn facts(&self, topic: &str) -> Result<Lookup, KafkaFault> {
        let Some(info) = self.admin.topic(topic).await? else { return Ok(Lookup::Unknown) };
        // Who may write need not be allowed to read settings: the brokers' defaults are assumed then, and the broker says.
        let config = match self.admin.topic_config(topic).await {
            Ok(config) => config.unwrap_or_default(),
            Err(fault) if matches!(fault.disposition(), Disposition::Poison(_)) => BTreeMap::new(),
            Err(fault) => return Err(fault),
        };
        let limit =
            config.get("max.message.bytes").and_then(|text| text.parse().ok()).unwrap_or(MAX_MESSAGE_BYTES);
        let policy = config.get("cleanup.policy").map_or("", String::as_str);
        Ok(Lookup::Known(Facts {
            partitions: info.partition_count(),
            leaderless: info.partitions.iter().filter(|p| p.leader.is_none()).map(|p| p.partition).collect(),
            max_message_bytes: usize::try_from(limit.min(MAX_LARGE_MESSAGE_BYTES)).unwrap_or(0),
            compacted: policy.split(',').any(|policy| policy.trim() == "compact"),
        }))
    }
}
