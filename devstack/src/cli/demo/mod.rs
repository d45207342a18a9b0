//! `./dev demo`: 20,000 real flight departures through the whole pipeline, then a check that trusts none of it.

mod flights;
mod report;
mod watch;

use super::{interrupted, say};
use anyhow::{Context, Result, bail};
use clap::Args;
use devstack::pipeline::{Layout, Pipeline};
use devstack::process::{Lifetime, Process};
use devstack::program::{self, Program};
use devstack::stack::{Stack, Wanted};
use devstack::topics;
use report::Report;
use std::process::ExitCode;
use std::time::Duration;

/// What the last delivery may take beyond its due time before the demo calls the rest lost.
const PATIENCE: Duration = Duration::from_secs(45);

#[derive(Debug, Args)]
pub struct Demo {
    /// How many of the 20,000 flights
    #[arg(long, default_value_t = flights::ALL)]
    tasks: usize,
    /// Seconds into which three months of departures are compressed
    #[arg(long, default_value_t = 55)]
    window: u32,
}

impl Demo {
    pub async fn run(self) -> Result<ExitCode> {
        tokio::select! {
            outcome = self.play() => outcome,
            () = interrupted() => bail!("interrupted; everything that was started has been ended"),
        }
    }

    async fn play(&self) -> Result<ExitCode> {
        let name = format!("demo-{}", std::process::id());
        let mut stack = Stack::start(&name, Wanted::default(), Lifetime::WithStarter, &say).await?;
        let outcome = self.play_on(&stack).await;
        if outcome.is_err() {
            stack.keep_folder();
            say(&format!("the logs stay in {}", stack.dir().display()));
        }
        outcome
    }

    async fn play_on(&self, stack: &Stack) -> Result<ExitCode> {
        say("creating topics and tables (duectl init)");
        let mut pipeline = Pipeline::create(
            stack.addresses(),
            "duestream",
            &Layout::PRODUCTION,
            stack.dir(),
            Lifetime::WithStarter,
        )
        .await?;
        topics::create(&stack.addresses().kafka, &flights::TOPICS, 8).await?;
        // Most departures then wait in MySQL and go the far way; the first ones are due sooner and go the near way.
        pipeline.set("scanner", "SCAN__HORIZON", "10s");
        pipeline.set("scanner", "SCAN__BUCKET_MIN", "1s");
        pipeline.set("scanner", "SCAN__BUCKET_MAX", "1s");
        say("starting ingest, scanner, dispatcher and compensator");
        let programs: Vec<Program> =
            program::NAMES.into_iter().map(|name| pipeline.spawn(name)).collect::<Result<_>>()?;
        for program in &programs {
            program.ready().await?;
        }

        let input = flights::prepare(stack.dir(), self.tasks)?;
        say(&format!(
            "submitting {} flight departures of early 2001, due within the next {} s (duectl submit)",
            input.task_ids.len(),
            self.window
        ));
        let submit = self.submit(&pipeline, &input)?;
        let seen =
            watch::until_quiet(stack.addresses(), &pipeline, &submit, input.task_ids.len(), PATIENCE).await?;
        for program in &programs {
            program.process.check_alive()?;
        }
        if let Some(status) = submit.exit_status()
            && !status.success()
        {
            bail!("duectl submit ended with {status}:\n{}", submit.log_tail());
        }

        say("checking: reading the callback topics from their beginning, read committed");
        let records = topics::Reader::from_beginning(&stack.addresses().kafka, &flights::TOPICS)?
            .read_to_end(Duration::from_secs(60))
            .context("the independent check")?;
        let report = Report::new(&input.task_ids, seen.accepted, &records);
        println!("{report}");
        say("to go on playing: ./dev up, then eval \"$(./dev env)\" and the first task in README.md");
        Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn submit(&self, pipeline: &Pipeline, input: &flights::Input) -> Result<Process> {
        let file = input.file.to_str().context("the path of the work tree is not UTF-8")?;
        let window = format!("{}s", self.window);
        let command = pipeline.duectl_command(&[
            "submit",
            "--file",
            file,
            "--map",
            "due-at={departure}",
            "--map",
            "topic=departures.{haul}",
            "--map",
            "key={origin}",
            "--map",
            "task-id={line}-{origin}-{destination}",
            "--start-in",
            "6s",
            "--window",
            &window,
            "--json",
        ])?;
        Process::spawn("duectl submit", &command, &pipeline.dir().join("submit.log"), Lifetime::WithStarter)
    }
}
