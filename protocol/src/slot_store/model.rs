//! The scripts of a slot as pure Rust: one function per script, over a copy of the slot's keys.
//!
//! What a script may rely on and what it must notice is the same here: keys may be lost, swapped or rolled back between
//! any two calls ([`SlotStoreModel`] is `Clone`: a snapshot is a copy), and each call first checks token, seq and the
//! counts of what it touches. `redis_at` is Redis TIME at the call.

mod data;

pub use data::{Answer, Damage, Found, Meta, Sizes, SlotStoreModel, Ticket, ZSet};

use super::{
    BodyKind, Claimed, Claims, ColdCause, DueTopic, Entry, Intent, MAX_MEMBERS, Positions, PreloadOutcome,
    PreloadRecord, Quota, Refusal, Returned, Topic,
};
use schemas::journal::OwnerToken;

impl SlotStoreModel {
    /// `preload` of records in one call.
    pub fn preload(
        &mut self,
        ticket: Ticket,
        redis_at: i64,
        records: &[PreloadRecord],
        due_pos: Option<i64>,
    ) -> Result<Answer<Vec<PreloadOutcome>>, Refusal> {
        assert!(records.len() <= MAX_MEMBERS, "too many members");
        let topics: Vec<Topic> = records.iter().map(|r| r.topic.clone()).collect();
        self.open(ticket, &topics)?;
        let mut outcomes = Vec::new();
        for record in records {
            let known = self.body.get(&record.member).map(|body| body.kind());
            outcomes.push(match (record.body.kind(), known) {
                (BodyKind::Deliver, Some(_)) => PreloadOutcome::Duplicate,
                (BodyKind::Deliver, None) => {
                    self.body.insert(record.member, record.body.clone());
                    self.store_mut(&record.topic).add_new(record.due_at, record.member);
                    PreloadOutcome::Stored
                }
                (BodyKind::Withdraw, Some(BodyKind::Withdraw)) => PreloadOutcome::IntentAlready,
                (BodyKind::Withdraw, Some(BodyKind::Deliver) | None) => {
                    self.body.insert(record.member, record.body.clone());
                    self.store_mut(&record.topic).remove(record.member);
                    self.prepare_mut(&record.topic).add(record.due_at, record.member);
                    PreloadOutcome::Intent
                }
            });
        }
        topics.iter().for_each(|topic| self.refresh(topic));
        let fence = records.iter().map(|r| r.fence).max();
        Ok(self.close(redis_at, &topics, outcomes, |positions| {
            positions.fence = positions.fence.max(fence.unwrap_or(0));
            positions.due_pos = due_pos.unwrap_or(positions.due_pos);
        }))
    }

    /// `claim`. A member without a body, or that stands in prepare already, is dropped.
    pub fn claim(
        &mut self,
        ticket: Ticket,
        redis_at: i64,
        now: i64,
        quotas: &[Quota],
        max_bytes: usize,
    ) -> Result<Answer<Claims>, Refusal> {
        let topics: Vec<Topic> = quotas.iter().map(|q| q.topic.clone()).collect();
        self.open(ticket, &topics)?;
        let now = now.min(redis_at);
        let mut claims = Claims::default();
        let (mut bytes, mut full) = (0, false);
        for quota in quotas {
            let mut left = (quota.limit as usize).min(MAX_MEMBERS - claims.claimed.len());
            while left > 0 && !full {
                let Some((score_at, member)) =
                    self.store_mut(&quota.topic).first().filter(|(at, _)| *at <= now)
                else {
                    break;
                };
                let prepared = self.prepare_mut(&quota.topic).contains(member);
                match self.body.get(&member).filter(|_| !prepared).cloned() {
                    None => claims.dropped += 1,
                    Some(body) if !claims.claimed.is_empty() && bytes + body.as_bytes().len() > max_bytes => {
                        full = true;
                        continue;
                    }
                    Some(body) => {
                        bytes += body.as_bytes().len();
                        left -= 1;
                        self.prepare_mut(&quota.topic).add(score_at, member);
                        claims.claimed.push(Claimed { topic: quota.topic.clone(), member, score_at, body });
                    }
                }
                self.store_mut(&quota.topic).remove(member);
            }
            self.refresh(&quota.topic);
        }
        claims.due = self.due_topics(now, MAX_MEMBERS);
        Ok(self.close(redis_at, &topics, claims, |_| {}))
    }

    /// `settle` of entries in one call; `rebuilt` ends a cold take-over.
    pub fn settle(
        &mut self,
        ticket: Ticket,
        redis_at: i64,
        entries: &[Entry],
        jpos: Option<i64>,
        due_pos: Option<i64>,
        rebuilt: bool,
    ) -> Result<Answer<()>, Refusal> {
        assert!(entries.len() <= MAX_MEMBERS, "too many members");
        let topics: Vec<Topic> = entries.iter().map(|e| e.topic.clone()).collect();
        self.open(ticket, &topics)?;
        for Entry { topic, member } in entries {
            self.body.remove(member);
            self.prepare_mut(topic).remove(*member);
            if self.store_mut(topic).remove(*member) {
                self.refresh(topic);
            }
        }
        if let (true, Some(meta)) = (rebuilt, &mut self.meta) {
            meta.cold = false;
        }
        Ok(self.close(redis_at, &topics, (), |positions| {
            positions.jpos = jpos.unwrap_or(positions.jpos);
            positions.due_pos = due_pos.unwrap_or(positions.due_pos);
        }))
    }

    /// `release` of entries in one call.
    pub fn release(
        &mut self,
        ticket: Ticket,
        redis_at: i64,
        entries: &[Entry],
        delay_ms: i64,
    ) -> Result<Answer<()>, Refusal> {
        assert!(entries.len() <= MAX_MEMBERS, "too many members");
        let topics: Vec<Topic> = entries.iter().map(|e| e.topic.clone()).collect();
        self.open(ticket, &topics)?;
        let earliest = if delay_ms > 0 { redis_at + delay_ms } else { 0 };
        for Entry { topic, member } in entries {
            let body = self.body.get(member).map(|body| body.kind());
            let Some(score) = self.prepare_mut(topic).score(*member) else { continue };
            if body == Some(BodyKind::Withdraw) {
                continue;
            }
            self.prepare_mut(topic).remove(*member);
            if body.is_some() {
                self.store_mut(topic).add_new(score.max(earliest), *member);
            }
        }
        topics.iter().for_each(|topic| self.refresh(topic));
        Ok(self.close(redis_at, &topics, (), |_| {}))
    }

    /// `look`: the counts of some topics, and what waits up to a time.
    pub fn look(
        &mut self,
        ticket: Ticket,
        redis_at: i64,
        topics: &[Topic],
        until: i64,
        limit: usize,
    ) -> Result<Answer<Vec<DueTopic>>, Refusal> {
        self.open(ticket, topics)?;
        let due = self.due_topics(until, limit);
        Ok(self.close(redis_at, topics, due, |_| {}))
    }

    /// `return_prepared` of one topic, all of it.
    pub fn return_prepared(
        &mut self,
        ticket: Ticket,
        redis_at: i64,
        topic: &Topic,
    ) -> Result<Answer<Returned>, Refusal> {
        let topics = [topic.clone()];
        self.open(ticket, &topics)?;
        let mut result = Returned::default();
        for (due_at, member) in self.prepare_mut(topic).all() {
            match self.body.get(&member).cloned() {
                Some(body) if body.kind() == BodyKind::Withdraw => {
                    result.intents.push(Intent { topic: topic.clone(), member, due_at, body });
                }
                body => {
                    self.prepare_mut(topic).remove(member);
                    if body.is_some() && self.store_mut(topic).add_new(due_at, member) {
                        result.returned += 1;
                    }
                }
            }
        }
        self.refresh(topic);
        Ok(self.close(redis_at, &topics, result, |_| {}))
    }

    /// `take_over`: fences every earlier owner.
    pub fn take_over(&mut self, token: OwnerToken, redis_at: i64) -> Answer<Found> {
        let cause = match &self.meta {
            None => Some(ColdCause::NoMeta),
            Some(meta) if meta.cold => Some(ColdCause::Unfinished),
            Some(meta) if meta.bodies != self.body.len() || meta.topics != self.topics.len() => {
                Some(ColdCause::CountsOff)
            }
            Some(_) => None,
        };
        let seq = self.meta.as_ref().map_or(0, |meta| meta.seq) + 1;
        let meta = match (cause, self.meta.take()) {
            (None, Some(meta)) => Meta { token, seq, ..meta },
            (Some(_), _) | (None, None) => Meta { cold: true, ..Meta::new(token, seq) },
        };
        self.meta = Some(meta.clone());
        let mut answer =
            self.answer(redis_at, cause.map_or_else(|| Found::Warm(Box::new(meta)), Found::Cold));
        if cause.is_some() {
            answer.state.next_due_at = None;
        }
        answer
    }

    /// `sweep` of all leftovers at once.
    pub fn sweep(&mut self, ticket: Ticket) -> Result<u64, Refusal> {
        let meta = self.meta.as_mut().ok_or(Refusal::Lost)?;
        meta.admit(ticket)?;
        meta.seq += 1;
        let seq = meta.seq;
        *self = SlotStoreModel { meta: self.meta.take(), ..SlotStoreModel::default() };
        Ok(seq)
    }

    /// `start_cold`: an empty slot that stands for `positions`. Leftovers must have been swept.
    pub fn start_cold(
        &mut self,
        ticket: Ticket,
        redis_at: i64,
        positions: Positions,
    ) -> Result<Answer<()>, Refusal> {
        let meta = self.meta.as_ref().ok_or(Refusal::Lost)?;
        meta.admit(ticket)?;
        assert!(self.body.is_empty() && self.topics.is_empty(), "leftovers were not swept");
        self.meta = Some(Meta { cold: true, positions, ..Meta::new(ticket.token, meta.seq + 1) });
        Ok(self.answer(redis_at, ()))
    }

    /// `forget`: deletes meta if the token is its owner's.
    pub fn forget(&mut self, token: OwnerToken) -> Result<(), Refusal> {
        match &self.meta {
            None => Err(Refusal::Lost),
            Some(meta) if meta.token != token => Err(Refusal::Fenced),
            Some(_) => {
                self.meta = None;
                Ok(())
            }
        }
    }
}
