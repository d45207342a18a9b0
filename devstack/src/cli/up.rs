//! `./dev up` and `./dev down`.

use super::{interrupted, say};
use anyhow::{Context, Result, bail};
use clap::Args;
use devstack::process::Lifetime;
use devstack::stack::{Stack, StackFile};
use std::process::ExitCode;

/// Name of the stack that `up` starts.
pub const NAME: &str = "up";

#[derive(Debug, Args)]
pub struct Up {
    /// Only Kafka, MySQL and Redis
    #[arg(long)]
    servers_only: bool,
    /// How many brokers: 1 or 3
    #[arg(long, default_value_t = 1)]
    brokers: usize,
}

impl Up {
    pub async fn run(self) -> Result<ExitCode> {
        if let Some(file) = StackFile::read(&Stack::folder(NAME)?)?
            && file.entries.iter().any(|entry| entry.identity.is_alive())
        {
            bail!("it is up already: see ./dev status; ./dev down ends it");
        }
        tokio::select! {
            result = self.start() => result,
            () = interrupted() => {
                down()?;
                bail!("interrupted; what was started has been ended");
            }
        }
    }

    async fn start(&self) -> Result<ExitCode> {
        let stack = Stack::start(NAME, self.brokers, Lifetime::UntilDown, &say).await?;
        say("servers are ready; for your shell: eval \"$(./dev env)\"");
        drop(stack);
        Ok(ExitCode::SUCCESS)
    }
}

/// Ends what `up` started and removes its folder.
pub fn down() -> Result<ExitCode> {
    let dir = Stack::folder(NAME)?;
    let Some(file) = StackFile::read(&dir)? else {
        say("nothing is up");
        return Ok(ExitCode::SUCCESS);
    };
    file.end_all();
    std::fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    say("ended");
    Ok(ExitCode::SUCCESS)
}
