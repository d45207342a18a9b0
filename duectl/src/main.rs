//! duectl: see the library and docs/DUECTL.md.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = duectl::cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("duectl: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(duectl::run(cli));
    // A call that still waits for a server must not hold the shell.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.say();
            failure.status()
        }
    }
}
