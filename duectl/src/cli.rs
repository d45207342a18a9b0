//! Options and commands.

use crate::delay;
use clap::{Args, Parser, Subcommand};
use runtime::init::Source;
use std::path::PathBuf;
use std::time::Duration;

/// Operate Duestream: set a pipeline up, submit tasks, watch deliveries, look tasks up.
///
/// Exit status: 0 done; 1 failed; 2 wrong usage; 3 not found, or not in time; 4 a server cannot be reached.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub struct Cli {
    /// Where the pipeline is.
    #[command(flatten)]
    pub servers: ServerArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the pipeline is.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Servers and names")]
pub struct ServerArgs {
    /// Kafka brokers, host:port separated by commas
    #[arg(
        long,
        env = "KAFKA_BOOTSTRAP",
        default_value = "127.0.0.1:9092",
        global = true,
        value_name = "BROKERS"
    )]
    pub bootstrap: String,
    /// Further setting of librdkafka, such as security.protocol=SSL; may be repeated
    #[arg(
        long = "kafka-property",
        env = "KAFKA_PROPERTIES",
        value_delimiter = ',',
        global = true,
        value_name = "K=V"
    )]
    pub kafka_properties: Vec<String>,
    /// Database of the pipeline: mysql://user:password@host:port/database
    #[arg(long, env = "MYSQL_URL", hide_env_values = true, global = true, value_name = "URL")]
    pub mysql_url: Option<String>,
    /// Redis: redis://host:port
    #[arg(long, env = "REDIS_URL", hide_env_values = true, global = true, value_name = "URL")]
    pub redis_url: Option<String>,
    /// Prefix of the pipeline's topics
    #[arg(long, env = "DUESTREAM_PREFIX", default_value = "duestream.", global = true)]
    pub prefix: String,
    /// Prefix of the pipeline's Redis keys
    #[arg(long, env = "DUESTREAM_REDIS_PREFIX", default_value = "ds", global = true, value_name = "PREFIX")]
    pub redis_prefix: String,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create topics, schema, settings and positions of a pipeline as far as they are missing
    Init(InitArgs),
    /// Submit one task, or one per line of a file
    Submit(Box<SubmitArgs>),
    /// Show deliveries on callback topics as they become visible
    Watch(WatchArgs),
    /// Show what is known of a task, and where it is
    Get(GetArgs),
}

/// `duectl init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Shards, a power of two, fixed for ever [default: as set up, or 64]
    #[arg(long)]
    pub shards: Option<u16>,
    /// Slots, a power of two, fixed for ever [default: as set up, or 8]
    #[arg(long)]
    pub slots: Option<u16>,
    /// Partitions of tasks, acks, replies, rejected and dead, where they are created
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub partitions_tasks: i32,
    /// Copies of each partition
    #[arg(long, default_value_t = 1)]
    pub replication: i32,
    /// A further topic of commands, with what settings it needs; may be repeated. Ingest reads it once its configuration
    /// names it (`[[sources]]`). Partitions: as --partitions-tasks says, where it is created
    #[arg(long = "source", value_parser = NamedSource::parse, value_name = "TOPIC[:PARTITIONS]")]
    pub sources: Vec<NamedSource>,
    /// Only say what is missing or wrong; status 1 if anything is
    #[arg(long)]
    pub check: bool,
    /// One JSON object on stdout instead of lines
    #[arg(long)]
    pub json: bool,
}

/// `TOPIC[:PARTITIONS]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSource {
    topic: String,
    partitions: Option<i32>,
}

impl NamedSource {
    fn parse(text: &str) -> Result<NamedSource, String> {
        let Some((topic, partitions)) = text.split_once(':') else {
            return Ok(NamedSource { topic: text.to_owned(), partitions: None });
        };
        let partitions =
            partitions.parse().map_err(|_| format!("{partitions:?} is no number of partitions"))?;
        Ok(NamedSource { topic: topic.to_owned(), partitions: Some(partitions) })
    }

    /// The source, with this many partitions where nothing was said of them.
    pub(crate) fn with(&self, partitions: i32) -> Source {
        Source { topic: self.topic.clone(), partitions: self.partitions.unwrap_or(partitions) }
    }
}

/// `duectl submit`.
#[derive(Clone, Debug, Default, Args)]
pub struct SubmitArgs {
    /// Callback topic
    #[arg(long)]
    pub topic: Option<String>,
    /// When it is due: RFC 3339 with offset, or epoch milliseconds
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    pub due_at: Option<String>,
    /// Due so long from now: 90s, 15m, 2h
    #[arg(long, value_name = "DURATION")]
    pub delay: Option<String>,
    /// Key of the callback record; without one it is null
    #[arg(long)]
    pub key: Option<String>,
    /// Value of the callback record; without one it is null
    #[arg(long, conflicts_with = "value_file")]
    pub value: Option<String>,
    /// Value of the callback record from a file; - reads stdin
    #[arg(long, value_name = "FILE")]
    pub value_file: Option<PathBuf>,
    /// Header of the callback record; may be repeated
    #[arg(long = "header", value_name = "K=V")]
    pub headers: Vec<String>,
    /// Identity of the task: submitting it again with the same content changes nothing
    #[arg(long)]
    pub task_id: Option<String>,
    /// Tasks with the same shard key lie together [default: the task id]
    #[arg(long)]
    pub shard_key: Option<String>,
    /// Partition of the callback topic
    #[arg(long)]
    pub partition: Option<String>,
    /// Buried instead of delivered from this time on
    #[arg(long, value_name = "TIME")]
    pub expires_at: Option<String>,
    /// Have the answer written to the topic replies
    #[arg(long)]
    pub reply: bool,
    /// Repeated in the reply
    #[arg(long, value_name = "TEXT", requires = "reply")]
    pub correlation: Option<String>,
    /// Topic to submit to, where it is not the default one [default: tasks, behind --prefix]
    #[arg(long, value_name = "TOPIC")]
    pub source: Option<String>,
    /// Print the result as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
    /// One task per row of this CSV (with a header line) or JSONL file; - reads stdin
    #[arg(long, value_name = "FILE", help_heading = "From a file")]
    pub file: Option<PathBuf>,
    /// Form of the file [default: by its name: .csv, .jsonl, .ndjson]
    #[arg(long, value_enum, requires = "file", help_heading = "From a file")]
    pub format: Option<Format>,
    /// FIELD=TEMPLATE, may be repeated. Fields: due-at, delay, topic, key, value, task-id, shard-key, partition,
    /// expires-at, reply, correlation, header.NAME. Templates hold {column}, {line} (number of the line) and any text; {{ is a brace.
    /// Without a value the whole row is the value, as a JSON object
    #[arg(
        long = "map",
        value_name = "FIELD=TEMPLATE",
        requires = "file",
        help_heading = "From a file",
        verbatim_doc_comment
    )]
    pub map: Vec<String>,
    /// The first due time of the file becomes now + this; the others follow
    #[arg(long, value_parser = delay::parse, value_name = "DURATION", requires = "file", help_heading = "From a file")]
    pub start_in: Option<Duration>,
    /// The first due time of the file becomes this time
    #[arg(
        long,
        value_name = "TIME",
        requires = "file",
        conflicts_with = "start_in",
        help_heading = "From a file"
    )]
    pub start: Option<String>,
    /// From the first to the last due time of the file this much time passes
    #[arg(long, value_parser = delay::parse, value_name = "DURATION", requires = "file", help_heading = "From a file")]
    pub window: Option<Duration>,
    /// Time in the file passes this much faster: 60 = a minute of the file per second
    #[arg(
        long,
        value_name = "FACTOR",
        requires = "file",
        conflicts_with = "window",
        help_heading = "From a file"
    )]
    pub time_scale: Option<f64>,
    /// Tasks per second at most
    #[arg(long, value_name = "N", requires = "file", help_heading = "From a file")]
    pub rate: Option<u32>,
    /// Leave wrong rows out and submit the others; without it nothing is submitted when a row is wrong
    #[arg(long, requires = "file", help_heading = "From a file")]
    pub skip_wrong: bool,
    /// Check every row and say what would be submitted; submit nothing
    #[arg(long, requires = "file", help_heading = "From a file")]
    pub dry_run: bool,
}

/// Form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    Jsonl,
}

/// `duectl watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Callback topics
    #[arg(required = true, value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// Everything that is kept, not only what comes from now on
    #[arg(long)]
    pub from_beginning: bool,
    /// End after this many deliveries
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// End after this time; status 3 if --count was not reached by then
    #[arg(long, value_parser = delay::parse, value_name = "DURATION")]
    pub timeout: Option<Duration>,
    /// One JSON object per delivery
    #[arg(long)]
    pub json: bool,
}

/// `duectl get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Task id; of a task that was submitted without one: its row id
    #[arg(value_name = "TASK")]
    pub task: String,
    /// Shard key, if the task was submitted with one
    #[arg(long)]
    pub shard_key: Option<String>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}
