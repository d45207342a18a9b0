//! How commands end.

use std::process::ExitCode;

/// Why a command did not succeed, and the exit status for it.
#[derive(Debug)]
pub enum Failure {
    /// It failed: status 1.
    Failed(anyhow::Error),
    /// What was asked makes no sense: status 2.
    Usage(String),
    /// What was looked for is not there (or not yet): status 3.
    NotFound(String),
    /// A server cannot be reached: status 4.
    Unreachable(String),
    /// All was said already: status 1.
    Said,
}

impl Failure {
    /// Says why, on stderr.
    pub fn say(&self) {
        match self {
            Failure::Failed(error) => eprintln!("duectl: {error:#}"),
            Failure::Usage(text) | Failure::NotFound(text) | Failure::Unreachable(text) => {
                eprintln!("duectl: {text}")
            }
            Failure::Said => {}
        }
    }

    /// Its exit status.
    pub fn status(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Failed(_) | Failure::Said => 1,
            Failure::Usage(_) => 2,
            Failure::NotFound(_) => 3,
            Failure::Unreachable(_) => 4,
        })
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Failed(error)
    }
}
