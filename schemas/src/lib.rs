//! The contracts: records that cross topics, their Avro schemas, and the forms in which a command may be submitted.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ack;
pub mod avro;
pub mod command;
pub mod delivery;
pub mod due;
mod duration;
pub mod ids;
pub mod journal;
pub mod options;
pub mod record;
pub mod reply;
pub mod row;
pub mod topics;
