//! `duectl dead`: tasks that were given up.

mod filter;
mod letters;
mod list;
mod replay;
mod show_one;

pub(crate) use letters::{Found, Letters};
pub(crate) use show_one::{attempt_json, attempt_text};

use crate::cli::DeadCommand;
use crate::exit::Failure;
use crate::servers::Servers;

pub(crate) async fn run(servers: &Servers, command: DeadCommand) -> Result<(), Failure> {
    match command {
        DeadCommand::List(args) => list::run(servers, args).await,
        DeadCommand::Show(args) => show_one::run(servers, args).await,
        DeadCommand::Replay(args) => replay::run(servers, args).await,
    }
}
