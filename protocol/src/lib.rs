//! protocol
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admission;
pub mod apply;
pub mod cursor;
pub mod position;
pub mod reemit;
pub mod retention;
pub mod route;
pub mod slot;
pub mod slot_store;
pub mod state;
