//! What admission of commands reads and writes (PROTOCOL §1): identities, new rows, the second look, re-emission.

use super::bulk::Bulk;
use super::error::StoreError;
use super::json::JsonRows;
use super::rows::PendingRow;
use super::session::{Session, Tx};
use super::sql::{Bind, Call, Sql};
use crate::pending_columns;
use protocol::admission::{ContentHash, Identity, Known, Placed};
use protocol::state::TaskState;
use schemas::ids::{Generation, RowGen, RowId, Shard};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};

static LOOKUP: Sql = Sql::hot(
    "task_lookup_identities",
    "SELECT t.identity, t.id, t.content_hash \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (identity CHAR(32) PATH '$[0]')) AS k \
     STRAIGHT_JOIN task AS t ON t.identity = UNHEX(k.identity)",
    &[Bind::S(r#"[["000102030405060708090a0b0c0d0e0f"],["ff0102030405060708090a0b0c0d0e0f"]]"#)],
);
static SECOND_LOOK: Sql = Sql::hot(
    "task_second_look",
    "SELECT p.id, p.gen \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', gen INT UNSIGNED PATH '$[3]')) AS k \
     STRAIGHT_JOIN pending AS p ON p.shard = k.shard AND p.due_at = k.due_at AND p.id = k.id \
     WHERE p.gen = k.gen",
    &[Bind::S("[[1,5,7,1],[3,5,8,1]]")],
);
static PENDING_NEAR: Sql = Sql::hot(
    "task_pending_near",
    concat!(
        "SELECT ",
        pending_columns!(),
        ", EXISTS (SELECT 1 FROM `change` AS c WHERE c.id = p.id AND c.gen = p.gen AND c.kind = 1) \
         FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]')) AS k \
         STRAIGHT_JOIN task AS t ON t.id = k.id \
         STRAIGHT_JOIN pending AS p ON p.shard = t.shard AND p.due_at = t.due_at AND p.id = t.id \
         STRAIGHT_JOIN shard AS s ON s.shard = p.shard \
         WHERE p.due_at <= s.cursor_at"
    ),
    &[Bind::S("[[7],[8]]")],
);
static INSERT_TASK: Bulk = Bulk::insert(
    "task_insert",
    "task",
    &[
        "id",
        "identity",
        "state",
        "shard",
        "due_at",
        "task_id",
        "shard_key",
        "callback_topic",
        "content_hash",
        "gen",
        "attempt",
        "created_at",
    ],
);
static INSERT_PENDING: Bulk = Bulk::insert(
    "pending_insert",
    "pending",
    &[
        "shard",
        "due_at",
        "id",
        "gen",
        "attempt",
        "failures",
        "stalls",
        "task_id",
        "shard_key",
        "callback_topic",
        "options",
        "history",
        "body",
    ],
);

/// A task that was accepted: what goes into `task`, beside its row for `pending`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Hash of (shard key, task id).
    pub identity: Identity,
    /// Hash over the fields as submitted.
    pub content: ContentHash,
    /// When it was submitted: the record's timestamp.
    pub created_at: i64,
    /// What waits for the due time.
    pub row: PendingRow,
}

impl NewTask {
    /// Where its row lies.
    pub fn placed(&self) -> Placed {
        let PendingRow { id, generation, shard, due_at, .. } = self.row;
        Placed { id, generation, shard, due_at }
    }
}

/// A row that is still pending at or below its shard's cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearRow {
    /// The row.
    pub row: PendingRow,
    /// An intent is open: it is to be withdrawn, not delivered.
    pub intent: bool,
}

impl<'r> FromRow<'r, MySqlRow> for NearRow {
    fn from_row(row: &'r MySqlRow) -> Result<NearRow, sqlx::Error> {
        Ok(NearRow { row: PendingRow::from_row(row)?, intent: row.try_get::<i64, _>(14)? != 0 })
    }
}

/// The tasks that are known by these identities.
pub async fn lookup(
    session: &mut Session,
    identities: impl IntoIterator<Item = Identity>,
) -> Result<HashMap<Identity, Known>, StoreError> {
    let keys = JsonRows::of(identities, |row, identity| {
        row.hex(&identity.0);
    });
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let found = session.all::<Found>(LOOKUP.bind(keys.into_text())).await?;
    Ok(found.into_iter().map(|Found(identity, known)| (identity, known)).collect())
}

struct Found(Identity, Known);

impl<'r> FromRow<'r, MySqlRow> for Found {
    fn from_row(row: &'r MySqlRow) -> Result<Found, sqlx::Error> {
        let identity = Identity(super::rows::hash(row, 0)?);
        let content = ContentHash(super::rows::hash(row, 2)?);
        Ok(Found(identity, Known { id: RowId(row.try_get(1)?), content }))
    }
}

/// Inserts new tasks, which must come sorted by identity. [`StoreError::Duplicate`]: one of the identities was taken
/// since it was looked up; roll back, look up, judge again.
pub async fn insert<T: Borrow<NewTask>>(tx: &mut Tx, tasks: &[T]) -> Result<(), StoreError> {
    let tasks: Vec<&NewTask> = tasks.iter().map(Borrow::borrow).collect();
    debug_assert!(
        tasks.is_sorted_by_key(|task| task.identity),
        "sorted: overlapping batches lock in one order"
    );
    tx.insert(&INSERT_TASK, &tasks, |task| task_bytes(task), |call, task| bind_task(call, task)).await?;
    // By its own key: rows of one shard lie side by side.
    let mut rows: Vec<&PendingRow> = tasks.iter().map(|task| &task.row).collect();
    rows.sort_unstable_by_key(|row| (row.shard, row.due_at, row.id));
    tx.insert(&INSERT_PENDING, &rows, |row| row.weight_bytes(), |call, row| bind_pending(call, row)).await
}

fn task_bytes(task: &NewTask) -> usize {
    let row = &task.row;
    120 + row.task_id.len() + row.shard_key.as_ref().map_or(0, String::len) + row.callback_topic.len()
}

fn bind_task(call: Call, task: &NewTask) -> Call {
    let row = &task.row;
    call.bind(row.id.0)
        .bind(&task.identity.0[..])
        .bind(TaskState::Scheduled.code())
        .bind(row.shard.0)
        .bind(row.due_at)
        .bind(row.task_id.as_bytes())
        .bind(row.shard_key.as_deref().map(str::as_bytes))
        .bind(row.callback_topic.as_bytes())
        .bind(&task.content.0[..])
        .bind(row.generation.0)
        .bind(row.attempt)
        .bind(task.created_at)
}

fn bind_pending(call: Call, row: &PendingRow) -> Call {
    call.bind(row.shard.0)
        .bind(row.due_at)
        .bind(row.id.0)
        .bind(row.generation.0)
        .bind(row.attempt)
        .bind(row.failures)
        .bind(row.stalls)
        .bind(row.task_id.as_bytes())
        .bind(row.shard_key.as_deref().map(str::as_bytes))
        .bind(row.callback_topic.as_bytes())
        .bind(&row.options[..])
        .bind(&row.history[..])
        .bind(&row.body[..])
}

/// The second look: which of these rows still are pending with their generation. Of rows at or below their cursor.
pub async fn second_look<'a>(
    session: &mut Session,
    placed: impl IntoIterator<Item = &'a Placed>,
) -> Result<HashSet<RowGen>, StoreError> {
    let keys = JsonRows::of(placed, |row, placed| {
        row.uint(placed.shard.0).int(placed.due_at).uint(placed.id.0).uint(placed.generation.0);
    });
    if keys.is_empty() {
        return Ok(HashSet::new());
    }
    let found = session.all::<(u64, u32)>(SECOND_LOOK.bind(keys.into_text())).await?;
    let row_gen = |(id, generation)| RowGen { id: RowId(id), generation: Generation(generation) };
    Ok(found.into_iter().map(row_gen).collect())
}

/// Of these rows, those that still are pending at or below their shard's cursor, as they stand now: to be emitted
/// again by who cannot know whether they were. One statement, so that cursor and row are of one snapshot: a cancel
/// that comes after it finds the row at or below the cursor, and has to withdraw.
pub async fn pending_near(
    session: &mut Session,
    ids: impl IntoIterator<Item = RowId>,
) -> Result<Vec<NearRow>, StoreError> {
    let keys = JsonRows::of(ids, |row, id| {
        row.uint(id.0);
    });
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    session.all(PENDING_NEAR.bind(keys.into_text())).await
}

/// The cursors of the shards of these rows, to be read after the rows were committed.
pub async fn cursors<'a>(
    session: &mut Session,
    placed: impl IntoIterator<Item = &'a Placed>,
) -> Result<HashMap<Shard, i64>, StoreError> {
    let shards = placed.into_iter().map(|row| row.shard).collect();
    let rows = super::shard::read(session, &shards).await?;
    Ok(rows.into_iter().map(|row| (row.shard, row.cursor_at)).collect())
}

pub(super) const QUERIES: &[&Sql] = &[&LOOKUP, &SECOND_LOOK, &PENDING_NEAR];
pub(super) const BULKS: &[&Bulk] = &[&INSERT_TASK, &INSERT_PENDING];
