//! The machine over fakes.

mod behaviour;
mod interleavings;
mod lanes;
pub(super) mod redis;
pub(super) mod world;
