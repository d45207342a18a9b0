//! Why a task was given up: its dead letter, which lies where the time of its end says.

use crate::ask::partition_of;
use crate::dead::{Found, Letters};
use crate::exit::Failure;
use crate::servers::Servers;
use crate::show;
use runtime::store::TaskRow;
use serde_json::{Value, json};

/// What is known of it.
pub(super) enum Death {
    /// Its letter.
    Letter(Box<Found>),
    /// None is found: retention may have removed it.
    Gone,
    /// Kafka could not be asked.
    Unknown(String),
}

/// Looks for the letter of a task that is dead.
pub(super) async fn of(servers: &Servers, task: &TaskRow) -> Death {
    let looked = async {
        let letters = Letters::open(servers).await?;
        let partition = partition_of(task.task_id.as_bytes(), letters.partitions);
        let at = task.finished_at.unwrap_or(task.created_at);
        letters.near(partition, at, task.id).await.map_err(|e| servers.kafka_failed(&e))
    };
    match looked.await {
        Ok(Some(found)) => Death::Letter(Box::new(found)),
        Ok(None) => Death::Gone,
        Err(Failure::Failed(error)) => Death::Unknown(format!("{error:#}")),
        Err(Failure::Usage(text) | Failure::NotFound(text) | Failure::Unreachable(text)) => {
            Death::Unknown(text)
        }
        Err(Failure::Said) => Death::Unknown("it cannot be read".into()),
    }
}

impl Death {
    pub(super) fn lines(&self, line: &mut impl FnMut(&str, String)) {
        match self {
            Death::Letter(found) => {
                let letter = &found.letter;
                line("died of", format!("{}: {}", letter.reason, letter.message));
                if let Some(reason) = letter.history.last().and_then(|past| past.reason.as_deref()) {
                    line("", format!("its consumer said: {}", show::bytes(Some(reason.as_bytes()), 300)));
                }
                line(
                    "letter",
                    format!("duectl dead show --at {}:{}", found.record.partition, found.record.offset),
                );
            }
            Death::Gone => {
                line("died of", "its dead letter is not found: retention may have removed it".into())
            }
            Death::Unknown(why) => line("died of", format!("its dead letter cannot be read: {why}")),
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Death::Letter(found) => json!({
                "reason": found.letter.reason, "message": found.letter.message, "dead_at": found.letter.dead_at,
                "partition": found.record.partition, "offset": found.record.offset,
            }),
            Death::Gone => json!({"reason": null}),
            Death::Unknown(why) => json!({"error": why}),
        }
    }
}
