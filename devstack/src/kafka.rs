//! Real Apache Kafka in KRaft mode: one broker, or three.

use crate::process::{Lifetime, Process};
use crate::{paths, ports, wait};
use anyhow::{Context, Result, bail};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Version that is fetched where there is no `KAFKA_HOME`; the same as in `kafka/pom.xml` (a test compares them).
pub const VERSION: &str = "4.3.1";

const POM: &str = include_str!("../kafka/pom.xml");
const LOG4J: &str = include_str!("../kafka/log4j2.yaml");
const READY_WITHIN: Duration = Duration::from_secs(120);

/// One broker's private folder and ports.
#[derive(Debug)]
pub struct Broker {
    dir: PathBuf,
    /// Port for clients.
    pub port: u16,
    heap_mb: u32,
    process: Option<Process>,
    lifetime: Lifetime,
}

/// A cluster of one or three brokers.
#[derive(Debug)]
pub struct Kafka {
    brokers: Vec<Broker>,
}

impl Kafka {
    /// Formats the storage of `count` brokers (1 or 3) under `dir` and starts them, without waiting.
    pub fn start(dir: &Path, count: usize, lifetime: Lifetime) -> Result<Kafka> {
        if count != 1 && count != 3 {
            bail!("Kafka is started with 1 or 3 brokers, not {count}");
        }
        let ports: Vec<(u16, u16)> =
            (0..count).map(|_| Ok((ports::free_port()?, ports::free_port()?))).collect::<Result<_>>()?;
        let cluster_id = cluster_id();
        let mut brokers = Vec::new();
        for (index, &(port, _)) in ports.iter().enumerate() {
            let dir = dir.join(format!("kafka-{}", index + 1));
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("server.properties"), properties(index, &ports, &dir))?;
            fs::write(dir.join("log4j2.yaml"), LOG4J)?;
            let heap_mb = if count == 1 { 768 } else { 400 };
            let mut broker = Broker { dir, port, heap_mb, process: None, lifetime };
            broker.format(&cluster_id)?;
            broker.start()?;
            brokers.push(broker);
        }
        Ok(Kafka { brokers })
    }

    /// `host:port` of every broker, for `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        let list: Vec<String> =
            self.brokers.iter().map(|broker| format!("127.0.0.1:{}", broker.port)).collect();
        list.join(",")
    }

    /// The brokers, to be killed and restarted one by one.
    pub fn brokers_mut(&mut self) -> &mut [Broker] {
        &mut self.brokers
    }

    /// The brokers.
    pub fn brokers(&self) -> &[Broker] {
        &self.brokers
    }

    /// Waits until a metadata request lists every broker.
    pub async fn ready(&self) -> Result<()> {
        let bootstrap = self.bootstrap();
        wait::until("Kafka to list its brokers", READY_WITHIN, async || {
            for process in self.brokers.iter().filter_map(|broker| broker.process.as_ref()) {
                process.check_alive()?;
            }
            let bootstrap = bootstrap.clone();
            let seen = tokio::task::spawn_blocking(move || count_brokers(&bootstrap)).await?;
            Ok(match seen {
                Ok(count) if count == self.brokers.len() => Ok(()),
                Ok(count) => Err(format!("{count} brokers")),
                Err(error) => Err(error.to_string()),
            })
        })
        .await
    }
}

/// Number of brokers that a metadata request lists.
pub fn count_brokers(bootstrap: &str) -> Result<usize> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("log_level", "0")
        .set("allow.auto.create.topics", "false")
        .create()?;
    Ok(consumer.fetch_metadata(None, Duration::from_secs(3))?.brokers().len())
}

impl Broker {
    fn format(&self, cluster_id: &str) -> Result<()> {
        let out = java(&self.dir, 128)?
            .args(["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c"])
            .arg(self.dir.join("server.properties"))
            .output()
            .context("start java: is a JRE of version 17 or later on the PATH?")?;
        if !out.status.success() {
            bail!(
                "formatting Kafka's storage failed:\n{}{}",
                String::from_utf8_lossy(&out.stdout),
                String::from_utf8_lossy(&out.stderr)
            );
        }
        Ok(())
    }

    /// Starts the broker on the data it has.
    pub fn start(&mut self) -> Result<()> {
        let mut command = java(&self.dir, self.heap_mb)?;
        command.arg("kafka.Kafka").arg(self.dir.join("server.properties"));
        self.process = Some(Process::spawn("kafka", &command, &self.dir.join("kafka.log"), self.lifetime)?);
        Ok(())
    }

    /// Its process, while there is one.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Its log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("kafka.log")
    }
}

fn java(dir: &Path, heap_mb: u32) -> Result<Command> {
    let mut command = Command::new("java");
    command
        .arg(format!("-Xmx{heap_mb}m"))
        // Short lives on few cores: the client compiler starts faster and leaves the cores to the tests.
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-cp"])
        .arg(format!("{}/*", jars()?.display()))
        .arg(format!("-Dlog4j2.configurationFile={}", dir.join("log4j2.yaml").display()))
        .current_dir(dir);
    Ok(command)
}

fn properties(index: usize, ports: &[(u16, u16)], dir: &Path) -> String {
    let mut voters = String::new();
    for (other, (_, controller)) in ports.iter().enumerate() {
        write!(voters, "{}{}@127.0.0.1:{controller}", if other == 0 { "" } else { "," }, other + 1)
            .expect("a String takes all");
    }
    let (client, controller) = ports[index];
    let mut text = format!(
        "process.roles=broker,controller\n\
         node.id={id}\n\
         controller.quorum.voters={voters}\n\
         listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{client}\n\
         controller.listener.names=CONTROLLER\n\
         log.dirs={data}\n\
         # Tests shorten sessions; production keeps Kafka's default.\n\
         group.min.session.timeout.ms=1000\n\
         # Private and short-lived: small indexes keep hundreds of test topics cheap.\n\
         log.index.size.max.bytes=1048576\n\
         log.cleaner.dedupe.buffer.size=8388608\n",
        id = index + 1,
        data = dir.join("data").display(),
    );
    for (key, value) in settings(ports.len()) {
        writeln!(text, "{key}={value}").expect("a String takes all");
    }
    text
}

/// Settings of a small cluster of `replicas` brokers beyond addresses and folders. docker-compose.yml has the same (a
/// test compares them).
pub fn settings(replicas: usize) -> Vec<(&'static str, String)> {
    let min_insync = if replicas == 1 { 1 } else { 2 };
    let number = |number: usize| number.to_string();
    vec![
        // A misspelt topic is an error, not a topic.
        ("auto.create.topics.enable", "false".to_owned()),
        ("default.replication.factor", number(replicas)),
        ("min.insync.replicas", number(min_insync)),
        ("offsets.topic.replication.factor", number(replicas)),
        ("offsets.topic.num.partitions", number(8)),
        ("transaction.state.log.replication.factor", number(replicas)),
        ("transaction.state.log.min.isr", number(min_insync)),
        ("transaction.state.log.num.partitions", number(8)),
        ("share.coordinator.state.topic.replication.factor", number(replicas)),
        ("share.coordinator.state.topic.min.isr", number(min_insync)),
        // The first program of a group does not wait three seconds for others.
        ("group.initial.rebalance.delay.ms", number(0)),
    ]
}

/// Kafka's cluster ids are 16 bytes in URL-safe base64 (22 characters).
fn cluster_id() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut id: String = (0..21).map(|_| char::from(ALPHABET[rand::random_range(1..62)])).collect();
    id.push('A'); // the last character carries 2 bits only
    id
}

/// Folder with the broker's jars: `KAFKA_HOME/libs`, else the cache, filled by Maven when it is empty.
pub fn jars() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("KAFKA_HOME") {
        let libs = PathBuf::from(home).join("libs");
        if !libs.is_dir() {
            bail!(
                "KAFKA_HOME is set but {} is no folder; point it at an unpacked Kafka, or unset it",
                libs.display()
            );
        }
        return Ok(libs);
    }
    Ok(cached_jars_dir()?.join("lib"))
}

fn cached_jars_dir() -> Result<PathBuf> {
    Ok(paths::cache()?.join(format!("kafka-{VERSION}")))
}

/// Fetches the broker's jars into the cache, once.
pub fn fetch() -> Result<()> {
    if std::env::var_os("KAFKA_HOME").is_some() {
        return Ok(());
    }
    paths::fill_once(&cached_jars_dir()?, |aside| {
        fs::write(aside.join("pom.xml"), POM)?;
        let out = Command::new("mvn")
            .args(["-q", "-B", "-f"])
            .arg(aside.join("pom.xml"))
            .arg("dependency:copy-dependencies")
            .arg(format!("-DoutputDirectory={}", aside.join("lib").display()))
            .output()
            .context(
                "start mvn: install Maven (Debian: apt-get install maven), or set KAFKA_HOME to an unpacked Kafka 4",
            )?;
        if !out.status.success() {
            bail!("Maven could not fetch Kafka {VERSION}:\n{}", String::from_utf8_lossy(&out.stdout));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pom_fetches_the_version_that_is_named_here() {
        assert!(
            POM.contains(&format!("<artifactId>kafka_2.13</artifactId>\n      <version>{VERSION}</version>"))
        );
    }

    #[test]
    fn three_brokers_know_each_other_and_replicate() {
        let text = properties(1, &[(1, 2), (3, 4), (5, 6)], Path::new("/x"));
        assert!(
            text.contains("controller.quorum.voters=1@127.0.0.1:2,2@127.0.0.1:4,3@127.0.0.1:6\n"),
            "{text}"
        );
        assert!(text.contains("node.id=2\n") && text.contains("min.insync.replicas=2\n"), "{text}");
    }
}
