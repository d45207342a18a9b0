//! `duectl submit`: one task from flags, or one per row of a file.
//!
//! ```text
//! file ──rows──▶ templates ──▶ command, read back by the contract ──▶ first pass: problems, first and last due time
//!                                           └─────────── second pass: times moved ──▶ batches ──▶ tasks
//! ```

mod mapping;
mod progress;
mod rows;
mod send;
mod template;
mod timeline;

use crate::cli::{Format, SubmitArgs};
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use anyhow::Context as _;
use mapping::{Draft, Mapping};
use progress::Progress;
use rows::{Row, Source};
use runtime::clock::now_ms;
use runtime::kafka::{Admin, BatchProducer, BatchSettings};
use schemas::command::Rules;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timeline::{Pace, Timeline};

/// Problems that are shown.
const SHOWN: usize = 10;

pub(crate) async fn run(servers: &Servers, args: SubmitArgs) -> Result<(), Failure> {
    let value = value_of(&args)?;
    let mapping = Mapping::of(&args, value).map_err(Failure::Usage)?;
    let submission = Submission {
        servers,
        topic: args.source.clone().unwrap_or_else(|| servers.names.tasks()).into(),
        rules: Rules::new(servers.names.prefix()),
        mapping,
        args,
    };
    match &submission.args.file {
        None => submission.one().await,
        Some(path) => {
            let source = Source::of(path).context("cannot read stdin")?;
            submission.many(&source).await
        }
    }
}

fn value_of(args: &SubmitArgs) -> Result<Option<Vec<u8>>, Failure> {
    match (&args.value, &args.value_file) {
        (Some(text), _) => Ok(Some(text.clone().into_bytes())),
        (None, None) => Ok(None),
        (None, Some(path)) if path.as_os_str() == "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read stdin")?;
            Ok(Some(bytes))
        }
        (None, Some(path)) => Ok(Some(
            std::fs::read(path).with_context(|| format!("cannot read --value-file {}", path.display()))?,
        )),
    }
}

struct Submission<'s> {
    servers: &'s Servers,
    topic: Arc<str>,
    rules: Rules,
    mapping: Mapping,
    args: SubmitArgs,
}

/// What the first pass found.
#[derive(Default)]
struct Survey {
    good: u64,
    wrong: u64,
    problems: Vec<String>,
    first_at: Option<i64>,
    last_at: Option<i64>,
    topics: BTreeSet<String>,
}

impl Submission<'_> {
    fn draft(&self, row: &Row) -> Result<Draft, String> {
        self.mapping.draft(row, &self.topic, &self.rules, now_ms())
    }

    async fn one(&self) -> Result<(), Failure> {
        let draft = self
            .draft(&Row::none())
            .map_err(|problem| Failure::Usage(format!("the task would be refused: {problem}")))?;
        let admin = self.open().await?;
        self.warn_of_missing_topics(&admin, &BTreeSet::from([draft.command.callback_topic.clone()])).await?;
        let sent = send::send(self.producer()?, std::iter::once(draft.record.clone()), None, None).await;
        let (Some(placed), 0) = (sent.last, sent.failed) else {
            return Err(self.not_sent(&sent.problems));
        };
        // A delay counts from when the broker took the command in.
        let taken = self.mapping.draft(&Row::none(), &self.topic, &self.rules, placed.at);
        let command = taken.map_or(draft.command, |draft| draft.command);
        if self.args.json {
            show::say(&json!({"submitted": 1, "failed": 0, "task_id": command.task_id, "due_at": command.due_at, "topic": command.callback_topic,
                       "partition": placed.partition, "offset": placed.offset}).to_string());
            return Ok(());
        }
        show::say(&format!(
            "submitted: to {} at {} (in {}); {}[{}] offset {}",
            command.callback_topic,
            show::time(command.due_at),
            show::span(command.due_at - now_ms()),
            self.topic,
            placed.partition,
            placed.offset
        ));
        if let Some(task_id) = command.task_id {
            let shard_key = command.shard_key.map_or(String::new(), |key| format!(" --shard-key '{key}'"));
            show::say(&format!("look at it: duectl get '{task_id}'{shard_key}"));
        }
        Ok(())
    }

    async fn many(&self, source: &Source) -> Result<(), Failure> {
        let format = self.args.format.or_else(|| source.format()).ok_or_else(|| {
            Failure::Usage("the form of the file is not known by its name: give --format csv or jsonl".into())
        })?;
        let broken = |problem: String| Failure::Failed(anyhow::anyhow!("cannot read the file: {problem}"));
        if format == Format::Csv {
            let columns = source.header().map_err(broken)?;
            let unknown = self.mapping.unknown_columns(&columns);
            if !unknown.is_empty() {
                let (unknown, columns) = (unknown.join(", "), columns.join(", "));
                return Err(Failure::Usage(format!(
                    "the file has no column {unknown}; its columns are {columns}"
                )));
            }
        }
        let survey = self.survey(source.rows(format).map_err(broken)?);
        self.report_wrong(&survey)?;
        let admin = if self.args.dry_run { None } else { Some(self.open().await?) };
        if let Some(admin) = &admin {
            self.warn_of_missing_topics(admin, &survey.topics).await?;
        }
        let (began, timeline) = (Instant::now(), self.timeline(&survey)?);
        let moved = |at: Option<i64>| at.map(|at| timeline.map_or(at, |timeline| timeline.map(at)));
        let (first_at, last_at) = (moved(survey.first_at), moved(survey.last_at));
        let sent = if self.args.dry_run {
            send::Sent { submitted: survey.good, ..send::Sent::default() }
        } else {
            let drafts = source.rows(format).map_err(broken)?.filter_map(|row| self.draft(&row.ok()?).ok());
            let records = drafts.map(|mut draft| {
                if let Some(timeline) = &timeline {
                    draft.move_to(timeline);
                }
                draft.record
            });
            send::send(self.producer()?, records, self.args.rate, Some(Progress::new(survey.good))).await
        };
        let seconds = began.elapsed().as_secs_f64();
        self.summary(&sent, survey.wrong, (first_at, last_at), seconds);
        if sent.failed > 0 {
            return Err(self.not_sent(&sent.problems));
        }
        if survey.wrong > 0 { Err(Failure::Said) } else { Ok(()) }
    }

    fn survey(&self, rows: impl Iterator<Item = Result<Row, String>>) -> Survey {
        let mut survey = Survey::default();
        for row in rows {
            let drafted = row
                .and_then(|row| self.draft(&row).map_err(|problem| format!("line {}: {problem}", row.line)));
            match drafted {
                Ok(draft) => {
                    let at = draft.command.due_at;
                    survey.good += 1;
                    survey.first_at = Some(survey.first_at.map_or(at, |first| first.min(at)));
                    survey.last_at = Some(survey.last_at.map_or(at, |last| last.max(at)));
                    survey.topics.insert(draft.command.callback_topic);
                }
                Err(problem) => {
                    survey.wrong += 1;
                    if survey.problems.len() < SHOWN {
                        survey.problems.push(problem);
                    }
                }
            }
        }
        survey
    }

    fn report_wrong(&self, survey: &Survey) -> Result<(), Failure> {
        if survey.wrong == 0 {
            return Ok(());
        }
        for problem in &survey.problems {
            eprintln!("{problem}");
        }
        if survey.wrong > survey.problems.len() as u64 {
            eprintln!("… and {} more", survey.wrong - survey.problems.len() as u64);
        }
        if self.args.skip_wrong || self.args.dry_run {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "{} of {} rows are wrong, so nothing was submitted; --skip-wrong submits the others",
            survey.wrong,
            survey.wrong + survey.good
        )))
    }

    /// `None`: times stay as they are written.
    fn timeline(&self, survey: &Survey) -> Result<Option<Timeline>, Failure> {
        let args = &self.args;
        let pace = match (args.window, args.time_scale) {
            (Some(window), _) => Pace::Window(i64::try_from(window.as_millis()).unwrap_or(i64::MAX)),
            (None, Some(factor)) if factor.is_finite() && factor > 0.0 => Pace::Faster(factor),
            (None, Some(factor)) => {
                return Err(Failure::Usage(format!("--time-scale {factor}: must be above zero")));
            }
            (None, None) => Pace::AsWritten,
        };
        if pace == Pace::AsWritten && args.start_in.is_none() && args.start.is_none() {
            return Ok(None);
        }
        if self.mapping.has("delay") {
            return Err(Failure::Usage("a delay counts from the submission: --start-in, --start, --window and --time-scale move due-at only".into()));
        }
        let (Some(first_at), Some(last_at)) = (survey.first_at, survey.last_at) else { return Ok(None) };
        let start_at = match &args.start {
            Some(text) => parse_start(text)?,
            None => now_ms().saturating_add(
                i64::try_from(args.start_in.unwrap_or_default().as_millis()).unwrap_or(i64::MAX),
            ),
        };
        Ok(Some(Timeline { first_at, last_at, start_at, pace }))
    }

    fn summary(
        &self,
        sent: &send::Sent,
        wrong: u64,
        (first_at, last_at): (Option<i64>, Option<i64>),
        seconds: f64,
    ) {
        if self.args.json {
            show::say(&json!({"submitted": sent.submitted, "failed": sent.failed + wrong, "first_due_at": first_at, "last_due_at": last_at,
                       "seconds": (seconds * 1000.0).round() / 1000.0}).to_string());
            return;
        }
        let time = |at: Option<i64>| at.map_or("-".into(), show::time);
        let (failed, due) =
            (sent.failed + wrong, format!("due from {} to {}", time(first_at), time(last_at)));
        if self.args.dry_run {
            show::say(&format!("would submit {} tasks, {due}; {failed} are wrong", sent.submitted));
        } else {
            let rate = sent.submitted as f64 / seconds.max(0.001);
            show::say(&format!(
                "submitted {} tasks in {seconds:.1} s ({rate:.0}/s), {due}; {failed} failed",
                sent.submitted
            ));
        }
    }

    async fn open(&self) -> Result<Admin, Failure> {
        let admin = self.servers.admin()?;
        let remedy = "run `duectl init` (a further source: with --source), or give another --prefix";
        self.servers.partitions(&admin, &self.topic, remedy).await?;
        Ok(admin)
    }

    fn producer(&self) -> Result<Arc<BatchProducer>, Failure> {
        let mut settings = BatchSettings::new("submit");
        settings.linger = Duration::from_millis(5);
        BatchProducer::new(&self.servers.cluster, &settings)
            .map(Arc::new)
            .map_err(|e| self.servers.kafka_failed(&e))
    }

    async fn warn_of_missing_topics(&self, admin: &Admin, topics: &BTreeSet<String>) -> Result<(), Failure> {
        let present = admin.topics().await.map_err(|e| self.servers.kafka_failed(&e))?;
        let missing: Vec<&str> =
            topics.iter().filter(|t| !present.contains_key(*t)).map(String::as_str).take(SHOWN).collect();
        if !missing.is_empty() {
            eprintln!(
                "warning: these callback topics do not exist: {}; ingest refuses their tasks (see {}), unless it is configured otherwise",
                missing.join(", "),
                self.servers.names.rejected()
            );
        }
        Ok(())
    }

    fn not_sent(&self, problems: &[String]) -> Failure {
        Failure::Failed(anyhow::anyhow!(
            "not all could be sent to {}: {}; what was sent stays sent: submit again with the same task ids, they are not doubled",
            self.topic,
            problems.join("; ")
        ))
    }
}

/// As a command's due time is read.
fn parse_start(text: &str) -> Result<i64, Failure> {
    let wrong =
        || Failure::Usage(format!("--start {text}: must be RFC 3339 with offset, or epoch milliseconds"));
    if let Ok(at) = text.parse::<i64>() {
        return Ok(at);
    }
    text.parse::<jiff::Timestamp>().map(|time| time.as_millisecond()).map_err(|_| wrong())
}
