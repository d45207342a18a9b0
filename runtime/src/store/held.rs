//! Rows under lock, with all that a decision about them needs, whatever it is that changes them (PROTOCOL §1).
//!
//! Rows are found through `task`, which knows where each lies now: a split may have moved it. Locked in the order of
//! ids, `task` before `pending` and `running`, as everybody does; who needs a cursor locks its shard before.

use super::error::StoreError;
use super::json::JsonRows;
use super::rows::{text, undecodable};
use super::session::{Session, Tx};
use super::sql::{Bind, Sql};
use protocol::life::{Ended, Held, Live, Place, RowKey, Waiting, Working};
use protocol::state::TaskState;
use schemas::delivery::DeadReason;
use schemas::ids::{Generation, RowId, Shard};
use schemas::row::{RowHistory, RowOptions};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row as _};
use std::collections::BTreeSet;

/// Rows per statement: a row's options and history are at most 6 KiB.
const ROWS: usize = 1_000;

// JSON_TABLE lies in a derived table: why, see `shard`.
static LOCK: Sql = Sql::hot(
    "held_lock_rows",
    "SELECT t.id, t.state, t.gen, t.attempt, t.shard, t.due_at, t.callback_topic, \
     p.gen, q.gen, COALESCE(p.failures, q.failures), COALESCE(p.stalls, q.stalls), \
     COALESCE(p.options, q.options), COALESCE(p.history, q.history), p.bury, r.gen, q.due_at, q.progress, q.stop, \
     t.finished_at \
     FROM (SELECT j.id FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]')) AS j) AS k \
     STRAIGHT_JOIN task AS t FORCE INDEX (PRIMARY) ON t.id = k.id \
     LEFT JOIN pending AS p FORCE INDEX (PRIMARY) ON p.shard = t.shard AND p.due_at = t.due_at AND p.id = t.id \
     LEFT JOIN running AS q FORCE INDEX (PRIMARY) ON q.shard = t.shard AND q.deadline_at = t.due_at AND q.id = t.id \
     LEFT JOIN reemit AS r FORCE INDEX (PRIMARY) ON r.shard = p.shard AND r.due_at = p.due_at AND r.id = p.id \
     FOR UPDATE",
    &[Bind::S("[[7],[8]]")],
);
/// Where rows lie, without a lock. Who needs their cursors locks those shards, then the rows, and starts over where one
/// has moved meanwhile.
static PLACES: Sql = Sql::hot(
    "held_places",
    "SELECT t.id, t.state, t.shard \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]')) AS k \
     STRAIGHT_JOIN task AS t FORCE INDEX (PRIMARY) ON t.id = k.id",
    &[Bind::S("[[7],[8]]")],
);

struct Line(Held);

impl<'r> FromRow<'r, MySqlRow> for Line {
    fn from_row(row: &'r MySqlRow) -> Result<Line, sqlx::Error> {
        let state = state(row, 1)?;
        let id = RowId(row.try_get(0)?);
        let key = RowKey { shard: Shard(row.try_get(4)?), due_at: row.try_get(5)?, id };
        let pending: Option<u32> = row.try_get(7)?;
        let running: Option<u32> = row.try_get(8)?;
        let (place, generation) = match (state, pending, running) {
            (TaskState::Scheduled, Some(generation), _) => {
                let waiting = Waiting {
                    key,
                    bury: bury(row, 13)?,
                    noted: row.try_get::<Option<u32>, _>(14)?.is_some(),
                    live: live(row)?,
                };
                (Place::Pending(waiting), generation)
            }
            (TaskState::Running, _, Some(generation)) => {
                let working = Working {
                    key,
                    due_at: row.try_get(15)?,
                    progress: row.try_get(16)?,
                    stop: row.try_get::<u8, _>(17)? != 0,
                    live: live(row)?,
                };
                (Place::Running(working), generation)
            }
            (TaskState::Scheduled | TaskState::Running, _, _) => (Place::Bodiless(state), row.try_get(2)?),
            (TaskState::Done | TaskState::Dead | TaskState::Cancelled, _, _) => {
                let finished_at = row.try_get::<Option<i64>, _>(18)?.unwrap_or_default();
                (Place::Final(Ended { state, finished_at, shard: key.shard }), row.try_get(2)?)
            }
        };
        Ok(Line(Held {
            id,
            generation: Generation(generation),
            attempt: row.try_get(3)?,
            callback_topic: text(row, 6)?,
            place,
        }))
    }
}

fn state(row: &MySqlRow, column: usize) -> Result<TaskState, sqlx::Error> {
    let code: u8 = row.try_get(column)?;
    TaskState::from_code(code).ok_or_else(|| undecodable(column, format!("state {code}").into()))
}

fn bury(row: &MySqlRow, column: usize) -> Result<Option<DeadReason>, sqlx::Error> {
    let Some(code) = row.try_get::<Option<u8>, _>(column)? else { return Ok(None) };
    let reason = DeadReason::ALL.get(usize::from(code)).copied();
    reason.map(Some).ok_or_else(|| undecodable(column, format!("reason {code}").into()))
}

fn live(row: &MySqlRow) -> Result<Live, sqlx::Error> {
    let options: &[u8] = row.try_get(11)?;
    let history: &[u8] = row.try_get(12)?;
    Ok(Live {
        failures: row.try_get(9)?,
        stalls: row.try_get(10)?,
        options: RowOptions::decode(options).map_err(|e| undecodable(11, e.into()))?,
        history: RowHistory::decode(history).map_err(|e| undecodable(12, e.into()))?,
    })
}

/// Locks these rows, in the order of their ids, and reads how each stands. What is missing in the answer is not in
/// MySQL.
pub async fn lock(tx: &mut Tx, ids: &BTreeSet<RowId>) -> Result<Vec<Held>, StoreError> {
    let ids: Vec<RowId> = ids.iter().copied().collect();
    let mut held = Vec::with_capacity(ids.len());
    for chunk in ids.chunks(ROWS) {
        held.extend(tx.all::<Line>(LOCK.bind(keys(chunk))).await?.into_iter().map(|line| line.0));
    }
    Ok(held)
}

/// Where a row lay when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The row.
    pub id: RowId,
    /// `None`: a code of a newer version.
    pub state: Option<TaskState>,
    /// Its shard.
    pub shard: Shard,
}

impl<'r> FromRow<'r, MySqlRow> for Found {
    fn from_row(row: &'r MySqlRow) -> Result<Found, sqlx::Error> {
        Ok(Found {
            id: RowId(row.try_get(0)?),
            state: TaskState::from_code(row.try_get(1)?),
            shard: Shard(row.try_get(2)?),
        })
    }
}

/// Where these rows lie now, without a lock.
pub async fn places(session: &mut Session, ids: &[RowId]) -> Result<Vec<Found>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    session.all(PLACES.bind(keys(ids))).await
}

fn keys(ids: &[RowId]) -> String {
    JsonRows::of(ids, |row, id| {
        row.uint(id.0);
    })
    .into_text()
}

pub(super) const QUERIES: &[&Sql] = &[&LOCK, &PLACES];
