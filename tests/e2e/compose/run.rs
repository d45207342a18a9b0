//! The commands and settings of docker-compose.yml, carried out on this machine on the servers of the tests.

use super::file::{Compose, Service};
use super::{env_prefix, settings_here};
use anyhow::{Context, Result, bail, ensure};
use devstack::pipeline::Pipeline;
use devstack::process::{Lifetime, Process};
use devstack::stack::Addresses;
use devstack::{binaries, paths, ports, program, topics, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tests::world::PATIENCE;

/// The pipeline of the file on the servers of the tests, under a name of its own.
struct Here {
    compose: Compose,
    addresses: Addresses,
    /// Name of prefix, database and callback topic.
    name: String,
}

impl Here {
    fn new() -> Result<Here> {
        let name = format!("compose_{:06x}", rand::random_range(0..0x0100_0000));
        Ok(Here { compose: Compose::read()?, addresses: Addresses::from_env()?, name })
    }

    /// A service's settings, moved here. Whatever the file calls by a name of its own, must be replaced.
    fn settings(&self, service: &Service) -> BTreeMap<String, String> {
        let mysql = format!("{}/{}", self.addresses.mysql, self.name);
        let settings = settings_here(
            &service.environment,
            &[
                ("mysql://duestream:duestream@mysql:3306/duestream", &mysql),
                ("redis://redis:6379", &self.addresses.redis),
                ("kafka:9092", &self.addresses.kafka),
            ],
        );
        let name = |(key, value): (String, String)| {
            let value = match key.as_str() {
                key if key.ends_with("PREFIX") && key.contains("REDIS") => self.name.clone(),
                key if key.ends_with("PREFIX") => format!("{}.", self.name),
                _ => value,
            };
            (key, value)
        };
        settings.into_iter().map(name).collect()
    }

    /// Command line of a service, as the container would start it.
    fn command(&self, name: &str, arguments: &[&str]) -> Result<Command> {
        let service = self.compose.service(name);
        let mut words = service
            .entrypoint
            .iter()
            .chain(&service.command)
            .map(String::as_str)
            .chain(arguments.iter().copied());
        let mut command = Command::new(binaries::path(words.next().context("no command")?)?);
        command.args(words).env_clear().envs(self.settings(service));
        Ok(command)
    }

    async fn run(&self, name: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = self.command(name, arguments)?;
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }

    /// A command that must succeed; answers its output.
    async fn run_ok(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let out = self.run(name, arguments).await?;
        let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        ensure!(out.status.success(), "{name} {arguments:?} ended with {}:\n{stdout}{stderr}", out.status);
        Ok(stdout.into_owned())
    }

    /// Starts a stage `count` times, each on a port of its own as in a container of its own, and waits until the health
    /// check of the file succeeds for each.
    async fn start(&self, name: &'static str, count: usize, dir: &Path) -> Result<Vec<Process>> {
        let listen = format!("{}HTTP__LISTEN", env_prefix(name));
        ensure!(self.compose.service(name).environment.contains_key(&listen), "{name} has no {listen}");
        let mut started = Vec::new();
        for number in 1..=count {
            let address = format!("127.0.0.1:{}", ports::free_port()?);
            let mut command = self.command(name, &[])?;
            command.env(&listen, &address);
            let label = format!("{name}-{number}");
            let process =
                Process::spawn(&label, &command, &dir.join(format!("{label}.log")), Lifetime::WithStarter)?;
            let probe = self.compose.service(name).healthcheck.as_ref().context("no health check")?;
            let (_, probe) = probe.test.split_first().context("an empty health check")?;
            wait::until(&format!("{label} to be healthy"), PATIENCE, async || {
                process.check_alive()?;
                let mut ask = Command::new(binaries::path(&probe[0])?);
                ask.args(&probe[1..]).env_clear().envs(self.settings(self.compose.service(name)));
                ask.env(&listen, &address);
                let out = tokio::task::spawn_blocking(move || ask.output()).await??;
                Ok(if out.status.success() {
                    Ok(())
                } else {
                    Err(String::from_utf8_lossy(&out.stderr).into_owned())
                })
            })
            .await?;
            started.push(process);
        }
        Ok(started)
    }
}

/// The lines of README.md's section that call docker compose, continuation lines joined.
fn readme_lines() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(paths::work_tree()?.join("README.md"))?;
    let (_, section) = text.split_once("## With Docker").context("README.md has no section With Docker")?;
    let section = section.split("\n## ").next().unwrap_or_default().replace("\\\n", " ");
    let lines: Vec<String> =
        section.lines().filter(|line| line.contains("docker compose")).map(str::to_owned).collect();
    Ok(lines.into_iter().filter(|line| !line.trim_start().starts_with('#')).collect())
}

#[tokio::test]
async fn the_commands_of_the_compose_file_make_a_pipeline_that_delivers() -> Result<()> {
    let here = Here::new()?;
    let dir = tempfile::tempdir()?;
    here.run_ok("init", &[]).await?;
    topics::create(&here.addresses.kafka, &[&here.name], 8).await?;
    let mut running = Vec::new();
    for name in program::NAMES {
        // One stage twice: `docker compose up --scale scanner=2`.
        running.extend(here.start(name, if name == "scanner" { 2 } else { 1 }, dir.path()).await?);
    }

    // What README.md says, with kcat and duectl in place of their containers.
    let lines = readme_lines()?;
    let line = |needle: &str| {
        lines
            .iter()
            .find(|line| line.contains(needle))
            .with_context(|| format!("README.md: no line with {needle}"))
    };
    let here_line = |line: &str| {
        let line = line.split("#  ").next().unwrap_or_default();
        line.replace("docker compose run --rm -T kcat", "kcat")
            .replace("kafka:9092", &here.addresses.kafka)
            .replace("duestream.tasks", &format!("{}.tasks", here.name))
            .replace("callbacks", &here.name)
    };
    shell(&here_line(line(" -P ")?)).await?;
    let consumed = shell(&format!("timeout 60 {}", here_line(line(" -C ")?))).await?;
    assert!(consumed.starts_with("hello\n"), "{consumed}");
    let get = line("duectl get")?.split_once("duectl ").context("duectl")?.1.to_owned();
    let arguments: Vec<&str> = get.split("#  ").next().unwrap_or_default().split_whitespace().collect();
    wait::until("the task to be done", PATIENCE, async || {
        let text = here.run_ok("duectl", &arguments).await?;
        Ok(if text.contains("done") { Ok(()) } else { Err(text) })
    })
    .await?;

    for process in &running {
        process.end(Duration::from_secs(20));
        let status = process.exit_status().context("a program that ended")?;
        ensure!(status.success(), "{status}: {}", process.log_tail());
    }
    Ok(())
}

/// Runs a line of the README as a shell would and answers what it printed.
async fn shell(line: &str) -> Result<String> {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", line]).stdin(Stdio::null());
    let out = tokio::task::spawn_blocking(move || command.output()).await??;
    if !out.status.success() {
        bail!("{line}\nended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8(out.stdout)?)
}

#[tokio::test]
async fn the_compose_file_says_no_more_and_no_less_than_dev_does() -> Result<()> {
    let here = Here::new()?;
    let dir = tempfile::tempdir()?;
    let layout = devstack::pipeline::Layout::PRODUCTION;
    let pipeline =
        Pipeline::create(&here.addresses, &here.name, &layout, dir.path(), Lifetime::WithStarter).await?;
    for name in program::NAMES {
        let prefix = env_prefix(name);
        let mut expected: BTreeMap<String, String> = pipeline
            .program_env(name)
            .into_iter()
            .map(|(key, value)| (format!("{prefix}{key}"), value))
            .collect();
        let mut said = here.settings(here.compose.service(name));
        // The port is each one's own, in a container and here.
        let listen = format!("{prefix}HTTP__LISTEN");
        said.remove(&listen).context("no address for the health check")?;
        expected.remove(&listen);
        assert_eq!(said, expected, "{name}");
    }
    let expected: BTreeMap<String, String> =
        pipeline.client_env().iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for name in ["init", "duectl"] {
        assert_eq!(here.settings(here.compose.service(name)), expected, "{name}");
    }
    // The layout of ./dev up is what `duectl init` makes when it is told nothing.
    here.run_ok("init", &["--check"]).await?;
    Ok(())
}

#[test]
fn readme_calls_services_and_options_that_exist() -> Result<()> {
    let compose = Compose::read()?;
    let lines = readme_lines()?;
    let mut called = BTreeSet::new();
    for line in &lines {
        let words: Vec<&str> = line.split("#  ").next().unwrap_or_default().split_whitespace().collect();
        let at = words.iter().position(|word| *word == "run" || *word == "logs").map(|at| at + 1);
        called.extend(at.and_then(|at| words[at..].iter().find(|word| !word.starts_with('-')).copied()));
        called.extend(
            words
                .iter()
                .filter_map(|word| word.split_once('='))
                .filter(|(_, n)| n.parse::<u8>().is_ok())
                .map(|(name, _)| name),
        );
    }
    assert!(called.contains("kcat") && called.contains("duectl") && called.contains("scanner"), "{called:?}");
    for name in called {
        compose.service(name);
    }
    Ok(())
}
