//! Real servers and the real programs on private folders and free loopback ports.
//!
//! Behind `./dev`, and a library for the tests: starting a server is written once, here.
//!
//! ```text
//! Stack ── Kafka (1 or 3 brokers), MySQL or MariaDB, Redis or Valkey,
//!  │       and a schema registry where one is asked for                 one per `./dev` command
//!   └─ Pipeline ── prefix, database, `duectl init`                       one per test
//!        └─ Program ── one real binary, spawned with its configuration   as many as the test wants
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod binaries;
pub mod kafka;
pub mod mysql;
pub mod paths;
pub mod pipeline;
pub mod ports;
pub mod process;
pub mod program;
pub mod redis_server;
pub mod registry;
pub mod stack;
pub mod topics;
pub mod wait;
