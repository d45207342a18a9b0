//! A private Redis or Valkey server.

use crate::process::{Lifetime, Process};
use crate::{paths, ports, wait};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const READY_WITHIN: Duration = Duration::from_secs(30);

/// Settings of the server beyond addresses and folders. docker-compose.yml has the same (a test compares them).
pub const SETTINGS: [(&str, &str); 4] = [
    ("save", "\"\""),
    ("appendonly", "yes"),
    ("appendfsync", "everysec"),
    ("maxmemory-policy", "noeviction"),
];

/// A server on a private folder and port.
#[derive(Debug)]
pub struct Redis {
    dir: PathBuf,
    server: PathBuf,
    /// Port on 127.0.0.1.
    pub port: u16,
    process: Option<Process>,
    lifetime: Lifetime,
}

impl Redis {
    /// Starts the server with an empty folder under `dir`, without waiting.
    pub fn start(dir: &Path, lifetime: Lifetime) -> Result<Redis> {
        let dir = dir.join("redis");
        fs::create_dir_all(&dir)?;
        let server = find(&dir)?;
        let port = ports::free_port()?;
        let mut text = format!("bind 127.0.0.1\nport {port}\ndir {}\ndaemonize no\n", dir.display());
        for (key, value) in SETTINGS {
            writeln!(text, "{key} {value}")?;
        }
        fs::write(dir.join("redis.conf"), text)?;
        let mut redis = Redis { dir, server, port, process: None, lifetime };
        redis.start_again()?;
        Ok(redis)
    }

    /// Starts the server on the data it has.
    pub fn start_again(&mut self) -> Result<()> {
        let mut command = Command::new(&self.server);
        command.arg(self.dir.join("redis.conf"));
        self.process = Some(Process::spawn("redis", &command, &self.log(), self.lifetime)?);
        Ok(())
    }

    /// URL of database 0.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its process, while there is one.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Its log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("redis.log")
    }

    /// Waits until it answers a PING.
    pub async fn ready(&self) -> Result<()> {
        let url = self.url();
        wait::until("Redis to answer a PING", READY_WITHIN, async || {
            if let Some(process) = &self.process {
                process.check_alive()?;
            }
            Ok(ping(&url).await.map_err(|error| error.to_string()))
        })
        .await
    }
}

/// The server's program. Debian's `redis-tools`, which brings no service, holds it as `redis-check-rdb`: one program
/// that looks at the name it was called by, so a link of ours with the right name serves.
fn find(dir: &Path) -> Result<PathBuf> {
    if let Some(server) = paths::find_program(&["valkey-server", "redis-server"]) {
        return Ok(server);
    }
    let tool = paths::find_program(&["redis-check-rdb"]).context(
        "found neither redis-server nor valkey-server; install one of version 7 or later \
         (Debian: apt-get install redis-tools), or set REDIS_URL",
    )?;
    let link = dir.join("redis-server");
    std::os::unix::fs::symlink(tool, &link)?;
    Ok(link)
}

/// One PING over a connection of its own.
pub async fn ping(url: &str) -> Result<()> {
    let client = redis::Client::open(url)?;
    let ask = async {
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("PING").query_async::<String>(&mut connection).await
    };
    tokio::time::timeout(Duration::from_secs(3), ask).await??;
    Ok(())
}
