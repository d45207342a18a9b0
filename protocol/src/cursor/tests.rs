use super::*;
use crate::route::{RouteEntry, RouteTable};
use proptest::prelude::*;
use schemas::ids::Slot;
use std::collections::{BTreeMap, BTreeSet};

const RULE: ScanRule = ScanRule {
    horizon_ms: 60_000,
    horizon_min_ms: 5_000,
    batch: 500,
    bucket_min_ms: 1_000,
    bucket_max_ms: 60_000,
    page_bytes: 4 << 20,
};

fn row(shard: u16, epoch: u64, cursor_at: i64, confirmed: ScanPoint) -> ShardRow {
    ShardRow { shard: Shard(shard), epoch, cursor_at, confirmed }
}

fn point(due_at: i64, id: u64) -> ScanPoint {
    ScanPoint { due_at, id: RowId(id) }
}

fn routes() -> RouteTable {
    RouteTable::new(4, 1, []).unwrap()
}

const EMPTY: PageRead = PageRead { rows: 0, bytes: 0, last: None, cut: false };

/// Runs one scan of shard 0 that finds nothing, at `now`, and returns the cursor it left.
fn idle_scan(scan: &mut SlotScan, now: i64, table: &mut ShardRow) {
    let start = scan.start(now).expect("due");
    assert_eq!(start.shards, vec![table.shard]);
    let advances = scan.advance(now, &[*table]).expect("not fenced");
    (table.epoch, table.cursor_at, table.confirmed) =
        (advances[0].epoch, advances[0].cursor_at, advances[0].confirmed);
    scan.advanced(&advances);
    let request = scan.page(table.shard, &routes()).expect("a page");
    assert_eq!(scan.page_read(&request, EMPTY), AfterPage::Rest { rows: 0 });
}

#[test]
fn a_sparse_shard_is_looked_at_once_a_minute() {
    let mut scan = SlotScan::new(RULE, [Shard(0)]);
    let (mut table, mut now) = (row(0, 0, 0, point(0, 0)), 1_000_000);
    let mut pauses = Vec::new();
    for _ in 0..6 {
        idle_scan(&mut scan, now, &mut table);
        let next = scan.next_due_at().expect("resting");
        pauses.push(next - now);
        now = next;
    }
    assert_eq!(pauses, [1_000, 4_000, 16_000, 60_000, 60_000, 60_000]);
}

#[test]
fn a_dense_shard_is_looked_at_every_second_at_once() {
    let mut pace = Pace { bucket_ms: 60_000, page_rows: 500 };
    pace.scanned(&RULE, 60_000, 30_000);
    assert_eq!(pace.bucket_ms, 1_000);
    pace.scanned(&RULE, 1_000, 500);
    assert_eq!(pace.bucket_ms, 1_000);
    pace.scanned(&RULE, 1_000, 250);
    assert_eq!(pace.bucket_ms, 2_000, "half as dense: twice as wide");
}

#[test]
fn a_scan_after_a_long_outage_says_little_about_the_density() {
    let mut pace = Pace::new(&RULE);
    pace.scanned(&RULE, i64::MAX, 20_000);
    assert_eq!(pace.bucket_ms, 3_000, "as if its rows lay in horizon + widest bucket");
}

#[test]
fn large_rows_make_small_pages_and_small_rows_large_ones() {
    let mut pace = Pace::new(&RULE);
    pace.paged(&RULE, 5, 5 * 900 * 1024);
    assert_eq!(pace.page_rows, 4);
    pace.paged(&RULE, 4, 4 * 300);
    assert_eq!(pace.page_rows, 16);
    for _ in 0..4 {
        pace.paged(&RULE, 16, 16 * 300);
    }
    assert_eq!(pace.page_rows, RULE.batch);
}

#[test]
fn a_full_slot_shrinks_the_horizon_but_never_below_its_minimum() {
    let load = |backlog, credit| SlotLoad { backlog: Some(backlog), credit: Some(credit) };
    assert_eq!(RULE.horizon(SlotLoad::default()), 60_000);
    assert_eq!(RULE.horizon(load(500, 500)), 60_000);
    assert_eq!(RULE.horizon(load(700, 300)), 32_500);
    assert_eq!(RULE.horizon(load(900, 100)), 5_000);
    assert_eq!(RULE.horizon(load(1_200, -200)), 5_000);
    assert_eq!(RULE.horizon(load(i64::MAX, i64::MIN)), 5_000);
    assert_eq!(RULE.horizon(load(0, 0)), 60_000, "an owner that says nothing holds nothing back");
    assert!(load(700, 300).is_pressed() && !load(500, 500).is_pressed());
}

#[test]
fn a_new_owner_goes_on_from_what_is_confirmed_and_bumps_the_epoch() {
    let mut scan = SlotScan::new(RULE, [Shard(0)]);
    let table = row(0, 7, 2_000_000, point(1_500_000, 9));
    scan.start(1_000_000);
    let advances = scan.advance(1_000_000, &[table]).unwrap();
    assert_eq!(advances[0].epoch, 8);
    assert_eq!(advances[0].cursor_at, 2_000_000, "the cursor never goes back");
    scan.advanced(&advances);
    let request = scan.page(Shard(0), &routes()).unwrap();
    assert_eq!((request.after, request.upto_at), (point(1_500_000, 9), 2_000_000));
}

#[test]
fn a_scanner_whose_epoch_has_moved_on_is_fenced() {
    let mut scan = SlotScan::new(RULE, [Shard(0)]);
    let mut table = row(0, 0, 0, point(0, 0));
    idle_scan(&mut scan, 1_000_000, &mut table);
    table.epoch += 1;
    let now = scan.next_due_at().unwrap();
    scan.start(now);
    assert_eq!(scan.advance(now, &[table]), Err(Fenced { shard: Shard(0) }));
}

#[test]
fn after_a_failure_the_shard_is_taken_like_by_a_new_owner() {
    let mut scan = SlotScan::new(RULE, [Shard(0)]);
    let mut table = row(0, 0, 0, point(0, 0));
    idle_scan(&mut scan, 1_000_000, &mut table);
    scan.failed(Shard(0), 1_000_500);
    assert_eq!(scan.start(1_000_499), None);
    table.epoch += 1; // its own start, whose answer was lost
    scan.start(1_000_500).expect("due");
    assert!(scan.advance(1_000_500, &[table]).is_ok());
}

#[test]
fn an_empty_scan_is_confirmed_by_the_next_start() {
    let mut scan = SlotScan::new(RULE, [Shard(0)]);
    let mut table = row(0, 0, 0, point(0, 0));
    idle_scan(&mut scan, 1_000_000, &mut table);
    let reached = table.cursor_at;
    assert_eq!(table.confirmed, point(0, 0));
    let next = scan.next_due_at().unwrap();
    idle_scan(&mut scan, next, &mut table);
    assert_eq!(table.confirmed, ScanPoint::end_of(reached));
}

#[test]
fn a_page_ends_at_a_route_boundary_and_the_next_one_has_the_other_slot() {
    let moved = RouteEntry { shard: Shard(0), from_due_at: 1_030_000, slot: Slot(1) };
    let routes = RouteTable::new(2, 2, [moved]).unwrap();
    let mut scan = SlotScan::new(RULE, [Shard(0)]);
    scan.start(1_000_000);
    scan.advanced(&scan.advance(1_000_000, &[row(0, 0, 0, point(0, 0))]).unwrap());
    let first = scan.page(Shard(0), &routes).unwrap();
    assert_eq!((first.slot, first.upto_at), (Slot(0), 1_029_999));
    assert_eq!(scan.page_read(&first, EMPTY), AfterPage::Read);
    let second = scan.page(Shard(0), &routes).unwrap();
    assert_eq!((second.slot, second.upto_at), (Slot(1), 1_061_000));
    assert_eq!(second.after, ScanPoint::end_of(1_029_999));
}

#[test]
fn the_lag_is_what_the_horizon_holds_and_is_not_emitted_yet() {
    let mut scan = SlotScan::new(RULE, [Shard(0)]);
    assert_eq!(scan.lag_ms(1_000_000), 0, "nothing is known");
    scan.start(1_000_000);
    let table = row(0, 0, 1_010_000, point(990_000, 4));
    scan.advanced(&scan.advance(1_000_000, &[table]).unwrap());
    assert_eq!(scan.lag_ms(1_000_000), 70_000);
    let request = scan.page(Shard(0), &routes()).unwrap();
    scan.page_read(&request, EMPTY);
    assert_eq!(scan.lag_ms(1_000_000), 0);
    assert_eq!(scan.lag_ms(1_002_000), 1_000, "a second later than the bucket reaches");
}

#[test]
fn dense_shards_share_the_transaction_of_a_start() {
    let mut scan = SlotScan::new(RULE, [Shard(0), Shard(1), Shard(2)]);
    scan.start(1_000_000);
    let rows: Vec<_> = (0..3).map(|shard| row(shard, 0, 0, point(0, 0))).collect();
    scan.advanced(&scan.advance(1_000_000, &rows).unwrap());
    for shard in 0..3 {
        let request = scan.page(Shard(shard), &routes()).unwrap();
        scan.page_read(&request, EMPTY);
    }
    scan.failed(Shard(2), 1_001_200);
    let start = scan.start(1_001_000).unwrap();
    assert_eq!(start.shards, [Shard(0), Shard(1)], "a shard that backs off is not pulled forward");
}

#[test]
fn shards_that_join_a_slot_are_due_at_once_and_the_others_go_on() {
    let mut scan = SlotScan::new(RULE, [Shard(0)]);
    let mut table = row(0, 0, 0, point(0, 0));
    idle_scan(&mut scan, 1_000_000, &mut table);
    scan.set_shards([Shard(0), Shard(1)]);
    assert_eq!(scan.start(1_000_000).unwrap().shards, [Shard(1)]);
}

/// A page that was read and is not confirmed.
type OpenPage = (PageRequest, Vec<ScanPoint>);

/// One shard, its rows, two scanners of which each may think that it owns the slot, and writers that follow the rule of
/// everybody who commits a row: read the cursor after the own commit, emit what lies at or below it.
struct World {
    now: i64,
    table: ShardRow,
    pending: BTreeSet<ScanPoint>,
    emitted: BTreeMap<ScanPoint, u32>,
    owed: Vec<ScanPoint>,
    scanners: [(SlotScan, Option<OpenPage>); 2],
    next_id: u64,
}

const SMALL: ScanRule = ScanRule {
    horizon_ms: 100,
    horizon_min_ms: 20,
    batch: 3,
    bucket_min_ms: 10,
    bucket_max_ms: 80,
    page_bytes: 50,
};

impl World {
    fn new() -> World {
        let scanner = || (SlotScan::new(SMALL, [Shard(0)]), None);
        World {
            now: 1_000,
            table: row(0, 0, 0, point(0, 0)),
            pending: BTreeSet::new(),
            emitted: BTreeMap::new(),
            owed: Vec::new(),
            scanners: [scanner(), scanner()],
            next_id: 0,
        }
    }

    fn emit(&mut self, at: ScanPoint) {
        assert!(at.due_at <= self.table.cursor_at, "emitted beyond the cursor");
        *self.emitted.entry(at).or_default() += 1;
    }

    fn write(&mut self, ahead: i64) {
        self.next_id += 1;
        let at = point(self.now + ahead, self.next_id);
        self.pending.insert(at);
        self.owed.push(at);
    }

    /// A writer wakes up after its commit, perhaps much later: the second look.
    fn second_look(&mut self) {
        for at in std::mem::take(&mut self.owed) {
            if at.due_at <= self.table.cursor_at && self.pending.contains(&at) {
                self.emit(at);
            }
        }
    }

    /// One step of a scanner; `lost`: the answer of the database or of Kafka never arrives although it was carried out.
    fn step(&mut self, who: usize, lost: bool) {
        let (scan, page) = &mut self.scanners[who];
        if let Some((request, rows)) = page.take() {
            for at in &rows {
                self.emit(*at);
            }
            let (scan, _) = &mut self.scanners[who];
            if lost {
                return scan.failed(Shard(0), self.now);
            }
            let confirm = scan.acked(request.shard).expect("it was emitting");
            if confirm.epoch != self.table.epoch {
                return scan.failed(Shard(0), self.now + 30);
            }
            assert!(confirm.upto >= self.table.confirmed, "confirmed goes back");
            self.table.confirmed = confirm.upto;
            scan.confirmed(Shard(0));
        } else if let Some(request) = scan.page(Shard(0), &routes()) {
            if lost {
                return scan.failed(Shard(0), self.now);
            }
            let behind = self.pending.range((
                std::ops::Bound::Excluded(request.after),
                std::ops::Bound::Included(ScanPoint::end_of(request.upto_at)),
            ));
            let mut rows: Vec<ScanPoint> = behind.copied().take(request.limit as usize).collect();
            let cut = rows.len() > 2 && request.limit > 2;
            if cut {
                rows.truncate(2);
            }
            let read = PageRead {
                rows: rows.len() as u32,
                bytes: 20 * rows.len() as u64,
                last: rows.last().copied(),
                cut,
            };
            if scan.page_read(&request, read) == AfterPage::Emit {
                *page = Some((request, rows));
            }
        } else if scan.start(self.now).is_some() {
            match scan.advance(self.now, &[self.table]) {
                Err(Fenced { .. }) => scan.failed(Shard(0), self.now + 30),
                Ok(advances) => {
                    let [advance] = advances[..] else { panic!("one shard") };
                    assert!(advance.cursor_at >= self.table.cursor_at.max(self.now + SMALL.horizon_min_ms));
                    assert!(advance.confirmed >= self.table.confirmed);
                    self.table = row(0, advance.epoch, advance.cursor_at, advance.confirmed);
                    if lost {
                        scan.failed(Shard(0), self.now);
                    } else {
                        scan.advanced(&advances);
                    }
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write(i64),
    Look,
    Step(usize, bool),
    Crash(usize),
    Wait(i64),
    Settle,
    Load(usize, i64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (-20i64..400).prop_map(Op::Write),
        2 => Just(Op::Write(60)), // a herd of equal due times, while the clock stands
        2 => Just(Op::Look),
        12 => (0usize..2, proptest::bool::weighted(0.1)).prop_map(|(who, lost)| Op::Step(who, lost)),
        1 => (0usize..2).prop_map(Op::Crash),
        4 => (1i64..40).prop_map(Op::Wait),
        1 => Just(Op::Settle),
        1 => (0usize..2, 0i64..100).prop_map(|(who, fill)| Op::Load(who, fill)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn whatever_dies_each_row_at_or_below_the_cursor_is_emitted_and_none_beyond_it(
        ops in proptest::collection::vec(op(), 1..250),
    ) {
        let mut world = World::new();
        for op in ops {
            match op {
                Op::Write(ahead) => world.write(ahead),
                Op::Look => world.second_look(),
                Op::Step(who, lost) => world.step(who, lost),
                Op::Crash(who) => world.scanners[who] = (SlotScan::new(SMALL, [Shard(0)]), None),
                Op::Wait(ms) => world.now += ms,
                // What was emitted and is due gets delivered: its row leaves `pending`.
                Op::Settle => {
                    let (now, emitted) = (world.now, &world.emitted);
                    world.pending.retain(|at| at.due_at > now || !emitted.contains_key(at));
                }
                Op::Load(who, fill) => world.scanners[who].0.set_load(SlotLoad { backlog: Some(fill), credit: Some(100 - fill) }),
            }
        }
        // Everybody gets to finish: the writers, and one scanner that lives.
        world.second_look();
        world.scanners[0] = (SlotScan::new(SMALL, [Shard(0)]), None);
        let horizon_at = world.now + 500;
        while world.now < horizon_at {
            for _ in 0..60 {
                world.step(0, false);
            }
            world.now += 10;
        }
        for at in &world.pending {
            if at.due_at <= world.table.cursor_at {
                prop_assert!(world.emitted.contains_key(at), "{at:?} was never emitted");
            }
        }
        prop_assert!(world.table.cursor_at >= world.now - 10 + SMALL.horizon_ms);
    }

    #[test]
    fn a_lone_scanner_emits_each_row_once_and_in_order(
        dues in proptest::collection::btree_set((1_100i64..2_000, 1u64..1_000), 1..80),
    ) {
        let mut world = World::new();
        world.pending = dues.iter().map(|(due_at, id)| point(*due_at, *id)).collect();
        let mut order = Vec::new();
        while world.now < 2_000 {
            for _ in 0..120 {
                let before = world.scanners[0].1.take();
                if let Some((_, rows)) = &before {
                    order.extend(rows.iter().copied());
                }
                world.scanners[0].1 = before;
                world.step(0, false);
            }
            world.now += 10;
        }
        prop_assert!(order.is_sorted());
        prop_assert!(world.emitted.values().all(|n| *n == 1));
        prop_assert_eq!(order.len(), dues.len());
    }
}
