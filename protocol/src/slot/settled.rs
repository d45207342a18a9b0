//! The fates that stand in the journal from offset `low` on. What keeps a late or doubled due record from being delivered
//! again (I-3): a record whose fence is at or above `low` is undelivered unless it is found here.

use schemas::ids::RowGen;
use std::collections::{HashMap, VecDeque};

/// What one fate costs in memory, roughly: a slot of the map and one of the queue.
const FATE_BYTES: usize = 88;

/// One fate as it stands in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Offset of its journal record.
    pub offset: i64,
    /// When it was decided, epoch ms.
    pub at: i64,
    /// Whose fate.
    pub row_gen: RowGen,
}

/// Set of fates with the offset from which on it is complete.
#[derive(Debug, Default)]
pub struct Settled {
    known: HashMap<RowGen, i64>,
    /// Ascending by offset.
    fates: VecDeque<Fate>,
    low: i64,
}

impl Settled {
    /// Nothing known yet; complete from `low` on as fates are added.
    pub fn from(low: i64) -> Settled {
        Settled { low, ..Settled::default() }
    }

    /// Every fate at or above this offset is in the set.
    pub fn low(&self) -> i64 {
        self.low
    }

    /// Whether the fate of this `(row, gen)` is known.
    pub fn contains(&self, row_gen: RowGen) -> bool {
        self.known.contains_key(&row_gen)
    }

    /// Number of fates.
    pub fn len(&self) -> usize {
        self.fates.len()
    }

    /// Whether no fate is known.
    pub fn is_empty(&self) -> bool {
        self.fates.is_empty()
    }

    /// Memory in use, roughly.
    pub fn bytes(&self) -> usize {
        self.fates.len() * FATE_BYTES
    }

    /// Adds the newest fate. False where this `(row, gen)` already has one: the journal then holds two, which must not be.
    pub fn record(&mut self, fate: Fate) -> bool {
        self.fates.push_back(fate);
        self.known.insert(fate.row_gen, fate.offset).is_none()
    }

    /// Lowers `low` to `from` with the fates of `[from, low)`, ascending (J2).
    pub fn extend_below(&mut self, from: i64, older: &[Fate]) {
        debug_assert!(from <= self.low && older.iter().all(|fate| fate.offset < self.low));
        for fate in older.iter().rev() {
            self.fates.push_front(*fate);
            self.known.entry(fate.row_gen).or_insert(fate.offset);
        }
        self.low = self.low.min(from);
    }

    /// Forgets what was decided before `before_at`, but nothing at or above `fence` (H4): `low` never rises above it.
    /// With a dead ingest all fences stand still, and every new record would otherwise be stale.
    pub fn prune(&mut self, before_at: i64, fence: i64) {
        while self.fates.front().is_some_and(|fate| fate.at < before_at && fate.offset < fence) {
            self.forget_oldest();
        }
    }

    /// Forgets the oldest until the cap is kept, whatever the fences say. Number of fates forgotten: not zero is an alarm.
    pub fn keep_cap(&mut self, cap_bytes: usize) -> usize {
        let mut forgotten = 0;
        while self.bytes() > cap_bytes && !self.fates.is_empty() {
            self.forget_oldest();
            forgotten += 1;
        }
        forgotten
    }

    fn forget_oldest(&mut self) {
        if let Some(fate) = self.fates.pop_front() {
            if self.known.get(&fate.row_gen) == Some(&fate.offset) {
                self.known.remove(&fate.row_gen);
            }
            self.low = self.low.max(fate.offset + 1);
        }
    }
}

/// Fates below `low`, read upwards and kept within a cap by dropping the oldest.
#[derive(Debug)]
pub(super) struct Below {
    /// Complete from here on.
    pub(super) from: i64,
    pub(super) fates: VecDeque<Fate>,
    room: usize,
}

impl Below {
    /// Reading starts at `from`; at most `room_bytes` are kept.
    pub(super) fn new(from: i64, room_bytes: usize) -> Below {
        Below { from, fates: VecDeque::new(), room: room_bytes / FATE_BYTES }
    }

    pub(super) fn push(&mut self, fate: Fate) {
        self.fates.push_back(fate);
        while self.fates.len() > self.room {
            if let Some(dropped) = self.fates.pop_front() {
                self.from = dropped.offset + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::ids::{Generation, RowId};

    fn fate(offset: i64, at: i64, id: u64) -> Fate {
        Fate { offset, at, row_gen: RowGen { id: RowId(id), generation: Generation(1) } }
    }

    fn three() -> Settled {
        let mut settled = Settled::from(10);
        for (offset, id) in [(10, 1), (11, 2), (12, 3)] {
            assert!(settled.record(fate(offset, offset * 100, id)));
        }
        settled
    }

    #[test]
    fn pruning_by_age_raises_low() {
        let mut settled = three();
        settled.prune(1_150, 100);
        assert_eq!((settled.low(), settled.len()), (12, 1));
        assert!(!settled.contains(fate(0, 0, 1).row_gen) && settled.contains(fate(0, 0, 3).row_gen));
    }

    #[test]
    fn low_never_rises_above_the_largest_fence_by_age() {
        let mut settled = three();
        settled.prune(i64::MAX, 11);
        assert_eq!((settled.low(), settled.len()), (11, 2));
    }

    #[test]
    fn only_the_cap_raises_low_above_the_fence() {
        let mut settled = three();
        assert_eq!(settled.keep_cap(FATE_BYTES), 2);
        assert_eq!((settled.low(), settled.len()), (12, 1));
        assert_eq!(settled.keep_cap(FATE_BYTES), 0);
    }

    #[test]
    fn reading_below_low_makes_the_set_complete_from_there() {
        let mut settled = three();
        settled.extend_below(5, &[fate(6, 1, 7), fate(9, 2, 8)]);
        assert_eq!(settled.low(), 5);
        assert!(settled.contains(fate(0, 0, 7).row_gen) && settled.contains(fate(0, 0, 8).row_gen));
        settled.prune(2, 100);
        assert_eq!(settled.low(), 7, "the order of offsets is kept");
    }

    #[test]
    fn what_does_not_fit_below_low_is_dropped_from_its_far_end() {
        let mut below = Below::new(0, 2 * FATE_BYTES);
        for offset in 0..5 {
            below.push(fate(offset, 0, offset as u64));
        }
        assert_eq!((below.from, below.fates.len()), (3, 2));
    }

    #[test]
    fn a_second_fate_of_one_row_and_gen_is_told() {
        let mut settled = three();
        assert!(!settled.record(fate(13, 0, 1)));
        settled.keep_cap(FATE_BYTES * 3);
        assert!(settled.contains(fate(0, 0, 1).row_gen), "the newer one still counts");
    }
}
