//! compensator: hands stalled tasks on again, and forgets final ones.
use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::program::main::<compensator::config::Config, _, _>(
        &[compensator::metrics::ALL, runtime::kafka::metrics::ALL, runtime::store::metrics::ALL],
        compensator::run,
    )
}
