//! What the scanner reads and writes: the start of a scan, pages, `confirmed` (PROTOCOL §1). What to do is decided in
//! `protocol::cursor`.

use super::error::StoreError;
use super::json::JsonRows;
use super::rows::PendingRow;
use super::session::Session;
use super::sql::{Bind, Sql};
use super::{Db, db, position, shard};
use crate::pending_columns;
use protocol::cursor::{Advance, Confirm, PageRead, PageRequest, ScanPoint, ShardRow, SlotLoad};
use schemas::ids::{Shard, Slot, SourceId};
use std::collections::BTreeSet;

static ADVANCE: Sql = Sql::hot(
    "scan_advance",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', epoch BIGINT UNSIGNED PATH '$[1]', \
     cursor_at BIGINT PATH '$[2]', confirmed_due BIGINT PATH '$[3]', confirmed_id BIGINT UNSIGNED PATH '$[4]')) AS k \
     STRAIGHT_JOIN shard AS s ON s.shard = k.shard \
     SET s.epoch = k.epoch, s.cursor_at = k.cursor_at, s.confirmed_due = k.confirmed_due, s.confirmed_id = k.confirmed_id \
     WHERE s.epoch < k.epoch AND s.cursor_at <= k.cursor_at",
    &[Bind::S("[[0,1,5,0,0],[3,1,5,0,0]]")],
);
static CONFIRM: Sql = Sql::hot(
    "scan_confirm",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', epoch BIGINT UNSIGNED PATH '$[1]', \
     confirmed_due BIGINT PATH '$[2]', confirmed_id BIGINT UNSIGNED PATH '$[3]')) AS k \
     STRAIGHT_JOIN shard AS s ON s.shard = k.shard \
     SET s.confirmed_due = k.confirmed_due, s.confirmed_id = k.confirmed_id WHERE s.epoch = k.epoch",
    &[Bind::S("[[0,0,5,7],[3,0,5,8]]")],
);
/// Reads exactly its rows. `(due_at, id) > (?, ?)` and `due_at >= ? AND (due_at > ? OR id > ?)` have the same EXPLAIN and
/// read the whole of a herd of equal due times for each page: the tests count what is read.
static PAGE: Sql = Sql::range(
    "scan_page",
    concat!(
        "SELECT ",
        pending_columns!(),
        " FROM pending AS p WHERE p.shard = ? AND ((p.due_at = ? AND p.id > ?) OR (p.due_at > ? AND p.due_at <= ?)) \
         ORDER BY p.due_at, p.id LIMIT ?"
    ),
    &[Bind::U(1), Bind::I(5), Bind::U(7), Bind::I(5), Bind::I(90), Bind::U(500)],
);

static ENTRIES: Sql =
    Sql::cold("scan_entries_read", "SHOW SESSION STATUS LIKE 'Handler_read_%'", "of a sample of pages");

impl From<shard::ShardRow> for ShardRow {
    fn from(row: shard::ShardRow) -> ShardRow {
        let confirmed = ScanPoint { due_at: row.confirmed_due, id: row.confirmed_id };
        ShardRow { shard: row.shard, epoch: row.epoch, cursor_at: row.cursor_at, confirmed }
    }
}

/// The one short transaction of a start: locks the shards' rows, lets `decide` see them and the database's clock, and
/// writes what it says. Rows are read only after this has returned, so that they are read in a snapshot that is younger
/// than the cursor. An error after COMMIT leaves the outcome unknown: start again like a new owner.
pub async fn start<F>(db: &Db, shards: &BTreeSet<Shard>, decide: F) -> Result<Vec<Advance>, StoreError>
where
    F: FnOnce(i64, &[ShardRow]) -> Result<Vec<Advance>, protocol::cursor::Fenced>,
{
    let mut tx = db.begin("scan_start").await?;
    let rows: Vec<ShardRow> = shard::lock(&mut tx, shards).await?.into_iter().map(ShardRow::from).collect();
    // Asked after the locks were granted: waiting for them does not shorten the horizon.
    let now = db::now(&mut tx).await?;
    let advances = match decide(now, &rows) {
        Ok(advances) => advances,
        Err(fenced) => {
            tx.rollback().await?;
            return Err(StoreError::Fenced { op: ADVANCE.name, what: fenced.to_string() });
        }
    };
    let keys = JsonRows::of(&advances, |row, to| {
        let Advance { shard, epoch, cursor_at, confirmed, .. } = to;
        row.uint(shard.0).uint(*epoch).int(*cursor_at).int(confirmed.due_at).uint(confirmed.id.0);
    });
    let matched = tx.run(ADVANCE.bind(keys.into_text())).await?;
    if matched != advances.len() as u64 {
        let what = format!("{matched} of {} shards would go forward: {advances:?}", advances.len());
        return Err(StoreError::Invariant { op: ADVANCE.name, what });
    }
    tx.commit().await?;
    Ok(advances)
}

/// One page of rows, and the fence of their slot, which was read before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// `fence` of every record that is made of these rows.
    pub fence: i64,
    /// In the order of the key.
    pub rows: Vec<PendingRow>,
    /// What the scan has to know of them.
    pub read: PageRead,
}

/// Reads a page. Takes no locks. At most `max_bytes`, and one row.
pub async fn page(
    session: &mut Session,
    journal: SourceId,
    request: &PageRequest,
    max_bytes: u64,
) -> Result<Page, StoreError> {
    let fence = fence_of(session, journal, request.slot).await?;
    let PageRequest { shard, after, upto_at, limit, .. } = *request;
    let call =
        PAGE.bind(shard.0).bind(after.due_at).bind(after.id.0).bind(after.due_at).bind(upto_at).bind(limit);
    let mut bytes = 0;
    let full = |row: &PendingRow| {
        bytes += row.weight_bytes() as u64;
        bytes >= max_bytes
    };
    let (rows, cut) = session.some::<PendingRow>(call, full).await?;
    let last = rows.last().map(|row| ScanPoint { due_at: row.due_at, id: row.id });
    let read = PageRead { rows: u32::try_from(rows.len()).unwrap_or(u32::MAX), bytes, last, cut };
    Ok(Page { fence, rows, read })
}

/// How many index entries this session has read so far: found by key, and by reading on.
pub async fn entries_read(session: &mut Session) -> Result<u64, StoreError> {
    let rows = session.all::<(String, String)>(ENTRIES.call()).await?;
    let counts =
        |name: &str| matches!(name, "Handler_read_key" | "Handler_read_next" | "Handler_read_rnd_next");
    Ok(rows.iter().filter(|(name, _)| counts(name)).filter_map(|(_, value)| value.parse::<u64>().ok()).sum())
}

/// `next` of a slot's journal. To be read before the rows that are emitted with it.
pub(super) async fn fence_of(
    session: &mut Session,
    journal: SourceId,
    slot: Slot,
) -> Result<i64, StoreError> {
    match position::read(session, journal, i32::from(slot.0)).await? {
        Some(position) => Ok(position.next),
        None => Err(StoreError::World {
            what: format!(
                "the journal of slot {slot} has no position (source {}): run `duectl init`",
                journal.0
            ),
        }),
    }
}

/// What the slot's last applied heartbeat says of its load.
pub async fn load_of(session: &mut Session, journal: SourceId, slot: Slot) -> Result<SlotLoad, StoreError> {
    let position = position::read(session, journal, i32::from(slot.0)).await?;
    Ok(position.map_or_else(SlotLoad::default, |p| SlotLoad { backlog: p.backlog, credit: p.credit }))
}

/// Writes `confirmed` of shards whose emissions are acked, each only under the epoch of its scan. `Fenced`: at least one
/// of the shards has another scanner by now.
pub async fn confirm(session: &mut Session, confirms: &[Confirm]) -> Result<(), StoreError> {
    if confirms.is_empty() {
        return Ok(());
    }
    let keys = JsonRows::of(confirms, |row, confirm| {
        row.uint(confirm.shard.0).uint(confirm.epoch).int(confirm.upto.due_at).uint(confirm.upto.id.0);
    });
    let matched = session.run(CONFIRM.bind(keys.into_text())).await?;
    if matched == confirms.len() as u64 {
        return Ok(());
    }
    let what = format!("{matched} of {} shards still have the epoch of this scan", confirms.len());
    Err(StoreError::Fenced { op: CONFIRM.name, what })
}

pub(super) const QUERIES: &[&Sql] = &[&ADVANCE, &CONFIRM, &PAGE, &ENTRIES];
