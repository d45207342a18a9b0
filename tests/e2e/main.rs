//! End to end: real programs on real Kafka, MySQL and Redis.

mod acks;
mod bombs;
mod changes;
mod clients;
mod compose;
mod contract;
mod dead;
mod delivery;
mod docs;
mod duectl_changes;
mod fidelity;
mod image;
mod limits;
mod readme;
mod refusals;
mod registry;
mod restarts;
mod snippets;
mod spread;
mod way;
