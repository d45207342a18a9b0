//! Random interleavings of owners, mishaps, rolled-back Redis, re-emissions and withdrawals: the first small model.

use super::world::{Mishap, Owner, World, row_gen};
use crate::slot::SlotConfig;
use proptest::prelude::*;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

fn config(dice: &mut Dice) -> SlotConfig {
    SlotConfig {
        window_ms: [50, 1_000, 100_000][dice.roll(3) as usize],
        batch_entries: 1 + dice.roll(6) as usize,
        journal_record_bytes: 100,
        settled_bytes: [200, 2_000, 1 << 20][dice.roll(3) as usize],
        backoff_min_ms: 1,
        backoff_max_ms: 20,
        topic_backoff_min_ms: 5,
        topic_backoff_max_ms: 50,
        heartbeat_ms: 100,
        ..SlotConfig::default()
    }
}

const TOPICS: [&str; 3] = ["a", "b", "c"];

fn play(seed: u64, steps: u32) {
    let mut dice = Dice(seed);
    let window = [0, 3, 20, 100_000][dice.roll(4) as usize];
    let mut world = World::at(1_000, window);
    let mut owners: Vec<Owner> = (0..2).map(|_| world.owner(config(&mut dice))).collect();
    let mut snapshot = world.redis.clone();
    let (mut ids, calm) = (0, dice.roll(3) == 0);
    for _ in 0..steps {
        match dice.roll(40) {
            0..=2 => {
                ids += 1;
                let due_at = world.now_ms + dice.roll(60) as i64 - 20;
                world.schedule(ids, TOPICS[dice.roll(3) as usize], due_at);
            }
            3 if ids > 0 => world.emit_again(row_gen(1 + dice.roll(ids))),
            4 if ids > 0 => world.withdraw(row_gen(1 + dice.roll(ids))),
            5 => world.apply(),
            6 if !world.due.is_empty() => {
                // A due record held back on its way, or doubled by its producer.
                let copy = world.due[dice.roll(world.due.len() as u64) as usize].clone();
                world.due.push(copy);
            }
            7 if !calm => match dice.roll(12) {
                0 => world.redis = snapshot.clone(),
                1 => world.redis.flush_all(),
                2 => world.redis.full = !world.redis.full,
                3 => {
                    let n = dice.roll(2) as usize;
                    owners[n] = world.owner(config(&mut dice));
                }
                4 => {
                    world.faults.clear();
                    if dice.roll(2) == 0 {
                        let kinds = [
                            crate::slot::FaultKind::Transient,
                            crate::slot::FaultKind::TooLarge,
                            crate::slot::FaultKind::NotAuthorised,
                        ];
                        world
                            .faults
                            .insert(TOPICS[dice.roll(3) as usize].into(), kinds[dice.roll(3) as usize]);
                    }
                }
                _ => snapshot = world.redis.clone(),
            },
            8 => world.now_ms += dice.roll(20) as i64,
            9 => world.hold_reports = dice.roll(2) == 0,
            _ => {
                // Mostly one of them, so that it gets somewhere; the other is paused for long stretches.
                let n = usize::from(dice.roll(8) == 0);
                let mishap = match dice.roll(60) {
                    0 if !calm => Mishap::Refused,
                    1 if !calm => Mishap::AnswerLost,
                    _ => Mishap::None,
                };
                let owner = &mut owners[n];
                world.turn(owner, mishap);
            }
        }
        world.check();
    }
    finish(&mut world, &mut dice);
}

/// All faults over and one owner left: whatever is pending gets its fate.
fn finish(world: &mut World, dice: &mut Dice) {
    world.faults.clear();
    world.hold_reports = false;
    world.redis.full = false;
    let mut last = world.owner(SlotConfig { settled_bytes: 1 << 20, ..config(dice) });
    world.pass(&mut last, 50, 5);
    for _ in 0..4 {
        for row_gen in world.pending.keys().copied().collect::<Vec<_>>() {
            world.emit_again(row_gen);
        }
        world.pass(&mut last, 400, 5);
        world.apply();
        world.check();
    }
    let left: Vec<_> = world.pending.keys().collect();
    assert!(left.is_empty(), "never settled: {left:?}\n{:?}", last.events);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_row_and_gen_never_enters_two_committed_batches(seed in any::<u64>(), steps in 50_u32..1_200) {
        play(seed, steps);
    }
}
