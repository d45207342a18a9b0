//! The servers together, in one private folder, found again by name.

use crate::kafka::Kafka;
use crate::mysql::Mysql;
use crate::process::{Identity, Lifetime, Process};
use crate::redis_server::Redis;
use crate::registry::Registry;
use crate::{kafka, mysql, paths, redis_server, registry};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a server may take to end by itself.
const GRACE: Duration = Duration::from_secs(20);

/// Where the servers answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// `KAFKA_BOOTSTRAP`
    pub kafka: String,
    /// `MYSQL_URL`, without a database.
    pub mysql: String,
    /// `REDIS_URL`
    pub redis: String,
    /// `REGISTRY_URL`: a schema registry that speaks Confluent's API, where there is one.
    #[serde(default)]
    pub registry: Option<String>,
}

impl Addresses {
    /// From `KAFKA_BOOTSTRAP`, `MYSQL_URL`, `REDIS_URL`, as `./dev test` sets them for the tests.
    ///
    /// # Errors
    /// When one is not set: a test without a server is a failure, never a skip.
    pub fn from_env() -> Result<Addresses> {
        let get = |name: &str| {
            std::env::var(name).with_context(|| format!("{name} is not set; run the tests with ./dev test"))
        };
        Ok(Addresses {
            kafka: get("KAFKA_BOOTSTRAP")?,
            mysql: get("MYSQL_URL")?,
            redis: get("REDIS_URL")?,
            registry: from_env("REGISTRY_URL"),
        })
    }

    /// The schema registry, for a test that needs one.
    ///
    /// # Errors
    /// When there is none: a test without a server is a failure, never a skip.
    pub fn registry(&self) -> Result<&str> {
        self.registry.as_deref().context("REGISTRY_URL is not set; run the tests with ./dev test")
    }

    /// Asks each server something real.
    pub async fn check(&self) -> Vec<(&'static str, Result<()>)> {
        let bootstrap = self.kafka.clone();
        let kafka = tokio::task::spawn_blocking(move || kafka::count_brokers(&bootstrap).map(drop)).await;
        let mut answers = vec![
            ("kafka", kafka.unwrap_or_else(|error| Err(error.into()))),
            ("mysql", mysql::version(&self.mysql).await.map(drop)),
            ("redis", redis_server::ping(&self.redis).await),
        ];
        if let Some(registry) = &self.registry {
            answers.push(("registry", registry::ping(registry).await));
        }
        answers
    }
}

/// One line of a stack's file: a process that may have to be ended by a later call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// `kafka-1`, `mysql`, `redis`, `ingest`, …
    pub name: String,
    /// Whom to end.
    pub identity: Identity,
    /// Where it writes its log.
    pub log: PathBuf,
    /// Port or address, for `status`.
    pub address: String,
}

/// What lies in `stack.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StackFile {
    /// Who started it: a stack whose starter is gone and that was to live with it is swept.
    pub starter: Identity,
    /// Whether it is to outlive its starter.
    pub until_down: bool,
    /// Where the servers answer.
    pub addresses: Addresses,
    /// In the order they were started.
    pub entries: Vec<Entry>,
}

impl StackFile {
    /// Reads the file of a stack, if there is one.
    pub fn read(dir: &Path) -> Result<Option<StackFile>> {
        match fs::read(dir.join("stack.json")) {
            Ok(bytes) => Ok(Some(
                serde_json::from_slice(&bytes)
                    .with_context(|| format!("read {}/stack.json", dir.display()))?,
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("read {}/stack.json", dir.display())),
        }
    }

    /// Writes it aside and renames it, so that a killed call leaves no half of it.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let aside = dir.join("stack.json.tmp");
        fs::write(&aside, serde_json::to_vec_pretty(self)?)?;
        Ok(fs::rename(aside, dir.join("stack.json"))?)
    }

    /// Ends its processes, last started first.
    pub fn end_all(&self) {
        for entry in self.entries.iter().rev() {
            entry.identity.end(GRACE);
        }
    }
}

/// Which servers a stack is to have beside MySQL and Redis.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Brokers of Kafka: 1 or 3.
    pub brokers: usize,
    /// Whether a schema registry, too.
    pub registry: bool,
}

impl Default for Wanted {
    /// One broker, no registry.
    fn default() -> Wanted {
        Wanted { brokers: 1, registry: false }
    }
}

/// Servers that run; those named in the environment are used and never ended.
#[derive(Debug)]
pub struct Stack {
    dir: PathBuf,
    /// Kafka, unless `KAFKA_BOOTSTRAP` named one.
    pub kafka: Option<Kafka>,
    /// MySQL, unless `MYSQL_URL` named one.
    pub mysql: Option<Mysql>,
    /// Redis, unless `REDIS_URL` named one.
    pub redis: Option<Redis>,
    /// The schema registry, if one was asked for and `REGISTRY_URL` named none.
    pub registry: Option<Registry>,
    addresses: Addresses,
    lifetime: Lifetime,
    programs: Vec<Entry>,
    keep_folder: bool,
}

impl Stack {
    /// Folder of the stack called `name`.
    pub fn folder(name: &str) -> Result<PathBuf> {
        Ok(paths::home()?.join(name))
    }

    /// Starts those of `wanted` that the environment does not name, in the folder `name`, and waits until each answers
    /// a real request. Says what it does through `say`.
    pub async fn start(name: &str, wanted: Wanted, lifetime: Lifetime, say: &dyn Fn(&str)) -> Result<Stack> {
        sweep()?;
        let dir = Stack::folder(name)?;
        if dir.exists() {
            if let Some(old) = StackFile::read(&dir)? {
                old.end_all();
            }
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        fs::create_dir_all(&dir)?;
        let (kafka_url, mysql_url, redis_url, registry_url) = (
            from_env("KAFKA_BOOTSTRAP"),
            from_env("MYSQL_URL"),
            from_env("REDIS_URL"),
            from_env("REGISTRY_URL"),
        );
        let mut stack = Stack {
            addresses: Addresses {
                kafka: String::new(),
                mysql: String::new(),
                redis: String::new(),
                registry: None,
            },
            dir,
            kafka: None,
            mysql: None,
            redis: None,
            registry: None,
            lifetime,
            programs: Vec::new(),
            keep_folder: false,
        };
        if kafka_url.is_none() {
            if !kafka::jars()?.is_dir() {
                say(&format!("fetching Apache Kafka {} with Maven, once (44 MB)", kafka::VERSION));
                tokio::task::spawn_blocking(kafka::fetch).await??;
            }
            say("starting Kafka");
            stack.kafka = Some(Kafka::start(&stack.dir, wanted.brokers, lifetime)?);
            stack.save()?;
        }
        // Early, as Kafka is: a Java program takes the longest to start.
        if wanted.registry && registry_url.is_none() {
            if !registry::installed()?.is_dir() {
                say(&format!(
                    "fetching the schema registry Apicurio {} with Maven, once (109 MB)",
                    registry::VERSION
                ));
                tokio::task::spawn_blocking(registry::fetch).await??;
            }
            say("starting the schema registry");
            stack.registry = Some(Registry::start(&stack.dir, lifetime)?);
            stack.save()?;
        }
        if mysql_url.is_none() {
            say("starting MySQL");
            stack.mysql = Some(Mysql::start(&stack.dir, lifetime)?);
            stack.save()?;
        }
        if redis_url.is_none() {
            say("starting Redis");
            stack.redis = Some(Redis::start(&stack.dir, lifetime)?);
        }
        stack.addresses = Addresses {
            kafka: kafka_url.or_else(|| stack.kafka.as_ref().map(Kafka::bootstrap)).context("no Kafka")?,
            mysql: mysql_url.or_else(|| stack.mysql.as_ref().map(Mysql::url)).context("no MySQL")?,
            redis: redis_url.or_else(|| stack.redis.as_ref().map(Redis::url)).context("no Redis")?,
            registry: registry_url.or_else(|| stack.registry.as_ref().map(Registry::url)),
        };
        stack.save()?;
        stack.ready().await?;
        Ok(stack)
    }

    /// Waits until each of our servers answers.
    pub async fn ready(&self) -> Result<()> {
        if let Some(redis) = &self.redis {
            redis.ready().await?;
        }
        if let Some(mysql) = &self.mysql {
            mysql.ready().await?;
        }
        if let Some(kafka) = &self.kafka {
            kafka.ready().await?;
        }
        if let Some(registry) = &self.registry {
            registry.ready().await?;
        }
        for (name, answer) in self.addresses.check().await {
            answer.with_context(|| format!("{name} does not answer"))?;
        }
        Ok(())
    }

    /// Where the servers answer.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Its folder, for logs of programs and the like.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds a program to the stack's file, so that `down` and `status` know it.
    pub fn register(&mut self, name: &str, process: &Process, address: &str) -> Result<()> {
        self.programs.push(entry(name, process, address.to_owned()));
        self.save()
    }

    /// Leaves folder and logs behind when it ends, for a look at what failed.
    pub fn keep_folder(&mut self) {
        self.keep_folder = true;
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (index, broker) in self.kafka.iter().flat_map(|kafka| kafka.brokers()).enumerate() {
            entries.extend(
                broker
                    .process()
                    .map(|p| entry(&format!("kafka-{}", index + 1), p, format!("127.0.0.1:{}", broker.port))),
            );
        }
        if let Some(mysql) = &self.mysql {
            entries.extend(mysql.process().map(|p| entry("mysql", p, format!("127.0.0.1:{}", mysql.port))));
        }
        if let Some(redis) = &self.redis {
            entries.extend(redis.process().map(|p| entry("redis", p, format!("127.0.0.1:{}", redis.port))));
        }
        if let Some(registry) = &self.registry {
            entries.extend(
                registry.process().map(|p| entry("registry", p, format!("127.0.0.1:{}", registry.port))),
            );
        }
        entries.extend(self.programs.iter().cloned());
        entries
    }

    /// Writes the stack's file anew.
    pub fn save(&self) -> Result<()> {
        let starter =
            Identity::of(std::process::id().cast_signed()).context("this process has no /proc entry")?;
        let file = StackFile {
            starter,
            until_down: self.lifetime == Lifetime::UntilDown,
            addresses: self.addresses.clone(),
            entries: self.entries(),
        };
        file.write(&self.dir)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::UntilDown {
            return;
        }
        // Killed rather than asked: nothing of a stack that ends with its starter is read again.
        self.kafka = None;
        self.mysql = None;
        self.redis = None;
        self.registry = None;
        if !self.keep_folder {
            drop(fs::remove_dir_all(&self.dir));
        }
    }
}

fn entry(name: &str, process: &Process, address: String) -> Entry {
    Entry {
        name: name.to_owned(),
        identity: process.identity().clone(),
        log: process.log().to_owned(),
        address,
    }
}

fn from_env(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// Ends and removes stacks that were to live with a starter that is gone, such as those of a killed test run.
/// A folder that was kept for a look (its processes are gone too) is removed a day later.
pub fn sweep() -> Result<()> {
    let home = paths::home()?;
    let Ok(folders) = fs::read_dir(&home) else { return Ok(()) };
    for folder in folders.flatten() {
        let Ok(Some(file)) = StackFile::read(&folder.path()) else { continue };
        if file.until_down || file.starter.is_alive() {
            continue;
        }
        let had_living = file.entries.iter().any(|entry| entry.identity.is_alive());
        file.end_all();
        let age = folder.metadata()?.modified()?.elapsed().unwrap_or_default();
        if had_living || age > Duration::from_secs(86_400) {
            drop(fs::remove_dir_all(folder.path()));
        }
    }
    Ok(())
}
