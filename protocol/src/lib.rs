//! protocol
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ack;
pub mod admission;
pub mod apply;
pub mod change;
pub mod cursor;
pub mod life;
pub mod limits;
pub mod position;
pub mod reemit;
pub mod retention;
pub mod retry;
pub mod route;
pub mod slot;
pub mod slot_store;
pub mod spread;
pub mod stall;
pub mod state;
