//! Options of the commands that change a task.

use crate::delay;
use clap::{ArgGroup, Args};
use std::time::Duration;

/// Which task is meant, and how the command goes its way.
#[derive(Clone, Debug, Args)]
pub struct TaskArgs {
    /// Task id; of a task that was submitted without one: its row id
    #[arg(value_name = "TASK")]
    pub task: String,
    /// Shard key, if the task was submitted with one
    #[arg(long)]
    pub shard_key: Option<String>,
    /// Kafka key of the command: that of the command which made the task [default: with --mysql-url the task's callback
    /// key; else, or where it has none, the shard key or task id, as `duectl submit` keys]
    #[arg(long, value_name = "TEXT")]
    pub key: Option<String>,
    /// Topic to send it to: the one the task was submitted to [default: with --mysql-url that one; else tasks, behind
    /// --prefix]
    #[arg(long, value_name = "TOPIC")]
    pub source: Option<String>,
    /// Wait so long for the answer; status 3 if none has come by then
    #[arg(long, value_parser = delay::parse, default_value = "10s", value_name = "DURATION")]
    pub wait: Duration,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// `duectl cancel`.
#[derive(Clone, Debug, Args)]
pub struct CancelArgs {
    /// Which task.
    #[command(flatten)]
    pub task: TaskArgs,
}

/// `duectl reschedule`.
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("when").required(true).args(["due_at", "delay", "now"])))]
pub struct RescheduleArgs {
    /// Which task.
    #[command(flatten)]
    pub task: TaskArgs,
    /// New due time: RFC 3339 with offset, or epoch milliseconds
    #[arg(long, value_name = "TIME")]
    pub due_at: Option<String>,
    /// Due so long from now: 90s, 15m, 2h
    #[arg(long, value_name = "DURATION")]
    pub delay: Option<String>,
    /// Due now
    #[arg(long)]
    pub now: bool,
    /// Buried instead of delivered from this time on [default: as it was]
    #[arg(long, value_name = "TIME")]
    pub expires_at: Option<String>,
}
