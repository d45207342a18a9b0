//! How far `due[s]` has been taken in: what a take-over re-reads starts here.

use std::collections::BTreeSet;

/// Position on `due[s]`. Passes what was dropped or stored, but not what only memory knows yet: an unsettled intent, a held
/// withdraw, a stale record whose entry is not committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DuePos {
    next: i64,
    held: BTreeSet<i64>,
}

impl DuePos {
    pub(super) fn at(next: i64) -> DuePos {
        DuePos { next, held: BTreeSet::new() }
    }

    /// The record at `offset` needs nothing more.
    pub(super) fn pass(&mut self, offset: i64) {
        self.next = self.next.max(offset + 1);
        self.held.remove(&offset);
    }

    /// The record at `offset` was seen, but must be read again by a next owner until it is passed.
    pub(super) fn hold(&mut self, offset: i64) {
        self.next = self.next.max(offset + 1);
        self.held.insert(offset);
    }

    /// Where a next owner begins.
    pub(super) fn position(&self) -> i64 {
        self.held.first().copied().unwrap_or(self.next)
    }

    /// How many records are held.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_record_stops_the_position_until_it_is_passed() {
        let mut due = DuePos::at(5);
        due.pass(5);
        due.hold(7);
        due.pass(8);
        assert_eq!(due.position(), 7);
        due.hold(6);
        assert_eq!(due.position(), 6);
        due.pass(6);
        due.pass(7);
        assert_eq!((due.position(), due.held()), (9, 0));
    }

    #[test]
    fn an_intent_of_unknown_offset_holds_nothing() {
        let due = DuePos::at(3);
        assert_eq!(due.position(), 3);
    }
}
