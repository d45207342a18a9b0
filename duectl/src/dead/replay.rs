//! `duectl dead replay`: each letter becomes a command, and each command is answered.
//!
//! ```text
//! letters ─▶ commands, so many per second ─▶ tasks ─▶ ingest ─▶ replies ─▶ counted; at most 500 are unanswered at a time
//! ```

use super::filter::Filter;
use super::letters::{Found, Letters, Step};
use super::list::{self, Counts};
use crate::ask::{self, Ear, Heard};
use crate::cli::ReplayArgs;
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use runtime::kafka::{BatchProducer, OutRecord};
use schemas::command::ReasonCode;
use schemas::delivery::letter::replay_headers;
use schemas::reply::Answer;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Commands that are sent at once. The letters of one batch are in memory together: at most 1 MiB each.
const BATCH: usize = 16;
/// Commands without an answer at a time.
const UNANSWERED: usize = 500;
/// Problems that are told one by one.
const TOLD: u64 = 20;
/// Between two lines that say how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

pub(crate) async fn run(servers: &Servers, args: ReplayArgs) -> Result<(), Failure> {
    let filter = Filter::of(args.filter.clone())?;
    if filter.is_open() && !args.all {
        return Err(Failure::Usage(
            "without a filter this would replay every dead task there is: give filters, or --all; --dry-run says what would be replayed"
                .into(),
        ));
    }
    let names_tasks = filter.names_tasks();
    let letters = Letters::open(servers).await?;
    let steps = letters.newest(filter, letters.all());
    if args.dry_run {
        return dry_run(servers, &args, &letters, steps, names_tasks).await;
    }
    let topic = args.source.clone().unwrap_or_else(|| servers.names.tasks());
    let admin = servers.admin()?;
    servers.partitions(&admin, &topic, "run `duectl init`, or give another --source or --prefix").await?;
    let mut run = Run {
        servers,
        args: &args,
        dead: letters.topic.clone(),
        topic: topic.into(),
        ear: Ear::open(servers, &admin, None).await?,
        producer: ask::producer(servers)?,
        began: Instant::now(),
        told_at: Instant::now(),
        unanswered: HashMap::new(),
        counts: Counts::default(),
        tally: Tally::default(),
    };
    let (outcome, cut_off) = tokio::select! {
        outcome = run.all(steps) => (outcome, false),
        _ = tokio::signal::ctrl_c() => (Ok(()), true),
    };
    let Run { tally, unanswered, counts, .. } = run;
    tally.say(&args, &counts, unanswered.len());
    outcome?;
    if counts.all == 0 && names_tasks {
        return Err(Failure::NotFound(format!(
            "no dead letter on {} matches: nothing was replayed",
            letters.topic
        )));
    }
    if !unanswered.is_empty() && !cut_off {
        return Err(Failure::NotFound(format!(
            "{} commands are not answered: they stand on {} and will be carried out; is ingest running?",
            unanswered.len(),
            args.source.clone().unwrap_or_else(|| servers.names.tasks())
        )));
    }
    if cut_off || tally.is_bad() { Err(Failure::Said) } else { Ok(()) }
}

async fn dry_run(
    servers: &Servers,
    args: &ReplayArgs,
    letters: &Letters,
    mut steps: mpsc::Receiver<Step>,
    names_tasks: bool,
) -> Result<(), Failure> {
    let mut counts = Counts::default();
    while let Some(step) = steps.recv().await {
        match step {
            Step::Letter(found) => {
                counts.add(&found);
                if !args.json {
                    show::say(&list::line_of(&found));
                }
            }
            Step::NoLetter(text) => counts.stranger(&letters.topic, &text),
            Step::Failed(fault) => return Err(servers.kafka_failed(&fault)),
        }
    }
    if counts.all == 0 && names_tasks {
        return Err(Failure::NotFound(format!("no dead letter on {} matches", letters.topic)));
    }
    if args.json {
        let mut json = counts.json();
        json["dry_run"] = json!(true);
        show::say(&json.to_string());
    } else {
        show::say(&format!("would replay: {}; nothing was sent", counts.text()));
    }
    Ok(())
}

struct Run<'s> {
    servers: &'s Servers,
    args: &'s ReplayArgs,
    dead: Arc<str>,
    topic: Arc<str>,
    ear: Ear,
    producer: Arc<BatchProducer>,
    began: Instant,
    told_at: Instant,
    /// Number of the command, and its task.
    unanswered: HashMap<u64, String>,
    counts: Counts,
    tally: Tally,
}

impl Run<'_> {
    async fn all(&mut self, mut steps: mpsc::Receiver<Step>) -> Result<(), Failure> {
        let size = self.args.rate.map_or(BATCH, |rate| (rate as usize / 20).clamp(1, BATCH));
        let mut batch = Vec::with_capacity(size);
        while steps.recv_many(&mut batch, size).await > 0 {
            let mut letters = Vec::with_capacity(batch.len());
            for step in batch.drain(..) {
                match step {
                    Step::Letter(found) => letters.push(found),
                    Step::NoLetter(text) => self.counts.stranger(&self.dead, &text),
                    Step::Failed(fault) => return Err(self.servers.kafka_failed(&fault)),
                }
            }
            self.send(&letters).await;
            while self.unanswered.len() > UNANSWERED {
                if !self.hear().await? {
                    return Ok(());
                }
            }
        }
        while !self.unanswered.is_empty() {
            if !self.hear().await? {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn send(&mut self, letters: &[Box<Found>]) {
        if let Some(rate) = self.args.rate {
            let at = self.began + Duration::from_secs_f64(self.tally.sent as f64 / f64::from(rate));
            tokio::time::sleep_until(at.into()).await;
        }
        let (mut records, mut sent) = (Vec::with_capacity(letters.len()), Vec::with_capacity(letters.len()));
        for found in letters {
            self.counts.add(found);
            let task = &found.letter.task_id;
            if !found.record.headers_intact || found.record.cut.is_some() {
                self.tally.not_sent(task, "its record cannot be copied whole");
                continue;
            }
            let n = self.tally.sent;
            self.tally.sent += 1;
            records.push(command(found, &self.topic, &self.ear.correlation(n)));
            sent.push((n, task.clone()));
        }
        let results = self.producer.send_batch(&records).await;
        for ((n, task), result) in sent.into_iter().zip(results) {
            match result {
                Ok(_) => {
                    self.unanswered.insert(n, task);
                }
                Err(fault) => self.tally.not_sent(&task, &fault.to_string()),
            }
        }
    }

    /// Takes one answer. `false`: none came for too long.
    async fn hear(&mut self) -> Result<bool, Failure> {
        let Ok(heard) = tokio::time::timeout(self.args.wait, self.ear.next(self.servers)).await else {
            return Ok(false);
        };
        let (n, heard) = heard?;
        // A second answer to one command says nothing new.
        if let Some(task) = self.unanswered.remove(&n) {
            self.tally.answered(&task, &heard);
        }
        if self.told_at.elapsed() >= PROGRESS {
            self.told_at = Instant::now();
            eprintln!("{} sent, {} accepted", self.tally.sent, self.tally.accepted);
        }
        Ok(true)
    }
}

/// The command that replays a letter.
fn command(found: &Found, topic: &Arc<str>, correlation: &str) -> OutRecord {
    OutRecord {
        topic: topic.clone(),
        partition: None,
        key: found.letter.command_key().map(|key| key.to_vec().into()),
        value: found.record.value.clone(),
        headers: replay_headers(&found.record.headers, correlation),
        at: None,
    }
}

/// What became of the commands.
#[derive(Default)]
struct Tally {
    sent: u64,
    accepted: u64,
    /// The tasks are not dead any more.
    not_dead: u64,
    not_sent: u64,
    answers: BTreeMap<String, u64>,
    told: u64,
}

impl Tally {
    fn not_sent(&mut self, task: &str, why: &str) {
        self.not_sent += 1;
        self.tell(task, &format!("not sent: {why}"));
    }

    fn answered(&mut self, task: &str, heard: &Heard) {
        *self.answers.entry(heard.code()).or_default() += 1;
        if Answer::from_code(&heard.answer) == Some(Answer::Accepted) {
            self.accepted += 1;
            return;
        }
        if heard.reason.as_deref() == Some(ReasonCode::NotDead.as_str()) {
            self.not_dead += 1;
        }
        let why = if Answer::from_code(&heard.answer) == Some(Answer::NotFound) {
            "MySQL does not know it any more, or with another callback topic: submit it anew (duectl dead show --payload)"
        } else {
            heard.message.as_deref().unwrap_or("no reason was given")
        };
        self.tell(task, &format!("{}: {why}", heard.code()));
    }

    fn tell(&mut self, task: &str, text: &str) {
        self.told += 1;
        if self.told <= TOLD {
            eprintln!("task {task}: {text}");
        } else if self.told == TOLD + 1 {
            eprintln!("… further ones are only counted");
        }
    }

    fn answered_all(&self) -> u64 {
        self.answers.values().sum()
    }

    /// Whether something went wrong. That some of many were replayed before is no failure; that all were is.
    fn is_bad(&self) -> bool {
        let refused = self.answered_all() - self.accepted - self.not_dead;
        refused > 0 || self.not_sent > 0 || (self.accepted == 0 && self.not_dead > 0)
    }

    fn say(&self, args: &ReplayArgs, counts: &Counts, unanswered: usize) {
        if args.json {
            let mut json = counts.json();
            json["accepted"] = json!(self.accepted);
            json["answers"] = json!(self.answers);
            json["not_sent"] = json!(self.not_sent);
            json["unanswered"] = json!(unanswered);
            show::say(&json.to_string());
            return;
        }
        let answers: Vec<String> = self.answers.iter().map(|(code, n)| format!("{code} {n}")).collect();
        let mut text = format!("replayed {} of {} dead tasks", self.accepted, counts.all);
        if !answers.is_empty() {
            text += &format!("; answers: {}", answers.join(", "));
        }
        if self.not_sent > 0 {
            text += &format!("; not sent: {}", self.not_sent);
        }
        if unanswered > 0 {
            text += &format!("; not answered: {unanswered}");
        }
        show::say(&text);
    }
}

#[cfg(test)]
mod tests;
