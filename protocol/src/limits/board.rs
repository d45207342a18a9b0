//! What `control` says, folded in the order of its log.

use crate::slot_store::Topic;
use schemas::avro::DecodeError;
use schemas::control::{ControlKey, TopicLimit, TopicRunning, TopicShare};
use schemas::ids::Slot;
use schemas::journal::OwnerToken;
use std::collections::BTreeMap;

/// A limit in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Millionths of a delivery per second, all slots together.
    pub rate: Option<i64>,
    /// Deliveries that wait for their consumer, all slots together.
    pub in_flight: Option<i64>,
    /// Nothing is delivered.
    pub paused: bool,
    /// Where its record stands.
    pub offset: i64,
}

/// A slot's last record, and what it was granted where that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// What it said.
    pub said: TopicShare,
    /// Rate granted.
    pub rate: i64,
    /// Deliveries in flight granted.
    pub in_flight: i64,
}

/// A count of what is in flight.
pub type Running = TopicRunning;

/// A record of `control` that is none.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Its key is no topic, and nothing that we hang on one.
    #[error("the key is neither TOPIC nor TOPIC/SLOT/share nor TOPIC/SLOT/running")]
    Key,
    /// Its value is no such record.
    #[error(transparent)]
    Value(#[from] DecodeError),
}

#[derive(Clone, Debug, Default)]
struct Entry {
    limit: Option<(TopicLimit, Limit)>,
    shares: BTreeMap<Slot, Share>,
    running: BTreeMap<Slot, Running>,
}

/// All limits, and who holds which share of them.
#[derive(Clone, Debug, Default)]
pub struct Board {
    topics: BTreeMap<Topic, Entry>,
}

/// What a slot needs to know of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// The limit; `None`: there is none any more, and what the slot wrote is to be taken back.
    pub limit: Option<Limit>,
    /// The slot's own last record.
    pub own: Option<Share>,
    /// What is in flight, as last counted.
    pub running: Option<Running>,
    /// Granted to others: rate.
    pub others_rate: i64,
    /// Granted to others: in flight.
    pub others_in_flight: i64,
    /// What is due in other slots.
    pub others_waiting: i64,
    /// Another slot has something due and nothing granted to deliver it with.
    pub starving: bool,
}

/// What a slot needs to know of all topics that have, or had, a limit.
pub type SlotView = BTreeMap<Topic, TopicView>;

impl Board {
    /// Takes the record at `offset`. Records come in the order of the log, from its beginning.
    pub fn apply(&mut self, offset: i64, key: &[u8], value: Option<&[u8]>) -> Result<(), Problem> {
        let key = ControlKey::read(key).ok_or(Problem::Key)?;
        let topic = Topic::from(key.topic());
        // Read first: what cannot be read changes nothing.
        match (key, value) {
            (ControlKey::Limit(_), Some(bytes)) => self.limit(topic, offset, TopicLimit::decode(bytes)?),
            (ControlKey::Running(_, slot), Some(bytes)) => {
                self.count(topic, slot, TopicRunning::decode(bytes)?);
            }
            (ControlKey::Share(_, slot), Some(bytes)) => self.share(topic, slot, TopicShare::decode(bytes)?),
            (key, None) => self.forget(&topic, &key),
        }
        Ok(())
    }

    fn limit(&mut self, topic: Topic, offset: i64, asked: TopicLimit) {
        let limit = Limit {
            rate: asked.rate.map(schemas::control::Rate::micro_per_second),
            in_flight: asked.in_flight.map(i64::from),
            paused: asked.paused,
            offset,
        };
        let entry = self.topics.entry(topic).or_default();
        entry.limit = Some((asked, limit));
        // A new limit is shared out anew. What is in flight is in flight whatever the limit says.
        entry.shares.values_mut().for_each(|share| share.rate = 0);
    }

    fn count(&mut self, topic: Topic, slot: Slot, count: TopicRunning) {
        let running = &mut self.topics.entry(topic).or_default().running;
        // One that lost its partition may write late: an older count says nothing new.
        if running.get(&slot).is_none_or(|known| known.journal_next <= count.journal_next) {
            running.insert(slot, count);
        }
    }

    fn share(&mut self, topic: Topic, slot: Slot, said: TopicShare) {
        let entry = self.topics.entry(topic).or_default();
        let limit = entry.limit.map(|(_, limit)| limit);
        let others = |of: fn(&Share) -> i64| -> i64 {
            let shares = entry.shares.iter().filter(|(other, _)| **other != slot);
            shares.map(|(_, share)| of(share)).sum()
        };
        let (others_rate, others_in_flight) = (others(|share| share.rate), others(|share| share.in_flight));
        let current = limit.filter(|limit| limit.offset == said.limit_offset);
        let rate = match current.and_then(|limit| limit.rate) {
            Some(most) => granted(most - others_rate, said.rate_held.min(said.rate_want), said.rate_want),
            None => 0,
        };
        let in_flight = match limit.and_then(|limit| limit.in_flight) {
            Some(most) => {
                let held = said.in_flight_held;
                let want = if current.is_some() { said.in_flight_want.max(held) } else { held };
                granted(most - others_in_flight, held, want)
            }
            None => 0,
        };
        entry.shares.insert(slot, Share { said, rate, in_flight });
    }

    fn forget(&mut self, topic: &Topic, key: &ControlKey) {
        let Some(entry) = self.topics.get_mut(topic) else { return };
        match key {
            ControlKey::Limit(_) => {
                entry.limit = None;
                entry.shares.values_mut().for_each(|share| (share.rate, share.in_flight) = (0, 0));
            }
            ControlKey::Running(_, slot) => drop(entry.running.remove(slot)),
            ControlKey::Share(_, slot) => drop(entry.shares.remove(slot)),
        }
        if entry.limit.is_none() && entry.shares.is_empty() && entry.running.is_empty() {
            self.topics.remove(topic);
        }
    }

    /// What the owner of `slot` needs to know.
    pub fn of_slot(&self, slot: Slot) -> SlotView {
        let view = |entry: &Entry| {
            let others = || entry.shares.iter().filter(|(other, _)| **other != slot).map(|(_, share)| share);
            let limit = entry.limit.map(|(_, limit)| limit);
            let starved = |share: &Share| {
                let limit = limit.is_some_and(|limit| limit.in_flight.is_some());
                limit && share.said.waiting > 0 && share.in_flight == 0
            };
            TopicView {
                limit,
                own: entry.shares.get(&slot).copied(),
                running: entry.running.get(&slot).copied(),
                others_rate: others().map(|share| share.rate).sum(),
                others_in_flight: others().map(|share| share.in_flight).sum(),
                others_waiting: others().map(|share| share.said.waiting).sum(),
                starving: others().any(starved),
            }
        };
        let concerns = |entry: &Entry| entry.limit.is_some() || entry.shares.contains_key(&slot);
        let topics = self.topics.iter().filter(|(_, entry)| concerns(entry));
        topics.map(|(topic, entry)| (Topic::clone(topic), view(entry))).collect()
    }

    /// All limits as they were written, by topic.
    pub fn limits(&self) -> impl Iterator<Item = (&Topic, &TopicLimit)> {
        self.topics.iter().filter_map(|(topic, entry)| Some((topic, &entry.limit.as_ref()?.0)))
    }

    /// The limit of a topic as it was written.
    pub fn limit_of(&self, topic: &str) -> Option<&TopicLimit> {
        self.topics.get(topic)?.limit.as_ref().map(|(asked, _)| asked)
    }

    /// Shares of a topic, by slot.
    pub fn shares_of(&self, topic: &str) -> impl Iterator<Item = (Slot, &Share)> {
        self.topics
            .get(topic)
            .into_iter()
            .flat_map(|entry| entry.shares.iter().map(|(slot, share)| (*slot, share)))
    }

    /// Counts of a topic, by slot.
    pub fn running_of(&self, topic: &str) -> impl Iterator<Item = (Slot, &Running)> {
        let entry = self.topics.get(topic).into_iter();
        entry.flat_map(|entry| entry.running.iter().map(|(slot, running)| (*slot, running)))
    }

    /// Topics whose deliveries in flight are limited: ingest counts those.
    pub fn counted(&self) -> impl Iterator<Item = &Topic> {
        self.limits().filter(|(_, limit)| limit.in_flight.is_some()).map(|(topic, _)| topic)
    }

    /// Counts that nobody needs any more: their topic has no such limit.
    pub fn idle_counts(&self) -> impl Iterator<Item = (&Topic, Slot)> {
        let idle = self
            .topics
            .iter()
            .filter(|(_, entry)| entry.limit.as_ref().is_none_or(|(asked, _)| asked.in_flight.is_none()));
        idle.flat_map(|(topic, entry)| entry.running.keys().map(move |slot| (topic, *slot)))
    }

    /// The token of whoever wrote a slot's share last.
    pub fn writer(&self, topic: &str, slot: Slot) -> Option<OwnerToken> {
        self.topics.get(topic)?.shares.get(&slot).map(|share| share.said.token)
    }
}

/// What is held, and of what is wanted beyond that as much as is `left` by the others.
fn granted(left: i64, held: i64, want: i64) -> i64 {
    held + (left - held).clamp(0, (want - held).max(0))
}

#[cfg(test)]
#[path = "board/tests.rs"]
mod tests;
