//! Rows of `shard`: epoch, cursor, confirmed. How a scan moves them is in `scan`.

use super::bulk::Bulk;
use super::error::StoreError;
use super::json::JsonRows;
use super::session::{Session, Tx};
use super::sql::{Bind, Call, Sql};
use schemas::ids::{RowId, Shard};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};
use std::collections::BTreeSet;

const SET: &[Bind] = &[Bind::S("[[0],[3],[5]]")];

static READ: Sql = Sql::hot(
    "shard_read",
    "SELECT s.shard, s.epoch, s.cursor_at, s.confirmed_due, s.confirmed_id \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]')) AS k \
     STRAIGHT_JOIN shard AS s ON s.shard = k.shard",
    SET,
);
static READ_ALL: Sql = Sql::cold(
    "shard_read_all",
    "SELECT s.shard, s.epoch, s.cursor_at, s.confirmed_due, s.confirmed_id FROM shard AS s ORDER BY s.shard",
    "reads all of a small table on purpose: duectl and the compensator's load figures",
);
// JSON_TABLE lies in a derived table where rows are locked: MySQL 9.7 refuses it beside FOR UPDATE otherwise (3569, `Table k
// appears in multiple locking clauses`), and MariaDB has no `FOR UPDATE OF`. Both merge it: the plan is the same.
static LOCK: Sql = Sql::hot(
    "shard_lock",
    "SELECT s.shard, s.epoch, s.cursor_at, s.confirmed_due, s.confirmed_id \
     FROM (SELECT j.shard FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]')) AS j) AS k \
     STRAIGHT_JOIN shard AS s ON s.shard = k.shard FOR UPDATE",
    SET,
);
static LOCK_SHARED: Sql = Sql::hot(
    "shard_lock_shared",
    "SELECT s.shard, s.epoch, s.cursor_at, s.confirmed_due, s.confirmed_id \
     FROM (SELECT j.shard FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]')) AS j) AS k \
     STRAIGHT_JOIN shard AS s ON s.shard = k.shard LOCK IN SHARE MODE",
    SET,
);
static BUMP: Sql = Sql::hot(
    "shard_bump_epoch",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]')) AS k \
     STRAIGHT_JOIN shard AS s ON s.shard = k.shard SET s.epoch = s.epoch + 1",
    SET,
);
static INSERT: Bulk =
    Bulk::insert("shard_insert", "shard", &["shard", "epoch", "cursor_at", "confirmed_due", "confirmed_id"]);

/// One shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow {
    /// The shard.
    pub shard: Shard,
    /// Which start of a scan owns it.
    pub epoch: u64,
    /// What is due at or below has been, is being or will be emitted; what lies beyond never has been. Only grows.
    pub cursor_at: i64,
    /// Key of the last row whose emission was acked: its due time, …
    pub confirmed_due: i64,
    /// … and its id.
    pub confirmed_id: RowId,
}

impl<'r> FromRow<'r, MySqlRow> for ShardRow {
    fn from_row(row: &'r MySqlRow) -> Result<ShardRow, sqlx::Error> {
        Ok(ShardRow {
            shard: Shard(row.try_get(0)?),
            epoch: row.try_get(1)?,
            cursor_at: row.try_get(2)?,
            confirmed_due: row.try_get(3)?,
            confirmed_id: RowId(row.try_get(4)?),
        })
    }
}

/// Makes the rows of all shards below `shards` that are not there: epoch 0, cursor and confirmed at 0.
pub async fn create(session: &mut Session, shards: u16) -> Result<(), StoreError> {
    let present: BTreeSet<Shard> = read_all(session).await?.into_iter().map(|row| row.shard).collect();
    let missing: Vec<Shard> = (0..shards).map(Shard).filter(|shard| !present.contains(shard)).collect();
    let bind = |call: Call, shard: &Shard| call.bind(shard.0).bind(0).bind(0).bind(0).bind(0);
    session.insert(&INSERT, &missing, |_| 40, bind).await
}

/// The rows of some shards, without a lock. Read *after* the commit of the rows whose cursor matters.
pub async fn read(session: &mut Session, shards: &BTreeSet<Shard>) -> Result<Vec<ShardRow>, StoreError> {
    let rows = session.all(READ.bind(keys(shards))).await?;
    complete(READ.name, rows, shards)
}

/// The rows of all shards.
pub async fn read_all(session: &mut Session) -> Result<Vec<ShardRow>, StoreError> {
    session.all(READ_ALL.call()).await
}

/// Locks the rows of some shards, ascending, so that no cursor moves and no other writer holds them.
pub async fn lock(tx: &mut Tx, shards: &BTreeSet<Shard>) -> Result<Vec<ShardRow>, StoreError> {
    let rows = tx.all(LOCK.bind(keys(shards))).await?;
    complete(LOCK.name, rows, shards)
}

/// Locks the rows of some shards, ascending, against moves of the cursor, beside other holders of the same lock.
pub async fn lock_shared(tx: &mut Tx, shards: &BTreeSet<Shard>) -> Result<Vec<ShardRow>, StoreError> {
    let rows = tx.all(LOCK_SHARED.bind(keys(shards))).await?;
    complete(LOCK_SHARED.name, rows, shards)
}

/// A scan starts: fences whoever scanned these shards before, and answers from where to go on. The caller commits.
pub async fn bump_epochs(tx: &mut Tx, shards: &BTreeSet<Shard>) -> Result<Vec<ShardRow>, StoreError> {
    lock(tx, shards).await?;
    tx.run(BUMP.bind(keys(shards))).await?;
    read(tx, shards).await
}

/// Ascending: the join locks in this order, and so do all others.
fn keys(shards: &BTreeSet<Shard>) -> String {
    JsonRows::of(shards, |row, shard| {
        row.uint(shard.0);
    })
    .into_text()
}

fn complete(
    op: &'static str,
    mut rows: Vec<ShardRow>,
    shards: &BTreeSet<Shard>,
) -> Result<Vec<ShardRow>, StoreError> {
    if rows.len() != shards.len() {
        let what = format!("{} of {} shards have a row: run `duectl init`", rows.len(), shards.len());
        return Err(StoreError::Invariant { op, what });
    }
    rows.sort_by_key(|row| row.shard);
    Ok(rows)
}

pub(super) const QUERIES: &[&Sql] = &[&READ, &READ_ALL, &LOCK, &LOCK_SHARED, &BUMP];
pub(super) const BULKS: &[&Bulk] = &[&INSERT];
