//! What the row of a task that lives says of its attempts.

use crate::dead::attempt_text;
use crate::show;
use protocol::ack::Report;
use protocol::change::Intent;
use protocol::life::{Open, What};
use protocol::retry::RetryPolicy;
use runtime::store::{PendingRow, RunningRow, TaskRow};
use schemas::delivery::{DeadReason, DeliveryId};
use schemas::due::Completion;
use schemas::options::{show_completion, show_duration};
use schemas::row::{RowHistory, RowOptions};
use serde_json::{Value, json};

/// Attempts of a task, and what is to become of it.
pub(super) struct Life {
    failures: u16,
    stalls: u16,
    /// Code of the reason for which it is to be buried.
    bury: Option<u8>,
    options: RowOptions,
    history: RowHistory,
    progress: Option<Vec<u8>>,
    /// It was cancelled while it ran.
    stop: bool,
    /// When the attempt that runs was due.
    running_due_at: Option<i64>,
    /// What could not be read of it.
    unreadable: Option<String>,
}

impl Life {
    pub(super) fn of_pending(row: &PendingRow) -> Life {
        let (options, history) = (RowOptions::decode(&row.options), RowHistory::decode(&row.history));
        let errors = [options.as_ref().err(), history.as_ref().err()];
        let unreadable = errors.into_iter().flatten().map(ToString::to_string).next();
        let options = options.unwrap_or_default();
        Life {
            failures: row.failures,
            stalls: row.stalls,
            bury: row.bury,
            progress: options.progress.clone(),
            options,
            history: history.unwrap_or_default(),
            stop: false,
            running_due_at: None,
            unreadable,
        }
    }

    pub(super) fn of_running(running: &RunningRow) -> Life {
        let life = Life::of_pending(&running.row);
        Life {
            progress: running.progress.clone().or(life.progress),
            stop: running.stop,
            running_due_at: Some(running.row.due_at),
            ..life
        }
    }

    fn reason(&self) -> Option<String> {
        let code = self.bury?;
        let reason = DeadReason::ALL.get(usize::from(code));
        Some(reason.map_or_else(|| format!("reason {code}"), |reason| reason.as_str().to_owned()))
    }

    /// What it says, line by line.
    pub(super) fn lines(&self, task: &TaskRow, line: &mut impl FnMut(&str, String)) {
        if let Some(due_at) = self.running_due_at {
            line("was due", show::time(due_at));
        }
        if let Some(expires_at) = self.options.expires_at {
            line("expires", show::time(expires_at));
        }
        if let Some(asked_at) = self.options.asked_at {
            line("asked for", show::time(asked_at));
        }
        if self.options.completion == Completion::OnAck {
            let policy = RetryPolicy::of(&self.options);
            line(
                "done by",
                format!(
                    "an ack within {}; failed {} of {}, stalled {} (forgiven: {}), backoff {}",
                    show_duration(policy.ack_timeout_ms),
                    self.failures,
                    policy.max_attempts,
                    self.stalls,
                    policy.max_stalls,
                    policy.backoff
                ),
            );
        }
        if self.stop {
            line("stop", "it was cancelled while it ran: a failure ends it".into());
        }
        if let Some(reason) = self.reason() {
            line("to bury", format!("{reason}: the dispatcher writes it to dead"));
        }
        if let Some(progress) = &self.progress {
            line("progress", show::bytes(Some(progress), 200));
        }
        let id = DeliveryId {
            shard: task.shard,
            due_at: 0,
            id: task.id,
            generation: task.generation,
            attempt: task.attempt,
        };
        for (n, past) in self.history.attempts.iter().enumerate() {
            line(if n == 0 { "history" } else { "" }, attempt_text(past, id));
        }
        if let Some(why) = &self.unreadable {
            line("unreadable", why.clone());
        }
    }

    pub(super) fn json(&self) -> Value {
        let policy = RetryPolicy::of(&self.options);
        let history: Vec<Value> = self.history.attempts.iter().map(crate::dead::attempt_json).collect();
        json!({
            "failures": self.failures, "stalls": self.stalls, "to_bury": self.reason(), "stop": self.stop,
            "completion": show_completion(self.options.completion), "expires_at": self.options.expires_at,
            "asked_at": self.options.asked_at, "max_attempts": policy.max_attempts, "max_stalls": policy.max_stalls,
            "ack_timeout_ms": policy.ack_timeout_ms, "backoff": policy.backoff.to_string(),
            "progress": show::text_or_bytes(self.progress.as_deref()), "history": history,
            "running_due_at": self.running_due_at, "unreadable": self.unreadable,
        })
    }
}

/// What waits for the journal, in words.
pub(super) fn open_text(open: &Open) -> String {
    let (command, generation) = (open.command, open.generation.0);
    let what = match &open.what {
        What::Intent(Intent::Cancel) => "cancel".to_owned(),
        What::Intent(Intent::Reschedule(to)) => format!("reschedule to {}", show::time(to.due_at)),
        What::Intent(Intent::Finish) => "finish, as an ack says".to_owned(),
        What::Parked(ack) => format!("ack {}", report(&ack.report)),
    };
    format!(
        "{what}, of partition {} offset {}: answered or applied once the fate of generation {generation} is known",
        command.partition(),
        command.offset()
    )
}

/// The same for programs.
pub(super) fn open_json(open: &Open) -> Value {
    let (op, due_at) = match &open.what {
        What::Intent(Intent::Cancel) => ("cancel", None),
        What::Intent(Intent::Reschedule(to)) => ("reschedule", Some(to.due_at)),
        What::Intent(Intent::Finish) => ("finish", None),
        What::Parked(ack) => (report(&ack.report), None),
    };
    json!({
        "op": op, "parked_ack": !open.is_intent(), "gen": open.generation.0, "due_at": due_at,
        "command": {"source": open.command.source().0, "partition": open.command.partition(), "offset": open.command.offset()},
    })
}

fn report(report: &Report) -> &'static str {
    match report {
        Report::Progress => "progress",
        Report::Succeeded => "succeeded",
        Report::Failed { .. } => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::due::PastAttempt;
    use schemas::ids::{Generation, RowId, Shard, SourceId};

    fn pending() -> PendingRow {
        let options = RowOptions {
            completion: Completion::OnAck,
            max_attempts: Some(4),
            progress: Some(b"old".to_vec()),
            ..RowOptions::default()
        };
        let past = PastAttempt { attempt: 1, at: 5, outcome: "stalled".into(), ..PastAttempt::default() };
        PendingRow {
            shard: Shard(1),
            due_at: 50,
            id: RowId(7),
            generation: Generation(2),
            attempt: 2,
            failures: 1,
            stalls: 1,
            task_id: "t".into(),
            shard_key: None,
            callback_topic: "c".into(),
            bury: Some(7),
            options: options.encode(),
            history: RowHistory { attempts: vec![past] }.encode(),
            body: Vec::new(),
        }
    }

    fn task() -> TaskRow {
        TaskRow {
            id: RowId(7),
            identity: [0; 16],
            state: 1,
            shard: Shard(1),
            due_at: 50,
            task_id: "t".into(),
            shard_key: None,
            callback_topic: "c".into(),
            content_hash: [0; 16],
            generation: Generation(2),
            attempt: 2,
            created_at: 1,
            finished_at: None,
        }
    }

    fn lines(life: &Life) -> Vec<String> {
        let mut lines = Vec::new();
        life.lines(&task(), &mut |name: &str, text: String| lines.push(format!("{name}: {text}")));
        lines
    }

    #[test]
    fn a_waiting_attempt_tells_what_went_before_and_what_is_left() {
        let expected = [
            "done by: an ack within 15m; failed 1 of 4, stalled 1 (forgiven: 3), backoff linear:2m,cap=20m,jitter=30s",
            "to bury: attempts_exhausted: the dispatcher writes it to dead",
            "progress: old",
            "history: attempt 1 stalled at 1970-01-01T00:00:00.005Z",
        ];
        assert_eq!(lines(&Life::of_pending(&pending())), expected);
    }

    #[test]
    fn a_running_attempt_tells_its_own_progress_and_that_it_is_the_last() {
        let row = PendingRow { bury: None, ..pending() };
        let running = RunningRow { row, deadline_at: 99, progress: Some(b"new".to_vec()), stop: true };
        let lines = lines(&Life::of_running(&running));
        assert_eq!(lines[0], "was due: 1970-01-01T00:00:00.050Z");
        assert!(
            lines.contains(&"progress: new".to_owned()) && lines.iter().any(|line| line.starts_with("stop:"))
        );
        assert_eq!(Life::of_running(&running).json()["max_attempts"], json!(4));
    }

    #[test]
    fn a_row_of_a_newer_version_says_so() {
        let row = PendingRow { history: vec![0xc3, 1, 9, 9, 9, 9, 9, 9, 9, 9], ..pending() };
        assert!(lines(&Life::of_pending(&row)).last().unwrap().starts_with("unreadable:"));
    }

    #[test]
    fn what_is_open_names_its_command() {
        let command = RowId::pack(SourceId(1), 3, 17).unwrap();
        let what = What::Intent(Intent::Cancel);
        let open = Open { command, id: RowId(7), generation: Generation(2), what };
        assert!(open_text(&open).starts_with("cancel, of partition 3 offset 17"), "{}", open_text(&open));
        assert_eq!(open_json(&open)["command"], json!({"source": 1, "partition": 3, "offset": 17}));
    }
}
