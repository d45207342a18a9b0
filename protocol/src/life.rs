//! A row as every decision about it sees it, and the net effect of a transaction on it.
//!
//! ```text
//! rows under lock, ──▶ Life ── change | ack | apply | stall, in order, ──▶ Effects ──▶ MySQL, in the same transaction
//! rows of `change`              each seeing what the earlier ones did
//! ```
//!
//! Whatever changes a row, it is found under lock, decided on in memory, and written in bulk (PROTOCOL §1, H3). State
//! changes go through [`TaskState::after`](crate::state::TaskState::after) only, see `Life::enter`.

mod effects;
mod row;
#[cfg(test)]
pub(crate) mod testing;

pub use effects::{Alarm, Closed, Effects, HandedBack, Moved};
pub use row::{Ended, Held, Live, Open, Place, RowKey, Waiting, What, Working};

use crate::change::Answer;
use crate::state::Event;
use schemas::ids::{RowGen, RowId, Shard};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Cursors of shards, read under their (shared) lock.
pub type Cursors = HashMap<Shard, i64>;

/// What a transaction holds: rows, open intents and parked acks, as its decisions leave them one after the other.
#[derive(Clone, Debug, Default)]
pub struct Life {
    found: BTreeMap<RowId, Held>,
    now: BTreeMap<RowId, Held>,
    /// Rows whose generation this very transaction made: nobody can have emitted it.
    fresh: BTreeSet<RowId>,
    /// In command order, because the keys are commands.
    open: BTreeMap<RowId, BTreeMap<RowId, Open>>,
    opened: BTreeMap<RowId, Open>,
    closed: BTreeMap<RowId, Option<Answer>>,
    handed_back: BTreeSet<RowId>,
    alarms: Vec<Alarm>,
}

impl Life {
    /// Rows as they were found under lock, and what table `change` says of them (kinds 1 and 3), of whatever gen.
    pub fn new(rows: impl IntoIterator<Item = Held>, open: impl IntoIterator<Item = Open>) -> Life {
        let mut life = Life::default();
        life.found.extend(rows.into_iter().map(|row| (row.id, row)));
        for open in open {
            life.open.entry(open.id).or_default().insert(open.command, open);
        }
        life
    }

    /// This very transaction inserts a row.
    pub fn insert(&mut self, row: Held) {
        self.fresh.insert(row.id);
        self.found.insert(row.id, row);
    }

    /// A row as it stands now. `None`: MySQL does not have it.
    pub fn get(&self, id: RowId) -> Option<&Held> {
        self.now.get(&id).or_else(|| self.found.get(&id))
    }

    /// Whether nobody can have emitted the generation of a row: this transaction made it.
    pub fn is_fresh(&self, id: RowId) -> bool {
        self.fresh.contains(&id)
    }

    /// Open intents and parked acks of a row, in command order.
    pub fn open(&self, id: RowId) -> impl Iterator<Item = &Open> {
        self.open.get(&id).into_iter().flat_map(BTreeMap::values)
    }

    /// Whether something is open for this very `(row, gen)`.
    pub fn has_open(&self, row_gen: RowGen, wanted: impl Fn(&What) -> bool) -> bool {
        self.open(row_gen.id).any(|open| open.generation == row_gen.generation && wanted(&open.what))
    }

    /// Moves a row on. What the table of states does not allow is an alarm, and changes nothing.
    pub(crate) fn enter(&mut self, event: Event, to: Held) -> bool {
        let Some(from) = self.get(to.id) else { return false };
        match from.state().after(event) {
            Ok(state) => {
                debug_assert_eq!(state, to.state(), "{event:?}");
                let renewed = from.generation != to.generation;
                self.put(to, renewed);
                true
            }
            Err(illegal) => {
                self.alarms.push(Alarm::Illegal { id: to.id, illegal });
                false
            }
        }
    }

    /// Changes what is known of a row that stays where it is.
    pub(crate) fn put(&mut self, row: Held, renewed: bool) {
        let id = row.id;
        if renewed {
            self.fresh.insert(id);
        }
        if renewed || !matches!(row.place, Place::Pending(_)) {
            self.handed_back.remove(&id);
        }
        self.now.insert(id, row);
    }

    /// Notes an intent, or parks an ack.
    pub(crate) fn open_one(&mut self, open: Open) {
        self.opened.insert(open.command, open.clone());
        self.open.entry(open.id).or_default().insert(open.command, open);
    }

    /// An intent is answered, or what was parked is applied.
    pub(crate) fn close(&mut self, id: RowId, command: RowId, answer: Option<Answer>) {
        if let Some(open) = self.open.get_mut(&id) {
            open.remove(&command);
        }
        if self.opened.remove(&command).is_none() || answer.is_some() {
            self.closed.insert(command, answer);
        }
    }

    pub(crate) fn hand_back(&mut self, id: RowId) {
        self.handed_back.insert(id);
    }

    pub(crate) fn alarm(&mut self, alarm: Alarm) {
        self.alarms.push(alarm);
    }

    /// All that is to be written, in the order in which everybody writes.
    pub fn into_effects(self) -> Effects {
        effects::of(self)
    }
}
