//! scanner: advances the cursors of the shards and emits on `due` what comes within the horizon.
use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::program::main::<scanner::config::Config, _, _>(
        &[scanner::metrics::ALL, runtime::kafka::metrics::ALL, runtime::store::metrics::ALL],
        scanner::run,
    )
}
