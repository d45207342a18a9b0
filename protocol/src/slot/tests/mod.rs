//! The machine over fakes.

mod behaviour;
mod fidelity;
mod interleavings;
mod lanes;
mod limits;
pub(super) mod redis;
mod strays;
pub(super) mod world;
