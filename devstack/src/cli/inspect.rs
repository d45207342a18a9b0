//! `./dev status`, `env`, `logs`, `shell`.

use super::up;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use devstack::process::log_tail;
use devstack::stack::{Stack, StackFile};
use devstack::{binaries, paths, program};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn current() -> Result<StackFile> {
    StackFile::read(&Stack::folder(up::NAME)?)?.context("nothing is up; start it with ./dev up")
}

/// A table: what, pid, where, whether it answers. Fails when something does not.
pub async fn status() -> Result<ExitCode> {
    let file = current()?;
    let servers = file.addresses.check().await;
    let mut well = true;
    println!("{:<12} {:>8}  {:<34} STATE", "NAME", "PID", "ADDRESS");
    for entry in &file.entries {
        let state = if !entry.identity.is_alive() {
            "ended".to_owned()
        } else if let Some((_, answer)) = servers.iter().find(|(name, _)| entry.name.starts_with(name)) {
            answer
                .as_ref()
                .map_or_else(|error| format!("does not answer: {error:#}"), |()| "ready".to_owned())
        } else {
            program::ask_ready(&entry.address).unwrap_or_else(|reason| reason)
        };
        well &= state == "ready";
        println!("{:<12} {:>8}  {:<34} {state}", entry.name, entry.identity.pid, entry.address);
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shell lines that name what runs.
pub fn env() -> Result<ExitCode> {
    let file = current()?;
    println!("export KAFKA_BOOTSTRAP='{}'", file.addresses.kafka);
    println!("export MYSQL_URL='{}/duestream'", file.addresses.mysql);
    println!("export REDIS_URL='{}'", file.addresses.redis);
    if let Some(registry) = &file.addresses.registry {
        println!("export REGISTRY_URL='{registry}'");
    }
    for entry in file.entries.iter().filter(|entry| program::NAMES.contains(&entry.name.as_str())) {
        println!("export DUESTREAM_{}_HTTP='{}'", entry.name.to_uppercase(), entry.address);
    }
    println!("export PATH='{}':\"$PATH\"", binaries::folder()?.display());
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Args)]
pub struct Logs {
    /// Name as in ./dev status; none: the end of each
    name: Option<String>,
    /// Go on as the log grows
    #[arg(short, long)]
    follow: bool,
}

impl Logs {
    pub fn run(self) -> Result<ExitCode> {
        let file = current()?;
        let Some(name) = self.name else {
            for entry in &file.entries {
                println!("==== {} ({})\n{}\n", entry.name, entry.log.display(), log_tail(&entry.log));
            }
            return Ok(ExitCode::SUCCESS);
        };
        let names: Vec<&str> = file.entries.iter().map(|entry| entry.name.as_str()).collect();
        let entry = file
            .entries
            .iter()
            .find(|entry| entry.name == name || entry.name.starts_with(&format!("{name}-")))
            .with_context(|| format!("no process is called {name}; there are: {}", names.join(", ")))?;
        let mut tail = Command::new("tail");
        tail.args(["-n", "200"]).args(self.follow.then_some("-F")).arg(&entry.log);
        Err(tail.exec().into())
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Server {
    Kafka,
    Mysql,
    Redis,
}

#[derive(Debug, Args)]
pub struct Shell {
    server: Server,
    /// Handed to the client
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Shell {
    pub fn run(self) -> Result<ExitCode> {
        let addresses = current()?.addresses;
        let mut client = match self.server {
            Server::Kafka => {
                let mut kcat = Command::new(found(&["kcat", "kafkacat"], "kcat")?);
                kcat.args(["-b", &addresses.kafka]);
                if self.arguments.is_empty() {
                    kcat.arg("-L");
                }
                kcat
            }
            Server::Mysql => {
                let (user, rest) = addresses
                    .mysql
                    .trim_start_matches("mysql://")
                    .split_once('@')
                    .context("a MySQL URL with a user")?;
                let (host, port) = rest.split_once(':').context("a MySQL URL with a port")?;
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                let mut mysql = Command::new(found(&["mariadb", "mysql"], "mariadb-client or mysql-client")?);
                mysql.args(["--protocol=tcp", "-h", host, "-P", port, "-u", user]).arg("duestream");
                mysql.env("MYSQL_PWD", password);
                mysql
            }
            Server::Redis => {
                let mut redis = Command::new(found(&["redis-cli", "valkey-cli"], "redis-tools")?);
                redis.args(["-u", &addresses.redis]);
                redis
            }
        };
        client.args(&self.arguments);
        Err(client.exec().into())
    }
}

fn found(names: &[&str], package: &str) -> Result<std::path::PathBuf> {
    match paths::find_program(names) {
        Some(program) => Ok(program),
        None => bail!("found no {}; install the package {package}", names.join(" or ")),
    }
}
