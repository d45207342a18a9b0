//! duestream-dispatcher: delivers what is due, each task once. See docs/ARCHITECTURE.md.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::program::main::<dispatcher::config::Config, _, _>(
        &[dispatcher::metrics::ALL, runtime::kafka::metrics::ALL],
        dispatcher::run,
    )
}
