//! What is left to do once a transaction has moved rows, whichever side's it was: to emit what now lies at or below its
//! cursor, to withdraw what an intent wants to change, and to tell those whose intents are answered.
//!
//! All of it is read back from MySQL, so a new owner that repeats the effects of a batch does the very same.

use crate::deps::Deps;
use crate::metrics::REPLIES;
use crate::tasks::rejection;
use crate::turn::{Stop, Turn};
use runtime::answering::reply_record;
use runtime::kafka::OutRecord;
use runtime::store::change::Owed;
use runtime::store::tasks::NearRow;
use runtime::store::{intents, source, tasks};
use schemas::ids::{RowId, SourceId};
use std::collections::{BTreeMap, BTreeSet};

/// Rows whose bodies are in memory at the same time, …
const ROWS: usize = 200;
/// … and about the most that they weigh.
const ROWS_BYTES: u64 = 8 << 20;

/// From when on the compensator takes care of an intent without an answer, or of an answer that was not told.
pub const RESEND_AFTER_MS: i64 = 30_000;

impl Deps {
    /// Emits of these rows what is pending at or below its cursor, as it stands now: a delivery, or, where an intent is
    /// open, a withdrawal. Answers how many.
    pub async fn look_at(&self, ids: &BTreeSet<RowId>, turn: &Turn) -> Result<u64, Stop> {
        let ids: Vec<RowId> = ids.iter().copied().collect();
        let (mut rest, mut emitted) = (&ids[..], 0);
        while !rest.is_empty() {
            let chunk = &rest[..rest.len().min(ROWS)];
            // The fences first: what is read as pending after them has no fate below them.
            let fences = self.fences(turn).await?;
            let (near, cut) = turn
                .store(|| async {
                    let mut session = turn.db().session().await?;
                    tasks::pending_near_within(&mut session, chunk.iter().copied(), ROWS_BYTES).await
                })
                .await?;
            let last = near.last().map(|near| near.row.id).filter(|_| cut);
            let done = last
                .and_then(|last| chunk.iter().position(|id| *id == last))
                .map_or(chunk.len(), |at| at + 1);
            let emission = |NearRow { row, intent }| self.emission(row, intent, &fences);
            let emissions: Vec<OutRecord> = near.into_iter().filter_map(emission).collect();
            emitted += emissions.len() as u64;
            self.emit(emissions, turn).await?;
            rest = &rest[done..];
        }
        Ok(emitted)
    }

    /// Tells the answers that are owed for intents of these rows, and forgets them once they are acked.
    pub async fn tell(&self, ids: &BTreeSet<RowId>, turn: &Turn) -> Result<(), Stop> {
        if ids.is_empty() {
            return Ok(());
        }
        let owed = turn
            .store(|| async {
                let mut session = turn.db().session().await?;
                intents::owed(&mut session, ids).await
            })
            .await?;
        if owed.is_empty() {
            return Ok(());
        }
        let topics = self.topics_of(&owed, turn).await?;
        let mut records = Vec::with_capacity(owed.len());
        for owed in &owed {
            let (Some(reply), Some(topic)) = (&owed.reply, topics.get(&owed.command.source())) else {
                continue;
            };
            REPLIES.with(&[topic, reply.answer.as_str()]).increment(1);
            records.extend(reply_record(owed, topic, &self.names));
        }
        rejection::send(self, records, turn).await?;
        turn.store(|| async {
            let mut session = turn.db().session().await?;
            intents::told(&mut session, owed.iter().map(|owed| owed.command)).await
        })
        .await
    }

    /// Names of the topics that the commands came from.
    async fn topics_of(&self, owed: &[Owed], turn: &Turn) -> Result<BTreeMap<SourceId, String>, Stop> {
        let wanted: BTreeSet<SourceId> = owed.iter().map(|owed| owed.command.source()).collect();
        let known = turn
            .store(|| async {
                let mut session = turn.db().session().await?;
                source::all(&mut session).await
            })
            .await?;
        let known = known.into_iter().filter(|source| wanted.contains(&source.id));
        Ok(known.map(|source| (source.id, source.topic)).collect())
    }
}
