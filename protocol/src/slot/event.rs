//! What a slot tells about itself. The program turns it into metrics and log lines.

use super::decide::Drop;
use super::io::Lane;
use crate::slot_store::{ColdCause, Topic};

/// Why a take-over began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The slot was assigned.
    Assigned,
    /// The producers could not be initialised.
    InitFailed,
    /// A step of the take-over itself failed.
    TakeOverFailed,
    /// A script answered FENCED.
    Fenced,
    /// A script answered `ROLLED_BACK`.
    RolledBack,
    /// A script answered LOST, or a body could not be read.
    Lost,
    /// A script's answer did not come.
    ScriptTimeout,
    /// A script failed otherwise.
    ScriptError,
    /// Redis may evict, or is too old.
    RedisPolicy,
    /// A transaction was aborted after an error.
    Aborted,
    /// It is not known how a transaction ended.
    OutcomeUnknown,
    /// A transaction took too long.
    SlowTransaction,
    /// Reports of the quarantine lane did not come.
    ReportsTimeout,
    /// Reading the journal, or pausing or seeking `due`, failed.
    Kafka,
    /// What must not be was seen.
    Invariant,
}

impl Cause {
    /// Label of metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Assigned => "assigned",
            Cause::InitFailed => "init_failed",
            Cause::TakeOverFailed => "take_over_failed",
            Cause::Fenced => "fenced",
            Cause::RolledBack => "rolled_back",
            Cause::Lost => "lost",
            Cause::ScriptTimeout => "script_timeout",
            Cause::ScriptError => "script_error",
            Cause::RedisPolicy => "redis_policy",
            Cause::Aborted => "aborted",
            Cause::OutcomeUnknown => "outcome_unknown",
            Cause::SlowTransaction => "slow_transaction",
            Cause::ReportsTimeout => "reports_timeout",
            Cause::Kafka => "kafka",
            Cause::Invariant => "invariant",
        }
    }
}

/// Why a slot stands still until an operator decides (R39).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Halt {
    /// The journal has another topic id than the one registered.
    JournalRecreated,
    /// The journal ends before a position that was once reached.
    JournalTruncated,
    /// The journal holds records of a newer program.
    JournalNewer,
}

impl Halt {
    /// Label of metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Halt::JournalRecreated => "journal_recreated",
            Halt::JournalTruncated => "journal_truncated",
            Halt::JournalNewer => "journal_newer",
        }
    }
}

/// What somebody should look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alarm {
    /// One `(row, gen)` has two fates in the journal.
    FateTwice,
    /// What flies was settled by something else.
    SettledInFlight,
    /// A script handed out something that is not due.
    ClaimedEarly,
    /// The cap of fates in memory raised `low` above the largest fence.
    SettledCap,
    /// Members without a body, or claimed twice.
    BrokenMembers,
    /// A due record that cannot be used; it goes to `rejected`.
    BadDueRecord,
    /// Kafka will not take the copy of a due record that cannot be used.
    StrayLost,
    /// A journal record that is not ours.
    BadJournalRecord,
    /// `due[s]` ends before the position that Redis stands for.
    DueTruncated,
    /// A reply that was not asked for.
    UnexpectedReply,
}

impl Alarm {
    /// Label of metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Alarm::FateTwice => "fate_twice",
            Alarm::SettledInFlight => "settled_in_flight",
            Alarm::ClaimedEarly => "claimed_early",
            Alarm::SettledCap => "settled_cap",
            Alarm::BrokenMembers => "broken_members",
            Alarm::BadDueRecord => "bad_due_record",
            Alarm::StrayLost => "stray_lost",
            Alarm::BadJournalRecord => "bad_journal_record",
            Alarm::DueTruncated => "due_truncated",
            Alarm::UnexpectedReply => "unexpected_reply",
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A take-over began.
    TakeOver {
        /// Why.
        cause: Cause,
        /// More about it; may be empty.
        detail: String,
        /// It waits for so long first.
        pause_ms: i64,
    },
    /// Redis data cannot be relied on: it is being rebuilt.
    Cold(Option<ColdCause>),
    /// A take-over is through, the slot runs.
    Running {
        /// From its first action on.
        took_ms: i64,
        /// Whether Redis was rebuilt.
        cold: bool,
        /// Fates in memory.
        fates: usize,
        /// Position on `due`.
        due_pos: i64,
    },
    /// A transaction is committed.
    Committed {
        /// Through which id.
        lane: Lane,
        /// Lateness of each delivery, ms.
        lateness_ms: Vec<i64>,
        /// Number of `buried` entries, by reason.
        buried: Vec<String>,
        /// Number of `withdrawn` entries.
        withdrawn: usize,
        /// Number of `stale` entries.
        stale: usize,
        /// From begin to the answer of commit.
        took_ms: i64,
    },
    /// A transaction is given up.
    Aborted {
        /// Through which id.
        lane: Lane,
        /// Topics found guilty, with what the client says.
        culprits: Vec<(Topic, String)>,
        /// What else went wrong.
        detail: String,
    },
    /// Members were given back unsent (no leader, metadata not to be had).
    Released(usize),
    /// Due records went into Redis.
    Preloaded(usize),
    /// Due records needed nothing more.
    Dropped(Drop, usize),
    /// Due records could not be judged.
    Stale(usize),
    /// Withdraws wait for the outcome of a delivery.
    Held(usize),
    /// Records of `due` that are none were copied to `rejected`, or could not be just now.
    Strays {
        /// Done with.
        kept: usize,
        /// To be tried again.
        again: usize,
    },
    /// `due[s]` was paused (true) or resumed.
    Paused(bool),
    /// Redis refused a preload for want of memory.
    OutOfMemory,
    /// Somebody should look into this.
    Alarm(Alarm, String),
    /// The slot stands still.
    Halted(Halt, String),
}
