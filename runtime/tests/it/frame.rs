//! The frame of the programs, as a process: this test binary starts itself again as a little program.

use runtime::config::{
    Config, HTTP, Http, LIFECYCLE, Lifecycle as LifecycleConfig, Shared, TELEMETRY, Telemetry, Violations,
};
use runtime::lifecycle::Lifecycle;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    http: Http,
    telemetry: Telemetry,
    lifecycle: LifecycleConfig,
    sample: Own,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    behaviour: String,
}

impl Config for Sample {
    const PROGRAM: &'static str = "sample";
    const DEFAULTS: &'static str = "[lifecycle]\ndrain_timeout = \"1s\"\n[sample]\nbehaviour = \"good\"\n";
    const SHARED: &'static [Shared] = &[HTTP, TELEMETRY, LIFECYCLE];

    fn check(&self, v: &mut Violations) {
        self.http.check("http", v);
        self.lifecycle.check("lifecycle", v);
    }
    fn http(&self) -> &Http {
        &self.http
    }
    fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }
    fn lifecycle(&self) -> &LifecycleConfig {
        &self.lifecycle
    }
}

async fn run(cfg: Arc<Sample>, life: Lifecycle) -> anyhow::Result<()> {
    let stop = life.token();
    let gate = life.readiness().gate("work", "still waiting");
    match cfg.sample.behaviour.as_str() {
        "good" => life.spawn("work", async move {
            gate.open();
            stop.cancelled().await;
            Ok(())
        }),
        "waits" => life.spawn("work", async move {
            stop.cancelled().await;
            drop(gate);
            Ok(())
        }),
        "panics" => drop(tokio::spawn(async { panic!("on purpose") })),
        "sticks" => {
            life.spawn("stuck", async move {
                gate.open();
                std::future::pending().await
            });
            drop(life.spawn_thread("stuck thread", || {
                loop {
                    std::thread::park();
                }
            })?);
        }
        "blocks" => {
            // Every worker thread of the runtime: nothing async runs there any more.
            for _ in 0..64 {
                tokio::spawn(async {
                    loop {
                        std::thread::park();
                    }
                });
            }
            life.fail("all is lost");
        }
        other => anyhow::bail!("no behaviour {other}"),
    }
    Ok(())
}

/// Not a test of its own: the process that the tests below start.
#[test]
#[ignore = "started by the other tests of this file"]
fn sample_program() {
    let args = std::env::var("SAMPLE_ARGS").unwrap_or_default();
    let args =
        ["sample".to_owned()].into_iter().chain(args.split_whitespace().map(str::to_owned)).map(Into::into);
    std::process::exit(runtime::program::main_with::<Sample, _, _>(args, &[], run).into());
}

struct Program {
    child: Child,
    log: BufReader<ChildStderr>,
    lines: String,
}

fn start(args: &str, behaviour: &str) -> Program {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "frame::sample_program", "--nocapture"])
        .env("SAMPLE_ARGS", args)
        .env("DUESTREAM_SAMPLE__SAMPLE__BEHAVIOUR", behaviour)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    Program { child, log, lines: String::new() }
}

impl Program {
    /// Address of its probes, from its log.
    fn address(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "ended before it listened:\n{}", self.lines);
            self.lines += &line;
            if let Some((_, rest)) = line.split_once("http=") {
                return rest.split_whitespace().next().unwrap().to_owned();
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end; answers status and all it logged.
    fn end(mut self) -> (ExitStatus, String) {
        self.log.read_to_string(&mut self.lines).unwrap();
        (self.child.wait().unwrap(), std::mem::take(&mut self.lines))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ended already, unless its test failed.
        drop(self.child.kill());
    }
}

/// Asks until the answer is as wanted.
fn until(address: &str, path: &str, wanted: impl Fn(bool, &str) -> bool) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = runtime::cli::http_get(address, path);
        if let Ok((ok, body)) = &answer
            && wanted(*ok, body)
        {
            return body.clone();
        }
        assert!(Instant::now() < deadline, "{path} of {address}: {answer:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_program_says_that_it_is_ready_and_ends_with_zero_on_sigterm() {
    let mut program = start("", "good");
    let address = program.address();
    until(&address, "/ready", |ok, _| ok);
    assert_eq!(until(&address, "/live", |ok, _| ok), "live\n");
    until(&address, "/metrics", |ok, _| ok);
    let mut probe = start(&format!("healthcheck --address {address}"), "good");
    assert_eq!(probe.child.wait().unwrap().code(), Some(0));
    program.signal("-TERM");
    let (status, log) = program.end();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_program_that_is_not_ready_says_why() {
    let mut program = start("", "waits");
    let address = program.address();
    let body = until(&address, "/ready", |ok, body| !ok && !body.contains("starting"));
    assert_eq!(body, "{\"ready\":false,\"reasons\":{\"work\":\"still waiting\"}}\n");
    let (status, log) = start(&format!("healthcheck --address {address}"), "good").end();
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("still waiting"), "{log}");
    program.signal("-INT");
    assert_eq!(program.end().0.code(), Some(0));
}

#[test]
fn a_panic_in_a_task_that_nobody_waits_for_ends_the_program() {
    let (status, log) = start("", "panics").end();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("on purpose"), "{log}");
}

#[test]
fn what_does_not_stop_is_named_and_does_not_hold_the_process() {
    let mut program = start("", "sticks");
    let address = program.address();
    until(&address, "/ready", |ok, _| ok);
    program.signal("-TERM");
    until(&address, "/ready", |ok, body| !ok && body.contains("stopping"));
    let (status, log) = program.end();
    assert_eq!(status.code(), Some(3), "{log}");
    assert!(log.contains("stopped before these were done: stuck, stuck thread"), "{log}");
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let mut program = start("", "sticks");
    let address = program.address();
    until(&address, "/ready", |ok, _| ok);
    program.signal("-TERM");
    until(&address, "/ready", |ok, body| !ok && body.contains("stopping"));
    program.signal("-TERM");
    let (status, log) = program.end();
    assert_eq!(status.code(), Some(130), "{log}");
}

#[test]
fn a_runtime_that_is_stuck_does_not_keep_a_failed_program_alive() {
    let (status, log) = start("", "blocks").end();
    assert_eq!(status.code(), Some(1), "{log}");
}

#[test]
fn a_run_that_cannot_start_and_a_wrong_configuration_have_their_own_status() {
    let (status, log) = start("", "nonsense").end();
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("start: no behaviour nonsense"), "{log}");
    let (status, log) = start("--config /does/not/exist.toml", "good").end();
    assert_eq!(status.code(), Some(2));
    assert!(log.contains("--config = /does/not/exist.toml: cannot be read"), "{log}");
    assert_eq!(start("check-config", "good").end().0.code(), Some(0));
}
