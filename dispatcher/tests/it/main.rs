//! The dispatcher against real servers: `KAFKA_BOOTSTRAP` and `REDIS_URL` name them. Every test has topics and keys of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall stop")]

mod delivery;
mod fidelity;
mod rig;
mod takeover;
mod topics;
