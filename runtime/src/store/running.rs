//! Rows that wait for their consumer: which are past their deadline, up to when that can be judged, and how many there
//! are. How they get there and leave is in `moves`.

use super::error::StoreError;
use super::position;
use super::session::Session;
use super::sql::{Bind, Sql};
use protocol::life::RowKey;
use schemas::ids::{Generation, RowId, Shard, SourceId};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row as _};
use std::collections::BTreeMap;

/// Keys only, and none of a row with a parked ack: what its consumer said has not been applied yet.
static STALLED: Sql = Sql::range(
    "running_stalled",
    "SELECT q.shard, q.deadline_at, q.id, q.gen FROM running AS q \
     WHERE q.shard = ? AND ((q.deadline_at = ? AND q.id > ?) OR (q.deadline_at > ? AND q.deadline_at <= ?)) \
     AND NOT EXISTS (SELECT 1 FROM `change` AS c FORCE INDEX (k_row) WHERE c.id = q.id AND c.gen = q.gen AND c.kind = 3) \
     ORDER BY q.deadline_at, q.id LIMIT ?",
    &[Bind::U(1), Bind::I(5), Bind::U(7), Bind::I(5), Bind::I(900_090), Bind::U(500)],
);
/// Reads the narrow index only, and of it only what belongs to the topic.
static COUNT: Sql = Sql::range(
    "running_count",
    "SELECT q.shard, COUNT(*) FROM running AS q FORCE INDEX (k_topic) WHERE q.callback_topic = ? GROUP BY q.shard",
    &[Bind::B(b"c")],
);

/// A row that is past its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// Where it lies: `due_at` is the deadline.
    pub key: RowKey,
    /// Its generation.
    pub generation: Generation,
}

impl<'r> FromRow<'r, MySqlRow> for Stalled {
    fn from_row(row: &'r MySqlRow) -> Result<Stalled, sqlx::Error> {
        let (shard, due_at, id) = (Shard(row.try_get(0)?), row.try_get(1)?, RowId(row.try_get(2)?));
        Ok(Stalled { key: RowKey { shard, due_at, id }, generation: Generation(row.try_get(3)?) })
    }
}

/// Rows of a shard behind `after` whose deadline is at or before `upto_at`, in the order of the key. Takes no locks: who acts on them locks them and looks again.
pub async fn stalled(
    session: &mut Session,
    after: RowKey,
    upto_at: i64,
    limit: u32,
) -> Result<Vec<Stalled>, StoreError> {
    let RowKey { shard, due_at, id } = after;
    let call = STALLED.bind(shard.0).bind(due_at).bind(id.0).bind(due_at).bind(upto_at).bind(limit);
    session.all(call).await
}

/// How many rows of a callback topic wait for their consumer, by shard. Costs what it counts: meant for topics whose
/// number is limited.
pub async fn count(session: &mut Session, topic: &str) -> Result<BTreeMap<Shard, u64>, StoreError> {
    let rows = session.all::<(u16, i64)>(COUNT.bind(topic.as_bytes())).await?;
    Ok(rows.into_iter().map(|(shard, n)| (Shard(shard), n.unsigned_abs())).collect())
}

/// When the last applied record of each of the first `partitions` partitions of `acks` was appended; `None`: none was.
pub async fn acks_applied(
    session: &mut Session,
    acks: SourceId,
    partitions: i32,
) -> Result<Vec<Option<i64>>, StoreError> {
    let positions = position::read_all(session, acks).await?;
    let applied: BTreeMap<i32, i64> =
        positions.iter().filter_map(|position| Some((position.partition, position.hb_at?))).collect();
    Ok((0..partitions).map(|partition| applied.get(&partition).copied()).collect())
}

pub(super) const QUERIES: &[&Sql] = &[&STALLED, &COUNT];
