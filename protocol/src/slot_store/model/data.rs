//! The keys of a slot, what every script does with them, and what may happen to them.

use crate::slot_store::{Body, ColdCause, DueTopic, Positions, Refusal, SlotState, Topic};
use schemas::ids::RowGen;
use schemas::journal::OwnerToken;
use std::collections::{BTreeMap, BTreeSet};

/// A sorted set of members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZSet {
    scores: BTreeMap<RowGen, i64>,
    order: BTreeSet<(i64, RowGen)>,
}

impl ZSet {
    /// Adds a member, or moves it to another score. Whether it is new.
    pub fn add(&mut self, score: i64, member: RowGen) -> bool {
        let new = !self.remove(member);
        self.scores.insert(member, score);
        self.order.insert((score, member));
        new
    }

    /// Adds a member that is not there yet. Whether it is new.
    pub fn add_new(&mut self, score: i64, member: RowGen) -> bool {
        !self.contains(member) && self.add(score, member)
    }

    /// Removes a member. Whether it was there.
    pub fn remove(&mut self, member: RowGen) -> bool {
        match self.scores.remove(&member) {
            Some(score) => self.order.remove(&(score, member)),
            None => false,
        }
    }

    /// Whether the member is there.
    pub fn contains(&self, member: RowGen) -> bool {
        self.scores.contains_key(&member)
    }

    /// Score of a member.
    pub fn score(&self, member: RowGen) -> Option<i64> {
        self.scores.get(&member).copied()
    }

    /// The first by (score, member).
    pub fn first(&self) -> Option<(i64, RowGen)> {
        self.order.first().copied()
    }

    /// All by (score, member).
    pub fn all(&self) -> Vec<(i64, RowGen)> {
        self.order.iter().copied().collect()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none: the key does not exist then.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Members of one topic as meta counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// In store.
    pub store: usize,
    /// In prepare.
    pub prepare: usize,
}

/// The hash `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Who owns the slot.
    pub token: OwnerToken,
    /// +1 with each script.
    pub seq: u64,
    /// A cold take-over is not finished.
    pub cold: bool,
    /// What the data stands for.
    pub positions: Positions,
    /// Bodies.
    pub bodies: usize,
    /// Topics with something in store.
    pub topics: usize,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Members per topic; none with zeros.
    pub sizes: BTreeMap<Topic, Sizes>,
}

impl Meta {
    pub(super) fn new(token: OwnerToken, seq: u64) -> Meta {
        Meta {
            token,
            seq,
            cold: false,
            positions: Positions::default(),
            bodies: 0,
            topics: 0,
            bytes: 0,
            sizes: BTreeMap::new(),
        }
    }

    /// Members in store and prepare.
    pub fn members(&self) -> usize {
        self.sizes.values().map(|sizes| sizes.store + sizes.prepare).sum()
    }

    /// Whether each member has one body, and each topic with something in store is told of.
    pub fn adds_up(&self) -> bool {
        self.bodies == self.members()
            && self.topics == self.sizes.values().filter(|sizes| sizes.store > 0).count()
    }

    pub(super) fn admit(&self, ticket: Ticket) -> Result<(), Refusal> {
        if self.token != ticket.token {
            return Err(Refusal::Fenced);
        }
        if self.seq != ticket.seq { Err(Refusal::RolledBack) } else { Ok(()) }
    }
}

/// What a caller shows to prove that nobody else has written since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its token.
    pub token: OwnerToken,
    /// The seq of the latest answer.
    pub seq: u64,
}

/// Answer of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// The seq to show next time.
    pub seq: u64,
    /// What every answer says.
    pub state: SlotState,
    /// What this one says.
    pub value: T,
}

/// What `take_over` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Meta with positions; counts of the topics are still to be looked at.
    Warm(Box<Meta>),
    /// `start_cold` must follow.
    Cold(ColdCause),
}

/// What may happen to the keys of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// All are gone.
    All,
    /// `meta` is gone.
    Meta,
    /// `body` is gone.
    Body,
    /// `topics` is gone.
    Topics,
    /// A store is gone.
    Store(Topic),
    /// A prepare is gone.
    Prepare(Topic),
    /// One member is gone from a store.
    StoreMember(Topic, RowGen),
    /// One member is gone from a prepare.
    PrepareMember(Topic, RowGen),
    /// One body is gone.
    BodyOf(RowGen),
    /// One body stands under another member.
    BodyMoved(RowGen, RowGen),
    /// One member of a store was replaced by another with the same score.
    StoreMemberSwapped(Topic, RowGen, RowGen),
    /// A script was carried out whose answer nobody got.
    Unanswered,
}

/// The keys of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotStoreModel {
    /// Hash `meta`.
    pub meta: Option<Meta>,
    /// `store:<topic>`.
    pub store: BTreeMap<Topic, ZSet>,
    /// `prepare:<topic>`.
    pub prepare: BTreeMap<Topic, ZSet>,
    /// Hash `body`.
    pub body: BTreeMap<RowGen, Body>,
    /// `topics`: earliest score in store.
    pub topics: BTreeMap<Topic, i64>,
}

impl SlotStoreModel {
    /// Loses or changes keys behind the scripts' back.
    pub fn damage(&mut self, damage: &Damage) {
        match damage {
            Damage::All => *self = SlotStoreModel::default(),
            Damage::Meta => self.meta = None,
            Damage::Body => self.body.clear(),
            Damage::Topics => self.topics.clear(),
            Damage::Store(topic) => *self.store_mut(topic) = ZSet::default(),
            Damage::Prepare(topic) => *self.prepare_mut(topic) = ZSet::default(),
            Damage::StoreMember(topic, member) => {
                self.store_mut(topic).remove(*member);
            }
            Damage::PrepareMember(topic, member) => {
                self.prepare_mut(topic).remove(*member);
            }
            Damage::BodyOf(member) => {
                self.body.remove(member);
            }
            Damage::BodyMoved(from, to) => {
                if let Some(body) = self.body.remove(from) {
                    self.body.insert(*to, body);
                }
            }
            Damage::StoreMemberSwapped(topic, from, to) => {
                let zset = self.store_mut(topic);
                if let Some(score) = zset.score(*from) {
                    zset.remove(*from);
                    zset.add(score, *to);
                }
            }
            Damage::Unanswered => {
                if let Some(meta) = &mut self.meta {
                    meta.seq += 1;
                }
            }
        }
        self.drop_empty();
    }

    /// Whether there are keys beside meta.
    pub fn has_leftovers(&self) -> bool {
        !(self.store.is_empty() && self.prepare.is_empty() && self.body.is_empty() && self.topics.is_empty())
    }

    pub(super) fn store_mut(&mut self, topic: &Topic) -> &mut ZSet {
        self.store.entry(topic.clone()).or_default()
    }

    pub(super) fn prepare_mut(&mut self, topic: &Topic) -> &mut ZSet {
        self.prepare.entry(topic.clone()).or_default()
    }

    fn drop_empty(&mut self) {
        self.store.retain(|_, zset| !zset.is_empty());
        self.prepare.retain(|_, zset| !zset.is_empty());
    }

    fn actual(&self, topic: &Topic) -> Sizes {
        let size = |of: &BTreeMap<Topic, ZSet>| of.get(topic).map_or(0, ZSet::len);
        Sizes { store: size(&self.store), prepare: size(&self.prepare) }
    }

    /// Token, seq, and the counts of everything the call touches. What does not match costs meta.
    pub(super) fn open(&mut self, ticket: Ticket, topics: &[Topic]) -> Result<(), Refusal> {
        let meta = self.meta.as_ref().ok_or(Refusal::Lost)?;
        meta.admit(ticket)?;
        let sizes = |topic: &Topic| meta.sizes.get(topic).copied().unwrap_or_default();
        let matches = meta.bodies == self.body.len()
            && meta.topics == self.topics.len()
            && topics.iter().all(|topic| sizes(topic) == self.actual(topic));
        if !matches {
            self.meta = None;
            return Err(Refusal::Lost);
        }
        Ok(())
    }

    /// Brings `topics` in line with a store.
    pub(super) fn refresh(&mut self, topic: &Topic) {
        match self.store.get(topic).and_then(ZSet::first) {
            Some((earliest, _)) => self.topics.insert(topic.clone(), earliest),
            None => self.topics.remove(topic),
        };
    }

    /// Topics with something in store up to a time, by (earliest score, topic).
    pub(super) fn due_topics(&self, until: i64, limit: usize) -> Vec<DueTopic> {
        let mut due: Vec<_> = self.topics.iter().filter(|(_, at)| **at <= until).collect();
        due.sort_by_key(|(topic, at)| (**at, *topic));
        due.into_iter()
            .take(limit)
            .map(|(topic, at)| DueTopic { topic: topic.clone(), earliest_at: *at })
            .collect()
    }

    /// Writes seq, counts of what was touched, and positions.
    pub(super) fn close<T>(
        &mut self,
        redis_at: i64,
        topics: &[Topic],
        value: T,
        positions: impl FnOnce(&mut Positions),
    ) -> Answer<T> {
        self.drop_empty();
        let actual: Vec<_> = topics.iter().map(|topic| (topic.clone(), self.actual(topic))).collect();
        let (bodies, waiting) = (self.body.len(), self.topics.len());
        let bytes = self.body.values().map(|body| body.as_bytes().len() as u64).sum();
        if let Some(meta) = &mut self.meta {
            meta.seq += 1;
            (meta.bodies, meta.topics, meta.bytes) = (bodies, waiting, bytes);
            meta.sizes.extend(actual);
            meta.sizes.retain(|_, sizes| *sizes != Sizes::default());
            positions(&mut meta.positions);
        }
        self.answer(redis_at, value)
    }

    pub(super) fn answer<T>(&self, redis_at: i64, value: T) -> Answer<T> {
        let state = SlotState {
            next_due_at: self.topics.values().min().copied(),
            redis_at,
            members: self.meta.as_ref().map_or(0, |meta| meta.members() as u64),
            bytes: self.meta.as_ref().map_or(0, |meta| meta.bytes),
        };
        Answer { seq: self.meta.as_ref().map_or(0, |meta| meta.seq), state, value }
    }
}
