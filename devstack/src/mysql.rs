//! A private MySQL or MariaDB server.

use crate::process::{Lifetime, Process};
use crate::{paths, ports, wait};
use anyhow::{Context, Result, bail};
use sqlx::Connection;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const READY_WITHIN: Duration = Duration::from_secs(90);

/// User and password of the private server; it listens on loopback only.
const USER: &str = "duestream";

/// Settings of the server beyond addresses and folders. docker-compose.yml has the same (a test compares them).
pub const SETTINGS: [(&str, &str); 6] = [
    ("max_connections", "400"),
    ("max_allowed_packet", "64M"),
    ("innodb_buffer_pool_size", "256M"),
    ("innodb_flush_log_at_trx_commit", "1"),
    ("innodb_lock_wait_timeout", "5"),
    ("performance_schema", "OFF"),
];

/// A server on a private folder and port.
#[derive(Debug)]
pub struct Mysql {
    dir: PathBuf,
    server: PathBuf,
    /// Port on 127.0.0.1.
    pub port: u16,
    process: Option<Process>,
    lifetime: Lifetime,
}

impl Mysql {
    /// Makes a fresh data folder under `dir` and starts the server, without waiting.
    pub fn start(dir: &Path, lifetime: Lifetime) -> Result<Mysql> {
        let server = find()?;
        let dir = dir.join("mysql");
        fs::create_dir_all(&dir)?;
        let port = ports::free_port()?;
        fs::write(dir.join("my.cnf"), config(&dir, port))?;
        fs::write(dir.join("users.sql"), users())?;
        initialise(&server, &dir)?;
        let mut mysql = Mysql { dir, server, port, process: None, lifetime };
        mysql.start_again()?;
        Ok(mysql)
    }

    /// Starts the server on the data it has.
    pub fn start_again(&mut self) -> Result<()> {
        let mut command = Command::new(&self.server);
        command.arg(format!("--defaults-file={}", self.dir.join("my.cnf").display()));
        if is_root() {
            command.arg("--user=root");
        }
        self.process = Some(Process::spawn("mysql", &command, &self.log(), self.lifetime)?);
        Ok(())
    }

    /// URL without a database.
    pub fn url(&self) -> String {
        format!("mysql://{USER}:{USER}@127.0.0.1:{}", self.port)
    }

    /// Its process, while there is one.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Its log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("mysql.log")
    }

    /// Waits until it answers a query.
    pub async fn ready(&self) -> Result<()> {
        let url = self.url();
        wait::until("MySQL to answer a query", READY_WITHIN, async || {
            if let Some(process) = &self.process {
                process.check_alive()?;
            }
            Ok(version(&url).await.map(drop).map_err(|error| error.to_string()))
        })
        .await
    }
}

/// What `SELECT VERSION()` says.
pub async fn version(url: &str) -> Result<String> {
    let connect = sqlx::MySqlConnection::connect(url);
    let mut connection = tokio::time::timeout(Duration::from_secs(3), connect).await??;
    Ok(sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut connection).await?)
}

fn find() -> Result<PathBuf> {
    paths::find_program(&["mysqld", "mariadbd"])
        .context("found neither mysqld nor mariadbd; install one (Debian: apt-get install mariadb-server), or set MYSQL_URL")
}

fn is_mariadb(server: &Path) -> Result<bool> {
    let out = Command::new(server)
        .arg("--version")
        .output()
        .with_context(|| format!("run {}", server.display()))?;
    Ok(String::from_utf8_lossy(&out.stdout).contains("MariaDB"))
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn initialise(server: &Path, dir: &Path) -> Result<()> {
    let mut command = if is_mariadb(server)? {
        let script = paths::find_program(&["mariadb-install-db", "mysql_install_db"])
            .context("found mariadbd but not mariadb-install-db; install mariadb-server completely")?;
        let mut command = Command::new(script);
        command.arg(format!("--defaults-file={}", dir.join("my.cnf").display())).args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--cross-bootstrap",
        ]);
        command
    } else {
        let mut command = Command::new(server);
        command.arg(format!("--defaults-file={}", dir.join("my.cnf").display())).arg("--initialize-insecure");
        command
    };
    if is_root() {
        command.arg("--user=root");
    }
    let out = command.output().with_context(|| format!("run {:?}", command.get_program()))?;
    if !out.status.success() {
        bail!(
            "could not make MySQL's data folder:\n{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }
    Ok(())
}

fn config(dir: &Path, port: u16) -> String {
    // The socket is named relative to the data folder: a full path may exceed the 107 bytes that a socket may have.
    let mut text = format!(
        "[mysqld]\n\
         datadir={dir}/data\n\
         socket=mysql.sock\n\
         pid-file={dir}/mysql.pid\n\
         bind-address=127.0.0.1\n\
         port={port}\n\
         init-file={dir}/users.sql\n\
         skip-name-resolve\n\
         skip-log-bin\n\
         innodb_log_file_size=128M\n",
        dir = dir.display()
    );
    for (key, value) in SETTINGS {
        writeln!(text, "{key}={value}").expect("a String takes all");
    }
    text
}

fn users() -> String {
    // One statement a line: an init file is read line by line.
    format!(
        "CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{USER}';\n\
         GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;\n"
    )
}
