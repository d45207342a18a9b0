//! A slot's Redis data as the scripts see it, small enough to be read at a glance.

use crate::slot::ScriptFault;
use crate::slot_store::{
    Body, Claimed, Claims, ColdCause, DueTopic, Entry, Intent, Positions, PreloadOutcome, PreloadRecord,
    Quota, Returned, SlotState, TakenOver, Topic,
};
use schemas::ids::RowGen;
use schemas::journal::OwnerToken;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
struct Meta {
    token: OwnerToken,
    seq: u64,
    positions: Positions,
    cold: bool,
}

/// The data; cloned for a snapshot.
#[derive(Clone, Debug, Default)]
pub(in crate::slot) struct FakeRedis {
    meta: Option<Meta>,
    store: BTreeSet<(i64, RowGen)>,
    prepare: BTreeSet<RowGen>,
    members: BTreeMap<RowGen, (Topic, i64, Body)>,
    pub(in crate::slot) full: bool,
}

/// What an owner knows of its ownership.
#[derive(Clone, Copy, Debug)]
pub(in crate::slot) struct Grip {
    token: OwnerToken,
    seq: u64,
}

type Answer<T> = Result<(T, SlotState), ScriptFault>;

impl FakeRedis {
    pub(in crate::slot) fn flush_all(&mut self) {
        *self = FakeRedis::default();
    }

    pub(in crate::slot) fn delete_bodies(&mut self) {
        self.meta = None;
    }

    pub(in crate::slot) fn members(&self) -> usize {
        self.members.len()
    }

    fn state(&self, now: i64) -> SlotState {
        SlotState {
            next_due_at: self.store.first().map(|(score, _)| *score),
            redis_at: now,
            members: self.members.len() as u64,
            bytes: 0,
        }
    }

    fn enter(&mut self, grip: &mut Option<Grip>) -> Result<(), ScriptFault> {
        let Some(held) = grip else { return Err(ScriptFault::Broken("not the owner".into())) };
        let Some(meta) = &mut self.meta else { return Err(ScriptFault::Lost) };
        if meta.token != held.token {
            return Err(ScriptFault::Fenced);
        }
        if meta.seq != held.seq {
            return Err(ScriptFault::RolledBack);
        }
        meta.seq += 1;
        held.seq += 1;
        Ok(())
    }

    pub(in crate::slot) fn take_over(
        &mut self,
        token: OwnerToken,
        grip: &mut Option<Grip>,
        now: i64,
    ) -> Answer<TakenOver> {
        let found = match &self.meta {
            None => TakenOver::Cold(ColdCause::NoMeta),
            Some(meta) if meta.cold => TakenOver::Cold(ColdCause::Unfinished),
            Some(meta) => TakenOver::Warm(meta.positions),
        };
        let (positions, cold) =
            self.meta.as_ref().map_or((Positions::default(), true), |m| (m.positions, m.cold));
        let seq = self.meta.as_ref().map_or(0, |meta| meta.seq) + 1;
        self.meta = Some(Meta { token, seq, positions, cold });
        *grip = Some(Grip { token, seq });
        Ok((found, self.state(now)))
    }

    pub(in crate::slot) fn start_cold(
        &mut self,
        positions: Positions,
        grip: &mut Option<Grip>,
        now: i64,
    ) -> Answer<()> {
        self.enter(grip)?;
        self.store.clear();
        self.prepare.clear();
        self.members.clear();
        if let Some(meta) = &mut self.meta {
            meta.positions = positions;
            meta.cold = true;
        }
        Ok(((), self.state(now)))
    }

    fn remove(&mut self, row_gen: RowGen) {
        self.store.retain(|(_, member)| *member != row_gen);
        self.prepare.remove(&row_gen);
        self.members.remove(&row_gen);
    }

    pub(in crate::slot) fn settle(
        &mut self,
        members: &[RowGen],
        jpos: i64,
        due_pos: Option<i64>,
        rebuilt: bool,
        grip: &mut Option<Grip>,
        now: i64,
    ) -> Answer<()> {
        self.enter(grip)?;
        members.iter().for_each(|member| self.remove(*member));
        if let Some(meta) = &mut self.meta {
            assert!(jpos >= meta.positions.jpos, "jpos went back from {} to {jpos}", meta.positions.jpos);
            meta.positions.jpos = jpos;
            meta.positions.due_pos = due_pos.unwrap_or(meta.positions.due_pos).max(meta.positions.due_pos);
            meta.cold &= !rebuilt;
        }
        Ok(((), self.state(now)))
    }

    pub(in crate::slot) fn return_prepared(&mut self, grip: &mut Option<Grip>, now: i64) -> Answer<Returned> {
        self.enter(grip)?;
        let mut returned = Returned::default();
        for member in std::mem::take(&mut self.prepare) {
            let (topic, due_at, body) = self.members[&member].clone();
            if body.as_bytes()[0] == b'W' {
                self.prepare.insert(member);
                returned.intents.push(Intent { topic, member, due_at, body });
            } else {
                self.store.insert((due_at, member));
                returned.returned += 1;
            }
        }
        Ok((returned, self.state(now)))
    }

    pub(in crate::slot) fn preload(
        &mut self,
        records: &[PreloadRecord],
        due_pos: i64,
        grip: &mut Option<Grip>,
        now: i64,
    ) -> Answer<Vec<PreloadOutcome>> {
        if self.full {
            return Err(ScriptFault::OutOfMemory);
        }
        self.enter(grip)?;
        let mut outcomes = Vec::new();
        for record in records {
            let member = record.member;
            let there = self.members.contains_key(&member);
            let value = (record.topic.clone(), record.due_at, record.body.clone());
            let outcome = if record.body.as_bytes()[0] == b'W' {
                let already =
                    self.members.get(&member).is_some_and(|(_, _, body)| body.as_bytes()[0] == b'W');
                self.store.retain(|(_, stored)| *stored != member);
                self.prepare.insert(member);
                self.members.insert(member, value);
                if already { PreloadOutcome::IntentAlready } else { PreloadOutcome::Intent }
            } else if there {
                PreloadOutcome::Duplicate
            } else {
                self.store.insert((record.due_at, member));
                self.members.insert(member, value);
                PreloadOutcome::Stored
            };
            outcomes.push(outcome);
        }
        if let Some(meta) = &mut self.meta {
            assert!(due_pos >= meta.positions.due_pos, "due_pos went back");
            meta.positions.due_pos = due_pos;
            let fence = records.iter().map(|record| record.fence).max().unwrap_or(0);
            meta.positions.fence = meta.positions.fence.max(fence);
        }
        Ok((outcomes, self.state(now)))
    }

    pub(in crate::slot) fn topics(&mut self, grip: &mut Option<Grip>, now: i64) -> Answer<Vec<DueTopic>> {
        self.enter(grip)?;
        let mut earliest: BTreeMap<Topic, i64> = BTreeMap::new();
        for (score, member) in &self.store {
            let at = earliest.entry(self.members[member].0.clone()).or_insert(*score);
            *at = (*at).min(*score);
        }
        let topics =
            earliest.into_iter().map(|(topic, earliest_at)| DueTopic { topic, earliest_at }).collect();
        Ok((topics, self.state(now)))
    }

    pub(in crate::slot) fn claim(
        &mut self,
        now: i64,
        quotas: &[Quota],
        grip: &mut Option<Grip>,
    ) -> Answer<Claims> {
        self.enter(grip)?;
        let mut claims = Claims::default();
        for quota in quotas {
            let due: Vec<(i64, RowGen)> = self
                .store
                .iter()
                .filter(|(score, member)| *score <= now && self.members[member].0 == quota.topic)
                .take(quota.limit as usize)
                .copied()
                .collect();
            for (score_at, member) in due {
                self.store.remove(&(score_at, member));
                self.prepare.insert(member);
                let (topic, _, body) = self.members[&member].clone();
                claims.claimed.push(Claimed { topic, member, score_at, body });
            }
        }
        let mut topics: BTreeMap<Topic, i64> = BTreeMap::new();
        for (score, member) in self.store.iter().filter(|(score, _)| *score <= now) {
            topics.entry(self.members[member].0.clone()).or_insert(*score);
        }
        claims.due = topics.into_iter().map(|(topic, earliest_at)| DueTopic { topic, earliest_at }).collect();
        Ok((claims, self.state(now)))
    }

    pub(in crate::slot) fn release(
        &mut self,
        entries: &[Entry],
        delay_ms: i64,
        grip: &mut Option<Grip>,
        now: i64,
    ) -> Answer<()> {
        self.enter(grip)?;
        for entry in entries {
            if self.prepare.remove(&entry.member) {
                let due_at = self.members[&entry.member].1;
                self.store.insert((due_at.max(now + delay_ms), entry.member));
            }
        }
        Ok(((), self.state(now)))
    }
}
