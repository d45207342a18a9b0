//! The transaction of a batch of commands: judged, inserted, positions moved.

use crate::deps::Deps;
use crate::metrics::{RECORDS, REJECTED};
use crate::partition::Commit;
use crate::turn::{Stop, Turn};
use protocol::admission::{self, ContentHash, Identity, Offer, Verdict};
use protocol::route::shard_of;
use runtime::kafka::Record;
use runtime::store::change::{self, Refused};
use runtime::store::position::{self, Fences};
use runtime::store::tasks::{self, NewTask};
use runtime::store::{PendingRow, StoreError};
use schemas::command::{Command, ReasonCode, Refusal};
use schemas::ids::{Generation, RowId, SourceId};
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
    pub outcome: Result<Candidate, Refusal>,
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
    /// What was refused, and is owed an answer.
    pub refused: Vec<Refused>,
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
    pub fn count(&self) {
        let accepted = self.accepted.tasks.len() + self.accepted.again.len();
        for (outcome, n) in
            [("accepted", accepted), ("duplicate", self.duplicates), ("rejected", self.refused.len())]
        {
            if n > 0 {
                RECORDS.with(&["tasks", outcome]).increment(n as u64);
            }
        }
        for refused in &self.refused {
            REJECTED.with(&[refused.refusal.code.as_str()]).increment(1);
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

/// A record that MySQL refuses.
pub fn refused(source: SourceId, record: &Record, error: &StoreError) -> Parsed {
    let refusal = Refusal::of_record(ReasonCode::RefusedByStore, &error.to_string());
    Parsed { id: row_id(source, record), received_at: runtime::clock::now_ms(), outcome: Err(refusal) }
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
            Err(refusal) => refused.push(Refused { command: id, received_at: at, refusal }),
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
            owed.extend(conflicts(&offers, &judged.verdicts, received_at));
            let mut tx = turn.db().begin("tasks_apply").await?;
            commit.advance(&mut tx).await?;
            tasks::insert(&mut tx, &rows).await.map_err(|error| taken(error, &collisions))?;
            change::owe_rejections(&mut tx, &owed).await?;
            tx.commit().await?;
            Ok((judged, owed, fences))
        })
        .await?;
    let (judged, refused, fences) = written;
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
    Ok(Admitted { accepted: Accepted { tasks, again, fences }, refused, duplicates })
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

fn conflicts<'a>(
    offers: &'a [Offer],
    verdicts: &'a [Verdict],
    received_at: i64,
) -> impl Iterator<Item = Refused> + 'a {
    offers.iter().zip(verdicts).filter_map(move |(offer, verdict)| match verdict {
        Verdict::Conflict { of } => {
            let problem = format!(
                "the task was submitted with other content before (partition {} offset {})",
                of.partition(),
                of.offset()
            );
            let refusal = Refusal::of_record(ReasonCode::Conflict, &problem);
            Some(Refused { command: offer.id, received_at, refusal })
        }
        Verdict::Accepted | Verdict::AlreadyAccepted | Verdict::Duplicate { .. } => None,
    })
}
