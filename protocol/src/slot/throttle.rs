//! What the limits of callback topics leave this slot ([`crate::limits`]), and what it asks the others for.

use super::io::Now;
use crate::limits::{Amounts, Bucket, Holding, SlotView, TopicView, Wish, fair_in_flight, fair_rate};
use crate::slot_store::{Depth, Quota, Topic, topic_of};
use schemas::control::TopicShare;
use schemas::journal::OwnerToken;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Pause between two records of one slot on one topic.
const ASK_MS: i64 = 500;
/// The same where all there is to say is that a newer count is needed.
const COUNT_MS: i64 = 1_000;
/// A record that was not read back by then is written again.
const LOST_MS: i64 = 2_000;
/// Pause between two looks at how much is due.
pub(super) const SURVEY_MS: i64 = 500;

/// What may leave to one topic now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowance {
    /// As much as there is.
    All,
    /// At most so many.
    Upto(u32),
    /// Nothing before this time on the monotonic clock; `None`: nothing before something comes in.
    Nothing(Option<i64>),
}

#[derive(Debug)]
struct Limited {
    view: TopicView,
    bucket: Bucket,
    holding: Holding,
    /// Tasks due, as last looked at.
    waiting: i64,
    /// Members in Redis, as last looked at.
    members: u64,
    asked_ms: i64,
    /// Deliveries of `on_ack` tasks by journal offset, those that the last count did not see.
    own: VecDeque<(i64, u32)>,
    /// From which journal offset on `own` is complete; `None`: it is not kept.
    since: Option<i64>,
}

/// State of the limits in one slot. Buckets survive a take-over, what is known of deliveries in flight does not.
#[derive(Debug)]
pub(super) struct Throttle {
    slots: u16,
    token: Option<OwnerToken>,
    topics: BTreeMap<Topic, Limited>,
    /// Claimed members that complete on an ack, not committed yet; of all topics.
    flying: HashMap<Topic, u32>,
    surveyed_ms: i64,
}

impl Throttle {
    pub(super) fn new(slots: u16) -> Throttle {
        let (topics, flying) = (BTreeMap::new(), HashMap::new());
        Throttle { slots, token: None, topics, flying, surveyed_ms: i64::MIN }
    }

    /// A take-over is through: a new owner holds nothing, and does not know what its journal holds behind the last count.
    pub(super) fn taken_over(&mut self, token: OwnerToken, jpos: i64, now: Now) {
        self.token = Some(token);
        self.flying.clear();
        self.surveyed_ms = i64::MIN;
        for limited in self.topics.values_mut() {
            limited.holding = Holding::default();
            limited.bucket.set_rate(0, now.mono_ms);
            (limited.waiting, limited.members, limited.asked_ms) = (0, 0, i64::MIN);
            limited.own.clear();
            limited.since = limited.since.map(|_| jpos);
        }
    }

    /// What `control` says now. `jpos`: next offset of the journal.
    pub(super) fn learn(&mut self, view: SlotView, jpos: i64, now: Now) {
        self.topics.retain(|topic, _| view.contains_key(topic));
        for (topic, view) in view {
            let limited = self.topics.entry(topic).or_insert_with(|| Limited {
                view: view.clone(),
                bucket: Bucket::new(now.mono_ms),
                holding: Holding::default(),
                waiting: 0,
                members: 0,
                asked_ms: i64::MIN,
                own: VecDeque::new(),
                since: None,
            });
            limited.view = view;
            limited.keep_count(jpos);
            if let Some(token) = self.token {
                let usable = limited.holding.usable(&limited.view, token);
                limited.bucket.set_rate(usable.rate, now.mono_ms);
            }
        }
    }

    pub(super) fn is_limited(&self, topic: &Topic) -> bool {
        self.topics.get(topic).is_some_and(|limited| limited.view.limit.is_some())
    }

    /// Number of topics with a limit.
    pub(super) fn len(&self) -> usize {
        self.topics.values().filter(|limited| limited.view.limit.is_some()).count()
    }

    /// Tasks of limited topics that are due.
    pub(super) fn waiting(&self) -> i64 {
        self.topics.values().map(|limited| limited.waiting).sum()
    }

    /// What may leave to this topic now.
    pub(super) fn allowance(&self, topic: &Topic, now: Now) -> Allowance {
        let Some(limited) = self.topics.get(topic) else { return Allowance::All };
        let Some(limit) = limited.view.limit else { return Allowance::All };
        if limit.paused {
            return Allowance::Nothing(None);
        }
        let mut most = u32::MAX;
        if limit.rate.is_some() {
            most = limited.bucket.ready(now.mono_ms);
            if most == 0 {
                return Allowance::Nothing(limited.bucket.ready_at(now.mono_ms));
            }
        }
        if limit.in_flight.is_some() {
            let (Some(token), Some(in_use)) = (self.token, limited.in_use(self.flying(topic))) else {
                return Allowance::Nothing(None);
            };
            let left = limited.holding.usable(&limited.view, token).in_flight - in_use;
            if left <= 0 {
                return Allowance::Nothing(None);
            }
            most = most.min(u32::try_from(left).unwrap_or(u32::MAX));
        }
        if most == u32::MAX { Allowance::All } else { Allowance::Upto(most) }
    }

    /// Cuts quotas to what the limits leave; both queues of a topic share it.
    pub(super) fn cap(&self, quotas: &mut Vec<Quota>, now: Now) {
        if self.topics.is_empty() {
            return;
        }
        let mut left: HashMap<Topic, u32> = HashMap::new();
        for quota in quotas.iter_mut() {
            let topic = topic_of(&quota.topic);
            let left = left.entry(topic).or_insert_with_key(|topic| match self.allowance(topic, now) {
                Allowance::All => u32::MAX,
                Allowance::Upto(most) => most,
                Allowance::Nothing(_) => 0,
            });
            quota.limit = quota.limit.min(*left);
            *left -= quota.limit;
        }
        quotas.retain(|quota| quota.limit > 0);
    }

    fn flying(&self, topic: &Topic) -> i64 {
        self.flying.get(topic).copied().map_or(0, i64::from)
    }

    /// So many of a topic were claimed.
    pub(super) fn claimed(&mut self, topic: &Topic, n: u32, now: Now) {
        if let Some(limited) = self.topics.get_mut(topic)
            && limited.view.limit.is_some_and(|limit| limit.rate.is_some())
        {
            limited.bucket.take(n, now.mono_ms);
        }
    }

    /// One that completes on an ack was claimed.
    pub(super) fn lifted(&mut self, topic: &Topic) {
        *self.flying.entry(Topic::clone(topic)).or_default() += 1;
    }

    /// One that completes on an ack was given back, or is settled otherwise.
    pub(super) fn landed(&mut self, topic: &Topic) {
        if let Some(flying) = self.flying.get_mut(topic) {
            *flying = flying.saturating_sub(1);
            if *flying == 0 {
                self.flying.remove(topic);
            }
        }
    }

    /// One that completes on an ack was delivered: its entry stands at or before this offset of the journal.
    pub(super) fn delivered(&mut self, topic: &Topic, offset: i64) {
        self.landed(topic);
        let Some(limited) = self.topics.get_mut(topic).filter(|limited| limited.since.is_some()) else {
            return;
        };
        match limited.own.back_mut() {
            Some((last, n)) if *last == offset => *n += 1,
            _ => limited.own.push_back((offset, 1)),
        }
    }

    /// Whether it is time to look how much is due of limited topics.
    pub(super) fn wants_survey(&self, now: Now) -> bool {
        now.mono_ms.saturating_sub(self.surveyed_ms) >= SURVEY_MS
    }

    /// What was found in the queues of limited topics with something due. Of all others nothing is.
    pub(super) fn surveyed(&mut self, depths: &[Depth], now: Now) {
        self.surveyed_ms = now.mono_ms;
        self.nothing_due();
        for depth in depths {
            if let Some(limited) = self.topics.get_mut(&topic_of(&depth.topic)) {
                limited.waiting += depth.due.cast_signed();
                limited.members += depth.members;
            }
        }
    }

    /// Nothing of a limited topic is due.
    pub(super) fn nothing_due(&mut self) {
        for limited in self.topics.values_mut() {
            (limited.waiting, limited.members) = (0, 0);
        }
    }

    /// Members of a limited topic in Redis, as last looked at; `None`: it has no limit.
    pub(super) fn members(&self, topic: &str) -> Option<u64> {
        self.topics.get(topic).filter(|limited| limited.view.limit.is_some()).map(|limited| limited.members)
    }

    /// How many members a limited topic may have in a slot that is full.
    pub(super) fn share_of_members(&self, full: u64) -> u64 {
        full / 2 / (self.len().max(1) as u64)
    }

    /// What is to be written on `control` now; `None` takes a record back.
    pub(super) fn ask(&mut self, now: Now) -> Vec<(Topic, Option<TopicShare>)> {
        let Some(token) = self.token else { return Vec::new() };
        let mut out = Vec::new();
        for (topic, limited) in &mut self.topics {
            let flying = self.flying.get(topic).copied().map_or(0, i64::from);
            let rested = now.mono_ms.saturating_sub(limited.asked_ms);
            if rested < ASK_MS {
                continue;
            }
            if limited.view.limit.is_none() {
                if limited.view.own.is_some() {
                    limited.asked_ms = now.mono_ms;
                    out.push((Topic::clone(topic), None));
                }
                continue;
            }
            let wish = limited.wish(self.slots, token, flying, now);
            if limited.has_news(token, &wish, rested) {
                limited.asked_ms = now.mono_ms;
                out.push((Topic::clone(topic), Some(limited.holding.ask(&limited.view, token, wish))));
                let usable = limited.holding.usable(&limited.view, token);
                limited.bucket.set_rate(usable.rate, now.mono_ms);
            }
        }
        out
    }
}

impl Limited {
    /// Begins, or ends, to keep what is delivered in addition to the last count.
    fn keep_count(&mut self, jpos: i64) {
        let counted = self.view.limit.is_some_and(|limit| limit.in_flight.is_some());
        self.since = counted.then(|| self.since.unwrap_or(jpos));
        if !counted {
            self.own.clear();
        }
        if let Some(running) = &self.view.running {
            while self.own.front().is_some_and(|(offset, _)| *offset < running.journal_next) {
                self.own.pop_front();
            }
        }
    }

    /// Deliveries in flight; `None`: not known before a count has passed what this owner did not see.
    fn in_use(&self, flying: i64) -> Option<i64> {
        let running = self.view.running.filter(|running| Some(running.journal_next) >= self.since)?;
        self.since?;
        Some(running.running + self.own_sum() + flying)
    }

    fn own_sum(&self) -> i64 {
        self.own.iter().map(|(_, n)| i64::from(*n)).sum()
    }

    fn wish(&self, slots: u16, token: OwnerToken, flying: i64, now: Now) -> Wish {
        let limit = self.view.limit;
        let (mine, others) = (self.waiting, self.view.others_waiting);
        let rate = limit.and_then(|limit| limit.rate).map_or(0, |most| fair_rate(most, slots, mine, others));
        let in_use = self.in_use(flying);
        // What an earlier owner was granted may all be in flight.
        let unknown = || {
            let granted = self.view.own.map_or(0, |own| own.in_flight);
            granted.max(self.view.running.map_or(0, |running| running.running) + self.own_sum() + flying)
        };
        let held = in_use.unwrap_or_else(unknown);
        let in_flight = limit.and_then(|limit| limit.in_flight).map_or(0, |most| {
            let usable = self.holding.usable(&self.view, token).in_flight;
            // Whoever has nothing at all comes first: what is free here is given back.
            if self.view.starving && usable > held {
                held
            } else {
                fair_in_flight(most, slots, mine, others).max(held)
            }
        });
        Wish {
            want: Amounts { rate, in_flight },
            in_flight: held,
            waiting: mine,
            journal_wanted: self.own.back().map_or(self.since.unwrap_or(0), |(offset, _)| offset + 1),
            at: now.local_at,
        }
    }

    /// Whether this is to be said: it differs from what was said enough to be worth a record, or more could be had.
    fn has_news(&self, token: OwnerToken, wish: &Wish, rested: i64) -> bool {
        let (Some(limit), Some(own)) = (self.view.limit, self.view.own) else { return true };
        if own.said.token != token || own.said.limit_offset != limit.offset {
            return true;
        }
        if !self.holding.is_settled(&self.view) {
            return rested >= LOST_MS;
        }
        let said = &own.said;
        let magnitude = |n: i64| n.max(0).checked_ilog2().map_or(0, |log| log + 1);
        let much = |a: i64, b: i64| (a - b).abs() > a.max(b) / 10;
        let more = |most: Option<i64>, granted: i64, others: i64, wanted: i64| {
            most.is_some_and(|most| granted < wanted && granted + others < most)
        };
        let counting = limit.in_flight.is_some() && wish.waiting > 0 && rested >= COUNT_MS;
        magnitude(wish.waiting) != magnitude(said.waiting)
            || much(wish.want.rate, said.rate_want)
            || wish.want.in_flight != said.in_flight_want
            || more(limit.rate, own.rate, self.view.others_rate, wish.want.rate)
            || more(limit.in_flight, own.in_flight, self.view.others_in_flight, wish.want.in_flight)
            || (counting && wish.journal_wanted > said.journal_wanted)
    }
}
