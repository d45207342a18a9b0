//! ingest against real servers. `./dev test` gives their addresses; without them the tests fail and say so.
#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing has failed")]

mod admission;
mod journal;
mod outages;
mod pipeline;
mod registry;
mod replay;
mod replies;
mod sources;
