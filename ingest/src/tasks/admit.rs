//! The transaction of a batch of commands: judged, inserted, positions moved.

use crate::deps::Deps;
use crate::metrics::{RECORDS, REJECTED};
use crate::partition::Commit;
use crate::turn::{Stop, Turn};
use protocol::admission::{self, ContentHash, Identity, Offer, Verdict};
use protocol::route::shard_of;
use runtime::kafka::Record;
use runtime::store::change::{self, Owed, OwedReply};
use runtime::store::position::{self, Fences};
use runtime::store::tasks::{self, NewTask};
use runtime::store::{PendingRow, StoreError};
use schemas::command::{Asked, Command, ReasonCode, Refusal, Refused};
use schemas::ids::{Generation, RowId, SourceId};
use schemas::reply::Answer;
use schemas::row::RowHistory;
use std::sync::atomic::{AtomicU32, Ordering};

/// Tries in a row that may meet a key that was taken since they looked.
const MOST_COLLISIONS: u32 = 8;

/// A record that was looked at.
#[derive(Debug)]
pub struct Parsed {
    /// Its command.
    pub id: RowId,
    /// When it was looked at.
    pub received_at: i64,
    /// What it says, or why it is refused.
    pub outcome: Result<Candidate, Box<Refused>>,
}

/// A valid command.
#[derive(Debug)]
pub struct Candidate {
    /// What it says.
    pub command: Command,
    offer: Offer,
    task: NewTask,
}

/// A batch that was committed.
#[derive(Debug)]
pub struct Admitted {
    /// What was accepted.
    pub accepted: Accepted,
    /// What has to be said.
    pub owed: Vec<Owed>,
    duplicates: usize,
}

/// Rows of a batch that was committed.
#[derive(Debug)]
pub struct Accepted {
    /// Put into `pending` just now.
    pub tasks: Vec<NewTask>,
    /// Put there by an earlier transaction for the same records.
    pub again: Vec<RowId>,
    /// Read before the transaction.
    pub fences: Fences,
}

impl Accepted {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.again.is_empty()
    }
}

impl Admitted {
    /// Counts the outcomes.
    pub fn count(&self, source: &str) {
        let accepted = self.accepted.tasks.len() + self.accepted.again.len();
        let refusals = || self.owed.iter().filter_map(|owed| owed.refusal.as_ref());
        for (outcome, n) in
            [("accepted", accepted), ("duplicate", self.duplicates), ("rejected", refusals().count())]
        {
            if n > 0 {
                RECORDS.with(&["tasks", source, outcome]).increment(n as u64);
            }
        }
        for refusal in refusals() {
            REJECTED.with(&[source, refusal.code.as_str()]).increment(1);
        }
    }
}

/// The row id of a record.
///
/// # Panics
/// Where an offset has more than 42 bits: 4 × 10^12 records in one partition.
pub fn row_id(source: SourceId, record: &Record) -> RowId {
    RowId::pack(source, record.partition, record.offset).expect("Kafka's coordinates fit a row id")
}

impl Parsed {
    /// MySQL refuses it, whatever it says.
    pub fn refused(self, error: &StoreError) -> Parsed {
        let refusal = Refusal::of_record(ReasonCode::RefusedByStore, &error.to_string());
        let asked = match self.outcome {
            Ok(candidate) => candidate.command.reply,
            Err(refused) => refused.asked,
        };
        Parsed { outcome: Err(Box::new(Refused { refusal, asked })), ..self }
    }
}

/// The reply to a command that is refused.
fn reply_to_refused(asked: Asked, refusal: &Refusal) -> OwedReply {
    OwedReply {
        answer: Answer::to_refused(refusal),
        shard_key: asked.shard_key.or_else(|| asked.task_id.clone()),
        task_id: asked.task_id,
        due_at: None,
        correlation: asked.correlation,
        as_avro: asked.as_avro,
    }
}

/// What is owed to a command that was judged.
fn owed_for(candidate: &Candidate, verdict: &Verdict, received_at: i64) -> Option<Owed> {
    let (id, command) = (candidate.offer.id, &candidate.command);
    let refusal = match verdict {
        Verdict::Conflict { of } => {
            let problem = format!(
                "the task was submitted with other content before (partition {} offset {})",
                of.partition(),
                of.offset()
            );
            Some(Refusal::of_record(ReasonCode::Conflict, &problem))
        }
        Verdict::Accepted | Verdict::AlreadyAccepted | Verdict::Duplicate { .. } => None,
    };
    let (answer, due_at) = match verdict {
        Verdict::Accepted | Verdict::AlreadyAccepted => (Answer::Accepted, Some(command.due_at)),
        Verdict::Duplicate { .. } => (Answer::Duplicate, None),
        Verdict::Conflict { .. } => (Answer::Conflict, None),
    };
    let reply = command.reply.as_ref().map(|asked| OwedReply {
        answer,
        task_id: Some(command.task_id(id).into_owned()),
        shard_key: Some(command.shard_key(id).into_owned()),
        due_at,
        correlation: asked.correlation.clone(),
        as_avro: asked.as_avro,
    });
    (refusal.is_some() || reply.is_some()).then(|| Owed::new(id, received_at, refusal, reply))
}

impl Candidate {
    /// A candidate with all that will be written for it.
    pub fn new(id: RowId, command: Command, created_at: i64, shards: u16) -> Candidate {
        let task_id = command.task_id(id).into_owned();
        let identity = Identity(command.identity(id));
        let content = ContentHash(command.content_hash);
        let row = PendingRow {
            shard: shard_of(&task_id, command.shard_key.as_deref(), shards),
            due_at: command.due_at,
            id,
            generation: Generation(1),
            attempt: 1,
            failures: 0,
            stalls: 0,
            task_id,
            shard_key: command.shard_key.clone(),
            callback_topic: command.callback_topic.clone(),
            bury: None,
            options: command.options.encode(),
            history: RowHistory::default().encode(),
            body: command.body.encode(),
        };
        let task = NewTask { identity, content, created_at, row };
        Candidate { command, offer: Offer { id, identity, content }, task }
    }
}

/// Judges a batch and commits it together with its positions.
pub async fn batch(deps: &Deps, parsed: Vec<Parsed>, commit: &Commit, turn: &Turn) -> Result<Admitted, Stop> {
    let journal = deps.journal(turn).await?;
    let mut candidates = Vec::with_capacity(parsed.len());
    let mut refused = Vec::new();
    let mut received_at = 0;
    for Parsed { id, received_at: at, outcome } in parsed {
        received_at = at;
        match outcome {
            Ok(candidate) => candidates.push(candidate),
            Err(refused_for) => {
                let Refused { refusal, asked } = *refused_for;
                let reply = asked.map(|asked| reply_to_refused(asked, &refusal));
                refused.push(Owed::new(id, at, Some(refusal), reply));
            }
        }
    }
    let offers: Vec<Offer> = candidates.iter().map(|candidate| candidate.offer).collect();
    let collisions = AtomicU32::new(0);
    let written = turn
        .store(|| async {
            // Before the rows are committed, and before they are known to be missing.
            let mut session = turn.db().session().await?;
            let fences = position::fences(&mut session, journal).await?;
            let known = tasks::lookup(&mut session, offers.iter().map(|offer| offer.identity)).await?;
            drop(session);
            let judged = admission::judge(&offers, &known);
            let rows: Vec<&NewTask> = judged.inserts.iter().map(|index| &candidates[*index].task).collect();
            let mut owed = refused.clone();
            let judged_each = candidates.iter().zip(&judged.verdicts);
            owed.extend(
                judged_each.filter_map(|(candidate, verdict)| owed_for(candidate, verdict, received_at)),
            );
            let mut tx = turn.db().begin("tasks_apply").await?;
            commit.advance(&mut tx).await?;
            tasks::insert(&mut tx, &rows).await.map_err(|error| taken(error, &collisions))?;
            change::owe(&mut tx, &owed).await?;
            tx.commit().await?;
            Ok((judged, owed, fences))
        })
        .await?;
    let (judged, owed, fences) = written;
    let again = judged
        .verdicts
        .iter()
        .zip(&offers)
        .filter(|(verdict, _)| **verdict == Verdict::AlreadyAccepted)
        .map(|(_, offer)| offer.id)
        .collect();
    let duplicates =
        judged.verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Duplicate { .. })).count();
    let mut candidates: Vec<Option<Candidate>> = candidates.into_iter().map(Some).collect();
    let tasks = judged
        .inserts
        .iter()
        .filter_map(|index| candidates[*index].take())
        .map(|candidate| candidate.task)
        .collect();
    Ok(Admitted { accepted: Accepted { tasks, again, fences }, owed, duplicates })
}

/// A duplicate key is somebody else's insert between our look and our insert: the next look finds it. Where it never
/// does, the key is not the identity, and no look will help.
fn taken(error: StoreError, collisions: &AtomicU32) -> StoreError {
    match error {
        StoreError::Duplicate { op, source }
            if collisions.fetch_add(1, Ordering::Relaxed) >= MOST_COLLISIONS =>
        {
            StoreError::Refused { op, source }
        }
        other => other,
    }
}
