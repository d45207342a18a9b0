//! The compensator against a real broker and a real database. `./dev test` names them.
#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing has failed")]

mod purge;
mod reemit;
mod world;
