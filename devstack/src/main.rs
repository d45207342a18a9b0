//! `devstack`: what `./dev` calls once the machine is prepared and everything is built.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cli;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("devstack: cannot start its runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(cli.run()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("\n./dev: {error:#}");
            ExitCode::FAILURE
        }
    }
}
