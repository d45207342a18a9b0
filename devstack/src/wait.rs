//! Waiting for a condition with a deadline; the only place that naps.

use anyhow::{Result, bail};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Asks `probe` again and again until it answers `Ok(Ok(T))`, at most for `within`.
///
/// # Errors
/// With `what`, the time waited and the last state seen (`Ok(Err(state))`), or at once with the probe's own error.
pub async fn until<T, S: Debug>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<Result<T, S>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let state = match probe().await? {
            Ok(value) => return Ok(value),
            Err(state) => state,
        };
        if start.elapsed() >= within {
            bail!("waited {:?} for: {what}; last seen: {state:?}", start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// The same for a plain condition.
///
/// # Errors
/// When the deadline passes.
pub async fn until_true(what: &str, within: Duration, mut probe: impl AsyncFnMut() -> bool) -> Result<()> {
    until(what, within, async || Ok(if probe().await { Ok(()) } else { Err("not yet") })).await
}
