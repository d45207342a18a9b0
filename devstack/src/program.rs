//! One of the four real programs, spawned with its configuration in the environment.

use crate::process::{Lifetime, Process};
use crate::{binaries, ports, wait};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The four programs, in the order of the flow.
pub const NAMES: [&str; 4] = ["ingest", "scanner", "dispatcher", "compensator"];

const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running program.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    /// `http://127.0.0.1:PORT` of its probes and metrics.
    pub http: String,
    /// Its process.
    pub process: Process,
}

impl Program {
    /// Spawns `duestream-NAME` with configuration `env` (keys such as `SCAN__HORIZON`), logging into `dir`.
    pub fn spawn(
        name: &'static str,
        label: &str,
        env: &BTreeMap<String, String>,
        dir: &Path,
        lifetime: Lifetime,
    ) -> Result<Program> {
        let port = ports::free_port()?;
        let prefix = format!("DUESTREAM_{}__", name.to_uppercase());
        let mut command = Command::new(binaries::path(&format!("duestream-{name}"))?);
        for (key, value) in env {
            command.env(format!("{prefix}{key}"), value);
        }
        command.env(format!("{prefix}HTTP__LISTEN"), format!("127.0.0.1:{port}"));
        let process = Process::spawn(label, &command, &dir.join(format!("{label}.log")), lifetime)?;
        Ok(Program { name, http: format!("http://127.0.0.1:{port}"), process })
    }

    /// `ingest`, `scanner`, …
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits until `/ready` answers 200.
    pub async fn ready(&self) -> Result<()> {
        let http = self.http.clone();
        let within = READY_WITHIN;
        let outcome = wait::until(&format!("{} to be ready", self.name), within, async || {
            self.process.check_alive()?;
            let http = http.clone();
            let answer = tokio::task::spawn_blocking(move || ask_ready(&http)).await?;
            Ok(answer.map(drop))
        })
        .await;
        // A process that ended is reported with its log already.
        outcome.map_err(|error| match self.process.exit_status() {
            Some(_) => error,
            None => error.context(format!("log of {}:\n{}", self.name, self.process.log_tail())),
        })
    }

    /// The text of `/metrics`.
    pub async fn metrics(&self) -> Result<String> {
        let url = format!("{}/metrics", self.http);
        tokio::task::spawn_blocking(move || Ok(agent().get(&url).call()?.body_mut().read_to_string()?))
            .await?
    }

    /// Sum of all series of one metric, 0 when there is none.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        Ok(sum_of(&self.metrics().await?, name))
    }
}

/// Asks `/ready`: `Ok("ready")`, or what is missing.
pub fn ask_ready(http: &str) -> Result<String, String> {
    match agent().get(&format!("{http}/ready")).call() {
        Ok(answer) if answer.status() == 200 => Ok("ready".to_owned()),
        Ok(mut answer) => {
            Err(format!("not ready: {}", answer.body_mut().read_to_string().unwrap_or_default().trim()))
        }
        Err(error) => Err(format!("does not answer: {error}")),
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(2)))
        .http_status_as_error(false)
        .build()
        .into()
}

fn sum_of(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let series_name = series.split('{').next()?;
        (series_name == name).then(|| value.parse::<f64>().ok())?
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_metric_are_summed_and_no_others() {
        let text = "# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 3\na_total 100\n";
        assert!((sum_of(text, "a") - 5.0).abs() < 1e-9);
        assert!(sum_of(text, "b").abs() < 1e-9);
    }
}
