//! Random sequences of calls by two processes, with keys lost, swapped and rolled back in between: the real scripts and
//! the pure model answer the same and leave the same keys.

use super::world::{Dumps, World, member, token};
use proptest::prelude::*;
use protocol::slot_store::model::{Answer, Damage, Found, SlotStoreModel, Ticket};
use protocol::slot_store::{
    Body, ColdCause, Entry, Positions, PreloadRecord, Quota, Refusal, Returned, TakenOver, Topic,
};
use runtime::slots::{SlotError, SlotStore};
use schemas::ids::RowGen;
use std::fmt::Debug;
use std::time::Duration;

const MEMBERS: usize = 12;
/// Never reached by Redis TIME.
const FAR: i64 = 7_000_000_000_000;

#[derive(Clone, Debug)]
enum Op {
    TakeOver { finish: bool },
    Preload(Vec<(usize, bool)>),
    Claim { now: i64, quotas: Vec<u32>, max_bytes: usize },
    Settle(Vec<usize>),
    SettleFates { fates: Vec<usize>, rebuilt: bool },
    Release { members: Vec<usize>, delayed: bool },
    ReturnPrepared,
    NextTopics,
    StartCold,
    Forget,
    Damage(usize, usize, usize),
    Snapshot,
    Restore,
}

fn which() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..MEMBERS, 0..6)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => prop::bool::weighted(0.9).prop_map(|finish| Op::TakeOver { finish }),
        8 => prop::collection::vec((0..MEMBERS, prop::bool::weighted(0.2)), 0..8).prop_map(Op::Preload),
        8 => (prop::sample::select(vec![0, 1_000, 1_001, 1_002, i64::MAX]), prop::collection::vec(0u32..4, 1..4), 1usize..400)
            .prop_map(|(now, quotas, max_bytes)| Op::Claim { now, quotas, max_bytes }),
        5 => which().prop_map(Op::Settle),
        2 => (which(), any::<bool>()).prop_map(|(fates, rebuilt)| Op::SettleFates { fates, rebuilt }),
        4 => (which(), any::<bool>()).prop_map(|(members, delayed)| Op::Release { members, delayed }),
        2 => Just(Op::ReturnPrepared),
        1 => Just(Op::NextTopics),
        1 => Just(Op::StartCold),
        1 => Just(Op::Forget),
        2 => (0usize..14, 0..MEMBERS, 0..MEMBERS).prop_map(|(kind, a, b)| Op::Damage(kind, a, b)),
        1 => Just(Op::Snapshot),
        1 => Just(Op::Restore),
    ]
}

/// Topics with characters that a pattern or a careless key builder would trip over.
fn topic(n: usize) -> Topic {
    ["orders.a", "b:{9}*", "c"][n % 3].into()
}

fn row_gen(n: usize) -> RowGen {
    // Ids beyond 2^53 that differ in the lowest bits or in gen only.
    member(u64::MAX - n as u64 / 2, 1 + n as u32 % 2)
}

fn record(n: usize, withdraw: bool) -> PreloadRecord {
    let due_at = [1_000, 1_001, 1_001, 1_002, FAR][n % 5];
    let text = format!("{}|{}", topic(n), "x".repeat(n * 20));
    let body = if withdraw { Body::withdraw(text.as_bytes()) } else { Body::deliver(text.as_bytes()) };
    PreloadRecord { topic: topic(n), member: row_gen(n), due_at, fence: 9 + 7 * n as i64, body }
}

fn topic_of(body: &Body) -> Option<Topic> {
    Some(std::str::from_utf8(body.record()).ok()?.split_once('|')?.0.into())
}

fn entry(n: usize) -> Entry {
    Entry { topic: topic(n), member: row_gen(n) }
}

fn damage(kind: usize, a: usize, b: usize) -> Damage {
    match kind {
        0 => Damage::All,
        1 => Damage::Meta,
        2 => Damage::Body,
        3 => Damage::Topics,
        4 => Damage::Store(topic(a)),
        5 => Damage::Prepare(topic(a)),
        6 => Damage::StoreMember(topic(a), row_gen(a)),
        7 => Damage::PrepareMember(topic(a), row_gen(a)),
        8 => Damage::BodyOf(row_gen(a)),
        9 => Damage::BodyMoved(row_gen(a), row_gen(b)),
        // What no count shows must be tried more often.
        10 | 12 | 13 => Damage::StoreMemberSwapped(topic(a), row_gen(a), row_gen(a % 3 + b / 3 * 3)),
        _ => Damage::Unanswered,
    }
}

/// One process as the model knows it.
struct Process {
    real: SlotStore,
    ticket: Option<Ticket>,
    ready: bool,
    members: u64,
    prepared: Vec<Topic>,
}

struct Case {
    world: World,
    model: SlotStoreModel,
    processes: Vec<Process>,
    snapshot: Option<(SlotStoreModel, Dumps)>,
    count: u64,
}

fn same<T: Debug + PartialEq>(real: &Result<T, SlotError>, expected: &Result<T, Refusal>) {
    let agree = match (real, expected) {
        (Ok(a), Ok(b)) => a == b,
        (Err(SlotError::Fenced), Err(Refusal::Fenced))
        | (Err(SlotError::RolledBack), Err(Refusal::RolledBack))
        | (Err(SlotError::Lost), Err(Refusal::Lost)) => true,
        _ => false,
    };
    assert!(agree, "real: {real:?}\nmodel: {expected:?}");
}

impl Process {
    /// What the model did with the ticket; `None` where there was no ticket to show.
    fn step<T>(
        &mut self,
        run: impl FnOnce(Ticket, i64) -> Result<Answer<T>, Refusal>,
    ) -> Option<Result<T, Refusal>> {
        let ticket = self.ticket.take_if(|_| self.ready)?;
        Some(run(ticket, self.real.state().redis_at).map(|answer| {
            assert_eq!(self.real.state(), answer.state);
            self.members = answer.state.members;
            self.ticket = Some(Ticket { seq: answer.seq, ..ticket });
            answer.value
        }))
    }

    fn compare<T: Debug + PartialEq>(
        &self,
        real: &Result<T, SlotError>,
        expected: &Option<Result<T, Refusal>>,
    ) {
        match expected {
            None => assert!(matches!(real, Err(SlotError::NotOwner)), "{real:?}"),
            Some(expected) => same(real, expected),
        }
        assert_eq!(self.real.is_owner(), self.ticket.is_some() && self.ready);
    }
}

impl Case {
    async fn new() -> Case {
        let world = World::new().await;
        let mut processes = Vec::new();
        for _ in 0..2 {
            let real = world.store().await;
            processes.push(Process { real, ticket: None, ready: false, members: 0, prepared: Vec::new() });
        }
        Case { world, model: SlotStoreModel::default(), processes, snapshot: None, count: 0 }
    }

    async fn run(mut self, ops: Vec<(usize, Op)>) {
        for (who, op) in ops {
            self.count += 1;
            self.apply(who, op).await;
            assert_eq!(self.world.read().await, self.model);
        }
        self.world.unlink_all().await;
    }

    async fn apply(&mut self, who: usize, op: Op) {
        let (model, count) = (&mut self.model, self.count as i64);
        let p = &mut self.processes[who];
        match op {
            Op::TakeOver { finish } => {
                let new = token(self.count);
                let real = p.real.take_over(new).await.unwrap();
                let expected = model_take_over(model, p, new);
                assert_eq!(real, expected);
                if let (TakenOver::Cold(_), true) = (real, finish) {
                    self.start_cold(who).await;
                }
            }
            Op::StartCold => self.start_cold(who).await,
            Op::Preload(records) => {
                let records: Vec<_> = records.into_iter().map(|(n, withdraw)| record(n, withdraw)).collect();
                let real = p.real.preload(&records, count).await;
                let expected = p.step(|ticket, at| model.preload(ticket, at, &records, Some(count)));
                p.compare(&real, &expected);
            }
            Op::Claim { now, quotas, max_bytes } => {
                let quotas: Vec<_> = quotas
                    .into_iter()
                    .enumerate()
                    .map(|(n, limit)| Quota { topic: topic(n), limit })
                    .collect();
                let real = p.real.claim(now, &quotas, max_bytes).await;
                let expected = p.step(|ticket, at| model.claim(ticket, at, now, &quotas, max_bytes));
                p.compare(&real, &expected);
            }
            Op::Settle(members) => {
                let entries: Vec<_> = members.into_iter().map(entry).collect();
                let due_pos = (count % 2 == 0).then_some(count);
                let real = p.real.settle(&entries, count, due_pos).await;
                let expected =
                    p.step(|ticket, at| model.settle(ticket, at, &entries, Some(count), due_pos, false));
                p.compare(&real, &expected);
            }
            Op::SettleFates { fates, rebuilt } => {
                let fates: Vec<_> = fates.into_iter().map(row_gen).collect();
                let real = p.real.settle_fates(&fates, count, rebuilt, topic_of).await;
                let entries: Vec<_> = fates
                    .iter()
                    .filter(|_| p.members > 0)
                    .filter_map(|m| Some(Entry { topic: topic_of(model.body.get(m)?).unwrap(), member: *m }))
                    .collect();
                let expected =
                    p.step(|ticket, at| model.settle(ticket, at, &entries, Some(count), None, rebuilt));
                p.compare(&real, &expected);
            }
            Op::Release { members, delayed } => {
                let entries: Vec<_> = members.into_iter().map(entry).collect();
                let delay = Duration::from_secs(if delayed { 3_600 } else { 0 });
                let real = p.real.release(&entries, delay).await;
                if entries.is_empty() {
                    assert!(real.is_ok());
                    return;
                }
                let delay_ms = delay.as_millis() as i64;
                let expected = p.step(|ticket, at| model.release(ticket, at, &entries, delay_ms));
                p.compare(&real, &expected);
            }
            Op::ReturnPrepared => {
                let real = p.real.return_prepared().await;
                let expected = model_return_prepared(model, p);
                p.compare(&real, &expected);
            }
            Op::NextTopics => {
                let real = p.real.next_topics(2).await;
                let expected = p.step(|ticket, at| model.look(ticket, at, &[], i64::MAX, 2));
                p.compare(&real, &expected);
            }
            Op::Forget => {
                let real = p.real.forget().await;
                let ticket = p.ticket.take();
                match ticket.map(|ticket| model.forget(ticket.token)) {
                    None => assert!(matches!(real, Err(SlotError::NotOwner)), "{real:?}"),
                    Some(Err(Refusal::Lost)) => assert!(real.is_ok(), "{real:?}"),
                    Some(expected) => same(&real, &expected),
                }
                p.members = p.real.state().members;
            }
            Op::Damage(kind, a, b) => {
                let damage = damage(kind, a, b);
                self.world.damage(&damage).await;
                model.damage(&damage);
            }
            Op::Snapshot => self.snapshot = Some((model.clone(), self.world.snapshot().await)),
            Op::Restore => {
                if let Some((old, dumps)) = &self.snapshot {
                    self.world.restore(dumps).await;
                    *model = old.clone();
                }
            }
        }
    }

    async fn start_cold(&mut self, who: usize) {
        let n = self.count as i64;
        let positions = Positions { due_pos: n, jpos: n + 1, fence: n + 2 };
        let (model, p) = (&mut self.model, &mut self.processes[who]);
        let real = p.real.start_cold(positions).await.map(|_| ());
        p.prepared.clear();
        let expected = p.ticket.take().map(|mut ticket| {
            if model.has_leftovers() {
                ticket.seq = model.sweep(ticket)?;
            }
            let answer = model.start_cold(ticket, p.real.state().redis_at, positions)?;
            assert_eq!(p.real.state(), answer.state);
            (p.ticket, p.ready, p.members) = (Some(Ticket { seq: answer.seq, ..ticket }), true, 0);
            Ok(())
        });
        p.compare(&real, &expected);
    }
}

/// The steps of [`SlotStore::take_over`] on the model.
fn model_take_over(
    model: &mut SlotStoreModel,
    p: &mut Process,
    token: schemas::journal::OwnerToken,
) -> TakenOver {
    p.prepared.clear();
    let mut off = false;
    loop {
        let answer = model.take_over(token, p.real.state().redis_at);
        p.ticket = Some(Ticket { token, seq: answer.seq });
        p.ready = false;
        p.members = answer.state.members;
        match answer.value {
            Found::Cold(cause) => return TakenOver::Cold(if off { ColdCause::CountsOff } else { cause }),
            Found::Warm(meta) if meta.adds_up() => {
                p.ready = true;
                let topics: Vec<_> = meta.sizes.keys().cloned().collect();
                let looked = match (p.ticket, topics.is_empty()) {
                    (Some(ticket), false) => model.look(ticket, 0, &topics, 0, 0).map(|answer| {
                        p.ticket = Some(Ticket { seq: answer.seq, ..ticket });
                    }),
                    _ => Ok(()),
                };
                if looked.is_ok() {
                    p.prepared =
                        meta.sizes.iter().filter(|(_, n)| n.prepare > 0).map(|(t, _)| t.clone()).collect();
                    return TakenOver::Warm(meta.positions);
                }
                off = true;
            }
            Found::Warm(_) => {
                model.forget(token).unwrap();
                off = true;
            }
        }
    }
}

/// The steps of [`SlotStore::return_prepared`] on the model.
fn model_return_prepared(model: &mut SlotStoreModel, p: &mut Process) -> Option<Result<Returned, Refusal>> {
    let mut all = Returned::default();
    let topics = std::mem::take(&mut p.prepared);
    let last = topics.len().saturating_sub(1);
    for (n, topic) in topics.iter().enumerate() {
        // Only the state after the last topic can be compared.
        let ticket = p.ticket.take_if(|_| p.ready)?;
        match model.return_prepared(ticket, p.real.state().redis_at, topic) {
            Err(refusal) => return Some(Err(refusal)),
            Ok(answer) => {
                if n == last {
                    assert_eq!(p.real.state(), answer.state);
                }
                p.members = answer.state.members;
                p.ticket = Some(Ticket { seq: answer.seq, ..ticket });
                all.returned += answer.value.returned;
                all.intents.extend(answer.value.intents);
            }
        }
    }
    Some(Ok(all))
}

#[test]
fn scripts_and_model_agree_whatever_happens_to_the_keys() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 300, ..ProptestConfig::default() };
    proptest!(config, |(ops in prop::collection::vec((prop::sample::select(vec![0usize, 0, 0, 1]), op()), 1..40))| {
        // Most sequences should begin with an owner.
        let mut all = vec![(0, Op::TakeOver { finish: true })];
        all.extend(ops);
        runtime.block_on(async { Case::new().await.run(all).await });
    });
}
