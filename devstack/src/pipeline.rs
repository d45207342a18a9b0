//! One pipeline on a stack: its own topic prefix, database and Redis prefix, initialised by the real `duectl`.

use crate::binaries;
use crate::process::Lifetime;
use crate::program::Program;
use crate::stack::Addresses;
use anyhow::{Context, Result, bail};
use sqlx::{AssertSqlSafe, Connection};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// How a pipeline is laid out.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Number of shards, a power of two.
    pub shards: u16,
    /// Number of slots, a power of two.
    pub slots: u16,
    /// Partitions of `tasks`.
    pub partitions: u16,
}

impl Layout {
    /// The defaults of `duectl init`: what one sees in demo, bench and `up` is what one gets.
    pub const PRODUCTION: Layout = Layout { shards: 64, slots: 8, partitions: 8 };
}

impl Default for Layout {
    /// Fewer than in production: a test starts many pipelines on one small broker.
    fn default() -> Layout {
        Layout { shards: 8, slots: 4, partitions: 4 }
    }
}

/// A pipeline's names and the settings that its programs share.
#[derive(Debug)]
pub struct Pipeline {
    /// Topic prefix, such as `duestream.`.
    pub prefix: String,
    /// MySQL URL with the pipeline's own database.
    pub mysql_url: String,
    /// Prefix of its Redis keys.
    pub redis_prefix: String,
    addresses: Addresses,
    dir: PathBuf,
    settings: BTreeMap<&'static str, BTreeMap<String, String>>,
    started: BTreeMap<&'static str, usize>,
    lifetime: Lifetime,
}

impl Pipeline {
    /// Creates database and topics for a pipeline called `name` (letters, digits, `_`); logs go to `dir`.
    pub async fn create(
        addresses: &Addresses,
        name: &str,
        layout: &Layout,
        dir: &Path,
        lifetime: Lifetime,
    ) -> Result<Pipeline> {
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            bail!("a pipeline's name holds letters, digits and _ only: {name}");
        }
        std::fs::create_dir_all(dir)?;
        let mut connection =
            sqlx::MySqlConnection::connect(&addresses.mysql).await.context("connect to MySQL")?;
        let create =
            format!("CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
        sqlx::query(AssertSqlSafe(create)).execute(&mut connection).await.context("create the database")?;
        let pipeline = Pipeline {
            prefix: format!("{name}."),
            mysql_url: format!("{}/{name}", addresses.mysql),
            redis_prefix: if name == "duestream" { "ds".to_owned() } else { name.to_owned() },
            addresses: addresses.clone(),
            dir: dir.to_owned(),
            settings: BTreeMap::new(),
            started: BTreeMap::new(),
            lifetime,
        };
        let (shards, slots, partitions) =
            (layout.shards.to_string(), layout.slots.to_string(), layout.partitions.to_string());
        pipeline
            .duectl_ok(&["init", "--shards", &shards, "--slots", &slots, "--partitions-tasks", &partitions])
            .await?;
        Ok(pipeline)
    }

    /// Names of its topics, groups and ids.
    pub fn names(&self) -> schemas::topics::Names {
        schemas::topics::Names::new(&self.prefix)
    }

    /// Where the servers answer.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Folder of the logs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Sets a configuration key (such as `SCAN__HORIZON`) of the programs called `program` that are spawned from now on.
    pub fn set(&mut self, program: &'static str, key: &str, value: impl Into<String>) {
        self.settings.entry(program).or_default().insert(key.to_owned(), value.into());
    }

    /// What a program must be told of this pipeline, besides the port of its probes: keys such as `KAFKA__BOOTSTRAP`.
    pub fn program_env(&self, program: &str) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        let mut set = |key: &str, value: &str| env.insert(key.to_owned(), value.to_owned());
        set("KAFKA__BOOTSTRAP", &self.addresses.kafka);
        set("TOPICS__PREFIX", &self.prefix);
        // The dispatcher knows no MySQL, the others no Redis.
        if program == "dispatcher" {
            set("REDIS__URL", &self.addresses.redis);
            set("REDIS__PREFIX", &self.redis_prefix);
        } else {
            set("MYSQL__URL", &self.mysql_url);
        }
        env
    }

    /// Spawns one more program, without waiting for it.
    pub fn spawn(&mut self, program: &'static str) -> Result<Program> {
        let count = self.started.entry(program).or_default();
        *count += 1;
        let label = if *count == 1 { program.to_owned() } else { format!("{program}-{count}") };
        let mut env = self.settings.get(program).cloned().unwrap_or_default();
        env.extend(self.program_env(program));
        Program::spawn(program, &label, &env, &self.dir, self.lifetime)
    }

    /// Spawns one more program and waits until it is ready.
    pub async fn start(&mut self, program: &'static str) -> Result<Program> {
        let program = self.spawn(program)?;
        program.ready().await?;
        Ok(program)
    }

    /// The environment by which `duectl` finds this pipeline.
    pub fn client_env(&self) -> [(&'static str, &str); 5] {
        [
            ("KAFKA_BOOTSTRAP", &self.addresses.kafka),
            ("MYSQL_URL", &self.mysql_url),
            ("REDIS_URL", &self.addresses.redis),
            ("DUESTREAM_PREFIX", &self.prefix),
            ("DUESTREAM_REDIS_PREFIX", &self.redis_prefix),
        ]
    }

    /// The real `duectl` with this pipeline's environment, to be started by the caller.
    pub fn duectl_command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(binaries::path("duectl")?);
        command.args(arguments).envs(self.client_env());
        Ok(command)
    }

    /// Runs `duectl` to its end.
    pub async fn duectl(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = self.duectl_command(arguments)?;
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }

    /// Runs `duectl`, fails unless it succeeds, and answers its standard output.
    pub async fn duectl_ok(&self, arguments: &[&str]) -> Result<String> {
        let out = self.duectl(arguments).await?;
        let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if !out.status.success() {
            bail!("duectl {} ended with {}:\n{stdout}{stderr}", arguments.join(" "), out.status);
        }
        Ok(stdout.into_owned())
    }
}
