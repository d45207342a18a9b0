use super::*;
use proptest::prelude::*;

const LOG: LogRange = LogRange { start: 10, end: 100 };

#[test]
fn a_new_owner_reads_from_confirmed() {
    assert_eq!(Positions { next: 50, confirmed: 40 }.seek(LOG), Ok(40));
    assert_eq!(Positions { next: 100, confirmed: 100 }.seek(LOG), Ok(100), "an empty rest is no error");
}

#[test]
fn a_position_outside_the_log_stops_the_partition() {
    assert_eq!(
        Positions { next: 50, confirmed: 9 }.seek(LOG),
        Err(OutsideLog::BelowStart { position: 9, start: 10 })
    );
    assert_eq!(
        Positions { next: 101, confirmed: 50 }.seek(LOG),
        Err(OutsideLog::AboveEnd { position: 101, end: 100 })
    );
    assert_eq!(
        Positions { next: 40, confirmed: 50 }.seek(LOG),
        Err(OutsideLog::Inverted { confirmed: 50, next: 40 })
    );
}

#[test]
fn below_next_only_effects_are_repeated() {
    let at = Positions { next: 50, confirmed: 40 };
    assert_eq!(at.handling(39), Handling::Skip);
    assert_eq!(at.handling(40), Handling::Repeat);
    assert_eq!(at.handling(49), Handling::Repeat);
    assert_eq!(at.handling(50), Handling::Apply);
    assert_eq!(at.handling(70), Handling::Apply, "a gap is normal");
}

#[test]
fn a_batch_never_mixes_repeated_and_applied_records() {
    let limits = BatchLimits { records: 10, bytes: 1000 };
    let mut batch = Filling::default();
    assert!(batch.takes(limits, Handling::Repeat, 10));
    batch.add(Handling::Repeat, 10);
    assert!(batch.takes(limits, Handling::Repeat, 10));
    assert!(!batch.takes(limits, Handling::Apply, 10));
}

#[test]
fn a_batch_is_cut_by_records_and_by_bytes_but_holds_at_least_one_record() {
    let limits = BatchLimits { records: 2, bytes: 100 };
    let mut batch = Filling::default();
    assert!(batch.takes(limits, Handling::Apply, 500));
    batch.add(Handling::Apply, 60);
    assert!(batch.takes(limits, Handling::Apply, 40));
    assert!(!batch.takes(limits, Handling::Apply, 41));
    batch.add(Handling::Apply, 1);
    assert!(batch.is_full(limits));
    assert!(!batch.takes(limits, Handling::Apply, 1));
}

#[test]
fn confirmed_waits_for_the_oldest_batch() {
    let mut ledger = Ledger::open(Positions { next: 10, confirmed: 10 });
    let a = ledger.applied(15);
    let b = ledger.applied(30);
    ledger.acked(b);
    assert_eq!(ledger.confirmable(), None);
    assert_eq!(ledger.in_flight(), 1);
    ledger.acked(a);
    assert_eq!(ledger.confirmable(), Some(30));
    ledger.confirmed(30);
    assert_eq!(ledger.positions(), Positions { next: 30, confirmed: 30 });
    assert_eq!(ledger.confirmable(), None);
}

#[test]
fn a_repeated_batch_moves_confirmed_and_never_next() {
    let mut ledger = Ledger::open(Positions { next: 30, confirmed: 10 });
    let a = ledger.repeating(30);
    ledger.acked(a);
    assert_eq!(ledger.positions().next, 30);
    assert_eq!(ledger.confirmable(), Some(30));
}

#[test]
fn an_ack_for_a_batch_long_confirmed_changes_nothing() {
    let mut ledger = Ledger::open(Positions { next: 0, confirmed: 0 });
    let a = ledger.applied(5);
    ledger.acked(a);
    ledger.confirmed(5);
    let b = ledger.applied(9);
    ledger.acked(a);
    assert_eq!(ledger.confirmable(), None);
    ledger.acked(b);
    assert_eq!(ledger.confirmable(), Some(9));
}

proptest! {
    /// Whatever the order of acks: `confirmed` never passes a batch that is not acked, and reaches the end at last.
    #[test]
    fn confirmed_moves_in_batch_order(sizes in prop::collection::vec(1i64..5, 1..20), order in any::<Vec<u16>>()) {
        let mut ledger = Ledger::open(Positions { next: 0, confirmed: 0 });
        let mut end = 0;
        let mut open: Vec<(Flight, i64)> = sizes.iter().map(|size| { end += size; (ledger.applied(end), end) }).collect();
        let mut picks = order.into_iter();
        while !open.is_empty() {
            let pick = usize::from(picks.next().unwrap_or(0)) % open.len();
            let (flight, _) = open.remove(pick);
            ledger.acked(flight);
            if let Some(to) = ledger.confirmable() {
                let oldest = open.iter().map(|(_, end)| *end).min().unwrap_or(i64::MAX);
                prop_assert!(to < oldest);
                prop_assert!(to > ledger.positions().confirmed);
                ledger.confirmed(to);
            }
        }
        prop_assert_eq!(ledger.positions(), Positions { next: end, confirmed: end });
    }
}
