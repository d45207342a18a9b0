//! Tests against real servers. `./dev test` gives their addresses; without them the tests fail and say so.
#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing has failed")]

mod frame;
mod init;
mod kafka;
mod plans;
mod slots;
mod store;
