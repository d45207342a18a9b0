//! Options of `duectl dead`.

use crate::delay;
use clap::{Args, Subcommand};
use std::time::Duration;

/// `duectl dead`.
#[derive(Debug, Subcommand)]
pub enum DeadCommand {
    /// List tasks that were given up, each by its newest dead letter
    List(ListArgs),
    /// Show one dead letter: reason, history, headers, payload
    Show(ShowArgs),
    /// Have tasks that were given up delivered after all, each as a new attempt
    Replay(ReplayArgs),
}

/// Which dead letters are meant: those of which all that is given is true.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Callback topic; may be repeated
    #[arg(long = "topic", value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// Reason of the burial, such as `attempts_exhausted`; may be repeated
    #[arg(long = "reason", value_name = "CODE")]
    pub reasons: Vec<String>,
    /// Task id; may be repeated
    #[arg(long = "task-id", value_name = "TASK")]
    pub task_ids: Vec<String>,
    /// Shard key
    #[arg(long)]
    pub shard_key: Option<String>,
    /// Buried at this time or later: RFC 3339 with offset, epoch milliseconds, or a duration such as 2h (ago)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Buried before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

/// `duectl dead list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Show the newest so many; what else matches is only counted
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub limit: usize,
    /// One JSON object per dead letter, and one with the counts at the end
    #[arg(long)]
    pub json: bool,
}

/// `duectl dead show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Task id
    #[arg(value_name = "TASK", required_unless_present = "at", conflicts_with = "at")]
    pub task: Option<String>,
    /// Shard key, if the task was submitted with one
    #[arg(long)]
    pub shard_key: Option<String>,
    /// Where the letter lies on the topic dead, as `list` shows it
    #[arg(long, value_name = "PARTITION:OFFSET")]
    pub at: Option<String>,
    /// Write the payload to stdout, byte for byte, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub payload: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// `duectl dead replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// All there are: needed where no filter is given
    #[arg(long)]
    pub all: bool,
    /// Only say what would be replayed
    #[arg(long)]
    pub dry_run: bool,
    /// At most so many per second
    #[arg(long, value_parser = rate, value_name = "N/s")]
    pub rate: Option<u32>,
    /// Topic of commands to send to: one whose rules allow the callback topics [default: tasks, behind --prefix]
    #[arg(long, value_name = "TOPIC")]
    pub source: Option<String>,
    /// Wait so long for further answers; status 3 if some have not come by then
    #[arg(long, value_parser = delay::parse, default_value = "30s", value_name = "DURATION")]
    pub wait: Duration,
    /// One JSON object with the counts
    #[arg(long)]
    pub json: bool,
}

/// `100/s` or `100`.
fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse() {
        Ok(rate) if rate > 0 => Ok(rate),
        Ok(_) | Err(_) => Err("must be a whole number above 0, such as 100/s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn a_rate_is_a_whole_number_per_second() {
        assert_eq!((rate("100/s"), rate("7")), (Ok(100), Ok(7)));
        for text in ["0", "0/s", "1.5/s", "100/m", "", "-1"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
