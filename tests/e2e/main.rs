//! End to end: real programs on real Kafka, MySQL and Redis.

mod bombs;
mod clients;
mod compose;
mod contract;
mod delivery;
mod docs;
mod fidelity;
mod image;
mod readme;
mod refusals;
mod registry;
mod restarts;
mod snippets;
mod way;
