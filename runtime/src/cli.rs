//! The command line that all programs share.

use crate::config::{self, Config};
use clap::{Parser, Subcommand};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};

/// Exit statuses of the programs.
pub mod exit {
    /// Something failed: the log says what.
    pub const FAILED: u8 = 1;
    /// The command line or the configuration is wrong.
    pub const CONFIG: u8 = 2;
    /// Stopped, but not all that was under way was finished in time.
    pub const UNDRAINED: u8 = 3;
    /// A second signal cut the stop short.
    pub const CUT_SHORT: u8 = 130;
}

/// Options and commands of a program.
#[derive(Debug, Parser)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// Configuration file; what it leaves out has its default
    #[arg(long, env = "DUESTREAM_CONFIG", global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to do; nothing given: run
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Commands of a program.
#[derive(Debug, Default, Subcommand)]
pub enum Command {
    /// Run until SIGTERM or SIGINT
    #[default]
    Run,
    /// Say everything that is wrong with the configuration; connects to nothing
    CheckConfig,
    /// Print the configuration in force as a commented file, passwords hidden
    PrintConfig {
        /// The defaults instead: the manual of all keys
        #[arg(long)]
        defaults: bool,
    },
    /// Ask a running instance whether it is ready; status 0 if so
    Healthcheck {
        /// Ask whether it is alive instead
        #[arg(long)]
        live: bool,
        /// Its address; default: http.listen of the configuration
        #[arg(long, value_name = "HOST:PORT")]
        address: Option<String>,
    },
}

/// Carries out every command but `run`; answers the exit status.
pub(crate) fn one_shot<C: Config>(command: &Command, loaded: &config::Loaded<C>) -> Option<u8> {
    match command {
        Command::Run => None,
        Command::CheckConfig => Some(print("the configuration is valid\n")),
        Command::PrintConfig { defaults: true } => Some(print(&config::default_text::<C>())),
        Command::PrintConfig { defaults: false } => Some(print(&loaded.redacted())),
        Command::Healthcheck { live, address } => {
            let address = address.clone().unwrap_or_else(|| loaded.config.http().listen.clone());
            let path = if *live { "/live" } else { "/ready" };
            Some(match http_get(&address, path) {
                Ok((true, body)) => print(&body),
                Ok((false, body)) => complain(&format!("{path} of {address} says: {}", body.trim())),
                Err(error) => complain(&format!(
                    "{path} of {address} does not answer: {error}; is the program running there?"
                )),
            })
        }
    }
}

fn print(text: &str) -> u8 {
    // A reader that closed the pipe has seen enough.
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) | Err(_) => 0,
    }
}

fn complain(text: &str) -> u8 {
    eprintln!("{text}");
    exit::FAILED
}

/// A GET as small as a probe needs: (status is 2xx, body).
pub fn http_get(address: &str, path: &str) -> std::io::Result<(bool, String)> {
    let invalid = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
    let target: SocketAddr = address.parse().map_err(|_| invalid("not host:port"))?;
    if target.port() == 0 {
        return Err(invalid("port 0 means any free port: give --address"));
    }
    let limit = Duration::from_secs(3);
    let mut stream = TcpStream::connect_timeout(&target, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| invalid("no HTTP answer"))?;
    let ok = head.split_whitespace().nth(1).is_some_and(|status| status.starts_with('2'));
    Ok((ok, body.to_owned()))
}
