//! A slot's data in Redis: keys, Lua scripts and the typed wrapper around them. All Lua of the project is here.
//!
//! ```text
//! due records ──preload──▶ store:<topic> ──claim──▶ prepare:<topic> ──settle──▶ gone
//!                              ▲                        │
//!                              └── release, take-over ──┘
//! ```
//!
//! Each script is one atomic step that first checks the owner's token, a sequence number and the counts of every key it
//! touches (PROTOCOL §2). Redis may lose or roll back anything at any time: that surfaces as an error whose answer is a
//! take-over, never as a wrong delivery. What goes in and out, and a pure model of it all, is `protocol::slot_store`.

mod check;
mod client;
mod error;
mod keys;
mod parts;
pub mod peek;
mod reply;
mod scripts;
mod store;
mod takeover;

pub use check::{CheckError, ServerReport, Warning};
pub use client::SlotClient;
pub use error::{SlotDisposition, SlotError};
pub use keys::SlotKeys;
pub use protocol::slot_store::*;
pub use scripts::{ALL, SlotScript};
pub use store::SlotStore;
