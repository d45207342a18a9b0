//! Limits of callback topics while the pipeline runs: how many deliveries per time, how many in flight, or none at all.
//!
//! ```text
//! duectl ── TopicLimit ──▶ control ◀── TopicShare ── each slot's dispatcher: what it holds, wants, and has waiting
//!                             ▲└─────────────────────▶ the same dispatchers, ingest, duectl: all fold the same log ([`Board`])
//! ingest ── TopicRunning ─────┘
//! ```
//!
//! A limit holds for all slots together, so it is shared out. The log of `control` is the arbiter, not a clock: a slot
//! writes what it holds and wants, and is granted, at the place where its record stands, what the others leave
//! ([`Board::apply`]). A grant only changes by its own slot's records, and a slot lowers what it uses before it writes so.
//! Whatever each slot has read so far, all of them together never use more than the limit. How much each wants follows
//! from the backlogs that they tell each other (`fair`); there a disagreement costs fairness, never the limit.
//!
//! | file | decides |
//! |---|---|
//! | `board` | what the records say, in the order of the log |
//! | `fair` | which part of a limit a slot should have |
//! | `holding` | what a slot may use by what it has written and read |
//! | `bucket` | when the next delivery may leave at a rate |

mod board;
mod bucket;
mod fair;
mod holding;

pub use board::{Board, Limit, Problem, Running, Share, SlotView, TopicView};
pub use bucket::Bucket;
pub use fair::{fair_in_flight, fair_rate};
pub use holding::{Amounts, Holding, Wish};

/// Most callback topics with a limit: each is looked at whenever a slot decides what to do.
pub const MOST_LIMITS: usize = 400;
