//! What every `main.rs` does: configuration → telemetry → probes → the program's own `run` → wait → drain.
//!
//! ```no_run
//! // src/main.rs, whole:
//! use std::process::ExitCode;
//!
//! # mod ingest {
//! #     use runtime::config::*;
//! #     pub mod metrics { pub const ALL: &[runtime::telemetry::MetricDef] = &[]; }
//! fn main_() -> std::process::ExitCode {
//!     runtime::program::main::<Config, _, _>(&[metrics::ALL], run)
//! }
//!
//! // src/config.rs:
//! #[derive(Debug, serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! pub struct Config {
//!     pub kafka: Kafka,
//!     pub topics: Topics,
//!     pub mysql: Mysql,
//!     pub http: Http,
//!     pub telemetry: Telemetry,
//!     pub lifecycle: Lifecycle,
//!     pub ingest: Ingest,
//! }
//! #[derive(Debug, serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! pub struct Ingest { pub batch: u32, pub linger: HumanDuration }
//!
//! impl runtime::config::Config for Config {
//!     const PROGRAM: &'static str = "ingest";
//!     // include_str!("../config.default.toml"): its own sections, and other defaults for shared ones
//!     const DEFAULTS: &'static str = "[http]\nlisten = \"127.0.0.1:9471\"\n[ingest]\nbatch = 500\nlinger = \"5ms\"\n";
//!     const SHARED: &'static [Shared] = &[KAFKA, TOPICS, MYSQL, HTTP, TELEMETRY, LIFECYCLE];
//!     fn check(&self, v: &mut Violations) {
//!         self.kafka.check("kafka", v);
//!         self.topics.check("topics", v);
//!         self.mysql.check("mysql", v);
//!         self.http.check("http", v);
//!         self.telemetry.check("telemetry", v);
//!         self.lifecycle.check("lifecycle", v);
//!         v.rule("ingest.batch", &self.ingest.batch, (1..=2000).contains(&self.ingest.batch),
//!                "must lie between 1 and 2000", "500 is the default");
//!     }
//!     fn http(&self) -> &Http { &self.http }
//!     fn telemetry(&self) -> &Telemetry { &self.telemetry }
//!     fn lifecycle(&self) -> &Lifecycle { &self.lifecycle }
//! }
//! // its test: #[test] fn defaults_are_valid_and_every_key_is_read() { runtime::config::assert_defaults::<Config>() }
//!
//! // src/lib.rs:
//! /// Connects, checks the world, spawns the loops, and returns; the frame waits.
//! pub async fn run(cfg: std::sync::Arc<Config>, life: runtime::lifecycle::Lifecycle) -> anyhow::Result<()> {
//!     let gate = life.readiness().gate("tasks", "waiting for partitions");
//!     let stop = life.token();
//!     life.spawn("tasks", async move {
//!         gate.open();                                  // gate.close("MySQL is away: …") while it is
//!         stop.cancelled().await;                       // drain, then return Ok
//!         Ok(())
//!     });
//!     Ok(())
//! }
//! # }
//! # fn main() {}
//! ```

use crate::{
    cli::{self, Cli, exit},
    config::{self, Config},
    lifecycle::{self, Ended, Lifecycle},
    probes, telemetry,
};
use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _};
use std::{ffi::OsString, future::Future, process::ExitCode, sync::Arc, time::Duration};
use tracing::info;

/// The whole of a program but its `run`. `run` connects, checks the world, spawns its loops with `life.spawn` and returns; an
/// error of it ends the program. Until it has returned, and while any gate is closed, `/ready` says why not.
pub fn main<C, R, F>(metrics: &[&[telemetry::MetricDef]], run: R) -> ExitCode
where
    C: Config,
    R: FnOnce(Arc<C>, Lifecycle) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    ExitCode::from(main_with(std::env::args_os(), metrics, run))
}

/// As [`main`], with the command line given; answers the exit status.
pub fn main_with<C, R, F>(
    args: impl IntoIterator<Item = OsString>,
    metrics: &[&[telemetry::MetricDef]],
    run: R,
) -> u8
where
    C: Config,
    R: FnOnce(Arc<C>, Lifecycle) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    // Once per process; clap wants it for good.
    let name: &'static str = Box::leak(format!("duestream-{}", C::PROGRAM).into_boxed_str());
    let about = format!("{name}, one of the four programs of Duestream");
    let env = format!(
        "Every key of the configuration can also be set in the environment: {}SECTION__KEY.\nAll keys with their meaning: {name} print-config --defaults",
        config::env_prefix(C::PROGRAM)
    );
    let command = Cli::command()
        .name(name)
        .bin_name(name)
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .after_help(env);
    let cli = match Cli::from_arg_matches(&command.get_matches_from(args)) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let loaded = match config::load::<C>(cli.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(report) => {
            eprintln!("{name}: {report}");
            return exit::CONFIG;
        }
    };
    if let Some(status) = cli::one_shot(&cli.command.unwrap_or_default(), &loaded) {
        return status;
    }
    match start(name, loaded, metrics, run) {
        Ok(ended) => ended.status(),
        Err(error) => {
            eprintln!("{name}: {error:#}");
            exit::FAILED
        }
    }
}

fn start<C, R, F>(
    name: &str,
    loaded: config::Loaded<C>,
    metrics: &[&[telemetry::MetricDef]],
    run: R,
) -> anyhow::Result<Ended>
where
    C: Config,
    R: FnOnce(Arc<C>, Lifecycle) -> F,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    telemetry::init_logs(loaded.config.telemetry()).context("cannot start logging")?;
    let changes = loaded.changes();
    let cfg = Arc::new(loaded.config);
    let metrics = telemetry::init_metrics(metrics).context("cannot start collecting metrics")?;
    let life = Lifecycle::new(name, cfg.lifecycle().drain_timeout.get());
    lifecycle::stop_on_panic(&life);
    lifecycle::watch_stop(&life).context("cannot start a thread")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;

    let ended = runtime.block_on(async {
        let signals = lifecycle::signals().context("cannot listen for signals")?;
        let starting = life.readiness().gate("start", "starting");
        let listen = &cfg.http().listen;
        let listener = tokio::net::TcpListener::bind(cfg.http().address())
            .await
            .with_context(|| format!("cannot listen on http.listen = {listen}; is another instance running? Choose another port"))?;
        let address = listener.local_addr().context("listener without an address")?;
        info!(program = %name, version = env!("CARGO_PKG_VERSION"), http = %address, pid = std::process::id(), "starting, other than default: {changes}");

        // Probes outlive the drain, so that it can be watched; they end with the process.
        tokio::spawn(serve_probes(listener, life.clone(), metrics.clone()));
        tokio::spawn(telemetry::run_upkeep(metrics));
        let setup = {
            let (stop, run) = (life.token(), run(cfg.clone(), life.clone()));
            let component = life.component("start");
            async move {
                tokio::select! {
                    outcome = run => {
                        drop(starting);
                        component.end(outcome);
                    }
                    // Nothing is under way yet that would have to be finished.
                    () = stop.cancelled() => component.finish(),
                }
            }
        };
        tokio::spawn(setup);
        tokio::spawn(say_stopping(life.clone()));
        anyhow::Ok(life.wait(signals).await)
    })?;
    // What still blocks a thread was named above; it must not hold the process.
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(ended)
}

async fn serve_probes(
    listener: tokio::net::TcpListener,
    life: Lifecycle,
    metrics: metrics_exporter_prometheus::PrometheusHandle,
) {
    let never = tokio_util::sync::CancellationToken::new();
    if let Err(error) = probes::serve(listener, life.readiness().clone(), Some(metrics), never).await {
        life.fail(format!("probes: {error}"));
    }
}

/// Whoever is stopping is not ready.
async fn say_stopping(life: Lifecycle) {
    life.token().cancelled().await;
    let _gate = life.readiness().gate("stop", "stopping");
    std::future::pending::<()>().await;
}
