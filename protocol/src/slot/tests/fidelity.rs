//! What is buried for what is known of a topic is asked anew first.

use super::world::{Owner, World, row_gen};
use crate::slot::{Cause, Event, Facts, FaultKind, Lookup, SlotConfig};
use crate::slot_store::Topic;
use schemas::due::DueKind;

fn started() -> (World, Owner) {
    let mut world = World::at(10_000, 1_000);
    let mut owner = world.owner(SlotConfig::default());
    world.settle_down(&mut owner);
    (world, owner)
}

fn buried(owner: &Owner) -> Vec<String> {
    let reasons = |event: &Event| match event {
        Event::Committed { buried, .. } => buried.clone(),
        _ => Vec::new(),
    };
    owner.events.iter().flat_map(reasons).collect()
}

fn known(partitions: i32, max_message_bytes: usize, compacted: bool) -> Lookup {
    Lookup::Known(Facts { partitions, leaderless: vec![], max_message_bytes, compacted })
}

/// One task with a change, due at once.
fn submit(world: &mut World, id: u64, change: impl FnOnce(&mut schemas::due::Deliver)) {
    world.schedule(id, "a", 10_000);
    let record = world.due.last_mut().expect("just scheduled");
    if let DueKind::Deliver(deliver) = &mut record.kind {
        change(deliver);
    }
    world.pending.insert(record.row_gen(), record.clone());
}

#[test]
fn nothing_is_buried_for_what_is_only_remembered_of_a_topic() {
    for stale in
        [Lookup::Unknown, Lookup::Denied, known(4, 10, false), known(1, 1_000, false), known(4, 1_000, true)]
    {
        let (mut world, mut owner) = started();
        world.stale_lookups.insert(Topic::from("a"), stale.clone());
        submit(&mut world, 1, |deliver| (deliver.partition, deliver.key) = (Some(3), None));
        submit(&mut world, 2, |_| {});
        world.settle_down(&mut owner);
        assert_eq!((world.delivered().len(), buried(&owner).len()), (2, 0), "{stale:?}");
    }
}

#[test]
fn what_fresh_metadata_says_is_final() {
    let (mut world, mut owner) = started();
    world.lookups.insert(Topic::from("a"), known(2, 1_000, false));
    submit(&mut world, 1, |deliver| deliver.partition = Some(2));
    submit(&mut world, 2, |deliver| deliver.value = Some(vec![0; 2_000]));
    submit(&mut world, 3, |_| {});
    world.settle_down(&mut owner);
    assert_eq!(world.delivered(), [row_gen(3)]);
    assert_eq!(buried(&owner), ["unknown_partition", "too_large"]);
}

#[test]
fn a_record_that_a_broker_refused_is_buried_for_what_is_known_of_its_topic_by_then() {
    let (mut world, mut owner) = started();
    world.faults.insert(Topic::from("a"), FaultKind::Invalid);
    submit(&mut world, 1, |deliver| deliver.key = None);
    // Compacted since it was looked at last.
    while !owner.events.iter().any(|event| matches!(event, Event::Aborted { .. })) {
        world.turn(&mut owner, super::world::Mishap::None);
    }
    world.lookups.insert(Topic::from("a"), known(4, 1_000, true));
    world.pass(&mut owner, 3_000, 100);
    assert_eq!(buried(&owner), ["key_required"]);
    let causes = owner.events.iter().filter(|event| matches!(event, Event::TakeOver { .. }));
    assert!(causes.count() <= 2, "{:?}", Cause::Aborted);
    world.check();
}
