//! A private schema registry: Apicurio, which also speaks Confluent's API; in memory.

use crate::process::{Lifetime, Process};
use crate::{paths, ports, wait};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Version that is fetched where there is no `REGISTRY_URL`. 3.3 needs a newer Java than 17.
pub const VERSION: &str = "3.0.9";

const READY_WITHIN: Duration = Duration::from_secs(90);

/// A registry on a port of its own; what is registered ends with it.
#[derive(Debug)]
pub struct Registry {
    dir: PathBuf,
    /// Port on 127.0.0.1.
    pub port: u16,
    process: Option<Process>,
    lifetime: Lifetime,
}

impl Registry {
    /// Starts it, without waiting.
    pub fn start(dir: &Path, lifetime: Lifetime) -> Result<Registry> {
        let dir = dir.join("registry");
        fs::create_dir_all(&dir)?;
        let mut registry = Registry { dir, port: ports::free_port()?, process: None, lifetime };
        registry.start_again()?;
        Ok(registry)
    }

    /// Starts it on the port it has, empty.
    pub fn start_again(&mut self) -> Result<()> {
        let mut command = Command::new("java");
        command
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"])
            .arg("-Dquarkus.http.host=127.0.0.1")
            .arg(format!("-Dquarkus.http.port={}", self.port))
            .arg("-jar")
            .arg(installed()?.join(format!("apicurio-registry-app-{VERSION}-runner.jar")))
            .current_dir(&self.dir);
        self.process = Some(Process::spawn("registry", &command, &self.log(), self.lifetime)?);
        Ok(())
    }

    /// URL for clients of Confluent's API.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/apis/ccompat/v7", self.port)
    }

    /// Its process, while there is one.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Its log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("registry.log")
    }

    /// Waits until it lists its subjects.
    pub async fn ready(&self) -> Result<()> {
        let url = self.url();
        wait::until("the schema registry to list its subjects", READY_WITHIN, async || {
            if let Some(process) = &self.process {
                process.check_alive()?;
            }
            Ok(ping(&url).await.map_err(|error| error.to_string()))
        })
        .await
    }
}

/// Asks for the subjects.
pub async fn ping(url: &str) -> Result<()> {
    let url = format!("{url}/subjects");
    tokio::task::spawn_blocking(move || {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(3))).build().into();
        agent.get(&url).call()?;
        Ok(())
    })
    .await?
}

/// Where Maven's artifact lies unpacked.
pub fn installed() -> Result<PathBuf> {
    Ok(paths::cache()?.join(format!("apicurio-{VERSION}")))
}

/// Fetches it into the cache, once.
pub fn fetch() -> Result<()> {
    paths::fill_once(&installed()?, |aside| {
        let out = Command::new("mvn")
            .args(["-q", "-B", "dependency:unpack"])
            .arg(format!("-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"))
            .arg(format!("-DoutputDirectory={}", aside.display()))
            .current_dir(aside)
            .output()
            .context(
                "start mvn: install Maven (Debian: apt-get install maven), or set REGISTRY_URL to a registry",
            )?;
        if !out.status.success() {
            bail!("Maven could not fetch Apicurio {VERSION}:\n{}", String::from_utf8_lossy(&out.stdout));
        }
        Ok(())
    })
}
