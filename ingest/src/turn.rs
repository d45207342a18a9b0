//! What one assignment of one partition has in common: when it ends, and how outages are waited out.

use crate::metrics::ALARMS;
use runtime::lifecycle::Lifecycle;
use runtime::probes::{Gate, Readiness};
use runtime::store::{Backoff, Db, Disposition, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Why the work on a partition cannot go on as it is.
#[derive(Debug)]
pub enum Stop {
    /// The partition was revoked, or the program ends: drop what is unfinished, it is done again.
    Gone,
    /// A compare-and-set missed: somebody else was here, or an earlier commit of ours succeeded after all. Read the
    /// positions and go on from there.
    Moved(String),
    /// MySQL refuses the data itself.
    Refused(StoreError),
    /// The partition stands still, with an alarm, and is tried again now and then.
    Halt(Halt),
}

/// A partition that stands still.
#[derive(Debug)]
pub struct Halt {
    /// Label of the alarm.
    pub kind: &'static str,
    /// For people: what, and what to do.
    pub reason: String,
    /// When to look again whether it was mended.
    pub again_after: Duration,
    /// It is mended once the partition can be opened; otherwise, once a batch is applied.
    pub opening: bool,
}

impl Halt {
    /// A halt that only a person can end.
    pub fn new(kind: &'static str, reason: impl Into<String>) -> Halt {
        Halt { kind, reason: reason.into(), again_after: Duration::from_secs(10), opening: false }
    }

    /// A halt because the partition cannot be read.
    pub fn of_opening(kind: &'static str, reason: impl Into<String>) -> Halt {
        Halt { opening: true, ..Halt::new(kind, reason) }
    }
}

impl From<Halt> for Stop {
    fn from(halt: Halt) -> Stop {
        Stop::Halt(halt)
    }
}

/// One condition of `/ready` that is looked at often and changes rarely.
#[derive(Debug)]
pub struct Light {
    gate: Gate,
    closed: AtomicBool,
}

impl Light {
    fn new(readiness: &Readiness, name: String) -> Light {
        let gate = readiness.gate(name, "starting");
        gate.open();
        Light { gate, closed: AtomicBool::new(false) }
    }

    /// The condition is met.
    pub fn well(&self) {
        if self.closed.swap(false, Ordering::Relaxed) {
            self.gate.open();
        }
    }

    /// The condition is not met.
    pub fn trouble(&self, reason: impl Into<String>) {
        self.closed.store(true, Ordering::Relaxed);
        self.gate.close(reason);
    }
}

/// One assignment of one partition.
#[derive(Debug)]
pub struct Turn {
    /// `tasks` or `journal`.
    pub stream: &'static str,
    /// The topic.
    pub source: Arc<str>,
    /// Its partition.
    pub partition: i32,
    /// Cancelled when the partition is revoked, or when the time for draining is over.
    pub gone: CancellationToken,
    /// Cancelled when the program begins to stop.
    pub stop: CancellationToken,
    /// MySQL answers.
    pub mysql: Light,
    /// Kafka takes what is sent.
    pub kafka: Light,
    /// The schema registry answers.
    pub registry: Light,
    /// Nobody has to act.
    pub going: Light,
    db: Db,
    backoff: Backoff,
}

impl Turn {
    /// The turn of a partition that was just assigned.
    pub fn new(
        stream: &'static str,
        (source, partition): (Arc<str>, i32),
        db: Db,
        backoff: Backoff,
        life: &Lifecycle,
    ) -> Turn {
        let light = |what| Light::new(life.readiness(), format!("{source}[{partition}] {what}"));
        Turn {
            stream,
            partition,
            gone: CancellationToken::new(),
            stop: life.token(),
            mysql: light("mysql"),
            kafka: light("kafka"),
            registry: light("registry"),
            going: light("going"),
            source,
            db,
            backoff,
        }
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Waits, unless the partition goes first.
    pub async fn pause(&self, pause: Duration) -> Result<(), Stop> {
        tokio::select! {
            () = self.gone.cancelled() => Err(Stop::Gone),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    /// The pause before try number `tries + 1`.
    pub fn backoff(&self, tries: u32, least: Duration) -> Duration {
        self.backoff.pause(tries, least, f64::from(tries % 8) / 8.0)
    }

    /// Runs a transaction until it is done or until its error says what else to do. An outage is waited out: nothing
    /// needs to be restarted when the server is back.
    pub async fn store<T, F>(&self, mut transaction: impl FnMut() -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let mut tries = 0;
        loop {
            let outcome = tokio::select! {
                () = self.gone.cancelled() => return Err(Stop::Gone),
                outcome = transaction() => outcome,
            };
            let error = match outcome {
                Ok(value) => {
                    self.mysql.well();
                    return Ok(value);
                }
                Err(error) => error,
            };
            tries += 1;
            let least = match error.disposition() {
                Disposition::Retry { after } => after,
                Disposition::Poison => return Err(Stop::Refused(error)),
                Disposition::Fenced => return Err(Stop::Moved(error.to_string())),
                // A table that is missing, rights that were taken: not ours to decide, and mended by people.
                Disposition::Fatal => {
                    ALARMS.with(&["store"]).increment(1);
                    Duration::from_secs(2)
                }
            };
            if tries >= self.backoff.outage_after || least >= Duration::from_secs(1) {
                self.mysql.trouble(error.to_string());
            }
            if tries.is_power_of_two() {
                tracing::warn!(
                    source = &*self.source,
                    partition = self.partition,
                    tries,
                    "waiting for MySQL: {error}"
                );
            }
            if self.stop.is_cancelled() {
                return Err(Stop::Gone);
            }
            self.pause(self.backoff(tries, least)).await?;
        }
    }
}
