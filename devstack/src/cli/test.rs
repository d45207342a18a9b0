//! `./dev test` after the build: private servers, the environment set, one command run against them.

use super::{interrupted, say};
use anyhow::{Context, Result, bail};
use clap::Args;
use devstack::process::Lifetime;
use devstack::stack::{Stack, Wanted};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct With {
    /// Keep the servers' folder and logs when the command fails
    #[arg(long)]
    keep: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

impl With {
    pub async fn run(self) -> Result<ExitCode> {
        let name = format!("test-{}", std::process::id());
        let wanted = Wanted { registry: true, ..Wanted::default() };
        let mut stack = Stack::start(&name, wanted, Lifetime::WithStarter, &say).await?;
        let addresses = stack.addresses();
        let mut child = tokio::process::Command::new(&self.command[0])
            .args(&self.command[1..])
            .env("KAFKA_BOOTSTRAP", &addresses.kafka)
            .env("MYSQL_URL", &addresses.mysql)
            .env("REDIS_URL", &addresses.redis)
            .envs(addresses.registry.as_ref().map(|url| ("REGISTRY_URL", url)))
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", self.command[0]))?;
        let status = tokio::select! {
            status = child.wait() => status?,
            () = interrupted() => bail!("interrupted; the servers have been ended"),
        };
        if !status.success() && self.keep {
            stack.keep_folder();
            say(&format!("the servers' logs stay in {}", stack.dir().display()));
        }
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
    }
}
