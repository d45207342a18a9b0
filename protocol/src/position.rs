//! The two positions of every input stream, and what follows from them (PROTOCOL §1).
//!
//! `next`: what lies below has been applied, and is never applied again. `confirmed`: what lies below has had its
//! effects (emissions, answers, rejections) acked. Both live in MySQL; a group commit in Kafka means nothing here.

mod ledger;

pub use ledger::{Flight, Ledger};

/// The two positions of one partition of an input stream, as MySQL holds them. Both only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Offsets below have been applied.
    pub next: i64,
    /// Offsets below have had their effects acked. Never above `next`.
    pub confirmed: i64,
}

/// What the log of a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// First offset.
    pub start: i64,
    /// One past the last offset.
    pub end: i64,
}

/// A position that does not lie in its log: the partition stops with an alarm, it never guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutsideLog {
    /// Records that were to be read are gone.
    #[error("position {position} lies below the start {start} of the log: records were lost unread")]
    BelowStart {
        /// The lower of the two positions.
        position: i64,
        /// Where the log starts.
        start: i64,
    },
    /// The log is shorter than what was read from it: truncated, or another topic of the same name.
    #[error("position {position} lies above the end {end} of the log: it was truncated or re-created")]
    AboveEnd {
        /// The higher of the two positions.
        position: i64,
        /// Where the log ends.
        end: i64,
    },
    /// The table itself is wrong.
    #[error("confirmed {confirmed} lies above next {next}: the positions were tampered with")]
    Inverted {
        /// Offsets below have had their effects acked.
        confirmed: i64,
        /// Offsets below have been applied.
        next: i64,
    },
}

/// What is to be done with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// At or above `next`: validate, decide and write it.
    Apply,
    /// Below `next`: only its effects are repeated. It is not validated again: age, topics and allow-lists change.
    Repeat,
    /// Below `confirmed`: its effects are known to be acked. Seen only when a seek went too far back.
    Skip,
}

impl Positions {
    /// Where a new owner starts to read: at `confirmed`, so that unacked effects are repeated.
    pub fn seek(self, log: LogRange) -> Result<i64, OutsideLog> {
        let Positions { next, confirmed } = self;
        if confirmed > next {
            return Err(OutsideLog::Inverted { confirmed, next });
        }
        if confirmed < log.start {
            return Err(OutsideLog::BelowStart { position: confirmed, start: log.start });
        }
        if next > log.end {
            return Err(OutsideLog::AboveEnd { position: next, end: log.end });
        }
        Ok(confirmed)
    }

    /// What is to be done with the record at `offset`. Gaps between offsets are normal (markers, aborted batches),
    /// so nothing is concluded from them.
    pub fn handling(self, offset: i64) -> Handling {
        if offset >= self.next {
            Handling::Apply
        } else if offset >= self.confirmed {
            Handling::Repeat
        } else {
            Handling::Skip
        }
    }
}

/// How large a batch may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Records.
    pub records: usize,
    /// Sum of the records' sizes.
    pub bytes: usize,
}

/// The batch that is being filled: offsets in order, one way of handling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filling {
    handling: Option<Handling>,
    records: usize,
    bytes: usize,
}

impl Filling {
    /// Whether a record of that size and handling may join. The first one always may: a batch of one is as small as
    /// it gets.
    pub fn takes(&self, limits: BatchLimits, handling: Handling, bytes: usize) -> bool {
        match self.handling {
            None => true,
            Some(own) => {
                own == handling
                    && self.records < limits.records
                    && self.bytes.saturating_add(bytes) <= limits.bytes
            }
        }
    }

    /// Counts a record in.
    pub fn add(&mut self, handling: Handling, bytes: usize) {
        self.handling = Some(handling);
        self.records += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether nothing more fits.
    pub fn is_full(&self, limits: BatchLimits) -> bool {
        self.records >= limits.records || self.bytes >= limits.bytes
    }
}

#[cfg(test)]
mod tests;
