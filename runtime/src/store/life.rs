//! Rows from their lock to their writing: one transaction's [`Life`] and its [`Effects`].
//!
//! ```text
//! hold: task + pending + running + reemit FOR UPDATE, then what is open for them ─▶ Life ─▶ decisions ─▶ Effects ─▶ write
//! ```

use super::error::StoreError;
use super::intents::Telling;
use super::json::JsonRows;
use super::position;
use super::session::{Session, Tx};
use super::sql::{Bind, Sql};
use super::{held, intents, moves};
use protocol::apply::Nexts;
use protocol::life::{Effects, HandedBack, Life, RowKey};
use schemas::ids::{RowId, SourceId};
use std::collections::BTreeSet;

static HAND_BACK: Sql = Sql::hot(
    "life_hand_back",
    "INSERT INTO reemit (shard, due_at, id, gen, at, n) \
     SELECT k.shard, k.due_at, k.id, k.gen, 0, 0 \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', gen INT UNSIGNED PATH '$[3]')) AS k \
     ON DUPLICATE KEY UPDATE gen = VALUES(gen), at = VALUES(at)",
    &[Bind::S("[[1,5,7,2],[3,5,8,2]]")],
);
static FORGET_NOTES: Sql = Sql::hot(
    "life_forget_notes",
    "DELETE r FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]')) AS k \
     STRAIGHT_JOIN reemit AS r FORCE INDEX (PRIMARY) ON r.shard = k.shard AND r.due_at = k.due_at AND r.id = k.id",
    &[Bind::S("[[1,5,7],[3,5,8]]")],
);

/// Locks rows and reads what is open for them. Rows that are missing in the answer are not in MySQL.
pub async fn hold(tx: &mut Tx, ids: &BTreeSet<RowId>) -> Result<Life, StoreError> {
    if ids.is_empty() {
        return Ok(Life::default());
    }
    let rows = held::lock(tx, ids).await?;
    // After the lock: only who holds it writes them, so none is missed.
    let open = intents::open(tx, ids).await?;
    Ok(Life::new(rows, open))
}

/// Writes what was decided, in the transaction that locked the rows.
pub async fn write(tx: &mut Tx, effects: &Effects, telling: Telling<'_>) -> Result<(), StoreError> {
    moves::write(tx, &effects.moved).await?;
    hand_back(tx, &effects.handed_back).await?;
    if !effects.forgotten.is_empty() {
        tx.run(FORGET_NOTES.bind(keys(&effects.forgotten))).await?;
    }
    intents::write(tx, &effects.opened, &effects.closed, telling).await
}

async fn hand_back(tx: &mut Tx, rows: &[HandedBack]) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let rows = JsonRows::of(rows, |row, HandedBack { key, generation }| {
        row.uint(key.shard.0).int(key.due_at).uint(key.id.0).uint(generation.0);
    });
    // An upsert's count says nothing exact.
    tx.run(HAND_BACK.bind(rows.into_text())).await?;
    Ok(())
}

fn keys(keys: &[RowKey]) -> String {
    JsonRows::of(keys, |row, key| {
        row.uint(key.shard.0).int(key.due_at).uint(key.id.0);
    })
    .into_text()
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

pub(super) const QUERIES: &[&Sql] = &[&HAND_BACK, &FORGET_NOTES];
