//! One slot of the dispatcher as a state machine without I/O, clock or async (PROTOCOL §2).
//!
//! ```text
//!              ┌───────────── handle(now, reply) ◀────────────┐
//!              ▼                                              │
//!   input ─▶ Slot ── step(now) ─▶ Do(action) ─▶ carried out ──┘      exactly one reply per action
//!                              └▶ Wait(until) ─▶ due records, quarantine reports, time, stop, assignment lost
//! ```
//!
//! The program carries actions out on the slot's own thread, one at a time; the deterministic model does the same over
//! fakes and drops, repeats or breaks replies. Whatever goes wrong ends in a take-over, after which the journal decides.
//!
//! | file | decides |
//! |---|---|
//! | `takeover` | phases of a take-over, cold or warm |
//! | `settled` | which fates are known, from which offset on |
//! | `decide` | what becomes of one due record |
//! | `due_pos` | how far `due[s]` has been taken in |
//! | `intake` | due records on their way into Redis, memory caps |
//! | `strays` | what is no due record, on its way to `rejected` |
//! | `delivery` | one transaction: what goes into it, the outcome rule |
//! | `lanes` | which topics are quarantined, culprits, delays |
//! | `fairness` | how many of which topic are claimed |
//! | `precheck` | whether a record can be written at all, and to which partition |
//! | `running`, `outlook`, `steps` | what is due, what comes next while the slot runs, and what each reply leads to |
//! | `claims`, `outcome` | from claimed members to a batch; from its launch to its end |
//! | `machine` | take-over, running, halted, stopped |

mod claims;
mod config;
mod decide;
mod delivery;
mod due_pos;
mod event;
mod fairness;
mod floor;
mod intake;
mod io;
mod lanes;
mod logs;
mod machine;
mod outcome;
mod outlook;
mod precheck;
mod running;
mod settled;
mod steps;
mod strays;
mod takeover;

#[cfg(test)]
mod tests;

pub use config::SlotConfig;
pub use decide::{Drop, Verdict};
pub use event::{Alarm, Cause, Event, Halt};
pub use io::{
    Action, Fault, FaultKind, Input, Lane, Now, Outgoing, ScriptFault, SendOutcome, Step, Target, TxnEnd,
};
pub use lanes::LaneOf;
pub use logs::{DueItem, JournalChunk, JournalItem, LogBounds};
pub use machine::{Figures, Slot};
pub use precheck::{Facts, Lookup, murmur2, wire_bytes};
pub use settled::Settled;
pub use strays::{Stray, StrayEnd};
