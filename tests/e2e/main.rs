//! End to end: real programs on real Kafka, MySQL and Redis.

mod contract;
mod delivery;
mod docs;
mod fidelity;
mod restarts;
mod way;
