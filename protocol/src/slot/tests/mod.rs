//! The machine over fakes.

mod behaviour;
mod fidelity;
mod interleavings;
mod lanes;
pub(super) mod redis;
mod strays;
pub(super) mod world;
