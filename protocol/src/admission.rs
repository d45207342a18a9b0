//! What becomes of a batch of schedule commands: accepted, duplicate or conflict, and what of it is emitted at once.
//!
//! ```text
//! commands in order ── judge ──▶ rows to insert, sorted by identity          (one transaction, with `next`)
//!        ▲ identities found            │ committed
//!        └── looked up again on        ▼
//!            a duplicate-key error   near ──▶ rows at or below their shard's cursor, read after the commit
//!                                      │
//!                                      ▼
//!                                    still_there ──▶ of these, what a second look still finds pending ──▶ emitted
//! ```
//!
//! The second look is not optional: a writer that slept between commit and emission could otherwise emit a row that
//! was cancelled at once, beyond the cursor, in the meantime.

use schemas::ids::{Generation, RowGen, RowId, Shard};
use std::collections::{HashMap, HashSet};

/// 128-bit hash of `(shard_key, task_id)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub [u8; 16]);

/// 128-bit hash of the fields as submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentHash(pub [u8; 16]);

/// A valid schedule command, as far as its fate depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where the command came from.
    pub id: RowId,
    /// Which task it names.
    pub identity: Identity,
    /// What it says.
    pub content: ContentHash,
}

/// A task that is known by this identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The command that made it.
    pub id: RowId,
    /// What that command said.
    pub content: ContentHash,
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A new task.
    Accepted,
    /// This very command made the task already: an earlier transaction of the same batch was committed after all.
    AlreadyAccepted,
    /// The same task with the same content was submitted before.
    Duplicate {
        /// The command that was accepted.
        of: RowId,
    },
    /// The same task with another content was submitted before.
    Conflict {
        /// The command that was accepted.
        of: RowId,
    },
}

/// The verdicts of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// One for each offer, in the order of the commands.
    pub verdicts: Vec<Verdict>,
    /// Indexes of the offers to insert, sorted by identity: two batches that overlap then lock in the same order.
    pub inserts: Vec<usize>,
}

/// Judges commands in their order, each seeing what the earlier ones of the batch did.
///
/// `known` is what a look into MySQL found for these identities. An insert that nevertheless meets a duplicate key
/// met a batch of somebody else: look up and judge again.
pub fn judge(offers: &[Offer], known: &HashMap<Identity, Known>) -> Judgement {
    let mut fresh: HashMap<Identity, Known> = HashMap::new();
    let mut inserts = Vec::new();
    let mut verdicts = Vec::with_capacity(offers.len());
    for (index, offer) in offers.iter().enumerate() {
        let verdict = match known.get(&offer.identity).or_else(|| fresh.get(&offer.identity)) {
            None => {
                fresh.insert(offer.identity, Known { id: offer.id, content: offer.content });
                inserts.push(index);
                Verdict::Accepted
            }
            Some(task) if task.id == offer.id => Verdict::AlreadyAccepted,
            Some(task) if task.content == offer.content => Verdict::Duplicate { of: task.id },
            Some(task) => Verdict::Conflict { of: task.id },
        };
        verdicts.push(verdict);
    }
    inserts.sort_unstable_by_key(|index| offers[*index].identity);
    Judgement { verdicts, inserts }
}

/// Whether a command is too old to be judged: final rows of that age are forgotten, so its identity may be, too.
pub fn is_past_window(submitted_at: i64, now: i64, window_ms: i64) -> bool {
    now.saturating_sub(submitted_at) > window_ms
}

/// A row that a committed transaction put into `pending`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The row.
    pub id: RowId,
    /// Its generation.
    pub generation: Generation,
    /// The shard in which it lies.
    pub shard: Shard,
    /// When it is due.
    pub due_at: i64,
}

impl Placed {
    /// The `(row, gen)` to look for again.
    pub fn row_gen(&self) -> RowGen {
        RowGen { id: self.id, generation: self.generation }
    }
}

/// Indexes of the rows that lie at or below their shard's cursor, which was read *after* the rows were committed.
/// The scanner may have passed them already, so whoever committed them emits them; what lies beyond is the scanner's.
pub fn near(placed: &[Placed], cursors: &HashMap<Shard, i64>) -> Vec<usize> {
    let below = |row: &Placed| cursors.get(&row.shard).is_some_and(|cursor_at| row.due_at <= *cursor_at);
    placed.iter().enumerate().filter(|(_, row)| below(row)).map(|(index, _)| index).collect()
}

/// Of these rows, the ones that a second look still found pending with their generation: once a row has been seen
/// so at or below the cursor, a cancel can only go through a withdrawal, and emitting it is safe.
pub fn still_there(placed: &[Placed], near: &[usize], found: &HashSet<RowGen>) -> Vec<usize> {
    near.iter().copied().filter(|index| found.contains(&placed[*index].row_gen())).collect()
}

#[cfg(test)]
mod tests;
