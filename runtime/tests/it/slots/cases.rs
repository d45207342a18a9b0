//! What the contract promises beyond one small call.

use super::world::{World, member, token};
use protocol::slot_store::model::Damage;
use protocol::slot_store::{
    Body, ColdCause, Entry, MAX_BYTES, Positions, PreloadOutcome, PreloadRecord, Quota, TakenOver, Topic,
};
use runtime::slots::{SlotError, SlotStore};
use std::collections::HashSet;
use std::time::Duration;

pub(super) const START: Positions = Positions { due_pos: 5, jpos: 6, fence: 7 };

/// A process that owns an empty slot.
pub(super) async fn owner(world: &World, n: u64) -> SlotStore {
    let mut store = world.store().await;
    match store.take_over(token(n)).await.unwrap() {
        TakenOver::Cold(_) => {
            store.start_cold(START).await.unwrap();
            store.settle_fates(&[], START.jpos, true, |_| None).await.unwrap();
        }
        TakenOver::Warm(_) => {}
    }
    store
}

pub(super) fn record(topic: &str, n: u64, due_at: i64, size: usize) -> PreloadRecord {
    let body = Body::deliver(&vec![b'x'; size]);
    PreloadRecord { topic: topic.into(), member: member(n, 1), due_at, fence: n as i64, body }
}

pub(super) fn quota(topic: &str, limit: u32) -> Quota {
    Quota { topic: topic.into(), limit }
}

pub(super) fn entry(record: &PreloadRecord) -> Entry {
    Entry { topic: record.topic.clone(), member: record.member }
}

#[tokio::test]
async fn any_number_of_records_goes_through_in_parts() {
    let mut world = World::new().await;
    let mut store = owner(&world, 1).await;
    let records: Vec<_> =
        (0..1_234).map(|n| record(if n % 2 == 0 { "a" } else { "b" }, n, 1_000, 100)).collect();
    let outcomes = store.preload(&records, 77).await.unwrap();
    assert_eq!(outcomes, vec![PreloadOutcome::Stored; 1_234]);
    assert_eq!(store.positions(), Positions { due_pos: 77, jpos: 6, fence: 1_233 });
    assert_eq!((store.state().members, store.state().bytes), (1_234, 1_234 * 101));

    let mut claimed = Vec::new();
    let mut due = store.due_topics(2_000, 10).await.unwrap();
    while !due.is_empty() {
        let quotas: Vec<_> = due.iter().map(|d| quota(&d.topic, 300)).collect();
        let claims = store.claim(2_000, &quotas, MAX_BYTES).await.unwrap();
        assert!(claims.claimed.len() <= 500 && !claims.claimed.is_empty() && claims.dropped == 0);
        claimed.extend(claims.claimed);
        due = claims.due;
    }
    assert_eq!(claimed.iter().map(|c| c.member).collect::<HashSet<_>>().len(), 1_234);
    let of_a: Vec<_> = claimed.iter().filter(|c| &*c.topic == "a").map(|c| c.member).collect();
    assert!(of_a.is_sorted(), "equal due times leave in submit order");

    let entries: Vec<_> = records.iter().map(entry).collect();
    store.settle(&entries, 90, None).await.unwrap();
    assert_eq!((store.state().members, store.state().bytes, store.state().next_due_at), (0, 0, None));
    assert_eq!(world.all_keys().await, [world.keys.meta()]);
    world.unlink_all().await;
}

#[tokio::test]
async fn a_claim_stops_at_its_bytes_but_gives_one_member_however_large() {
    let mut world = World::new().await;
    let mut store = owner(&world, 1).await;
    let mut records: Vec<_> = (0..4).map(|n| record("a", n, 1_000, 900 << 10)).collect();
    records.extend((4..200).map(|n| record("a", n, 1_001, 10)));
    store.preload(&records, 8).await.unwrap();
    for n in 0..3 {
        let claims = store.claim(2_000, &[quota("a", 100)], MAX_BYTES).await.unwrap();
        assert_eq!(claims.claimed.iter().map(|c| c.member.id.0).collect::<Vec<_>>(), [n]);
    }
    let claims = store.claim(2_000, &[quota("a", 100)], MAX_BYTES).await.unwrap();
    assert_eq!(claims.claimed.len(), 100);
    world.unlink_all().await;
}

#[tokio::test]
async fn nothing_is_claimed_before_the_earlier_of_both_clocks() {
    let mut world = World::new().await;
    let mut store = owner(&world, 1).await;
    let hour = 3_600_000;
    let redis_at = store.state().redis_at;
    store.preload(&[record("a", 1, redis_at + hour, 10), record("a", 2, 1_000, 10)], 8).await.unwrap();
    assert!(
        store.claim(999, &[quota("a", 9)], MAX_BYTES).await.unwrap().claimed.is_empty(),
        "local clock behind"
    );
    let claims = store.claim(redis_at + 2 * hour, &[quota("a", 9)], MAX_BYTES).await.unwrap();
    assert_eq!(claims.claimed.iter().map(|c| c.member.id.0).collect::<Vec<_>>(), [2], "local clock ahead");
    assert_eq!(store.next_topics(9).await.unwrap()[0].earliest_at, redis_at + hour);
    world.unlink_all().await;
}

#[tokio::test]
async fn a_released_member_waits_out_its_delay_and_an_intent_stays() {
    let mut world = World::new().await;
    let mut store = owner(&world, 1).await;
    let records = [record("a", 1, 1_000, 10), record("a", 2, 1_000, 10)];
    store.preload(&records, 8).await.unwrap();
    store.claim(2_000, &[quota("a", 9)], MAX_BYTES).await.unwrap();
    let withdraw = PreloadRecord { body: Body::withdraw(b"w"), ..records[1].clone() };
    assert_eq!(store.preload(std::slice::from_ref(&withdraw), 8).await.unwrap(), [PreloadOutcome::Intent]);
    store.release(&records.each_ref().map(entry), Duration::from_secs(60)).await.unwrap();
    assert_eq!(store.state().next_due_at, Some(store.state().redis_at + 60_000));

    let mut second = world.store().await;
    assert_eq!(
        second.take_over(token(2)).await.unwrap(),
        TakenOver::Warm(Positions { due_pos: 8, jpos: 6, fence: 7 })
    );
    let returned = second.return_prepared().await.unwrap();
    assert_eq!((returned.returned, returned.intents.len()), (0, 1));
    assert_eq!((returned.intents[0].member, &returned.intents[0].body), (records[1].member, &withdraw.body));
    assert_eq!(second.preload(&[withdraw], 9).await.unwrap(), [PreloadOutcome::IntentAlready]);
    world.unlink_all().await;
}

#[tokio::test]
async fn every_key_that_is_lost_is_noticed_before_it_matters() {
    let topic: Topic = "a".into();
    let keys = [
        Damage::All,
        Damage::Meta,
        Damage::Body,
        Damage::Topics,
        Damage::Store(topic.clone()),
        Damage::Prepare(topic.clone()),
        Damage::StoreMember(topic.clone(), member(3, 1)),
        Damage::PrepareMember(topic, member(1, 1)),
        Damage::BodyOf(member(1, 1)),
    ];
    for damage in keys {
        let mut world = World::new().await;
        let mut store = owner(&world, 1).await;
        let records: Vec<_> = (1..5).map(|n| record("a", n, 1_000, 10)).collect();
        store.preload(&records, 8).await.unwrap();
        store.claim(2_000, &[quota("a", 2)], MAX_BYTES).await.unwrap();
        world.damage(&damage).await;
        let claimed = store.claim(2_000, &[quota("a", 2)], MAX_BYTES).await;
        assert!(matches!(claimed, Err(SlotError::Lost)), "{damage:?}: {claimed:?}");
        assert!(matches!(store.settle(&[], 9, None).await, Err(SlotError::NotOwner)));
        assert_eq!(
            store.take_over(token(2)).await.unwrap(),
            TakenOver::Cold(ColdCause::NoMeta),
            "{damage:?}"
        );
        store.start_cold(START).await.unwrap();
        assert_eq!(world.all_keys().await, [world.keys.meta()]);

        // A second owner before the first is through knows that the data is not whole.
        assert_eq!(store.take_over(token(3)).await.unwrap(), TakenOver::Cold(ColdCause::Unfinished));
        world.unlink_all().await;
    }
}

#[tokio::test]
async fn what_is_in_prepare_or_has_no_body_is_never_handed_out() {
    let mut world = World::new().await;
    let mut store = owner(&world, 1).await;
    let records: Vec<_> = (1..5).map(|n| record("a", n, 1_000, 10)).collect();
    store.preload(&records, 8).await.unwrap();
    store.claim(2_000, &[quota("a", 1)], MAX_BYTES).await.unwrap();
    // Damage that no count shows: 1 stands in store again in the place of 2, and the body of 3 under 9.
    world.damage(&Damage::StoreMemberSwapped("a".into(), member(2, 1), member(1, 1))).await;
    world.damage(&Damage::BodyMoved(member(3, 1), member(9, 1))).await;
    let claims = store.claim(2_000, &[quota("a", 9)], MAX_BYTES).await.unwrap();
    assert_eq!(claims.claimed.iter().map(|c| c.member.id.0).collect::<Vec<_>>(), [4]);
    assert_eq!(claims.dropped, 2);
    assert_eq!(store.take_over(token(2)).await.unwrap(), TakenOver::Cold(ColdCause::CountsOff));
    world.unlink_all().await;
}

#[tokio::test]
async fn a_take_over_notices_what_is_lost_in_any_topic() {
    for damage in [Damage::Store("b".into()), Damage::Prepare("a".into())] {
        let mut world = World::new().await;
        let mut store = owner(&world, 1).await;
        store.preload(&[record("a", 1, 1_000, 10), record("b", 2, 1_000, 10)], 8).await.unwrap();
        store.claim(2_000, &[quota("a", 1)], MAX_BYTES).await.unwrap();
        world.damage(&damage).await;
        assert_eq!(
            store.take_over(token(2)).await.unwrap(),
            TakenOver::Cold(ColdCause::CountsOff),
            "{damage:?}"
        );
        world.unlink_all().await;
    }
}

#[tokio::test]
async fn of_two_owners_the_later_has_the_slot_and_the_earlier_changes_nothing() {
    let mut world = World::new().await;
    let mut first = owner(&world, 1).await;
    let records = [record("a", 1, 1_000, 10), record("a", 2, 1_000, 10)];
    first.preload(&records, 8).await.unwrap();
    first.claim(2_000, &[quota("a", 1)], MAX_BYTES).await.unwrap();
    let mut second = world.store().await;
    assert!(matches!(second.take_over(token(2)).await.unwrap(), TakenOver::Warm(_)));
    let before = world.read().await;
    let refused = [
        first.settle(&[entry(&records[0])], 99, None).await,
        first.forget().await,
        first.start_cold(START).await.map(|_| ()),
    ];
    assert!(matches!(refused[0], Err(SlotError::Fenced)), "{refused:?}");
    assert!(refused[1..].iter().all(|r| matches!(r, Err(SlotError::NotOwner))), "{refused:?}");
    assert_eq!(world.read().await, before);
    assert_eq!(second.return_prepared().await.unwrap().returned, 1);
    assert_eq!(second.claim(2_000, &[quota("a", 9)], MAX_BYTES).await.unwrap().claimed.len(), 2);
    world.unlink_all().await;
}

#[tokio::test]
async fn a_cold_start_that_was_overtaken_unlinks_nothing() {
    let mut world = World::new().await;
    let mut late = world.store().await;
    assert_eq!(late.take_over(token(1)).await.unwrap(), TakenOver::Cold(ColdCause::NoMeta));
    let mut store = owner(&world, 2).await;
    store.preload(&[record("a", 1, 1_000, 10)], 8).await.unwrap();
    let before = world.read().await;
    let result = late.start_cold(START).await;
    assert!(matches!(result, Err(SlotError::Fenced)), "{result:?}");
    assert_eq!(world.read().await, before);
    world.unlink_all().await;
}
