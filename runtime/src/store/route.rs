//! The routing table: which slot a row goes to.

use super::bulk::Bulk;
use super::error::StoreError;
use super::session::Session;
use super::sql::Sql;
use schemas::ids::{Shard, Slot};

static ALL: Sql = Sql::cold(
    "route_all",
    "SELECT shard, from_due_at, slot FROM route ORDER BY shard, from_due_at",
    "a few rows per shard, read when it changes",
);
static INSERT: Bulk = Bulk::insert("route_insert", "route", &["shard", "from_due_at", "slot"]);

/// `slot(row)` = the newest entry of its shard with `from_due_at <= row.due_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRow {
    /// The shard.
    pub shard: Shard,
    /// From this due time on; `i64::MIN` for the first entry of a shard.
    pub from_due_at: i64,
    /// The slot.
    pub slot: Slot,
}

/// The whole table, by shard and due time.
pub async fn all(session: &mut Session) -> Result<Vec<RouteRow>, StoreError> {
    let rows = session.all::<(u16, i64, u16)>(ALL.call()).await?;
    Ok(rows
        .into_iter()
        .map(|(shard, from_due_at, slot)| RouteRow { shard: Shard(shard), from_due_at, slot: Slot(slot) })
        .collect())
}

/// First entries: every shard below `shards` that has none goes to `slot(shard)`, from the beginning of time.
pub async fn create(
    session: &mut Session,
    shards: u16,
    slot: impl Fn(Shard) -> Slot,
) -> Result<(), StoreError> {
    let present: std::collections::BTreeSet<Shard> =
        all(session).await?.into_iter().map(|r| r.shard).collect();
    let missing: Vec<Shard> = (0..shards).map(Shard).filter(|s| !present.contains(s)).collect();
    session
        .insert(
            &INSERT,
            &missing,
            |_| 16,
            |call, shard| call.bind(shard.0).bind(i64::MIN).bind(slot(*shard).0),
        )
        .await
}

pub(super) const QUERIES: &[&Sql] = &[&ALL];
pub(super) const BULKS: &[&Bulk] = &[&INSERT];
