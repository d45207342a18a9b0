//! Garbage on `due`: kept, passed only when it is kept, and in nobody's way.

use super::world::{Owner, World, row_gen};
use crate::slot::{Alarm, Event, Input, SlotConfig, StrayEnd};

fn started(config: SlotConfig) -> (World, Owner) {
    let mut world = World::at(10_000, 1_000);
    let mut owner = world.owner(config);
    world.settle_down(&mut owner);
    (world, owner)
}

fn alarms(owner: &Owner) -> Vec<Alarm> {
    let alarm = |event: &Event| match event {
        Event::Alarm(alarm, _) => Some(*alarm),
        _ => None,
    };
    owner.events.iter().filter_map(alarm).collect()
}

#[test]
fn garbage_on_due_is_copied_to_rejected_once_and_its_neighbours_are_delivered() {
    let (mut world, mut owner) = started(SlotConfig::default());
    world.schedule(1, "a", 10_100);
    world.litter();
    world.schedule(2, "a", 10_100);
    world.pass(&mut owner, 5_000, 100);
    assert_eq!(world.delivered(), [row_gen(1), row_gen(2)]);
    assert_eq!(alarms(&owner), [Alarm::BadDueRecord]);
    assert_eq!(world.rejected, [1]);
    // What is kept is not read again.
    let mut second = world.owner(SlotConfig::default());
    world.settle_down(&mut second);
    assert_eq!(world.rejected, [1]);
}

#[test]
fn a_rejected_that_is_away_delays_no_delivery_and_loses_nothing_across_a_take_over() {
    let (mut world, mut owner) = started(SlotConfig::default());
    world.rejected_fault = Some(StrayEnd::Failed("no leader".into()));
    world.litter();
    for id in 1..20 {
        world.schedule(id, "a", 10_000 + 100 * id as i64);
    }
    world.pass(&mut owner, 4_000, 100);
    assert_eq!(world.delivered().len(), 19);
    assert!(!owner.events.contains(&Event::Paused(true)));
    // The next owner begins at the garbage, and keeps it as soon as it can.
    let mut second = world.owner(SlotConfig::default());
    world.pass(&mut second, 2_000, 100);
    world.rejected_fault = None;
    world.pass(&mut second, 40_000, 1_000);
    assert_eq!(world.rejected, [0]);
    assert_eq!(world.delivered().len(), 19);
    world.check();
}

#[test]
fn garbage_that_kafka_refuses_to_keep_is_told_and_passed_over() {
    let (mut world, mut owner) = started(SlotConfig::default());
    world.rejected_fault = Some(StrayEnd::Refused("too large".into()));
    world.litter();
    world.schedule(1, "a", 10_100);
    world.pass(&mut owner, 5_000, 100);
    assert_eq!(alarms(&owner), [Alarm::BadDueRecord, Alarm::StrayLost]);
    world.rejected_fault = None;
    let mut second = world.owner(SlotConfig::default());
    world.settle_down(&mut second);
    assert_eq!((world.rejected.len(), world.delivered().len()), (0, 1));
}

#[test]
fn much_garbage_that_cannot_be_kept_pauses_due_and_no_delivery() {
    let config = SlotConfig { stray_bytes: 2_000, ..SlotConfig::default() };
    let (mut world, mut owner) = started(config);
    world.schedule(1, "a", 12_000);
    world.rejected_fault = Some(StrayEnd::Failed("down".into()));
    (0..100).for_each(|_| world.litter());
    world.schedule(2, "a", 12_000);
    world.pass(&mut owner, 3_000, 100);
    assert!(owner.events.contains(&Event::Paused(true)));
    assert_eq!(world.delivered(), [row_gen(1)]);
    world.rejected_fault = None;
    world.pass(&mut owner, 60_000, 500);
    assert_eq!(world.rejected, (1..101).collect::<Vec<i64>>());
    assert_eq!(world.delivered(), [row_gen(1), row_gen(2)]);
}

#[test]
fn an_answer_of_an_earlier_take_over_is_not_taken_for_a_new_one() {
    let (mut world, mut owner) = started(SlotConfig::default());
    owner.slot.handle(world.now(), Input::Strays(vec![StrayEnd::Kept; 3]));
    world.rejected_fault = Some(StrayEnd::Failed("down".into()));
    world.litter();
    world.settle_down(&mut owner);
    assert!(world.rejected.is_empty());
}
