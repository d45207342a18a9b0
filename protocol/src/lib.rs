//! protocol
pub mod slot_store;
pub mod admission;
pub mod apply;
pub mod position;
