//! Life of a program: its components, how it stops, and that it never lives on by half.
//!
//! ```text
//! running ──SIGTERM / SIGINT──▶ draining ──all components ended──▶ exit 0
//!    │                              ├──── drain_timeout ─────────▶ exit 3 (names who was not done)
//!    │                              └──── second signal ─────────▶ exit 130 at once
//!    └── a component died, failed or panicked: draining, then exit 1
//! ```
//!
//! A component that ends without saying so is dead, and the whole program stops: half a program holds partitions and locks
//! and does nothing with them, which is worse than none. Another instance goes on from the positions in MySQL.

use crate::{cli::exit, probes::Readiness};
use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// Handle of the program's life; clones are the same life.
#[derive(Clone)]
pub struct Lifecycle {
    inner: Arc<Inner>,
}

struct Inner {
    program: String,
    drain_timeout: Duration,
    stop: CancellationToken,
    readiness: Readiness,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    alive: BTreeMap<u64, String>,
    failure: Option<String>,
}

/// Handle of a component. Dropped without [`Component::finish`]: the component died, and the program stops.
#[must_use = "dropping it says that the component died"]
pub struct Component {
    life: Lifecycle,
    id: u64,
    name: String,
    finished: bool,
}

impl Lifecycle {
    /// A program that runs.
    pub fn new(program: impl Into<String>, drain_timeout: Duration) -> Lifecycle {
        Lifecycle {
            inner: Arc::new(Inner {
                program: program.into(),
                drain_timeout,
                stop: CancellationToken::new(),
                readiness: Readiness::default(),
                state: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    /// Cancelled when the program begins to stop: finish what is under way, take nothing new.
    pub fn token(&self) -> CancellationToken {
        self.inner.stop.clone()
    }

    /// Whether the program has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.inner.stop.is_cancelled()
    }

    /// How long a stop may take.
    pub fn drain_timeout(&self) -> Duration {
        self.inner.drain_timeout
    }

    /// What keeps the program from being ready.
    pub fn readiness(&self) -> &Readiness {
        &self.inner.readiness
    }

    /// Registers a component, such as a slot's thread.
    pub fn component(&self, name: impl Into<String>) -> Component {
        let name = name.into();
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.alive.insert(id, name.clone());
        drop(state);
        Component { life: self.clone(), id, name, finished: false }
    }

    /// Runs a loop as a component. It must go on until the program stops: ending before, with `Ok` too, stops the program with a failure.
    pub fn spawn<F>(&self, name: impl Into<String>, work: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let component = self.component(name);
        tokio::spawn(async move {
            match work.await {
                Ok(()) if component.life.is_stopping() => component.finish(),
                Ok(()) => component.fail("ended although nobody asked it to"),
                Err(error) => component.fail(format!("{error:#}")),
            }
        });
    }

    /// Runs work that may end at any time, such as that of one partition. An error or a panic stops the program with a failure.
    pub fn spawn_finite<F>(&self, name: impl Into<String>, work: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let component = self.component(name);
        tokio::spawn(async move { component.end(work.await) });
    }

    /// As [`Lifecycle::spawn_finite`], on a thread of its own that may block.
    pub fn spawn_thread<F>(&self, name: impl Into<String>, work: F) -> std::io::Result<thread::JoinHandle<()>>
    where
        F: FnOnce() -> anyhow::Result<()> + Send + 'static,
    {
        let component = self.component(name);
        // The kernel keeps 15 bytes of a thread's name.
        let thread_name = component.name.chars().take(15).collect();
        thread::Builder::new().name(thread_name).spawn(move || component.end(work()))
    }

    /// Begins to stop, as a signal does.
    pub fn stop(&self) {
        self.inner.stop.cancel();
        self.inner.changed.notify_one();
    }

    /// Begins to stop because of a failure: the exit status is not 0. The first failure is the one that is kept.
    pub fn fail(&self, reason: impl Into<String>) {
        let reason = reason.into();
        error!(program = %self.inner.program, "stopping after a failure: {reason}");
        self.lock().failure.get_or_insert(reason);
        self.stop();
    }

    /// The failure that stopped the program, if one did.
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Components that have not ended.
    pub fn alive(&self) -> Vec<String> {
        self.lock().alive.values().cloned().collect()
    }

    /// Waits until the program was asked to stop or failed, and until its components have ended or the drain's time is up.
    /// `signals` yields once per signal.
    pub async fn wait(&self, mut signals: tokio::sync::mpsc::UnboundedReceiver<&'static str>) -> Ended {
        tokio::select! {
            () = self.inner.stop.cancelled() => {}
            signal = signals.recv() => {
                info!(program = %self.inner.program, "stopping: {}", signal.unwrap_or("signals are gone"));
                self.stop();
            }
        }
        let drained = tokio::time::timeout(self.inner.drain_timeout, self.drained());
        let ended = tokio::select! {
            ended = drained => match ended {
                Ok(()) => match self.failure() {
                    None => Ended::Clean,
                    Some(reason) => Ended::Failed(reason),
                },
                Err(_) => match self.failure() {
                    None => Ended::Undrained(self.alive()),
                    Some(reason) => {
                        warn!(program = %self.inner.program, "stopping before these were done: {}", self.alive().join(", "));
                        Ended::Failed(reason)
                    }
                },
            },
            Some(_) = signals.recv() => Ended::CutShort(self.alive()),
        };
        match &ended {
            Ended::Clean => info!(program = %self.inner.program, "stopped"),
            other => warn!(program = %self.inner.program, "{other}"),
        }
        ended
    }

    async fn drained(&self) {
        loop {
            let changed = self.inner.changed.notified();
            if self.lock().alive.is_empty() {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Component {
    /// It ended as it should.
    pub fn finish(mut self) {
        self.finished = true;
    }

    /// It failed; the program stops.
    pub fn fail(mut self, reason: impl fmt::Display) {
        self.finished = true;
        self.life.fail(format!("{}: {reason}", self.name));
    }

    /// Finished or failed.
    pub fn end(self, outcome: anyhow::Result<()>) {
        match outcome {
            Ok(()) => self.finish(),
            Err(error) => self.fail(format!("{error:#}")),
        }
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        if !self.finished {
            let how = if thread::panicking() { "panicked" } else { "died" };
            self.life.fail(format!("{}: {how}", self.name));
        }
        self.life.lock().alive.remove(&self.id);
        self.life.inner.changed.notify_one();
    }
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Asked to stop, and everything was finished.
    Clean,
    /// Something failed.
    Failed(String),
    /// These were not done within the drain's time.
    Undrained(Vec<String>),
    /// A second signal came while these were not done.
    CutShort(Vec<String>),
}

impl Ended {
    /// Exit status.
    pub fn status(&self) -> u8 {
        match self {
            Ended::Clean => 0,
            Ended::Failed(_) => exit::FAILED,
            Ended::Undrained(_) => exit::UNDRAINED,
            Ended::CutShort(_) => exit::CUT_SHORT,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Clean => write!(f, "stopped"),
            Ended::Failed(reason) => write!(f, "stopped after a failure: {reason}"),
            Ended::Undrained(names) => write!(f, "stopped before these were done: {}", names.join(", ")),
            Ended::CutShort(names) => {
                write!(f, "a second signal ended the program before these were done: {}", names.join(", "))
            }
        }
    }
}

/// A panic anywhere, in a task that nobody waits for too, stops the program with a failure.
pub fn stop_on_panic(life: &Lifecycle) {
    let life = life.clone();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default(panic);
        life.fail(format!("panic: {panic}").replace('\n', " "));
    }));
}

/// Ends the process when the stop takes longer than it may, even if the async runtime itself is stuck.
pub fn watch_stop(life: &Lifecycle) -> std::io::Result<()> {
    let (life, token) = (life.clone(), life.token());
    thread::Builder::new().name("watch-stop".into()).spawn(move || {
        // Its own little runtime: the program's may be what is stuck.
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
        runtime.block_on(async {
            token.cancelled().await;
            tokio::time::sleep(life.inner.drain_timeout + Duration::from_secs(2)).await;
        });
        eprintln!("the stop got stuck in: {}", life.alive().join(", "));
        std::process::exit(i32::from(if life.failure().is_some() { exit::FAILED } else { exit::UNDRAINED }));
    })?;
    Ok(())
}

/// SIGTERM and SIGINT, one message each.
pub fn signals() -> std::io::Result<tokio::sync::mpsc::UnboundedReceiver<&'static str>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (tx, rx) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let name = tokio::select! { _ = term.recv() => "SIGTERM", _ = int.recv() => "SIGINT" };
            if tx.send(name).is_err() {
                return;
            }
        }
    });
    Ok(rx)
}

#[cfg(test)]
mod tests;
