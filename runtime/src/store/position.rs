//! Positions of the input streams: what has been applied (`next`) and what has had its effects acked (`confirmed`).

use super::error::StoreError;
use super::session::{Session, Tx};
use super::sql::{Bind, Sql};
use schemas::ids::{Slot, SourceId};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};
use std::collections::BTreeMap;

static READ: Sql = Sql::hot(
    "position_read",
    "SELECT `partition`, next, confirmed, hb_at, backlog, credit, cold_upto FROM stream_position \
     WHERE source = ? AND `partition` = ?",
    &[Bind::U(1), Bind::U(2)],
);
static READ_ALL: Sql = Sql::range(
    "position_read_all",
    "SELECT `partition`, next, confirmed, hb_at, backlog, credit, cold_upto FROM stream_position \
     WHERE source = ? ORDER BY `partition`",
    &[Bind::U(1)],
);
static INSERT: Sql = Sql::cold(
    "position_insert",
    "INSERT INTO stream_position (source, `partition`, next, confirmed) VALUES (?, ?, ?, ?) \
     ON DUPLICATE KEY UPDATE source = source",
    "at start",
);
static ADVANCE: Sql = Sql::hot(
    "position_advance",
    "UPDATE stream_position SET next = ? WHERE source = ? AND `partition` = ? AND next = ?",
    &[Bind::U(12), Bind::U(1), Bind::U(2), Bind::U(10)],
);
static CONFIRM: Sql = Sql::hot(
    "position_confirm",
    "UPDATE stream_position SET confirmed = GREATEST(confirmed, ?) WHERE source = ? AND `partition` = ? AND next >= ?",
    &[Bind::U(12), Bind::U(1), Bind::U(2), Bind::U(12)],
);
static HEARTBEAT: Sql = Sql::hot(
    "position_heartbeat",
    "UPDATE stream_position SET hb_at = GREATEST(COALESCE(hb_at, ?), ?), backlog = COALESCE(?, backlog), \
     credit = COALESCE(?, credit), cold_upto = COALESCE(?, cold_upto) WHERE source = ? AND `partition` = ?",
    &[Bind::I(5), Bind::I(5), Bind::I(0), Bind::I(9), Bind::Null, Bind::U(1), Bind::U(2)],
);
static TICK: Sql = Sql::hot(
    "position_tick",
    "UPDATE stream_position SET hb_at = GREATEST(COALESCE(hb_at, ?), ?) WHERE source = ? AND `partition` = ?",
    &[Bind::I(5), Bind::I(5), Bind::U(1), Bind::U(2)],
);
static WARMED: Sql = Sql::hot(
    "position_warmed",
    "UPDATE stream_position SET cold_upto = NULL WHERE source = ? AND `partition` = ? AND cold_upto <= ?",
    &[Bind::U(1), Bind::U(2), Bind::I(5)],
);

/// One row of `stream_position`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// Partition of the topic; for the journal, the slot.
    pub partition: i32,
    /// Everything below has been applied, and nothing below is ever applied again.
    pub next: i64,
    /// Everything below has had its effects acked. A new owner seeks here.
    pub confirmed: i64,
    /// `LogAppendTime` of the last journal record or acks tick that was applied, epoch ms.
    pub hb_at: Option<i64>,
    /// Members in Redis for this slot, as last reported.
    pub backlog: Option<i64>,
    /// How many more records the slot takes, as last reported.
    pub credit: Option<i64>,
    /// After a cold take-over: what is due up to here may be emitted again at once.
    pub cold_upto: Option<i64>,
}

impl<'r> FromRow<'r, MySqlRow> for StreamPosition {
    fn from_row(row: &'r MySqlRow) -> Result<StreamPosition, sqlx::Error> {
        Ok(StreamPosition {
            partition: i32::from(row.try_get::<u16, _>(0)?),
            next: offset(row.try_get(1)?),
            confirmed: offset(row.try_get(2)?),
            hb_at: row.try_get(3)?,
            backlog: row.try_get(4)?,
            credit: row.try_get(5)?,
            cold_upto: row.try_get(6)?,
        })
    }
}

/// What a journal record says of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// `LogAppendTime` of the record, epoch ms.
    pub hb_at: i64,
    /// Members in Redis; `None` (a barrier knows it not) leaves what is there.
    pub backlog: Option<i64>,
    /// How many more records the slot takes; likewise.
    pub credit: Option<i64>,
    /// Set by a cold barrier; `None` leaves what is there.
    pub cold_upto: Option<i64>,
}

/// `fence` of each slot: `next` of its journal partition. To be read *before* the rows are read (or committed) as
/// pending that will be emitted with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fences(BTreeMap<Slot, i64>);

impl Fences {
    /// The fence of a slot; `None` where the journal has no such partition.
    pub fn of(&self, slot: Slot) -> Option<i64> {
        self.0.get(&slot).copied()
    }

    /// All of them, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, i64)> + '_ {
        self.0.iter().map(|(slot, fence)| (*slot, *fence))
    }
}

impl FromIterator<(Slot, i64)> for Fences {
    fn from_iter<I: IntoIterator<Item = (Slot, i64)>>(fences: I) -> Fences {
        Fences(fences.into_iter().collect())
    }
}

/// Position of one partition.
pub async fn read(
    session: &mut Session,
    source: SourceId,
    partition: i32,
) -> Result<Option<StreamPosition>, StoreError> {
    session.maybe(READ.bind(source.0).bind(partition)).await
}

/// Positions of all partitions of a source, by partition.
pub async fn read_all(session: &mut Session, source: SourceId) -> Result<Vec<StreamPosition>, StoreError> {
    session.all(READ_ALL.bind(source.0)).await
}

/// Fences of all slots, given the number of the journal.
pub async fn fences(session: &mut Session, journal: SourceId) -> Result<Fences, StoreError> {
    let positions = read_all(session, journal).await?;
    positions
        .into_iter()
        .map(|p| {
            let slot = u16::try_from(p.partition).map_err(|_| StoreError::Invariant {
                op: READ_ALL.name,
                what: format!("journal partition {} is no slot", p.partition),
            })?;
            Ok((Slot(slot), p.next))
        })
        .collect()
}

/// Makes the position of a partition, `next` = `confirmed` = `start`; leaves one that is there as it is.
pub async fn create(
    session: &mut Session,
    source: SourceId,
    partition: i32,
    start: i64,
) -> Result<(), StoreError> {
    session.run(INSERT.bind(source.0).bind(partition).bind(start).bind(start)).await?;
    Ok(())
}

/// Compare-and-set of `next` from `from` to `to`, in the transaction of the rows that the records between made.
/// `Fenced`: another owner applied them; roll back, read the positions, seek.
pub async fn advance(
    tx: &mut Tx,
    source: SourceId,
    partition: i32,
    from: i64,
    to: i64,
) -> Result<(), StoreError> {
    if to < from {
        return Err(StoreError::Invariant {
            op: ADVANCE.name,
            what: format!("next would fall from {from} to {to}"),
        });
    }
    match tx.run(ADVANCE.bind(to).bind(source.0).bind(partition).bind(from)).await? {
        1 => Ok(()),
        _ => {
            let found = read(tx, source, partition).await?;
            let what = format!(
                "next of source {} partition {partition} is {:?}, not {from}",
                source.0,
                found.map(|p| p.next)
            );
            Err(StoreError::Fenced { op: ADVANCE.name, what })
        }
    }
}

/// Moves `confirmed` up to `to`; never back, never beyond `next`.
pub async fn confirm(
    session: &mut Session,
    source: SourceId,
    partition: i32,
    to: i64,
) -> Result<(), StoreError> {
    match session.run(CONFIRM.bind(to).bind(source.0).bind(partition).bind(to)).await? {
        1 => Ok(()),
        _ => Err(StoreError::Invariant {
            op: CONFIRM.name,
            what: format!("confirmed of source {} partition {partition} would pass its next: {to}", source.0),
        }),
    }
}

/// Notes what a journal record says, in the transaction that applies it. `hb_at` only grows.
pub async fn heartbeat(
    tx: &mut Tx,
    journal: SourceId,
    slot: Slot,
    beat: &Heartbeat,
) -> Result<(), StoreError> {
    let call =
        HEARTBEAT.bind(beat.hb_at).bind(beat.hb_at).bind(beat.backlog).bind(beat.credit).bind(beat.cold_upto);
    matched_one(HEARTBEAT.name, tx.run(call.bind(journal.0).bind(slot.0)).await?, journal)
}

/// Notes a tick of an acks partition, in the transaction that applies it.
pub async fn tick(tx: &mut Tx, acks: SourceId, partition: i32, hb_at: i64) -> Result<(), StoreError> {
    let matched = tx.run(TICK.bind(hb_at).bind(hb_at).bind(acks.0).bind(partition)).await?;
    matched_one(TICK.name, matched, acks)
}

/// The rows up to `cold_upto` were emitted again: forget it, unless a later cold take-over moved it on.
pub async fn warmed(
    session: &mut Session,
    journal: SourceId,
    slot: Slot,
    cold_upto: i64,
) -> Result<(), StoreError> {
    session.run(WARMED.bind(journal.0).bind(slot.0).bind(cold_upto)).await?;
    Ok(())
}

fn matched_one(op: &'static str, matched: u64, source: SourceId) -> Result<(), StoreError> {
    if matched == 1 {
        return Ok(());
    }
    Err(StoreError::Invariant {
        op,
        what: format!("source {} has no such position: run `duectl init`", source.0),
    })
}

/// Offsets are below 2^42 (they are packed into row ids), so the sign bit is never reached.
fn offset(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) const QUERIES: &[&Sql] =
    &[&READ, &READ_ALL, &INSERT, &ADVANCE, &CONFIRM, &HEARTBEAT, &TICK, &WARMED];
