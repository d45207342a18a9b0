//! A process that we started: known by pid and start time, so that a recycled pid is never touched.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// What is kept of a process between two calls of `./dev`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`: clock ticks between boot and the start of the process.
    pub started_ticks: u64,
}

impl Identity {
    /// Identity of a running process; `None` when there is none (a zombie counts as none).
    pub fn of(pid: i32) -> Option<Identity> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold spaces: count fields from the last ')'.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if *fields.first()? == "Z" {
            return None;
        }
        Some(Identity { pid, started_ticks: fields.get(19)?.parse().ok()? })
    }

    /// Whether this very process (not another one with its pid) still runs.
    pub fn is_alive(&self) -> bool {
        Identity::of(self.pid).as_ref() == Some(self)
    }

    /// Sends a signal, if this very process still runs.
    pub fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // It may end between the look and the signal: that is what was wanted.
            kill(Pid::from_raw(self.pid), signal).ok();
        }
    }

    /// Ends the process: asks with TERM, insists with KILL after `grace`. True when TERM was enough.
    pub fn end(&self, grace: Duration) -> bool {
        self.signal(Signal::SIGCONT);
        self.signal(Signal::SIGTERM);
        let asked = Instant::now();
        while self.is_alive() {
            if asked.elapsed() > grace {
                self.signal(Signal::SIGKILL);
            }
            if asked.elapsed() > grace + Duration::from_secs(10) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        asked.elapsed() <= grace
    }
}

/// How long a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Ends with the process that started it, whatever ends that (even kill −9).
    WithStarter,
    /// Goes on until `./dev down`.
    UntilDown,
}

/// A process that we started in this very call.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    identity: Identity,
    child: Mutex<Child>,
    lifetime: Lifetime,
}

impl Process {
    /// Starts `command` in a process group of its own, with its output appended to `log`.
    pub fn spawn(name: &str, command: &Command, log: &Path, lifetime: Lifetime) -> Result<Process> {
        let mut wrapped = match lifetime {
            Lifetime::UntilDown => Command::new(command.get_program()),
            // setpriv (util-linux) asks the kernel for a signal at the death of its parent, then becomes the program.
            Lifetime::WithStarter => {
                let mut wrapper = Command::new("setpriv");
                wrapper.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
                wrapper
            }
        };
        wrapped.args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(key, value),
                None => wrapped.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            wrapped.current_dir(dir);
        }
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        wrapped.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        let child = spawn_from_lasting_thread(wrapped)
            .with_context(|| format!("start {name} ({:?})", command.get_program()))?;
        let pid = i32::try_from(child.id())?;
        let identity = Identity::of(pid).unwrap_or(Identity { pid, started_ticks: 0 });
        Ok(Process {
            name: name.to_owned(),
            log: log.to_owned(),
            identity,
            child: Mutex::new(child),
            lifetime,
        })
    }

    /// Its identity, for a pid file.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The file its output goes to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Exit status, if it has ended.
    pub fn exit_status(&self) -> Option<std::process::ExitStatus> {
        self.child.lock().expect("no panic while holding the lock").try_wait().ok().flatten()
    }

    /// Fails with the end of the log when the process has ended.
    pub fn check_alive(&self) -> Result<()> {
        match self.exit_status() {
            None => Ok(()),
            Some(status) => {
                bail!("{} ended with {status}; its log ends with:\n{}", self.name, self.log_tail())
            }
        }
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if self.exit_status().is_none() {
            kill(Pid::from_raw(self.identity.pid), signal).ok();
        }
    }

    /// Ends it: TERM, then KILL after `grace`.
    pub fn end(&self, grace: Duration) {
        self.signal(Signal::SIGCONT);
        self.signal(Signal::SIGTERM);
        if self.wait_exit(grace).is_none() {
            self.kill9();
        }
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill9(&self) {
        self.signal(Signal::SIGKILL);
        self.wait_exit(Duration::from_secs(20));
    }

    /// Waits for its end, at most `within`.
    pub fn wait_exit(&self, within: Duration) -> Option<std::process::ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.exit_status() {
                return Some(status);
            }
            if start.elapsed() >= within {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::WithStarter && self.exit_status().is_none() {
            self.kill9();
        }
    }
}

/// The last 40 lines (at most 16 KiB) of a file.
pub fn log_tail(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(16 * 1024);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        }
        Err(error) => format!("(no log at {}: {error})", path.display()),
    }
}

type Order = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The kernel's parent-death signal follows the *thread* that forked, and the threads of tests come and go: all
/// children are forked by one thread that lives as long as the process.
static SPAWNER: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (tx, rx) = mpsc::channel::<Order>();
    std::thread::Builder::new()
        .name("spawner".into())
        .spawn(move || {
            for (mut command, answer) in rx {
                // The asker waits for the answer; if it is gone, the child is dropped with it.
                drop(answer.send(command.spawn()));
            }
        })
        .expect("a thread can be started");
    Mutex::new(tx)
});

fn spawn_from_lasting_thread(command: Command) -> Result<Child> {
    let (tx, rx) = mpsc::channel();
    SPAWNER
        .lock()
        .expect("no panic while holding the lock")
        .send((command, tx))
        .context("the spawner has ended")?;
    Ok(rx.recv().context("the spawner has ended")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recycled_pid_is_not_taken_for_the_process_that_had_it() {
        let me = Identity::of(std::process::id().cast_signed()).unwrap();
        assert!(me.is_alive());
        let earlier = Identity { started_ticks: me.started_ticks - 1, ..me };
        assert!(!earlier.is_alive());
        earlier.signal(Signal::SIGKILL); // would end this test
    }

    #[test]
    fn a_process_that_dies_at_once_is_reported_with_the_end_of_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo the reason; exit 3"]);
        let process =
            Process::spawn("child", &command, &dir.path().join("log"), Lifetime::WithStarter).unwrap();
        process.wait_exit(Duration::from_secs(10)).unwrap();
        let error = process.check_alive().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("the reason"), "{error}");
    }

    #[test]
    fn ending_a_process_that_ignores_term_insists() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]);
        let process =
            Process::spawn("stubborn", &command, &dir.path().join("log"), Lifetime::WithStarter).unwrap();
        while !process.log_tail().contains("up") {
            std::thread::yield_now();
        }
        process.end(Duration::from_millis(100));
        assert!(process.exit_status().is_some());
    }
}
