//! Doing a whole transaction again.

use super::error::{Disposition, StoreError};
use super::metrics;
use crate::config;
use std::time::{Duration, Instant};

/// Pauses between tries: doubling from `first` to `cap`, each between half and all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Longest first pause.
    pub first: Duration,
    /// Longest pause.
    pub cap: Duration,
    /// From this many tries on it is an outage and warned of.
    pub outage_after: u32,
    /// No further try is begun after this long; `None`: tries for ever (the caller cancels by dropping the future).
    pub give_up_after: Option<Duration>,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            first: Duration::from_millis(20),
            cap: Duration::from_secs(2),
            outage_after: 5,
            give_up_after: Some(Duration::from_secs(60)),
        }
    }
}

impl Backoff {
    /// As configured: an outage is waited out.
    pub fn of(config: &config::Mysql) -> Backoff {
        Backoff {
            first: config.retry_min.get(),
            cap: config.retry_max.get(),
            outage_after: config.retries,
            give_up_after: None,
        }
    }

    /// Pause after try number `tries` (1, 2, …). `unit` is uniform in `[0, 1)`: jitter keeps two who collided apart.
    pub fn pause(&self, tries: u32, least: Duration, unit: f64) -> Duration {
        let doubled = self.first.saturating_mul(1 << tries.saturating_sub(1).min(16));
        doubled.min(self.cap).mul_f64(0.5 + unit / 2.0).max(least)
    }
}

/// Runs `transaction` (from BEGIN to COMMIT) until it succeeds, until its error is none that a retry mends, or until
/// `backoff` gives up; then its last error is returned.
pub async fn retry<T, F>(backoff: &Backoff, mut transaction: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let began = Instant::now();
    let mut tries = 0;
    loop {
        let error = match transaction().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        tries += 1;
        match error.disposition() {
            Disposition::Retry { after } if backoff.give_up_after.is_none_or(|end| began.elapsed() < end) => {
                metrics::RETRIES.with(&[error.kind()]).increment(1);
                if tries >= backoff.outage_after && tries.is_power_of_two() {
                    tracing::warn!(%error, tries, "mysql: still retrying");
                } else {
                    tracing::debug!(%error, tries, "mysql: retrying");
                }
                tokio::time::sleep(backoff.pause(tries, after, rand::random())).await;
            }
            Disposition::Retry { .. } | Disposition::Poison | Disposition::Fenced | Disposition::Fatal => {
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn pauses_double_up_to_the_cap_and_are_jittered() {
        let backoff = Backoff {
            first: Duration::from_millis(10),
            cap: Duration::from_millis(70),
            ..Backoff::default()
        };
        let pause = |tries, unit| backoff.pause(tries, Duration::ZERO, unit);
        assert_eq!(pause(1, 0.0), Duration::from_millis(5));
        assert_eq!(pause(3, 0.0), Duration::from_millis(20));
        assert_eq!(pause(60, 0.0), Duration::from_millis(35));
        assert!(pause(60, 0.999) <= Duration::from_millis(70));
        assert_eq!(backoff.pause(1, Duration::from_secs(1), 0.5), Duration::from_secs(1));
    }

    fn contended() -> StoreError {
        StoreError::Contended { op: "test", source: sqlx::Error::PoolTimedOut }
    }

    #[tokio::test]
    async fn a_contended_transaction_is_run_again_and_a_fenced_one_is_not() {
        let quick = Backoff { first: Duration::from_micros(1), ..Backoff::default() };
        let runs = Cell::new(0);
        let third = retry(&quick, || async {
            runs.set(runs.get() + 1);
            if runs.get() < 3 { Err(contended()) } else { Ok(runs.get()) }
        });
        assert_eq!(third.await.unwrap(), 3);

        runs.set(0);
        let fenced = retry(&quick, || async {
            runs.set(runs.get() + 1);
            Err::<(), _>(StoreError::Fenced { op: "test", what: String::new() })
        });
        assert!(matches!(fenced.await, Err(StoreError::Fenced { .. })));
        assert_eq!(runs.get(), 1);
    }

    #[tokio::test]
    async fn a_retry_ends_when_its_time_is_over() {
        let over = Backoff { give_up_after: Some(Duration::ZERO), ..Backoff::default() };
        assert!(matches!(
            retry(&over, || async { Err::<(), _>(contended()) }).await,
            Err(StoreError::Contended { .. })
        ));
    }
}
