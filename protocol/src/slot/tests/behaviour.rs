//! One thing at a time.

use super::world::{Mishap, Owner, World, deliver_record, row_gen};
use crate::slot::{Alarm, Cause, Drop, Event, Halt, Input, SlotConfig, Step};
use schemas::due::DueKind;
use schemas::journal::EntryKind;

fn started() -> (World, Owner) {
    let mut world = World::at(10_000, 1_000);
    let mut owner = world.owner(SlotConfig::default());
    world.settle_down(&mut owner);
    assert!(owner.slot.is_running());
    (world, owner)
}

fn take_overs(owner: &Owner) -> Vec<Cause> {
    let cause = |event: &Event| match event {
        Event::TakeOver { cause, .. } => Some(*cause),
        _ => None,
    };
    owner.events.iter().filter_map(cause).collect()
}

fn alarms(owner: &Owner) -> Vec<Alarm> {
    let alarm = |event: &Event| match event {
        Event::Alarm(alarm, _) => Some(*alarm),
        _ => None,
    };
    owner.events.iter().filter_map(alarm).collect()
}

#[test]
fn due_records_are_delivered_once_in_order_and_never_early() {
    let (mut world, mut owner) = started();
    for (id, due_at) in [(3, 10_030), (1, 10_010), (2, 10_010), (4, 9_000)] {
        world.schedule(id, "a", due_at);
    }
    world.settle_down(&mut owner);
    assert_eq!(world.delivered(), [row_gen(4)]);
    world.pass(&mut owner, 9, 1);
    assert_eq!(world.delivered().len(), 1, "nothing before its time");
    world.pass(&mut owner, 30, 1);
    assert_eq!(world.delivered(), [row_gen(4), row_gen(1), row_gen(2), row_gen(3)]);
    assert_eq!(world.redis.members(), 0);
    assert_eq!(alarms(&owner), []);
    world.check();
}

#[test]
fn an_idle_slot_sleeps_until_the_next_due_time_and_beats_every_two_seconds() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 11_500);
    world.settle_down(&mut owner);
    assert_eq!(owner.slot.step(world.now()), Step::Wait { until_mono_ms: Some(11_500) });
    let beats = |world: &World| world.fates().len();
    world.pass(&mut owner, 6_000, 100);
    assert_eq!(beats(&world), 1);
    let committed = owner.events.iter().filter(|event| matches!(event, Event::Committed { .. })).count();
    assert!((3..=4).contains(&committed), "{committed} journal records in 6 s");
}

#[test]
fn a_delayed_duplicate_is_dropped() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 10_000);
    world.settle_down(&mut owner);
    let copy = world.due[0].clone();
    world.due.push(copy);
    world.settle_down(&mut owner);
    assert_eq!(world.delivered(), [row_gen(1)]);
    assert!(owner.events.contains(&Event::Dropped(Drop::Settled, 1)));
}

#[test]
fn a_duplicate_of_what_waits_is_dropped() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 20_000);
    world.emit_again(row_gen(1));
    world.settle_down(&mut owner);
    assert!(owner.events.contains(&Event::Dropped(Drop::Waiting, 1)));
    assert_eq!(world.redis.members(), 1);
}

#[test]
fn a_withdraw_before_the_due_time_is_journaled_and_nothing_is_delivered() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 10_100);
    world.settle_down(&mut owner);
    world.withdraw(row_gen(1));
    world.settle_down(&mut owner);
    assert_eq!(world.fates(), [(row_gen(1), EntryKind::Withdrawn)]);
    world.pass(&mut owner, 500, 10);
    assert_eq!(world.delivered(), []);
    assert_eq!(world.redis.members(), 0);
}

#[test]
fn a_withdraw_that_overtakes_its_deliver_record_wins() {
    let (mut world, mut owner) = started();
    let record = deliver_record(1, "a", 10_100, 0);
    world.pending.insert(record.row_gen(), record.clone());
    world.withdraw(row_gen(1));
    world.due.push(record);
    world.settle_down(&mut owner);
    world.pass(&mut owner, 500, 10);
    assert_eq!(world.fates(), [(row_gen(1), EntryKind::Withdrawn)]);
}

#[test]
fn a_withdraw_of_a_flying_member_waits_for_its_outcome() {
    let (mut world, mut owner) = started();
    world.hold_reports = true;
    world.schedule(1, "a", 10_000);
    world.settle_down(&mut owner);
    world.withdraw(row_gen(1));
    world.settle_down(&mut owner);
    assert!(owner.events.contains(&Event::Held(1)));
    world.hold_reports = false;
    world.settle_down(&mut owner);
    assert_eq!(world.fates(), [(row_gen(1), EntryKind::Delivered)]);
    world.check();
}

#[test]
fn a_withdraw_held_while_the_delivery_fails_becomes_effective() {
    let (mut world, mut owner) = started();
    world.hold_reports = true;
    world.faults.insert("a".into(), crate::slot::FaultKind::Transient);
    world.schedule(1, "a", 10_000);
    world.settle_down(&mut owner);
    world.withdraw(row_gen(1));
    world.settle_down(&mut owner);
    world.hold_reports = false;
    world.settle_down(&mut owner);
    world.pass(&mut owner, 100, 10);
    assert_eq!(world.fates(), [(row_gen(1), EntryKind::Withdrawn)]);
    world.faults.clear();
    world.pass(&mut owner, 5_000, 100);
    assert_eq!(world.delivered(), []);
}

#[test]
fn a_commit_whose_answer_is_lost_is_delivered_once() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 10_000);
    world.settle_down(&mut owner);
    world.schedule(2, "a", 10_001);
    world.now_ms += 1;
    // Up to the commit, whose answer is lost.
    for _ in 0..50 {
        let before = world.delivered().len();
        let mut probe = Mishap::None;
        if world.callbacks.len() > before {
            probe = Mishap::AnswerLost;
        }
        world.turn(&mut owner, probe);
        if probe == Mishap::AnswerLost {
            break;
        }
    }
    world.settle_down(&mut owner);
    world.pass(&mut owner, 1_000, 50);
    assert_eq!(world.delivered(), [row_gen(1), row_gen(2)]);
    assert!(take_overs(&owner).contains(&Cause::OutcomeUnknown));
    world.check();
}

#[test]
fn an_emptied_redis_is_rebuilt_cold_and_nothing_is_delivered_twice() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 10_000);
    world.schedule(2, "a", 10_500);
    world.settle_down(&mut owner);
    world.redis.flush_all();
    world.pass(&mut owner, 3_000, 50);
    assert_eq!(world.delivered(), [row_gen(1), row_gen(2)]);
    assert!(owner.events.iter().any(|event| matches!(event, Event::Running { cold: true, .. })));
    world.check();
}

#[test]
fn a_second_owner_takes_over_warm_and_the_first_is_fenced() {
    let (mut world, mut first) = started();
    world.schedule(1, "a", 10_500);
    world.settle_down(&mut first);
    let mut second = world.owner(SlotConfig::default());
    world.settle_down(&mut second);
    assert!(second.events.iter().any(|event| matches!(event, Event::Running { cold: false, .. })));
    world.now_ms = 10_500;
    world.turn(&mut first, Mishap::None);
    assert_eq!(take_overs(&first).last(), Some(&Cause::Fenced));
    first.slot.handle(world.now(), Input::AssignmentLost);
    assert_eq!(first.slot.step(world.now()), Step::Stopped);
    world.settle_down(&mut second);
    assert_eq!(world.delivered(), [row_gen(1)]);
}

#[test]
fn a_record_whose_fence_lies_below_low_is_judged_after_reading_the_journal() {
    let (mut world, mut owner) = started();
    for id in 1..20 {
        world.schedule(id, "a", world.now_ms);
        world.settle_down(&mut owner);
        world.now_ms += 10;
    }
    // A cold start that reads no journal: W is nothing. The fences stand where ingest, which is dead, stopped: at 0.
    world.window = 0;
    world.redis.flush_all();
    let mut second = world.owner(SlotConfig::default());
    world.settle_down(&mut second);
    world.schedule(100, "a", world.now_ms);
    world.settle_down(&mut second);
    assert_eq!(world.delivered().len(), 20);
    assert!(!second.events.iter().any(|event| matches!(event, Event::Stale(_))));
    world.check();
}

#[test]
fn a_record_that_cannot_be_judged_is_handed_back_as_stale() {
    let (mut world, mut owner) = started();
    for id in 1..20 {
        world.schedule(id, "a", world.now_ms);
        world.settle_down(&mut owner);
    }
    world.window = 0;
    world.redis.flush_all();
    let mut second = world.owner(SlotConfig { settled_bytes: 100, ..SlotConfig::default() });
    world.settle_down(&mut second);
    let copy = world.due[0].clone();
    world.due.push(copy);
    world.schedule(100, "a", world.now_ms);
    world.settle_down(&mut second);
    assert!(world.fates().contains(&(row_gen(100), EntryKind::Stale)));
    world.apply();
    world.emit_again(row_gen(100));
    world.settle_down(&mut second);
    assert_eq!(world.delivered().len(), 20);
    world.check();
}

#[test]
fn expired_and_bury_marked_records_go_to_dead_at_their_due_time() {
    let (mut world, mut owner) = started();
    for (id, bury, expires_at) in [(1, Some("attempts".to_owned()), None), (2, None, Some(10_000))] {
        let mut record = deliver_record(id, "a", 10_000, 0);
        if let DueKind::Deliver(deliver) = &mut record.kind {
            (deliver.bury, deliver.expires_at) = (bury, expires_at);
        }
        world.due.push(record);
    }
    world.settle_down(&mut owner);
    assert_eq!(world.delivered(), []);
    let reasons: Vec<String> = owner
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Committed { buried, .. } => Some(buried.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(reasons, ["attempts", "expired"]);
}

#[test]
fn a_journal_that_ends_before_what_was_reached_halts_the_slot() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 10_000);
    world.settle_down(&mut owner);
    world.truncate_journal();
    let mut second = world.owner(SlotConfig::default());
    world.settle_down(&mut second);
    assert!(second.slot.is_halted());
    assert!(second.events.iter().any(|event| matches!(event, Event::Halted(Halt::JournalTruncated, _))));
}

#[test]
fn at_maxmemory_the_rest_drains_and_the_intake_goes_on_afterwards() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 10_100);
    world.settle_down(&mut owner);
    world.redis.full = true;
    world.schedule(2, "a", 10_100);
    world.pass(&mut owner, 2_000, 100);
    assert_eq!(world.delivered(), [row_gen(1)]);
    world.redis.full = false;
    world.pass(&mut owner, 2_000, 100);
    assert_eq!(world.delivered(), [row_gen(1), row_gen(2)]);
    assert_eq!(take_overs(&owner), [Cause::Assigned]);
}

#[test]
fn a_full_slot_pauses_its_partition_of_due_and_resumes_it_when_drained() {
    let mut world = World::at(10_000, 1_000);
    let config = SlotConfig { hard_members: 10, soft_members: 5, ..SlotConfig::default() };
    let mut owner = world.owner(config);
    for id in 1..40 {
        world.schedule(id, "a", 10_500);
    }
    world.settle_down(&mut owner);
    assert!(world.redis.members() < 20, "{}", world.redis.members());
    assert!(owner.events.contains(&Event::Paused(true)));
    world.pass(&mut owner, 1_000, 10);
    assert_eq!(world.delivered().len(), 39);
    assert!(owner.events.contains(&Event::Paused(false)));
}

#[test]
fn a_stop_finishes_what_is_begun() {
    let (mut world, mut owner) = started();
    world.schedule(1, "a", 10_000);
    while world.callbacks.is_empty() {
        world.turn(&mut owner, Mishap::None);
    }
    owner.slot.handle(world.now(), Input::Stop);
    for _ in 0..20 {
        world.turn(&mut owner, Mishap::None);
    }
    assert!(owner.stopped);
    assert!(world.delivered().len() <= 1);
    let mut second = world.owner(SlotConfig::default());
    world.settle_down(&mut second);
    assert_eq!(world.delivered(), [row_gen(1)]);
    world.check();
}
