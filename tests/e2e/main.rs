//! End to end: real programs on real Kafka, MySQL and Redis.

mod clients;
mod compose;
mod contract;
mod delivery;
mod docs;
mod image;
mod restarts;
mod way;
