//! Slots that write and read at different times: what they use together.

use super::super::{Amounts, Holding, Wish, fair_in_flight, fair_rate};
use super::*;
use proptest::prelude::*;

const SLOTS: u16 = 4;

fn limit(rate: Option<&str>, in_flight: Option<u32>) -> TopicLimit {
    TopicLimit { rate: rate.map(|text| text.parse().unwrap()), in_flight, paused: false, at: 0 }
}

fn topic() -> Topic {
    "orders".into()
}

/// The log of `control`, and what each slot has read of it.
struct World {
    log: Vec<(String, Option<Vec<u8>>)>,
    boards: Vec<(Board, usize)>,
    tokens: Vec<u128>,
    holdings: Vec<Holding>,
    /// Deliveries in flight.
    flying: Vec<i64>,
    waiting: Vec<i64>,
}

impl World {
    fn new() -> World {
        let n = usize::from(SLOTS);
        World {
            log: Vec::new(),
            boards: vec![(Board::default(), 0); n],
            tokens: (0..n as u128).collect(),
            holdings: vec![Holding::default(); n],
            flying: vec![0; n],
            waiting: vec![0; n],
        }
    }

    fn write(&mut self, key: &ControlKey, value: Vec<u8>) {
        self.log.push((key.to_string(), Some(value)));
    }

    fn read(&mut self, slot: usize, most: usize) {
        let (board, next) = &mut self.boards[slot];
        for (offset, (key, value)) in self.log.iter().enumerate().skip(*next).take(most) {
            board.apply(offset as i64, key.as_bytes(), value.as_deref()).unwrap();
            *next = offset + 1;
        }
    }

    fn view(&self, slot: usize) -> Option<TopicView> {
        self.boards[slot].0.of_slot(Slot(slot as u16)).remove(&topic())
    }

    fn usable(&self, slot: usize) -> Amounts {
        let token = OwnerToken(self.tokens[slot]);
        self.view(slot).map_or(Amounts::default(), |view| self.holdings[slot].usable(&view, token))
    }

    /// A slot says what it wants, as the dispatcher does.
    fn ask(&mut self, slot: usize) {
        let Some(view) = self.view(slot) else { return };
        let Some(limit) = view.limit else { return };
        let (mine, others) = (self.waiting[slot], view.others_waiting);
        let flying = self.flying[slot];
        let want = Amounts {
            rate: limit.rate.map_or(0, |most| fair_rate(most, SLOTS, mine, others)),
            in_flight: limit
                .in_flight
                .map_or(0, |most| fair_in_flight(most, SLOTS, mine, others).max(flying)),
        };
        let at = self.log.len() as i64;
        let wish = Wish { want, in_flight: flying, waiting: mine, journal_wanted: 0, at };
        let share = self.holdings[slot].ask(&view, OwnerToken(self.tokens[slot]), wish);
        self.write(&ControlKey::Share("orders".into(), Slot(slot as u16)), share.encode());
    }
}

#[derive(Clone, Debug)]
enum Op {
    Read(usize, usize),
    Ask(usize),
    Wait(usize, i64),
    Deliver(usize),
    Finish(usize),
    Renew(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let slot = 0..usize::from(SLOTS);
    prop_oneof![
        4 => (slot.clone(), 1usize..6).prop_map(|(slot, n)| Op::Read(slot, n)),
        3 => slot.clone().prop_map(Op::Ask),
        2 => (slot.clone(), prop::sample::select(vec![0, 1, 10, 5_000])).prop_map(|(slot, n)| Op::Wait(slot, n)),
        4 => slot.clone().prop_map(Op::Deliver),
        3 => slot.clone().prop_map(Op::Finish),
        1 => slot.prop_map(Op::Renew),
    ]
}

proptest! {
    /// However far each has read, and whoever takes over: together they never use more than the limit.
    #[test]
    fn slots_that_have_read_different_stretches_never_use_more_than_the_limit(
        ops in prop::collection::vec(op(), 1..200)
    ) {
        let mut world = World::new();
        let all = limit(Some("100/s"), Some(10));
        world.write(&ControlKey::Limit("orders".into()), all.encode());
        for op in ops {
            match op {
                Op::Read(slot, n) => world.read(slot, n),
                Op::Ask(slot) => world.ask(slot),
                Op::Wait(slot, n) => world.waiting[slot] = n,
                Op::Deliver(slot) => {
                    if world.flying[slot] < world.usable(slot).in_flight {
                        world.flying[slot] += 1;
                    }
                }
                Op::Finish(slot) => world.flying[slot] = (world.flying[slot] - 1).max(0),
                Op::Renew(slot) => {
                    // A new owner has nothing, and knows what is in flight.
                    world.tokens[slot] += 1_000;
                    world.holdings[slot] = Holding::default();
                    world.boards[slot] = (Board::default(), 0);
                }
            }
            let rate: i64 = (0..usize::from(SLOTS)).map(|slot| world.usable(slot).rate).sum();
            prop_assert!(rate <= 100_000_000, "{rate}");
            let flying: i64 = world.flying.iter().sum();
            prop_assert!(flying <= 10, "{flying} in flight");
        }
    }

    /// When all have read all and asked again a few times, next to nothing of the limit lies idle, and everybody with a
    /// backlog has a part of it.
    #[test]
    fn a_limit_is_used_up_by_those_who_have_something_to_do(waiting in prop::collection::vec(0i64..10_000, 4)) {
        let mut world = World::new();
        world.write(&ControlKey::Limit("orders".into()), limit(Some("100/s"), Some(40)).encode());
        for round in 0..4 {
            for (slot, due) in waiting.iter().enumerate() {
                world.read(slot, usize::MAX);
                world.waiting[slot] = if round == 0 { 5 } else { *due };
                world.ask(slot);
            }
        }
        (0..usize::from(SLOTS)).for_each(|slot| world.read(slot, usize::MAX));
        let usable: Vec<_> = (0..usize::from(SLOTS)).map(|slot| world.usable(slot)).collect();
        let sum: i64 = usable.iter().map(|usable| usable.rate).sum();
        prop_assert!((99_000_000..=100_000_000).contains(&sum), "{usable:?} for {waiting:?}");
        for (slot, usable) in usable.iter().enumerate() {
            prop_assert!(usable.rate >= 2_400_000, "slot {slot} has {usable:?}");
        }
    }
}

#[test]
fn a_grant_is_what_the_others_leave_where_the_record_stands() {
    let mut board = Board::default();
    board.apply(0, b"orders", Some(&limit(Some("10/s"), None).encode())).unwrap();
    let ask = |board: &mut Board, offset, slot: u16, held, want| {
        let share = TopicShare {
            token: OwnerToken(1),
            limit_offset: 0,
            rate_held: held,
            rate_want: want,
            in_flight_held: 0,
            in_flight_want: 0,
            waiting: 1,
            journal_wanted: 0,
            at: 0,
        };
        let key = ControlKey::Share("orders".into(), Slot(slot)).to_string();
        board.apply(offset, key.as_bytes(), Some(&share.encode())).unwrap();
        board.of_slot(Slot(slot))[&topic()].own.unwrap().rate
    };
    assert_eq!(ask(&mut board, 1, 0, 0, 8_000_000), 8_000_000);
    assert_eq!(ask(&mut board, 2, 1, 0, 8_000_000), 2_000_000);
    assert_eq!(ask(&mut board, 3, 0, 5_000_000, 5_000_000), 5_000_000, "given back");
    assert_eq!(ask(&mut board, 4, 1, 2_000_000, 8_000_000), 5_000_000);
    board.apply(5, b"orders", Some(&limit(Some("20/s"), None).encode())).unwrap();
    assert_eq!(board.of_slot(Slot(0))[&topic()].own.unwrap().rate, 0, "a new limit is shared out anew");
    assert_eq!(ask(&mut board, 6, 0, 5_000_000, 5_000_000), 0, "that record speaks of the old one");
}

#[test]
fn an_older_count_does_not_replace_a_newer_one() {
    let mut board = Board::default();
    board.apply(0, b"orders", Some(&limit(None, Some(3)).encode())).unwrap();
    for (offset, running, journal_next) in [(1, 5, 40), (2, 9, 30), (3, 4, 40)] {
        let count = TopicRunning { running, journal_next, at: 0 };
        board.apply(offset, b"orders/2/running", Some(&count.encode())).unwrap();
    }
    assert_eq!(board.of_slot(Slot(2))[&topic()].running.unwrap().running, 4);
}

#[test]
fn what_was_written_of_a_topic_without_a_limit_is_taken_back_and_forgotten() {
    let mut board = Board::default();
    board.apply(0, b"orders", Some(&limit(None, Some(3)).encode())).unwrap();
    board
        .apply(1, b"orders/2/running", Some(&TopicRunning { running: 1, journal_next: 1, at: 0 }.encode()))
        .unwrap();
    board.apply(2, b"orders", None).unwrap();
    assert_eq!(board.idle_counts().collect::<Vec<_>>(), [(&topic(), Slot(2))]);
    assert!(board.of_slot(Slot(2)).is_empty(), "nothing of it concerns a dispatcher");
    board.apply(3, b"orders/2/running", None).unwrap();
    assert!(board.topics.is_empty());
}

#[test]
fn garbage_is_named_and_changes_nothing() {
    let mut board = Board::default();
    assert!(matches!(board.apply(0, b"a b", Some(b"x")), Err(Problem::Key)));
    assert!(matches!(board.apply(1, b"orders", Some(b"x")), Err(Problem::Value(_))));
    assert!(matches!(
        board.apply(2, b"orders/1/share", Some(&limit(None, Some(3)).encode())),
        Err(Problem::Value(_))
    ));
    assert!(board.topics.is_empty());
}
