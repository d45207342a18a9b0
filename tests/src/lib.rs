//! Harness of the end-to-end tests: one pipeline of real programs per test, on the servers that `./dev test` started.
//!
//! A test publishes commands, awaits what must become visible, and ends with [`World::check`], the oracle that every
//! test shares: each accepted task once, none early, every row final.

pub mod clients;
pub mod oracle;
pub mod task;
pub mod world;

pub use oracle::Expected;
pub use task::Task;
pub use world::World;

/// Epoch ms by the machine's clock.
#[expect(clippy::disallowed_methods, reason = "tests live outside the programs' clock")]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}
