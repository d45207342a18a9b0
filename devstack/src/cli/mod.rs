//! The commands behind `./dev`.

mod bench;
mod demo;
mod inspect;
mod test;
mod up;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Called by ./dev, which prepares the machine and builds first.
#[derive(Debug, Parser)]
#[command(name = "devstack", bin_name = "./dev")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// 20,000 real tasks through the whole pipeline, then an independent check
    Demo(demo::Demo),
    /// Start servers and the four programs, and a topic `callbacks` to play with
    Up(up::Up),
    /// End what `up` started
    Down,
    /// Show what runs, where, and whether it answers
    Status,
    /// Print the settings of what `up` started: eval "$(./dev env)"
    Env,
    /// Show the log of one process (or the names of all logs)
    Logs(inspect::Logs),
    /// Open a client: kafka (kcat arguments follow), mysql, redis
    Shell(inspect::Shell),
    /// Throughput of each stage as a share of a raw producer's on the same broker, and lateness
    Bench(bench::Bench),
    /// Start private servers and run a command (the tests) against them
    #[command(hide = true)]
    With(test::With),
}

impl Cli {
    /// Carries the command out.
    pub async fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Demo(demo) => demo.run().await,
            Command::Up(up) => up.run().await,
            Command::Down => up::down(),
            Command::Status => inspect::status().await,
            Command::Env => inspect::env(),
            Command::Logs(logs) => logs.run(),
            Command::Shell(shell) => shell.run(),
            Command::Bench(bench) => bench.run().await,
            Command::With(with) => with.run().await,
        }
    }
}

/// One line of progress, on standard error: standard output belongs to results.
fn say(text: &str) {
    eprintln!("==> {text}");
}

/// Resolves at the first SIGINT or SIGTERM.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
}
