//! The deterministic model: the decisions of crate `protocol`, as the programs use them, over fake Kafka, Redis and MySQL,
//! under a seeded scheduler that picks the next step and the next fault. See docs/adr/0001-deterministic-model.md.
//!
//! ```text
//! MODEL_SEED=7 cargo test --release -p tests --test model random        one run, from that seed
//! MODEL_SEED=7 MODEL_STEPS=100000000 …                                  many runs, from that seed on
//! ```
#![allow(clippy::unwrap_used)]

mod dice;
mod findings;
mod kafka;
mod model;
mod mutations;
mod mysql;
mod oracle;
mod programs;
mod random;
mod redis;
mod scenarios;
mod schedule;
mod setup;
mod shrink;
mod trace;
mod world;
