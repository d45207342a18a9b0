//! Deficit round robin over the callback topics with something due (R15): no topic waits for another's backlog (I-8).

use crate::slot_store::{Quota, Topic};
use std::collections::{HashMap, HashSet, VecDeque};

/// Most topics in one claim: each brings two keys.
const TOPICS_PER_CLAIM: usize = 64;
const LEAST_QUANTUM: u32 = 16;

/// Order and unused shares of the topics that have something due.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    order: VecDeque<Topic>,
    deficit: HashMap<Topic, u32>,
}

impl RoundRobin {
    /// Quotas of the next claim over `due`, which takes at most `limit` members in all, topic by topic.
    pub(super) fn quotas(&mut self, due: &[Topic], limit: usize) -> Vec<Quota> {
        let wanted: HashSet<&Topic> = due.iter().collect();
        self.order.retain(|topic| wanted.contains(topic));
        self.deficit.retain(|topic, _| wanted.contains(topic));
        for topic in due {
            if !self.deficit.contains_key(topic) {
                self.order.push_back(Topic::clone(topic));
                self.deficit.insert(Topic::clone(topic), 0);
            }
        }
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let quantum = (limit / u32::try_from(due.len().max(1)).unwrap_or(u32::MAX)).max(LEAST_QUANTUM);
        let mut quotas = Vec::new();
        for topic in self.order.iter().take(TOPICS_PER_CLAIM) {
            let share = self.deficit.entry(Topic::clone(topic)).or_default();
            // An unused share is kept, but not hoarded: a topic back from a pause gets no more than two turns at once.
            *share = share.saturating_add(quantum).min(2 * quantum);
            quotas.push(Quota { topic: Topic::clone(topic), limit: (*share).min(limit) });
        }
        quotas
    }

    /// What the claim took. A topic that was served goes to the end; one that was not reached comes first next time.
    pub(super) fn served(
        &mut self,
        asked: &[Quota],
        taken: &HashMap<Topic, u32>,
        still_due: &HashSet<Topic>,
    ) {
        for quota in asked {
            let used = taken.get(&quota.topic).copied().unwrap_or(0);
            let over = !still_due.contains(&quota.topic);
            if over {
                self.deficit.remove(&quota.topic);
                self.order.retain(|topic| *topic != quota.topic);
            } else if used > 0 {
                if let Some(share) = self.deficit.get_mut(&quota.topic) {
                    *share = share.saturating_sub(used);
                }
                self.order.retain(|topic| *topic != quota.topic);
                self.order.push_back(Topic::clone(&quota.topic));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays claims over topics with so many members due each; returns how many of each were taken per claim.
    fn play(backlog: &mut HashMap<Topic, u32>, robin: &mut RoundRobin, limit: u32) -> HashMap<Topic, u32> {
        let mut due: Vec<Topic> = backlog.keys().cloned().collect();
        due.sort();
        let quotas = robin.quotas(&due, limit as usize);
        let (mut left, mut taken) = (limit, HashMap::new());
        for quota in &quotas {
            let there = backlog.get_mut(&quota.topic).expect("a quota for what is due");
            let n = quota.limit.min(*there).min(left);
            *there -= n;
            left -= n;
            if n > 0 {
                taken.insert(quota.topic.clone(), n);
            }
        }
        backlog.retain(|_, n| *n > 0);
        robin.served(&quotas, &taken, &backlog.keys().cloned().collect());
        taken
    }

    #[test]
    fn a_small_topic_is_not_held_up_by_a_million_of_another() {
        let mut robin = RoundRobin::default();
        let mut backlog = HashMap::from([(Topic::from("big"), 1_000_000), (Topic::from("small"), 3)]);
        let taken = play(&mut backlog, &mut robin, 500);
        assert_eq!(taken[&Topic::from("small")], 3);
        assert_eq!(play(&mut backlog, &mut robin, 500)[&Topic::from("big")], 500, "alone it takes all");
    }

    #[test]
    fn every_one_of_many_topics_has_its_turn() {
        let mut robin = RoundRobin::default();
        let mut backlog: HashMap<Topic, u32> =
            (0..300).map(|n| (Topic::from(format!("t{n:03}")), 1_000)).collect();
        let mut seen: HashMap<Topic, u32> = HashMap::new();
        for _ in 0..40 {
            for (topic, n) in play(&mut backlog, &mut robin, 500) {
                *seen.entry(topic).or_default() += n;
            }
        }
        assert_eq!(seen.len(), 300);
        let (least, most) = (seen.values().min().unwrap(), seen.values().max().unwrap());
        assert!(most - least <= 64, "{least}..{most}");
    }
}
