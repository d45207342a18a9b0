//! What applying the journal reads and writes (PROTOCOL §1): rows under lock, and changes in bulk.
//!
//! Rows are found through `task`, which knows where each lies now: a split may have moved it after its entry was
//! written. Locked in the order of ids, `task` before `pending`, as everybody does. The rows of `shard` need no lock
//! here: what is decided does not depend on a cursor, and a row that stays pending is emitted by the cursor rule,
//! after the commit.

use super::error::StoreError;
use super::json::JsonRows;
use super::position;
use super::session::{Session, Tx};
use super::sql::{Bind, Sql};
use protocol::apply::{Changes, Finished, HandedBack, Nexts, PendingRow, Renewed, Row, RowKey};
use protocol::state::TaskState;
use schemas::ids::{Generation, RowId, Shard, SourceId};
use schemas::row::RowOptions;
use sqlx::FromRow;
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use std::collections::{BTreeSet, HashMap};

// JSON_TABLE lies in a derived table: why, see `shard`.
static LOCK_ROWS: Sql = Sql::hot(
    "apply_lock_rows",
    "SELECT t.id, t.state, t.gen, t.shard, t.due_at, p.gen, p.options, r.gen \
     FROM (SELECT j.id FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]')) AS j) AS k \
     STRAIGHT_JOIN task AS t ON t.id = k.id \
     LEFT JOIN pending AS p ON p.shard = t.shard AND p.due_at = t.due_at AND p.id = t.id \
     LEFT JOIN reemit AS r ON r.shard = p.shard AND r.due_at = p.due_at AND r.id = p.id \
     FOR UPDATE",
    &[Bind::S("[[7],[8]]")],
);
static FINISH: Sql = Sql::hot(
    "apply_finish_tasks",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', state TINYINT UNSIGNED PATH '$[1]', \
     gen INT UNSIGNED PATH '$[2]', finished_at BIGINT PATH '$[3]')) AS k \
     STRAIGHT_JOIN task AS t ON t.id = k.id \
     SET t.state = k.state, t.gen = k.gen, t.finished_at = k.finished_at",
    &[Bind::S("[[7,3,1,99],[8,3,1,99]]")],
);
static DELETE_PENDING: Sql = Sql::hot(
    "apply_delete_pending",
    "DELETE p FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]')) AS k \
     STRAIGHT_JOIN pending AS p ON p.shard = k.shard AND p.due_at = k.due_at AND p.id = k.id",
    &[Bind::S("[[1,5,7],[3,5,8]]")],
);
static RENEW_TASKS: Sql = Sql::hot(
    "apply_renew_tasks",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', gen INT UNSIGNED PATH '$[1]')) AS k \
     STRAIGHT_JOIN task AS t ON t.id = k.id SET t.gen = k.gen",
    &[Bind::S("[[7,2],[8,2]]")],
);
static RENEW_PENDING: Sql = Sql::hot(
    "apply_renew_pending",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', gen INT UNSIGNED PATH '$[3]')) AS k \
     STRAIGHT_JOIN pending AS p ON p.shard = k.shard AND p.due_at = k.due_at AND p.id = k.id SET p.gen = k.gen",
    &[Bind::S("[[1,5,7,2],[3,5,8,2]]")],
);
static HAND_BACK: Sql = Sql::hot(
    "apply_hand_back",
    "INSERT INTO reemit (shard, due_at, id, gen, at, n) \
     SELECT k.shard, k.due_at, k.id, k.gen, 0, 0 \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', gen INT UNSIGNED PATH '$[3]')) AS k \
     ON DUPLICATE KEY UPDATE gen = VALUES(gen), at = VALUES(at)",
    &[Bind::S("[[1,5,7,2],[3,5,8,2]]")],
);
static FORGET_NOTES: Sql = Sql::hot(
    "apply_forget_notes",
    "DELETE r FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]')) AS k \
     STRAIGHT_JOIN reemit AS r ON r.shard = k.shard AND r.due_at = k.due_at AND r.id = k.id",
    &[Bind::S("[[1,5,7],[3,5,8]]")],
);

struct Locked(RowId, Row);

impl<'r> FromRow<'r, MySqlRow> for Locked {
    fn from_row(row: &'r MySqlRow) -> Result<Locked, sqlx::Error> {
        let id = RowId(row.try_get(0)?);
        let code: u8 = row.try_get(1)?;
        let generation = Generation(row.try_get(2)?);
        let state =
            TaskState::from_code(code).ok_or_else(|| undecodable(1, format!("state {code}").into()))?;
        let found = match state {
            TaskState::Running => Row::Running { generation },
            TaskState::Done | TaskState::Dead | TaskState::Cancelled => Row::Final { generation },
            TaskState::Scheduled => match row.try_get::<Option<u32>, _>(5)? {
                None => Row::Bodiless { generation },
                Some(pending) => {
                    let options: Vec<u8> = row.try_get(6)?;
                    let options = RowOptions::decode(&options).map_err(|e| undecodable(6, e.into()))?;
                    Row::Pending(PendingRow {
                        key: RowKey { shard: Shard(row.try_get(3)?), due_at: row.try_get(4)?, id },
                        generation: Generation(pending),
                        completion: options.completion,
                        noted: row.try_get::<Option<u32>, _>(7)?.is_some(),
                    })
                }
            },
        };
        Ok(Locked(id, found))
    }
}

fn undecodable(column: usize, source: Box<dyn std::error::Error + Send + Sync>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_string(), source }
}

/// Locks these rows, in the order of their ids, and reads how each stands. What is missing in the answer is not in
/// MySQL.
pub async fn lock_rows(tx: &mut Tx, ids: &BTreeSet<RowId>) -> Result<HashMap<RowId, Row>, StoreError> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let keys = JsonRows::of(ids, |row, id| {
        row.uint(id.0);
    });
    let rows = tx.all::<Locked>(LOCK_ROWS.bind(keys.into_text())).await?;
    Ok(rows.into_iter().map(|Locked(id, row)| (id, row)).collect())
}

/// Where the sources of these rows stand. Asked only for rows that are missing, so one by one.
pub async fn nexts(session: &mut Session, ids: impl IntoIterator<Item = RowId>) -> Result<Nexts, StoreError> {
    let partitions: BTreeSet<(SourceId, i32)> =
        ids.into_iter().map(|id| (id.source(), id.partition())).collect();
    let mut nexts = Nexts::new();
    for (source, partition) in partitions {
        if let Some(position) = position::read(session, source, partition).await? {
            nexts.insert((source, partition), position.next);
        }
    }
    Ok(nexts)
}

/// Writes what was decided, in the transaction that locked the rows.
pub async fn write(tx: &mut Tx, changes: &Changes) -> Result<(), StoreError> {
    finish(tx, &changes.finished).await?;
    renew(tx, &changes.renewed).await?;
    hand_back(tx, &changes.handed_back).await?;
    if !changes.forgotten.is_empty() {
        tx.run(FORGET_NOTES.bind(keys(&changes.forgotten))).await?;
    }
    Ok(())
}

async fn finish(tx: &mut Tx, finished: &[Finished]) -> Result<(), StoreError> {
    if finished.is_empty() {
        return Ok(());
    }
    let tasks = JsonRows::of(finished, |row, task| {
        row.uint(task.id.0).uint(task.state.code()).uint(task.generation.0).int(task.finished_at);
    });
    let count = tasks.len();
    let matched = tx.run(FINISH.bind(tasks.into_text())).await?;
    expect(FINISH.name, matched, count)?;
    let mut pending: Vec<RowKey> = finished.iter().filter_map(|task| task.pending).collect();
    if pending.is_empty() {
        return Ok(());
    }
    pending.sort_unstable();
    let deleted = tx.run(DELETE_PENDING.bind(keys(&pending))).await?;
    expect(DELETE_PENDING.name, deleted, pending.len())
}

async fn renew(tx: &mut Tx, renewed: &[Renewed]) -> Result<(), StoreError> {
    if renewed.is_empty() {
        return Ok(());
    }
    let mut by_id: Vec<&Renewed> = renewed.iter().collect();
    by_id.sort_unstable_by_key(|row| row.key.id);
    let tasks = JsonRows::of(by_id, |row, renewed| {
        row.uint(renewed.key.id.0).uint(renewed.generation.0);
    });
    let matched = tx.run(RENEW_TASKS.bind(tasks.into_text())).await?;
    expect(RENEW_TASKS.name, matched, renewed.len())?;
    let rows = renewed.iter().map(|row| (row.key, row.generation));
    let matched = tx.run(RENEW_PENDING.bind(generations(rows))).await?;
    expect(RENEW_PENDING.name, matched, renewed.len())
}

async fn hand_back(tx: &mut Tx, rows: &[HandedBack]) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    // An upsert's count says nothing exact.
    tx.run(HAND_BACK.bind(generations(rows.iter().map(|row| (row.key, row.generation))))).await?;
    Ok(())
}

fn keys(keys: &[RowKey]) -> String {
    JsonRows::of(keys, |row, key| {
        row.uint(key.shard.0).int(key.due_at).uint(key.id.0);
    })
    .into_text()
}

fn generations(rows: impl Iterator<Item = (RowKey, Generation)>) -> String {
    JsonRows::of(rows, |row, (key, generation)| {
        row.uint(key.shard.0).int(key.due_at).uint(key.id.0).uint(generation.0);
    })
    .into_text()
}

/// Every row was found under this transaction's lock, so each is matched; sqlx counts matched rows.
fn expect(op: &'static str, matched: u64, count: usize) -> Result<(), StoreError> {
    if matched == count as u64 {
        return Ok(());
    }
    Err(StoreError::Invariant { op, what: format!("{matched} of {count} locked rows were changed") })
}

pub(super) const QUERIES: &[&Sql] =
    &[&LOCK_ROWS, &FINISH, &DELETE_PENDING, &RENEW_TASKS, &RENEW_PENDING, &HAND_BACK, &FORGET_NOTES];
