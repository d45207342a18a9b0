//! Bad topics among healthy ones.

use super::world::{Owner, World, row_gen};
use crate::slot::{Event, FaultKind, Lane, Lookup, SlotConfig};
use schemas::journal::EntryKind;

fn started() -> (World, Owner) {
    let mut world = World::at(10_000, 1_000);
    let mut owner = world.owner(SlotConfig::default());
    world.settle_down(&mut owner);
    (world, owner)
}

fn prove(world: &mut World, owner: &mut Owner, topics: &[&str]) {
    for (n, topic) in topics.iter().enumerate() {
        world.schedule(900 + n as u64, topic, world.now_ms);
    }
    world.settle_down(owner);
    owner.events.clear();
}

fn lanes_used(owner: &Owner) -> Vec<Lane> {
    let lane = |event: &Event| match event {
        Event::Committed { lane, lateness_ms, .. } if !lateness_ms.is_empty() => Some(*lane),
        _ => None,
    };
    owner.events.iter().filter_map(lane).collect()
}

#[test]
fn a_new_topic_goes_through_quarantine_once() {
    let (mut world, mut owner) = started();
    for id in 1..3 {
        world.schedule(id, "a", world.now_ms);
        world.settle_down(&mut owner);
    }
    assert_eq!(lanes_used(&owner), [Lane::Quarantine, Lane::Main]);
}

#[test]
fn a_slow_quarantine_does_not_hold_up_the_main_lane() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["good"]);
    world.hold_reports = true;
    world.schedule(1, "new", world.now_ms);
    world.settle_down(&mut owner);
    world.schedule(2, "good", world.now_ms);
    world.settle_down(&mut owner);
    assert!(world.delivered().contains(&row_gen(2)) && !world.delivered().contains(&row_gen(1)));
    world.hold_reports = false;
    world.settle_down(&mut owner);
    assert!(world.delivered().contains(&row_gen(1)));
    world.check();
}

#[test]
fn a_topic_that_starts_to_fail_is_set_apart_and_comes_back_when_it_works_again() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["bad", "good"]);
    world.faults.insert("bad".into(), FaultKind::Transient);
    world.schedule(1, "bad", world.now_ms);
    world.schedule(2, "good", world.now_ms);
    world.settle_down(&mut owner);
    assert!(world.delivered().contains(&row_gen(2)), "right after the first failure");
    assert_eq!(owner.slot.figures().quarantined_topics, 1);
    let aborts = |owner: &Owner| owner.events.iter().filter(|e| matches!(e, Event::Aborted { .. })).count();
    for id in 10..40 {
        world.schedule(id, "good", world.now_ms + (id as i64 - 10) * 1_000);
    }
    world.pass(&mut owner, 60_000, 50);
    assert!(aborts(&owner) <= 8, "{} aborts in a minute", aborts(&owner));
    world.faults.clear();
    world.pass(&mut owner, 60_000, 100);
    assert!(world.delivered().contains(&row_gen(1)));
    assert_eq!(owner.slot.figures().quarantined_topics, 0);
    assert_eq!(world.delivered().len(), 34);
    world.check();
}

#[test]
fn a_missing_topic_is_buried_without_a_transaction_being_spoilt() {
    let (mut world, mut owner) = started();
    world.lookups.insert("missing".into(), Lookup::Unknown);
    world.schedule(1, "missing", world.now_ms);
    world.schedule(2, "good", world.now_ms);
    world.settle_down(&mut owner);
    assert!(world.fates().contains(&(row_gen(1), EntryKind::Buried)));
    assert!(world.fates().contains(&(row_gen(2), EntryKind::Delivered)));
    assert!(!owner.events.iter().any(|event| matches!(event, Event::Aborted { .. })));
}

#[test]
fn what_only_the_broker_finds_too_large_is_buried_and_its_neighbours_are_delivered() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["good", "bad"]);
    world.faults.insert("bad".into(), FaultKind::TooLarge);
    world.schedule(1, "bad", world.now_ms);
    world.schedule(2, "good", world.now_ms);
    world.pass(&mut owner, 2_000, 50);
    assert!(world.fates().contains(&(row_gen(1), EntryKind::Buried)));
    assert!(world.fates().contains(&(row_gen(2), EntryKind::Delivered)));
    world.check();
}

#[test]
fn a_topic_without_metadata_is_tried_again_later() {
    let (mut world, mut owner) = started();
    world.lookups.insert("a".into(), Lookup::Unavailable);
    world.schedule(1, "a", world.now_ms);
    world.pass(&mut owner, 1_500, 50);
    assert_eq!(world.fates(), []);
    world.lookups.clear();
    world.pass(&mut owner, 1_500, 50);
    assert_eq!(world.delivered(), [row_gen(1)]);
}
