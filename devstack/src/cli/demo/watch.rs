//! The live view: what arrives on the callback topics while the pipeline works.

use super::flights;
use super::report::lateness_of;
use crate::cli::say;
use anyhow::{Result, bail};
use devstack::pipeline::Pipeline;
use devstack::process::Process;
use devstack::stack::Addresses;
use devstack::topics::Reader;
use sqlx::Connection;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// What the live view saw.
pub struct Seen {
    /// Rows in MySQL's table `task`.
    pub accepted: u64,
}

/// Shows deliveries until all of `expected` have arrived, or nothing has arrived for `patience` although the submission
/// is over and the last task was due.
pub async fn until_quiet(
    addresses: &Addresses,
    pipeline: &Pipeline,
    submit: &Process,
    expected: usize,
    patience: Duration,
) -> Result<Seen> {
    let mut database = sqlx::MySqlConnection::connect(&pipeline.mysql_url).await?;
    let (tx, mut rx) = tokio::sync::mpsc::channel(10_000);
    let bootstrap = addresses.kafka.clone();
    // Ends when the receiver is gone: the next send fails.
    let reader = tokio::task::spawn_blocking(move || -> Result<()> {
        let reader = Reader::from_beginning(&bootstrap, &flights::TOPICS)?;
        loop {
            let record = reader.next(Duration::from_millis(200))?;
            if tx.blocking_send(record).is_err() {
                return Ok(());
            }
        }
    });

    let mut screen = Screen::new(expected);
    let mut last_arrival = Instant::now();
    while screen.delivered < expected {
        let Some(next) = rx.recv().await else { break };
        if let Some(record) = next {
            screen.arrived(lateness_of(&record));
            last_arrival = Instant::now();
        }
        if screen.is_due() {
            let accepted = count_accepted(&mut database).await?;
            screen.show(accepted);
        }
        match submit.exit_status() {
            Some(status) if !status.success() => {
                bail!("duectl submit ended with {status}:\n{}", submit.log_tail())
            }
            Some(_) if last_arrival.elapsed() > patience => break,
            _ => {}
        }
    }
    let accepted = count_accepted(&mut database).await?;
    screen.finish(accepted);
    rx.close();
    drop(rx);
    reader.await??;
    if screen.delivered < expected {
        say(&format!("nothing has arrived for {} s; the check tells what is missing", patience.as_secs()));
    }
    Ok(Seen { accepted })
}

async fn count_accepted(database: &mut sqlx::MySqlConnection) -> Result<u64> {
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM task").fetch_one(database).await?;
    Ok(count.unsigned_abs())
}

/// A line that is drawn anew each second on a terminal, a line every five seconds elsewhere.
struct Screen {
    expected: usize,
    delivered: usize,
    started: Instant,
    shown: Instant,
    shown_delivered: usize,
    latest: Vec<i64>,
    terminal: bool,
}

impl Screen {
    fn new(expected: usize) -> Screen {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        Screen {
            expected,
            delivered: 0,
            started: now,
            shown: now,
            shown_delivered: 0,
            latest: Vec::new(),
            terminal,
        }
    }

    fn arrived(&mut self, lateness_ms: Option<i64>) {
        self.delivered += 1;
        self.latest.extend(lateness_ms);
    }

    fn is_due(&self) -> bool {
        self.shown.elapsed() >= Duration::from_secs(if self.terminal { 1 } else { 5 })
    }

    fn show(&mut self, accepted: u64) {
        let seconds = self.shown.elapsed().as_secs_f64();
        let rate = (self.delivered - self.shown_delivered) as f64 / seconds.max(0.001);
        self.latest.sort_unstable();
        let lateness = match (self.latest.get(self.latest.len() / 2), self.latest.last()) {
            (Some(median), Some(max)) => format!("lateness p50 {median} ms, max {max} ms"),
            _ => "nothing due yet".to_owned(),
        };
        let line = format!(
            "{:>4.0} s   accepted {accepted:>6}   delivered {:>6} of {}   {rate:>5.0}/s   {lateness}",
            self.started.elapsed().as_secs_f64(),
            self.delivered,
            self.expected
        );
        if self.terminal {
            eprint!("\r\x1b[K    {line}");
            std::io::stderr().flush().ok();
        } else {
            eprintln!("    {line}");
        }
        self.latest.clear();
        self.shown = Instant::now();
        self.shown_delivered = self.delivered;
    }

    fn finish(&mut self, accepted: u64) {
        self.show(accepted);
        if self.terminal {
            eprintln!();
        }
    }
}
