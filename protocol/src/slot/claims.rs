//! From claimed members to a batch: each finds its way out, to `dead`, back to store, or away because it is settled already.

use super::delivery::{Batch, Flight};
use super::event::{Alarm, Cause, Event};
use super::io::{Action, Lane, Target};
use super::precheck::{Check, Lookup, check};
use super::running::{Context, Gather, Running, Work};
use super::steps::After;
use crate::slot_store::{Claims, Entry, SlotState, Topic};
use schemas::delivery::DeadReason;
use schemas::due::{Deliver, DueKind, DueRecord};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Claims per transaction, at most.
const CLAIM_ROUNDS: u32 = 4;
/// Members that cannot be sent just now rest for so long.
const NOT_NOW_MS: i64 = 1_000;

impl Running {
    pub(super) fn claimed(
        &mut self,
        cx: &mut Context<'_>,
        mut gather: Gather,
        claims: Claims,
        state: SlotState,
    ) -> After {
        self.saw(state, cx.now);
        self.agenda = None;
        if claims.dropped > 0 {
            cx.events.push(Event::Alarm(Alarm::BrokenMembers, format!("{} members", claims.dropped)));
        }
        let clock = cx.now.local_at.min(state.redis_at);
        let mut taken: HashMap<Topic, u32> = HashMap::new();
        for claimed in claims.claimed {
            *taken.entry(Topic::clone(&claimed.topic)).or_default() += 1;
            gather.bytes += claimed.body.as_bytes().len();
            let record = match DueRecord::decode(claimed.body.record()) {
                Ok(record) if record.row_gen() == claimed.member => record,
                Ok(_) | Err(_) => return self.forget(format!("body of {:?}", claimed.member)),
            };
            if !self.flying.insert(claimed.member) {
                return After::TakeOver(Cause::Invariant, format!("{:?} claimed twice", claimed.member));
            }
            if record.due_at > clock {
                let text = format!("{:?} due at {}, clock {clock}", claimed.member, record.due_at);
                cx.events.push(Event::Alarm(Alarm::ClaimedEarly, text));
                gather.early.push(Entry { topic: claimed.topic, member: claimed.member });
            } else {
                gather.claimed.push((claimed.topic, Arc::new(record)));
            }
        }
        let still: HashSet<Topic> = claims.due.into_iter().map(|due| due.topic).collect();
        if gather.lane == Lane::Main {
            cx.robin.served(&gather.quotas, &taken, &still);
            if let Some(action) = claim_more(cx, &mut gather, &taken, &still) {
                self.go(Work::Claim(gather), action);
                return After::Go;
            }
        }
        if gather.claimed.is_empty() && gather.early.is_empty() {
            // The clocks disagree by a moment, or somebody else was faster than our look at what is due.
            self.claim_not_before_ms = cx.now.mono_ms + 1;
            return After::Go;
        }
        let mut topics: Vec<Topic> = gather.claimed.iter().map(|(topic, _)| Topic::clone(topic)).collect();
        topics.sort();
        topics.dedup();
        self.go(Work::LookUp(gather), Action::LookUp { topics, fresh: false });
        After::Go
    }

    /// Everything claimed finds its way: out, to `dead`, back to store, or away because it is settled already.
    pub(super) fn prepare(
        &mut self,
        cx: &mut Context<'_>,
        mut gather: Gather,
        facts: Vec<(Topic, Lookup)>,
    ) -> After {
        gather.facts.extend(facts);
        if !gather.confirmed {
            gather.confirmed = true;
            let topics = doubtful(cx, &gather);
            if !topics.is_empty() {
                self.go(Work::LookUp(gather), Action::LookUp { topics, fresh: true });
                return After::Go;
            }
        }
        let facts = gather.facts;
        let mut batch = Batch::new(gather.lane, cx.now.local_at, cx.now.mono_ms);
        let mut back = gather.early;
        self.sticky = self.sticky.wrapping_add(1);
        for (topic, record) in gather.claimed {
            let entry = Entry { topic: Topic::clone(&topic), member: record.row_gen() };
            if self.settled.contains(entry.member) {
                self.leftovers.push(entry);
                continue;
            }
            let lookup = facts.get(&topic).unwrap_or(&Lookup::Unavailable);
            let target = match target_of(cx, &topic, &record, lookup, self.sticky) {
                Some(target) => target,
                None => {
                    back.push(entry);
                    continue;
                }
            };
            let to_dead = matches!(target, Target::Dead { .. });
            let flight = Flight { topic, record, target };
            // Burials need no quarantine: their records go to `dead`.
            if to_dead && batch.lane == Lane::Quarantine {
                self.carry.push(flight)
            } else {
                batch.flights.push(flight)
            }
        }
        if back.is_empty() {
            self.launch(cx, batch);
        } else {
            let action = Action::Release { entries: back.clone(), delay_ms: NOT_NOW_MS };
            self.go(Work::GiveBack { entries: back, batch }, action);
        }
        After::Go
    }

    pub(super) fn given_back(&mut self, entries: &[Entry]) {
        self.agenda = None;
        for entry in entries {
            self.flying.remove(&entry.member);
            self.intake.outcome_released(entry.member);
        }
    }
}

/// More of the topics that were served in full, if there is room.
fn claim_more(
    cx: &mut Context<'_>,
    gather: &mut Gather,
    taken: &HashMap<Topic, u32>,
    still: &HashSet<Topic>,
) -> Option<Action> {
    let room = cx.config.batch_entries.saturating_sub(gather.claimed.len() + gather.early.len());
    let bytes = cx.config.batch_bytes.saturating_sub(gather.bytes);
    gather.topics.retain(|topic| still.contains(topic));
    if room == 0
        || bytes == 0
        || gather.rounds >= CLAIM_ROUNDS
        || taken.is_empty()
        || gather.topics.is_empty()
    {
        return None;
    }
    gather.rounds += 1;
    gather.quotas = cx.robin.quotas(&gather.topics, room);
    cap(&mut gather.quotas, room);
    Some(Action::Claim { now_at: cx.now.local_at, quotas: gather.quotas.clone(), max_bytes: bytes })
}

/// The script's own cap is that of a whole batch: here less is left.
fn cap(quotas: &mut Vec<crate::slot_store::Quota>, room: usize) {
    let mut left = u32::try_from(room).unwrap_or(u32::MAX);
    for quota in quotas.iter_mut() {
        quota.limit = quota.limit.min(left);
        left -= quota.limit;
    }
    quotas.retain(|quota| quota.limit > 0);
}

fn target_of(
    cx: &Context<'_>,
    topic: &Topic,
    record: &DueRecord,
    lookup: &Lookup,
    sticky: usize,
) -> Option<Target> {
    let dead = |reason: &str| Some(Target::Dead { reason: reason.to_owned() });
    let DueKind::Deliver(deliver) = &record.kind else { return dead(DeadReason::InvalidRecord.as_str()) };
    if let Some(why) = bury_at(deliver, cx.now.local_at) {
        return dead(why);
    }
    // What is known of the topic says more than what a broker said of the record.
    let verdict = check(record, deliver, lookup, sticky);
    if let Check::Never(why) = verdict {
        return dead(why.as_str());
    }
    if let Some(why) = cx.lanes.doomed(topic, record.row_gen(), cx.now.mono_ms) {
        return dead(why.as_str());
    }
    match verdict {
        Check::Write(partition, batch_bytes) => Some(Target::Callback { partition, batch_bytes }),
        Check::Never(_) | Check::NotNow => None,
    }
}

/// Topics for which something would be buried by what is remembered of them: that may be out of date. A topic that was
/// created, partitions that were added, a limit that was raised since then must not cost a delivery.
fn doubtful(cx: &Context<'_>, gather: &Gather) -> Vec<Topic> {
    let never = |topic: &Topic, record: &DueRecord| {
        let DueKind::Deliver(deliver) = &record.kind else { return false };
        let Some(lookup) = gather.facts.get(topic) else { return false };
        bury_at(deliver, cx.now.local_at).is_none()
            && matches!(check(record, deliver, lookup, 0), Check::Never(_))
    };
    let mut topics: Vec<Topic> = gather
        .claimed
        .iter()
        .filter(|(topic, record)| never(topic, record))
        .map(|(topic, _)| Topic::clone(topic))
        .collect();
    topics.sort();
    topics.dedup();
    topics
}

fn bury_at(deliver: &Deliver, now_at: i64) -> Option<&str> {
    let expired = deliver.expires_at.is_some_and(|expires_at| expires_at <= now_at);
    deliver.bury.as_deref().or(expired.then_some(DeadReason::Expired.as_str()))
}
