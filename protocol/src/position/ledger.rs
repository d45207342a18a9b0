//! Batches of one partition between their transaction and the acks of their effects.

use super::{Handling, Positions};
use std::collections::VecDeque;

/// Names one batch of a [`Ledger`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flight(u64);

/// What the owner of a partition knows of its positions: `next` moves with each applied batch, `confirmed` in batch
/// order as effects are acked, in whatever order the acks come.
///
/// Opened from the positions in MySQL by each new owner; thrown away when a compare-and-set misses, for then
/// somebody else owns the partition.
#[derive(Debug)]
pub struct Ledger {
    positions: Positions,
    first: u64,
    flights: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    end: i64,
    acked: bool,
}

impl Ledger {
    /// A ledger that goes on from what MySQL holds.
    pub fn open(positions: Positions) -> Ledger {
        Ledger { positions, first: 0, flights: VecDeque::new() }
    }

    /// The positions as this owner last saw or wrote them.
    pub fn positions(&self) -> Positions {
        self.positions
    }

    /// What is to be done with the record at `offset`.
    pub fn handling(&self, offset: i64) -> Handling {
        self.positions.handling(offset)
    }

    /// A batch whose last record lies at `end - 1` was applied: its transaction moved `next` to `end`, committed.
    pub fn applied(&mut self, end: i64) -> Flight {
        debug_assert!(end > self.positions.next, "a batch moves next forward");
        self.positions.next = self.positions.next.max(end);
        self.fly(end)
    }

    /// A batch below `next` was read whose effects are being repeated.
    pub fn repeating(&mut self, end: i64) -> Flight {
        debug_assert!(end <= self.positions.next, "only what was applied is repeated");
        self.fly(end)
    }

    fn fly(&mut self, end: i64) -> Flight {
        self.flights.push_back(Open { end, acked: false });
        Flight(self.first + self.flights.len() as u64 - 1)
    }

    /// Every effect of the batch is acked (or it had none).
    pub fn acked(&mut self, flight: Flight) {
        let at = flight.0.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(open) = at.and_then(|at| self.flights.get_mut(at)) {
            open.acked = true;
        }
    }

    /// Batches whose effects are not acked yet.
    pub fn in_flight(&self) -> usize {
        self.flights.iter().filter(|open| !open.acked).count()
    }

    /// How far `confirmed` may move now: over every acked batch up to the first that is not. `None`: not at all.
    pub fn confirmable(&self) -> Option<i64> {
        let end = self.flights.iter().take_while(|open| open.acked).last()?.end;
        (end > self.positions.confirmed).then_some(end)
    }

    /// `confirmed` was moved in MySQL, committed.
    pub fn confirmed(&mut self, to: i64) {
        self.positions.confirmed = self.positions.confirmed.max(to);
        while self.flights.front().is_some_and(|open| open.acked && open.end <= to) {
            self.flights.pop_front();
            self.first += 1;
        }
    }
}
