//! Which callback topics go through the quarantine lane, how long a failing one rests, what is beyond hope (R7, R41).

use super::config::SlotConfig;
use super::io::{Fault, FaultKind, Lane, SendOutcome};
use crate::slot_store::Topic;
use schemas::delivery::DeadReason;
use schemas::ids::RowGen;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Failures that lie further apart than this are counted from one again.
const FORGIVE_AFTER_MS: i64 = 600_000;
/// Topics remembered. The one not used for longest goes first; it only costs it another trial.
const MOST_TOPICS: usize = 10_000;
/// Condemned records remembered; a forgotten one is condemned again by its next trial.
const MOST_CONDEMNED: usize = 20_000;

/// Where a topic's records go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOf {
    /// With all others.
    Main,
    /// Alone, not before this time on the monotonic clock.
    Quarantine {
        /// Monotonic ms.
        not_before_ms: i64,
    },
}

#[derive(Clone, Debug)]
struct Standing {
    proven: bool,
    strikes: u32,
    struck_mono_ms: i64,
    not_before_ms: i64,
    /// Members per quarantine transaction: halves when a transaction fails and no record is to blame.
    limit: usize,
    denied_until_ms: Option<(i64, DeadReason)>,
    used: u64,
}

/// What is remembered of topics. Survives take-overs, not the process: a new one tries every topic once in quarantine.
#[derive(Debug)]
pub(super) struct Lanes {
    topics: HashMap<Topic, Standing>,
    condemned: HashMap<RowGen, DeadReason>,
    uses: u64,
    whole: usize,
    backoff_min_ms: i64,
    backoff_max_ms: i64,
    denied_ms: i64,
}

/// Who is to blame for an aborted transaction.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Blame {
    /// Topics and what the client says.
    pub(super) culprits: Vec<(Topic, String)>,
    /// Nothing that a topic could be blamed for: the journal or the producer failed.
    pub(super) general: Option<String>,
}

impl Lanes {
    pub(super) fn new(config: &SlotConfig) -> Lanes {
        Lanes {
            topics: HashMap::new(),
            condemned: HashMap::new(),
            uses: 0,
            whole: config.batch_entries,
            backoff_min_ms: config.topic_backoff_min_ms,
            backoff_max_ms: config.topic_backoff_max_ms,
            denied_ms: config.denied_ms,
        }
    }

    pub(super) fn lane_of(&self, topic: &Topic) -> LaneOf {
        match self.topics.get(topic) {
            Some(standing) if standing.proven => LaneOf::Main,
            Some(standing) => LaneOf::Quarantine { not_before_ms: standing.not_before_ms },
            None => LaneOf::Quarantine { not_before_ms: i64::MIN },
        }
    }

    /// Members that one quarantine transaction of this topic may hold.
    pub(super) fn limit(&self, topic: &Topic) -> usize {
        self.topics.get(topic).map_or(self.whole, |standing| standing.limit)
    }

    /// Number of topics that failed and have not succeeded since.
    pub(super) fn quarantined(&self) -> usize {
        self.topics.values().filter(|standing| !standing.proven && standing.strikes > 0).count()
    }

    /// Of these topics, the one whose last trial lies furthest back.
    pub(super) fn least_recent(&self, topics: &[&Topic]) -> Option<Topic> {
        let used = |topic: &&&Topic| self.topics.get(**topic).map_or(0, |standing| standing.used);
        topics.iter().min_by_key(used).map(|topic| Topic::clone(topic))
    }

    /// Why this record must be buried without another trial.
    pub(super) fn doomed(&self, topic: &Topic, row_gen: RowGen, mono_ms: i64) -> Option<DeadReason> {
        self.condemned.get(&row_gen).copied().or_else(|| {
            let (until, why) = self.topics.get(topic)?.denied_until_ms?;
            (mono_ms < until).then_some(why)
        })
    }

    fn standing(&mut self, topic: &Topic) -> &mut Standing {
        if !self.topics.contains_key(topic) && self.topics.len() >= MOST_TOPICS {
            let oldest =
                self.topics.iter().min_by_key(|(_, standing)| standing.used).map(|(topic, _)| topic.clone());
            if let Some(oldest) = oldest {
                self.topics.remove(&oldest);
            }
        }
        self.uses += 1;
        let whole = self.whole;
        let standing = self.topics.entry(Topic::clone(topic)).or_insert_with(|| Standing {
            proven: false,
            strikes: 0,
            struck_mono_ms: 0,
            not_before_ms: i64::MIN,
            limit: whole,
            denied_until_ms: None,
            used: 0,
        });
        standing.used = self.uses;
        standing
    }

    /// A transaction with this topic was committed.
    pub(super) fn succeeded(&mut self, lane: Lane, topic: &Topic) {
        let whole = self.whole;
        let standing = self.standing(topic);
        match lane {
            Lane::Main => {}
            // Halved batches grow again before the topic is trusted with the others.
            Lane::Quarantine if standing.limit < whole => standing.limit = (standing.limit * 2).min(whole),
            Lane::Quarantine => standing.proven = true,
        }
        standing.not_before_ms = i64::MIN;
        standing.denied_until_ms = None;
    }

    /// These are settled: nothing to remember of them.
    pub(super) fn settled(&mut self, row_gen: RowGen) {
        self.condemned.remove(&row_gen);
    }

    fn failed(&mut self, topic: &Topic, mono_ms: i64) {
        let (least, most) = (self.backoff_min_ms, self.backoff_max_ms);
        let standing = self.standing(topic);
        if mono_ms - standing.struck_mono_ms > FORGIVE_AFTER_MS {
            standing.strikes = 0;
        }
        standing.strikes += 1;
        standing.struck_mono_ms = mono_ms;
        standing.proven = false;
        let pause = least.saturating_mul(1 << (standing.strikes - 1).min(20)).min(most);
        standing.not_before_ms = mono_ms + pause;
    }

    /// Finds the culprits of an aborted transaction and remembers them. `records`: topic and member of each report, `None`
    /// for records of `dead`.
    pub(super) fn blame(
        &mut self,
        lane: Lane,
        records: &[Option<(Topic, RowGen)>],
        outcome: &SendOutcome,
        mono_ms: i64,
    ) -> Blame {
        let general = general_fault(records, outcome);
        let mut failing: HashMap<Topic, String> = HashMap::new();
        let mut buried_later: BTreeSet<Topic> = BTreeSet::new();
        let crowds = self.part_crowds(records, outcome);
        for (record, report) in records.iter().zip(&outcome.reports) {
            let (Some((topic, row_gen)), Err(fault)) = (record, report) else { continue };
            match permanent(fault.kind) {
                Some((_, false)) if crowds.contains(topic) => {
                    failing.entry(Topic::clone(topic)).or_insert_with(|| fault.text.clone());
                }
                Some((why, whole_topic)) => {
                    self.condemn(*row_gen, why);
                    buried_later.insert(Topic::clone(topic));
                    failing.entry(Topic::clone(topic)).or_insert_with(|| fault.text.clone());
                    if whole_topic {
                        let until = mono_ms + self.denied_ms;
                        self.standing(topic).denied_until_ms = Some((until, why));
                    }
                }
                None if !matches!(fault.kind, FaultKind::Purged | FaultKind::Fatal) && general.is_none() => {
                    buried_later.remove(topic);
                    failing.insert(Topic::clone(topic), fault.text.clone());
                }
                None => {}
            }
        }
        for topic in failing.keys() {
            if buried_later.contains(topic) || crowds.contains(topic) {
                // What was permanent is buried next time; the rest of the topic need not wait for that.
                self.standing(topic).proven = false;
            } else {
                self.failed(topic, mono_ms);
            }
        }
        if failing.is_empty() && general.is_none() {
            self.suspect_all(lane, records, mono_ms);
        }
        Blame { culprits: failing.into_iter().collect(), general }
    }

    /// The broker says *too large* of every record of a batch, and may say *invalid* of all for the sake of one, so that
    /// condemns a record only where it was alone. The others are tried in halves.
    fn part_crowds(&mut self, records: &[Option<(Topic, RowGen)>], outcome: &SendOutcome) -> BTreeSet<Topic> {
        let mut sizes: BTreeMap<Topic, usize> = BTreeMap::new();
        for (record, report) in records.iter().zip(&outcome.reports) {
            if let (Some((topic, _)), Err(fault)) = (record, report)
                && matches!(permanent(fault.kind), Some((_, false)))
            {
                *sizes.entry(Topic::clone(topic)).or_default() += 1;
            }
        }
        sizes.retain(|_, size| *size > 1);
        for (topic, size) in &sizes {
            self.standing(topic).limit = size.div_ceil(2);
        }
        sizes.into_keys().collect()
    }

    /// Nobody is to blame: one topic per transaction, then halves, then pauses.
    fn suspect_all(&mut self, lane: Lane, records: &[Option<(Topic, RowGen)>], mono_ms: i64) {
        let mut sizes: HashMap<Topic, usize> = HashMap::new();
        for (topic, _) in records.iter().flatten() {
            *sizes.entry(Topic::clone(topic)).or_default() += 1;
        }
        for (topic, size) in sizes {
            match (lane, size) {
                (Lane::Main, _) => self.standing(&topic).proven = false,
                (Lane::Quarantine, 1) => self.failed(&topic, mono_ms),
                (Lane::Quarantine, size) => self.standing(&topic).limit = size.div_ceil(2),
            }
        }
    }

    fn condemn(&mut self, row_gen: RowGen, why: DeadReason) {
        if self.condemned.len() >= MOST_CONDEMNED {
            self.condemned.clear();
        }
        self.condemned.insert(row_gen, why);
    }
}

fn general_fault(records: &[Option<(Topic, RowGen)>], outcome: &SendOutcome) -> Option<String> {
    let journal = outcome.journal.as_ref().err();
    let dead = records.iter().zip(&outcome.reports).filter(|(record, _)| record.is_none());
    let mut faults = journal.into_iter().chain(dead.filter_map(|(_, report)| report.as_ref().err()));
    let fatal = outcome
        .reports
        .iter()
        .filter_map(|report| report.as_ref().err())
        .find(|f| f.kind == FaultKind::Fatal);
    faults.find(|fault| fault.kind != FaultKind::Purged).or(fatal).map(|fault: &Fault| fault.text.clone())
}

/// Reason of a permanent fault, and whether it holds for the whole topic. A topic or partition that a producer does not
/// know may be missing in its metadata only: it rests, and what fresh metadata says then is final.
fn permanent(kind: FaultKind) -> Option<(DeadReason, bool)> {
    match kind {
        FaultKind::TooLarge => Some((DeadReason::TooLarge, false)),
        FaultKind::Invalid => Some((DeadReason::InvalidRecord, false)),
        FaultKind::NotAuthorised => Some((DeadReason::NotAuthorized, true)),
        FaultKind::UnknownTopic
        | FaultKind::UnknownPartition
        | FaultKind::Purged
        | FaultKind::Transient
        | FaultKind::Fatal => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::ids::{Generation, RowId};

    fn lanes() -> Lanes {
        Lanes::new(&SlotConfig::default())
    }

    fn record(topic: &str, id: u64) -> Option<(Topic, RowGen)> {
        Some((Topic::from(topic), RowGen { id: RowId(id), generation: Generation(1) }))
    }

    fn fault(kind: FaultKind) -> Fault {
        Fault { kind, text: format!("{kind:?}") }
    }

    fn outcome(reports: Vec<Result<(), Fault>>) -> SendOutcome {
        SendOutcome { reports, journal: Err(fault(FaultKind::Purged)) }
    }

    #[test]
    fn a_new_topic_is_tried_alone_and_joins_the_others_after_a_success() {
        let (mut lanes, topic) = (lanes(), Topic::from("a"));
        assert!(matches!(lanes.lane_of(&topic), LaneOf::Quarantine { .. }));
        lanes.succeeded(Lane::Quarantine, &topic);
        assert_eq!(lanes.lane_of(&topic), LaneOf::Main);
    }

    #[test]
    fn the_culprit_rests_longer_each_time_and_its_neighbours_do_not() {
        let mut lanes = lanes();
        for topic in ["bad", "good"] {
            lanes.succeeded(Lane::Quarantine, &Topic::from(topic));
        }
        let records = [record("bad", 1), record("good", 2)];
        let failed = outcome(vec![Err(fault(FaultKind::Transient)), Err(fault(FaultKind::Purged))]);
        for (round, pause) in [1_000, 2_000, 4_000].into_iter().enumerate() {
            let now = round as i64 * 10_000;
            lanes.blame(Lane::Main, &records, &failed, now);
            assert_eq!(lanes.lane_of(&Topic::from("bad")), LaneOf::Quarantine { not_before_ms: now + pause });
        }
        assert_eq!(lanes.lane_of(&Topic::from("good")), LaneOf::Main);
    }

    #[test]
    fn too_large_said_of_several_condemns_none_until_they_were_tried_alone() {
        let mut lanes = lanes();
        let topic = Topic::from("a");
        let records: Vec<_> = (0..4).map(|n| record("a", n)).collect();
        let all = |n: usize| outcome(vec![Err(fault(FaultKind::TooLarge)); n]);
        let first = records[0].clone().unwrap().1;
        for (size, limit) in [(4, 2), (2, 1)] {
            lanes.blame(Lane::Quarantine, &records[..size], &all(size), 0);
            assert_eq!((lanes.limit(&topic), lanes.doomed(&topic, first, 0)), (limit, None));
        }
        lanes.blame(Lane::Quarantine, &records[..1], &all(1), 0);
        assert_eq!(lanes.doomed(&topic, first, 0), Some(DeadReason::TooLarge));
    }

    #[test]
    fn invalid_said_of_several_condemns_none_until_they_were_tried_alone() {
        let mut lanes = lanes();
        let records: Vec<_> = (0..2).map(|n| record("a", n)).collect();
        let all = |n: usize| outcome(vec![Err(fault(FaultKind::Invalid)); n]);
        let first = records[0].clone().unwrap().1;
        lanes.blame(Lane::Main, &records, &all(2), 0);
        assert_eq!((lanes.limit(&Topic::from("a")), lanes.doomed(&Topic::from("a"), first, 0)), (1, None));
        lanes.blame(Lane::Quarantine, &records[..1], &all(1), 0);
        assert_eq!(lanes.doomed(&Topic::from("a"), first, 0), Some(DeadReason::InvalidRecord));
    }

    #[test]
    fn when_the_journal_itself_fails_no_topic_is_blamed() {
        let mut lanes = lanes();
        lanes.succeeded(Lane::Quarantine, &Topic::from("a"));
        let all_down = SendOutcome {
            reports: vec![Err(fault(FaultKind::Transient))],
            journal: Err(fault(FaultKind::Transient)),
        };
        let blame = lanes.blame(Lane::Main, &[record("a", 1)], &all_down, 0);
        assert!(blame.culprits.is_empty() && blame.general.is_some());
        assert_eq!(lanes.lane_of(&Topic::from("a")), LaneOf::Main);
    }

    #[test]
    fn without_a_culprit_topics_are_tried_alone_then_in_halves() {
        let mut lanes = lanes();
        let topic = Topic::from("a");
        lanes.succeeded(Lane::Quarantine, &topic);
        let records: Vec<_> = (0..8).map(|n| record("a", n)).collect();
        let nobody = SendOutcome { reports: vec![Ok(()); 8], journal: Ok(vec![]) };
        lanes.blame(Lane::Main, &records, &nobody, 0);
        assert!(matches!(lanes.lane_of(&topic), LaneOf::Quarantine { .. }));
        lanes.blame(Lane::Quarantine, &records, &nobody, 0);
        assert_eq!(lanes.limit(&topic), 4);
        lanes.blame(Lane::Quarantine, &records[..1], &nobody, 0);
        assert_eq!(lanes.lane_of(&topic), LaneOf::Quarantine { not_before_ms: 1_000 });
    }

    #[test]
    fn what_is_too_large_dooms_the_record_and_what_is_not_authorised_the_topic() {
        let mut lanes = lanes();
        let (big, denied) = (record("a", 1), record("b", 2));
        let failed = outcome(vec![Err(fault(FaultKind::TooLarge)), Err(fault(FaultKind::NotAuthorised))]);
        lanes.blame(Lane::Main, &[big.clone(), denied], &failed, 0);
        let (topic, row_gen) = big.unwrap();
        assert_eq!(lanes.doomed(&topic, row_gen, 0), Some(DeadReason::TooLarge));
        let other = RowGen { id: RowId(9), generation: Generation(1) };
        assert_eq!(lanes.doomed(&topic, other, 0), None);
        assert_eq!(lanes.doomed(&Topic::from("b"), other, 0), Some(DeadReason::NotAuthorized));
        assert_eq!(lanes.doomed(&Topic::from("b"), other, 60_000), None, "tried again after a while");
        assert_eq!(lanes.lane_of(&topic), LaneOf::Quarantine { not_before_ms: i64::MIN });
    }
}
