//! What carries the decisions of crate `protocol` out: Kafka, MySQL, Redis, and the frame of the programs.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
pub mod clock;
pub mod config;
pub mod emission;
pub mod init;
pub mod kafka;
pub mod lifecycle;
pub mod probes;
pub mod program;
pub mod rejection;
pub mod slot_group;
pub mod slots;
pub mod store;
pub mod telemetry;
pub mod testing;
pub mod world;
