//! `./dev up` and `./dev down`.

use super::{interrupted, say};
use anyhow::{Context, Result, bail};
use clap::Args;
use devstack::pipeline::{Layout, Pipeline};
use devstack::process::Lifetime;
use devstack::program;
use devstack::stack::{Stack, StackFile, Wanted};
use devstack::topics;
use std::process::ExitCode;

/// Name of the stack that `up` starts.
pub const NAME: &str = "up";

#[derive(Debug, Args)]
pub struct Up {
    /// Only the servers, without the four programs
    #[arg(long)]
    servers_only: bool,
    /// How many brokers: 1 or 3
    #[arg(long, default_value_t = 1)]
    brokers: usize,
    /// A schema registry (Apicurio), too
    #[arg(long)]
    registry: bool,
}

impl Up {
    pub async fn run(self) -> Result<ExitCode> {
        if let Some(file) = StackFile::read(&Stack::folder(NAME)?)?
            && file.entries.iter().any(|entry| entry.identity.is_alive())
        {
            bail!("it is up already: see ./dev status; ./dev down ends it");
        }
        let outcome = tokio::select! {
            outcome = self.start() => outcome,
            () = interrupted() => Err(anyhow::anyhow!("interrupted")),
        };
        if let Err(error) = outcome {
            down()?;
            return Err(error.context("what was started has been ended"));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn start(&self) -> Result<()> {
        let wanted = Wanted { brokers: self.brokers, registry: self.registry };
        let mut stack = Stack::start(NAME, wanted, Lifetime::UntilDown, &say).await?;
        if self.servers_only {
            say("the servers are ready; for your shell: eval \"$(./dev env)\"");
            return Ok(());
        }
        say("creating topics and tables (duectl init)");
        let mut pipeline = Pipeline::create(
            stack.addresses(),
            "duestream",
            &Layout::PRODUCTION,
            stack.dir(),
            Lifetime::UntilDown,
        )
        .await?;
        if let Some(registry) = &stack.addresses().registry {
            pipeline.set("ingest", "REGISTRY__URL", registry.as_str());
        }
        topics::create(&stack.addresses().kafka, &["callbacks"], 8).await?;
        say("starting ingest, scanner, dispatcher and compensator");
        let mut programs = Vec::new();
        for name in program::NAMES {
            let program = pipeline.spawn(name)?;
            stack.register(name, &program.process, &program.http)?;
            programs.push(program);
        }
        for program in &programs {
            program.ready().await?;
        }
        say("ready. In your shell:  eval \"$(./dev env)\"");
        say(
            "then, for example:     duectl submit --topic callbacks --delay 5s --value hello && duectl watch callbacks",
        );
        Ok(())
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
