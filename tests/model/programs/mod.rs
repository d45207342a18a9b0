//! The programs as machines of small steps: each step is one call to a server, or one decision of `protocol`.

pub mod canceller;
pub mod compensator;
pub mod dispatcher;
pub mod effects;
pub mod ingest;
pub mod scanner;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Something.
    Work,
    /// Nothing, and nothing before this time unless something comes in.
    Idle(Option<i64>),
    /// It is over.
    Gone,
}
