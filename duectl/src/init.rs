//! `duectl init`.

use crate::cli::InitArgs;
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use runtime::init::{self, InitError, Mode, Pipeline, Report, Verdict};
use serde_json::json;

pub(crate) async fn run(servers: &Servers, args: InitArgs) -> Result<(), Failure> {
    let world = init::Servers { admin: servers.admin()?, mysql: servers.mysql()?, redis: servers.redis() };
    let pipeline = Pipeline {
        names: servers.names.clone(),
        shards: args.shards,
        slots: args.slots,
        task_partitions: args.partitions_tasks,
        replication: args.replication,
        sources: args.sources.iter().map(|named| named.with(args.partitions_tasks)).collect(),
    };
    let mode = if args.check { Mode::Check } else { Mode::Apply };
    let report = init::run(&world, &pipeline, mode).await.map_err(|error| match error {
        InitError::Kafka(fault) => servers.kafka_failed(&fault),
        InitError::Store(error) => servers.mysql_failed(&error),
        InitError::Asked(text) => Failure::Usage(text),
    })?;
    print(&report, args.json);
    if report.is_good() { Ok(()) } else { Err(Failure::Said) }
}

fn print(report: &Report, as_json: bool) {
    if as_json {
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|f| json!({"subject": f.subject, "verdict": name(f.verdict), "detail": f.detail}))
            .collect();
        show::say(&json!({"good": report.is_good(), "findings": findings}).to_string());
        return;
    }
    for finding in &report.findings {
        show::say(&finding.to_string());
    }
    let count = |verdict| report.findings.iter().filter(|f| f.verdict == verdict).count();
    let (made, missing, wrong) = (count(Verdict::Made), count(Verdict::Missing), count(Verdict::Wrong));
    show::say(&match (made, missing, wrong) {
        (0, 0, 0) => "the pipeline is set up; nothing had to be done".to_owned(),
        (made, 0, 0) => format!("the pipeline is set up; made: {made}"),
        (_, missing, 0) => format!("missing: {missing}; `duectl init` makes what is missing"),
        (_, missing, wrong) => {
            format!("wrong: {wrong}, missing: {missing}; what is wrong is never changed by init")
        }
    });
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "ok",
        Verdict::Made => "made",
        Verdict::Missing => "missing",
        Verdict::Warning => "warning",
        Verdict::Wrong => "wrong",
    }
}
