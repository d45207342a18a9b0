//! Due records on their way into Redis, and what only memory knows of them until the journal says it.

use super::decide::{Drop, Verdict, decide};
use super::delivery::{Intent, Stale};
use super::due_pos::DuePos;
use super::event::{Alarm, Event};
use super::logs::DueItem;
use super::settled::Settled;
use super::strays::{StrayEnd, Strays};
use crate::slot_store::{Body, MAX_BYTES, MAX_MEMBERS, PreloadOutcome, PreloadRecord, Topic};
use schemas::due::{DueKind, DueRecord};
use schemas::ids::RowGen;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Everything that came from `due[s]` and is not in Redis or the journal.
#[derive(Debug, Default)]
pub(super) struct Intake {
    inbox: VecDeque<DueItem>,
    held: HashMap<RowGen, Vec<DueItem>>,
    intents: BTreeMap<RowGen, Intent>,
    stales: Vec<Stale>,
    pub(super) strays: Strays,
    position: DuePos,
    /// Fences below this were found not to fit the cap (until then).
    given_up: Option<(i64, i64)>,
}

/// Decisions for the head of the inbox, not carried out yet.
#[derive(Debug)]
pub(super) struct Plan {
    items: Vec<(DueItem, Verdict)>,
    pub(super) records: Vec<PreloadRecord>,
    position: DuePos,
}

impl Plan {
    pub(super) fn due_pos(&self) -> i64 {
        self.position.position()
    }
}

/// What to do with the head of the inbox.
#[derive(Debug)]
pub(super) enum Planned {
    /// Read the journal from here up to `low` first (J2).
    ReadBelow(i64),
    /// Carry this out (script `preload` if there are records).
    Ready(Plan),
}

impl Intake {
    pub(super) fn at(due_pos: i64) -> Intake {
        Intake { position: DuePos::at(due_pos), ..Intake::default() }
    }

    pub(super) fn push(&mut self, items: Vec<DueItem>) {
        self.inbox.extend(items);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.inbox.len()
    }

    pub(super) fn due_pos(&self) -> i64 {
        self.position.position()
    }

    /// Records that memory alone holds back from `due_pos`.
    pub(super) fn unsettled(&self) -> usize {
        self.position.held().max(self.intents.len())
    }

    /// Something waits for the next transaction.
    pub(super) fn has_entries(&self) -> bool {
        !self.intents.is_empty() || !self.stales.is_empty()
    }

    /// Intents found in prepare by a take-over. Their records will be read again from `due`.
    pub(super) fn adopt(&mut self, intents: impl IntoIterator<Item = Intent>) {
        self.intents.extend(intents.into_iter().map(|intent| (intent.row_gen, intent)));
    }

    /// Decides for the head of the inbox, as much as one script call takes. Changes nothing.
    pub(super) fn plan(&mut self, settled: &Settled, flying: &HashSet<RowGen>, mono_ms: i64) -> Planned {
        let mut bytes = 0;
        let mut head = 0;
        let mut verdicts = Vec::new();
        let mut lowest: Option<i64> = None;
        let given_up =
            self.given_up.filter(|(_, until)| mono_ms < *until).map_or(i64::MIN, |(fence, _)| fence);
        for item in self.inbox.iter().take(MAX_MEMBERS) {
            if head > 0 && bytes + item.bytes.len() >= MAX_BYTES {
                break;
            }
            bytes += item.bytes.len() + 1;
            head += 1;
            let verdict =
                item.record.as_ref().map_or(Verdict::Stray, |record| decide(record, settled, flying));
            if let (Verdict::BelowLow, Ok(record)) = (verdict, &item.record)
                && record.fence >= given_up
            {
                lowest = Some(lowest.map_or(record.fence, |fence| fence.min(record.fence)));
            }
            verdicts.push(verdict);
        }
        if let Some(fence) = lowest {
            return Planned::ReadBelow(fence);
        }
        let items: Vec<_> = self.inbox.drain(..head).zip(verdicts).collect();
        Planned::Ready(self.plan_of(items))
    }

    fn plan_of(&self, items: Vec<(DueItem, Verdict)>) -> Plan {
        let mut position = self.position.clone();
        let mut records = Vec::new();
        for (item, verdict) in &items {
            match verdict {
                Verdict::Drop(_) | Verdict::Store => position.pass(item.offset),
                Verdict::Intent | Verdict::Hold | Verdict::BelowLow | Verdict::Stray => {
                    position.hold(item.offset);
                }
            }
            if let (Verdict::Store | Verdict::Intent, Ok(record)) = (verdict, &item.record) {
                let body = match record.kind {
                    DueKind::Deliver(_) => Body::deliver(&item.bytes),
                    DueKind::Withdraw => Body::withdraw(&item.bytes),
                };
                records.push(PreloadRecord {
                    topic: Topic::from(record.callback_topic.as_str()),
                    member: record.row_gen(),
                    due_at: record.due_at,
                    fence: record.fence,
                    body,
                });
            }
        }
        Plan { items, records, position }
    }

    /// The plan cannot be carried out now: what it took goes back to the head of the inbox, to be decided anew (H8).
    pub(super) fn put_back(&mut self, plan: Plan) {
        for (item, _) in plan.items.into_iter().rev() {
            self.inbox.push_front(item);
        }
    }

    /// The plan was carried out.
    pub(super) fn carried_out(&mut self, plan: Plan, outcomes: &[PreloadOutcome], events: &mut Vec<Event>) {
        self.position = plan.position;
        let mut outcomes = outcomes.iter();
        let mut drops: HashMap<Drop, usize> = HashMap::new();
        let (mut stored, mut stale, mut held) = (0, 0, 0);
        for (item, verdict) in plan.items {
            let outcome = match verdict {
                Verdict::Store | Verdict::Intent => outcomes.next(),
                Verdict::Drop(_) | Verdict::Hold | Verdict::BelowLow | Verdict::Stray => None,
            };
            match (verdict, item.record.as_ref()) {
                (Verdict::Drop(why), _) => *drops.entry(why).or_default() += 1,
                (_, Err(stray)) => {
                    let bytes = stray.value.as_ref().map_or(0, Vec::len);
                    let text = format!("offset {}, {bytes} bytes: {}", item.offset, stray.problem);
                    events.push(Event::Alarm(Alarm::BadDueRecord, text));
                    *drops.entry(Drop::Unusable).or_default() += 1;
                    self.strays.add(Arc::clone(stray));
                }
                (Verdict::Store, _) if outcome == Some(&PreloadOutcome::Stored) => stored += 1,
                (Verdict::Store, _) => *drops.entry(Drop::Waiting).or_default() += 1,
                (Verdict::Intent, Ok(record)) => self.add_intent(record, item.offset),
                (Verdict::Hold, Ok(record)) => {
                    held += 1;
                    self.held.entry(record.row_gen()).or_default().push(item);
                }
                (Verdict::BelowLow, Ok(record)) => {
                    stale += 1;
                    let (row_gen, shard, due_at) = (record.row_gen(), record.shard, record.due_at);
                    self.stales.push(Stale { row_gen, shard, due_at, offset: item.offset });
                }
                (Verdict::Stray, Ok(_)) => {}
            }
        }
        events.extend(drops.into_iter().map(|(why, n)| Event::Dropped(why, n)));
        let counts =
            [(stored, Event::Preloaded(stored)), (stale, Event::Stale(stale)), (held, Event::Held(held))];
        events.extend(counts.into_iter().filter(|(n, _)| *n > 0).map(|(_, event)| event));
    }

    fn add_intent(&mut self, record: &DueRecord, offset: i64) {
        let intent = self.intents.entry(record.row_gen()).or_insert_with(|| Intent {
            topic: Topic::from(record.callback_topic.as_str()),
            row_gen: record.row_gen(),
            shard: record.shard,
            due_at: record.due_at,
            offsets: Vec::new(),
        });
        intent.offsets.push(offset);
    }

    /// Reading below `low` went down to `from` only: what asks for less is stale for a while.
    pub(super) fn give_up_below(&mut self, from: i64, until_mono_ms: i64) {
        self.given_up = Some((from, until_mono_ms));
    }

    /// Intents and stale records for the next transaction, oldest first.
    pub(super) fn take_entries(&mut self, limit: usize) -> (Vec<Intent>, Vec<Stale>) {
        let mut intents = Vec::new();
        while intents.len() < limit
            && let Some((_, intent)) = self.intents.pop_first()
        {
            intents.push(intent);
        }
        let stales = self.stales.drain(..self.stales.len().min(limit - intents.len())).collect();
        (intents, stales)
    }

    /// The entry of this intent stands in the journal.
    pub(super) fn intent_settled(&mut self, intent: &Intent) {
        intent.offsets.iter().for_each(|offset| self.position.pass(*offset));
    }

    /// The entry of this stale record stands in the journal.
    pub(super) fn stale_settled(&mut self, stale: &Stale) {
        self.position.pass(stale.offset);
    }

    /// Copies of strays have come to an end.
    pub(super) fn strays_ended(&mut self, ends: Vec<StrayEnd>, mono_ms: i64, events: &mut Vec<Event>) {
        for offset in self.strays.ended(ends, mono_ms, events) {
            self.position.pass(offset);
        }
    }

    /// The member is settled: a withdraw held for it is answered by the row's own entry.
    pub(super) fn outcome_settled(&mut self, row_gen: RowGen) {
        for item in self.held.remove(&row_gen).unwrap_or_default() {
            self.position.pass(item.offset);
        }
    }

    /// The member went back to store: a withdraw held for it is decided anew, before anything else.
    pub(super) fn outcome_released(&mut self, row_gen: RowGen) {
        for item in self.held.remove(&row_gen).unwrap_or_default().into_iter().rev() {
            self.inbox.push_front(item);
        }
    }
}
