//! protocol
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod slot;
pub mod slot_store;
pub mod admission;
pub mod apply;
pub mod position;
pub mod cursor;
pub mod reemit;
pub mod route;
pub mod state;
pub mod retention;
