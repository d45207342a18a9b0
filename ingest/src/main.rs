//! ingest: takes commands in and applies the journal. See docs/ARCHITECTURE.md.

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::program::main::<ingest::config::Config, _, _>(
        &[ingest::metrics::ALL, runtime::kafka::metrics::ALL, runtime::store::metrics::ALL],
        ingest::run,
    )
}
