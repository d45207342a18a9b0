//! `duectl`, the operator's command line: sets pipelines up, submits tasks, watches deliveries, looks tasks up.
//! docs/DUECTL.md is its manual.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
mod delay;
mod exit;
mod get;
mod init;
mod servers;
mod show;
mod submit;
mod watch;

pub use exit::Failure;

use cli::{Cli, Command};

/// Carries out a command. `Ok`: exit status 0.
pub async fn run(cli: Cli) -> Result<(), Failure> {
    let servers = servers::Servers::new(cli.servers)?;
    match cli.command {
        Command::Init(args) => init::run(&servers, args).await,
        Command::Submit(args) => submit::run(&servers, *args).await,
        Command::Watch(args) => watch::run(&servers, args).await,
        Command::Get(args) => get::run(&servers, args).await,
    }
}
