//! What becomes of one due record. The core of *nothing twice*: PROTOCOL §7.

use super::settled::Settled;
use schemas::due::{DueKind, DueRecord};
use schemas::ids::RowGen;
use std::collections::HashSet;

/// Why a due record needs nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Drop {
    /// Its fate stands in the journal.
    Settled,
    /// It is being delivered.
    Flying,
    /// It already waits in store or prepare.
    Waiting,
    /// Not a due record, or one that fits no script call.
    Unusable,
}

/// Decision for one due record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nothing to do.
    Drop(Drop),
    /// Put it in store (the script drops it where it already is in store or prepare).
    Store,
    /// Move it into prepare as a withdraw intent.
    Intent,
    /// A withdraw whose member is flying: wait for the outcome (H9).
    Hold,
    /// Its fence lies below what is known: it cannot be judged.
    BelowLow,
    /// No due record at all: its bytes go to `rejected`.
    Stray,
}

/// Decides. `flying`: what is claimed and not settled.
pub fn decide(record: &DueRecord, settled: &Settled, flying: &HashSet<RowGen>) -> Verdict {
    let row_gen = record.row_gen();
    let withdraw = matches!(record.kind, DueKind::Withdraw);
    if settled.contains(row_gen) {
        return Verdict::Drop(Drop::Settled);
    }
    match (flying.contains(&row_gen), withdraw) {
        (true, true) => Verdict::Hold,
        (true, false) => Verdict::Drop(Drop::Flying),
        // What lies below `low` may be the fate of this very (row, gen).
        (false, _) if record.fence < settled.low() => Verdict::BelowLow,
        (false, true) => Verdict::Intent,
        (false, false) => Verdict::Store,
    }
}

#[cfg(test)]
mod tests {
    use super::super::settled::Fate;
    use super::*;
    use schemas::ids::{Generation, RowId, Shard};

    fn withdraw(id: u64, fence: i64) -> DueRecord {
        DueRecord {
            id: RowId(id),
            generation: Generation(1),
            shard: Shard(0),
            due_at: 0,
            fence,
            callback_topic: "a".into(),
            kind: DueKind::Withdraw,
        }
    }

    #[test]
    fn a_fence_below_low_cannot_be_judged_unless_the_fate_is_known() {
        let mut settled = Settled::from(10);
        assert_eq!(decide(&withdraw(1, 9), &settled, &HashSet::new()), Verdict::BelowLow);
        assert_eq!(decide(&withdraw(1, 10), &settled, &HashSet::new()), Verdict::Intent);
        settled.record(Fate { offset: 12, at: 0, row_gen: withdraw(1, 0).row_gen() });
        assert_eq!(decide(&withdraw(1, 9), &settled, &HashSet::new()), Verdict::Drop(Drop::Settled));
    }

    #[test]
    fn a_withdraw_of_a_flying_member_is_held() {
        let flying = HashSet::from([withdraw(1, 0).row_gen()]);
        assert_eq!(decide(&withdraw(1, 3), &Settled::from(0), &flying), Verdict::Hold);
    }
}
