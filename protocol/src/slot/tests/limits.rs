//! Limits and pauses of topics, and retries beside fresh tasks.

use super::world::{Owner, World, row_gen};
use crate::slot::SlotConfig;
use schemas::control::TopicLimit;
use schemas::due::Completion;
use schemas::journal::EntryKind;

fn started() -> (World, Owner) {
    let mut world = World::at(10_000, 1_000);
    let mut owner = world.owner(SlotConfig { slots: 1, ..SlotConfig::default() });
    world.settle_down(&mut owner);
    (world, owner)
}

fn prove(world: &mut World, owner: &mut Owner, topics: &[&str]) {
    for (n, topic) in topics.iter().enumerate() {
        world.schedule(900_000 + n as u64, topic, world.now_ms);
    }
    world.settle_down(owner);
}

fn rate(text: &str) -> TopicLimit {
    TopicLimit { rate: Some(text.parse().unwrap()), ..TopicLimit::default() }
}

fn in_flight(most: u32) -> TopicLimit {
    TopicLimit { in_flight: Some(most), ..TopicLimit::default() }
}

fn of_topic(world: &World, ids: std::ops::Range<u64>) -> usize {
    let delivered = world.delivered();
    delivered.iter().filter(|row_gen| ids.contains(&row_gen.id.0)).count()
}

#[test]
fn a_rate_holds_over_a_herd_and_nothing_of_it_is_lost() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["a", "b"]);
    world.limit("a", Some(rate("20/s")));
    (0..200).for_each(|id| world.schedule(id, "a", world.now_ms));
    let began = of_topic(&world, 0..200);
    let mut seen = vec![began];
    for second in 1..=11 {
        world.schedule(1_000 + second, "b", world.now_ms);
        world.settle_down(&mut owner);
        assert!(world.delivered().contains(&row_gen(1_000 + second)), "the other topic is not held up");
        world.pass(&mut owner, 1_000, 10);
        seen.push(of_topic(&world, 0..200));
    }
    for (from, to) in seen.iter().zip(&seen[1..]) {
        assert!(to - from <= 21, "{seen:?}");
    }
    assert_eq!(seen.last(), Some(&200), "{seen:?}");
    world.check();
}

#[test]
fn a_slow_rate_also_limits_a_topic_on_trial() {
    let (mut world, mut owner) = started();
    world.limit("new", Some(rate("30/m")));
    (0..5).for_each(|id| world.schedule(id, "new", world.now_ms));
    world.pass(&mut owner, 1_900, 100);
    assert_eq!(of_topic(&world, 0..5), 0, "a bucket begins empty");
    world.pass(&mut owner, 4_500, 100);
    assert_eq!(of_topic(&world, 0..5), 3);
}

#[test]
fn nothing_leaves_while_a_topic_is_paused_and_all_of_it_once_it_is_not() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["a", "b"]);
    world.limit("a", Some(TopicLimit { paused: true, ..TopicLimit::default() }));
    world.settle_down(&mut owner);
    for id in 0..30 {
        world.schedule(id, "a", world.now_ms);
        world.schedule(100 + id, "b", world.now_ms);
    }
    world.withdraw(row_gen(7));
    world.pass(&mut owner, 5_000, 50);
    assert_eq!((of_topic(&world, 0..30), of_topic(&world, 100..130)), (0, 30));
    assert!(world.fates().contains(&(row_gen(7), EntryKind::Withdrawn)), "withdrawals do not wait");
    world.limit("a", None);
    world.pass(&mut owner, 500, 50);
    assert_eq!(of_topic(&world, 0..30), 29);
    world.check();
}

fn acked(world: &mut World, ids: std::ops::Range<u64>) {
    for id in ids {
        world.schedule_with(id, "a", world.now_ms, |deliver| deliver.completion = Completion::OnAck);
    }
}

#[test]
fn deliveries_in_flight_are_limited_by_the_count_and_by_what_it_does_not_know_yet() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["a"]);
    world.limit("a", Some(in_flight(4)));
    acked(&mut world, 0..10);
    world.pass(&mut owner, 2_000, 50);
    assert_eq!(of_topic(&world, 0..10), 0, "without a count nothing is known");
    world.apply();
    world.count("a", 0);
    world.pass(&mut owner, 2_000, 50);
    assert_eq!(of_topic(&world, 0..10), 4);
    world.apply();
    world.count("a", 4);
    world.pass(&mut owner, 2_000, 50);
    assert_eq!(of_topic(&world, 0..10), 4);
    world.count("a", 1);
    world.pass(&mut owner, 2_000, 50);
    assert_eq!(of_topic(&world, 0..10), 7, "three have ended");
    world.pass(&mut owner, 60_000, 1_000);
    assert_eq!(of_topic(&world, 0..10), 7, "with MySQL down nobody counts, and the limit holds");
    world.check();
}

#[test]
fn after_a_take_over_nothing_is_in_flight_anew_before_a_count_has_passed_the_barrier() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["a"]);
    world.limit("a", Some(in_flight(4)));
    world.apply();
    world.count("a", 0);
    acked(&mut world, 0..10);
    world.pass(&mut owner, 2_000, 50);
    assert_eq!(of_topic(&world, 0..10), 4);
    // What it delivered was not counted when it died.
    let mut next = world.owner(SlotConfig { slots: 1, ..SlotConfig::default() });
    world.pass(&mut next, 5_000, 50);
    assert_eq!(of_topic(&world, 0..10), 4);
    world.apply();
    world.count("a", 4);
    world.pass(&mut next, 5_000, 50);
    assert_eq!(of_topic(&world, 0..10), 4);
    world.count("a", 0);
    world.pass(&mut next, 5_000, 50);
    assert_eq!(of_topic(&world, 0..10), 8);
}

#[test]
fn what_was_granted_holds_while_nothing_can_be_written_on_control() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["a"]);
    world.limit("a", Some(rate("10/s")));
    world.pass(&mut owner, 1_000, 50);
    world.control_down = true;
    (0..100).for_each(|id| world.schedule(id, "a", world.now_ms));
    world.pass(&mut owner, 3_000, 50);
    let delivered = of_topic(&world, 0..100);
    assert!((25..=45).contains(&delivered), "{delivered} in 3 s");
}

#[test]
fn a_quiet_limit_is_written_of_once() {
    let (mut world, mut owner) = started();
    world.limit("a", Some(rate("10/s")));
    world.pass(&mut owner, 60_000, 100);
    assert_eq!(world.control.len(), 2, "{:?}", world.control);
    world.limit("a", None);
    world.pass(&mut owner, 5_000, 100);
    assert_eq!(world.control.last().unwrap().1, None, "and taken back");
    assert_eq!(world.control.len(), 4);
}

#[test]
fn a_storm_of_retries_delays_no_fresh_task() {
    let (mut world, mut owner) = started();
    prove(&mut world, &mut owner, &["a"]);
    let now = world.now_ms;
    (0..2_000).for_each(|id| world.schedule_with(id, "a", now - 1_000, |deliver| deliver.attempt = 2));
    (5_000..5_020).for_each(|id| world.schedule(id, "a", now));
    world.settle_down(&mut owner);
    let delivered = world.delivered();
    let last = delivered.iter().rposition(|row_gen| row_gen.id.0 >= 5_000 && row_gen.id.0 < 6_000).unwrap();
    assert_eq!(of_topic(&world, 0..6_000), 2_020);
    assert!(last < 1_000, "the last fresh one came as number {last}");
    world.check();
}

#[test]
fn a_paused_topic_with_a_large_backlog_leaves_room_for_others() {
    let mut world = World::at(10_000, 1_000);
    let config = SlotConfig { slots: 1, soft_members: 100, hard_members: 200, ..SlotConfig::default() };
    let mut owner = world.owner(config);
    world.settle_down(&mut owner);
    prove(&mut world, &mut owner, &["a", "b"]);
    world.limit("a", Some(TopicLimit { paused: true, ..TopicLimit::default() }));
    for batch in 0..10 {
        (0..40).for_each(|n| world.schedule(batch * 40 + n, "a", world.now_ms));
        world.schedule(10_000 + batch, "b", world.now_ms);
        world.pass(&mut owner, 1_000, 100);
    }
    assert_eq!(of_topic(&world, 10_000..10_010), 10, "intake did not stop");
    assert_eq!(of_topic(&world, 0..400), 0);
    world.apply();
    let back = world.stale.clone();
    assert!(back.len() > 200 && world.redis.members() < 200, "{} handed back", back.len());
    world.limit("a", None);
    world.pass(&mut owner, 1_000, 100);
    back.into_iter().for_each(|row_gen| world.emit_again(row_gen));
    world.pass(&mut owner, 2_000, 100);
    assert_eq!(of_topic(&world, 0..400), 400, "none is lost, none comes twice");
    world.check();
}

#[test]
fn a_retry_that_waits_is_withdrawn_like_any_other() {
    let (mut world, mut owner) = started();
    world.schedule_with(1, "a", world.now_ms + 1_000, |deliver| deliver.attempt = 3);
    world.settle_down(&mut owner);
    world.withdraw(row_gen(1));
    world.pass(&mut owner, 3_000, 50);
    assert_eq!(world.fates(), [(row_gen(1), EntryKind::Withdrawn)]);
    assert_eq!(world.redis.members(), 0);
}
