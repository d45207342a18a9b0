//! A replay: a record of `dead` with its headers as they are, and `duestream-op` = replay. Only in the form headers.

use super::asked::{self, Asked};
use super::build::{body, expires_at, id, partition, topic};
use super::change::{only, task_id};
use super::field::{Field, Form, Submitted};
use super::reason::{ReasonCode, Refusal};
use super::rules::Rules;
use super::{identities, options};
use crate::delivery::dead::HISTORY;
use crate::delivery::{DELIVERY_ID, DeliveryId, PROGRESS};
use crate::options::{MAX_PROGRESS_BYTES, TaskOptions};
use crate::row::{MAX_HISTORY_BYTES, RowBody, RowHistory, RowOptions};

/// A dead letter that is to be delivered after all.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Which task.
    pub task_id: String,
    /// `None`: the task id serves.
    pub shard_key: Option<String>,
    /// The delivery that came to nothing: names the row and the generation that were buried.
    pub delivery_id: DeliveryId,
    /// Where it was to be delivered.
    pub callback_topic: String,
    /// What is to be delivered.
    pub body: RowBody,
    /// As the letter says, without the times that belong to the old due time; with the last progress.
    pub options: RowOptions,
    /// Past attempts.
    pub history: RowHistory,
    /// The reply that is asked for.
    pub reply: Option<Asked>,
}

/// What a dead letter has, and what a command adds. Its old times are read and left out.
const FIELDS: &[Field] = &[
    Field::Op,
    Field::TaskId,
    Field::ShardKey,
    Field::Topic,
    Field::Key,
    Field::Partition,
    Field::DueAt,
    Field::ExpiresAt,
    Field::Completion,
    Field::MaxAttempts,
    Field::Backoff,
    Field::AckTimeout,
    Field::MaxStalls,
    Field::Reply,
    Field::Correlation,
];

impl Replay {
    /// The shard key: the producer's, or the task id.
    pub fn shard_key(&self) -> &str {
        self.shard_key.as_deref().unwrap_or(&self.task_id)
    }

    /// Identities of the task that may be meant, see [`identities`].
    pub fn identities(&self) -> Vec<[u8; 16]> {
        identities(self.shard_key.as_deref(), &self.task_id)
    }
}

pub(super) fn replay(
    submitted: Submitted<'_>,
    reply: Option<Asked>,
    rules: &Rules,
) -> Result<Replay, Refusal> {
    let invalid = |name: &str, problem: &str| Refusal::of_field(ReasonCode::InvalidReplay, name, problem);
    if submitted.form != Form::Headers {
        return Err(invalid(submitted.name(Field::Op), "is replay, which only a record with headers can be"));
    }
    only(&submitted, "replay", FIELDS)?;
    let delivery_id = delivery_id(&submitted)?;
    let task_id = task_id(&submitted)?;
    let shard_key = id(&submitted, Field::ShardKey)?;
    let callback_topic = topic(&submitted, rules)?;
    asked::check(&submitted)?;
    // The key of a dead letter is the task id: that of the callback must be said.
    if !submitted.key_given {
        return Err(invalid(submitted.name(Field::Key), "is missing"));
    }
    expires_at(&submitted, None)?;
    let given = options::given(&submitted)?;
    // Defaults were applied when the task was accepted, and stand in the letter.
    let all = options::complete(&submitted, &given, TaskOptions::default())?;
    let mut options = RowOptions {
        partition: partition(&submitted)?,
        progress: progress(&submitted)?,
        ..RowOptions::default()
    };
    all.put_into(&mut options);
    let history = history(&submitted)?;
    let body = body(submitted, rules)?;
    Ok(Replay { task_id, shard_key, delivery_id, callback_topic, body, options, history, reply })
}

fn delivery_id(submitted: &Submitted<'_>) -> Result<DeliveryId, Refusal> {
    let code = ReasonCode::InvalidReplay;
    let Some(bytes) = submitted.letter(DELIVERY_ID) else {
        return Err(Refusal::of_field(code, DELIVERY_ID, "is missing"));
    };
    let parsed = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| Refusal::of_value(code, DELIVERY_ID, bytes, "is no delivery id"))
}

fn progress(submitted: &Submitted<'_>) -> Result<Option<Vec<u8>>, Refusal> {
    match submitted.letter(PROGRESS) {
        Some(progress) if progress.len() > MAX_PROGRESS_BYTES => {
            let problem = format!("is longer than {MAX_PROGRESS_BYTES} bytes");
            Err(Refusal::of_field(ReasonCode::InvalidReplay, PROGRESS, &problem))
        }
        progress => Ok(progress.map(<[u8]>::to_vec)),
    }
}

fn history(submitted: &Submitted<'_>) -> Result<RowHistory, Refusal> {
    let Some(bytes) = submitted.letter(HISTORY) else { return Ok(RowHistory::default()) };
    let refuse = |problem: &str| Refusal::of_field(ReasonCode::InvalidReplay, HISTORY, problem);
    if bytes.len() > MAX_HISTORY_BYTES {
        return Err(refuse(&format!("is longer than {MAX_HISTORY_BYTES} bytes")));
    }
    RowHistory::decode(bytes).map_err(|_| refuse("is no history"))
}
