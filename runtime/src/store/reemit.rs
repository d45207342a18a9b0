//! What the compensator reads and writes to emit pending rows again (PROTOCOL §3). Which ones is decided in
//! `protocol::reemit`.

use super::error::StoreError;
use super::json::JsonRows;
use super::position;
use super::rows::PendingRow;
use super::scan::fence_of;
use super::session::Session;
use super::sql::{Bind, Sql};
use crate::pending_columns;
use protocol::cursor::ScanPoint;
use protocol::reemit::{Again, Candidate, SlotHealth};
use schemas::ids::{Generation, RowId, Shard, Slot, SourceId};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};

const PAGE_EXAMPLE: &[Bind] = &[Bind::U(1), Bind::I(5), Bind::U(7), Bind::I(5), Bind::I(90), Bind::U(500)];

/// Keys only: most rows of a page may have to wait.
static STALLED: Sql = Sql::range(
    "reemit_stalled",
    "SELECT p.due_at, p.id, p.gen, r.gen, r.at, r.n, \
     EXISTS (SELECT 1 FROM `change` AS c WHERE c.id = p.id AND c.gen = p.gen AND c.kind IN (1, 3)) \
     FROM pending AS p LEFT JOIN reemit AS r ON r.shard = p.shard AND r.due_at = p.due_at AND r.id = p.id \
     WHERE p.shard = ? AND ((p.due_at = ? AND p.id > ?) OR (p.due_at > ? AND p.due_at <= ?)) \
     ORDER BY p.due_at, p.id LIMIT ?",
    PAGE_EXAMPLE,
);
static NOTED: Sql = Sql::range(
    "reemit_noted",
    "SELECT r.due_at, r.id, p.gen, r.gen, r.at, r.n, \
     EXISTS (SELECT 1 FROM `change` AS c WHERE c.id = p.id AND c.gen = p.gen AND c.kind IN (1, 3)) \
     FROM reemit AS r LEFT JOIN pending AS p ON p.shard = r.shard AND p.due_at = r.due_at AND p.id = r.id \
     WHERE r.shard = ? AND ((r.due_at = ? AND r.id > ?) OR (r.due_at > ? AND r.due_at <= ?)) \
     ORDER BY r.due_at, r.id LIMIT ?",
    PAGE_EXAMPLE,
);
static NOTE: Sql = Sql::hot(
    "reemit_note",
    "INSERT INTO reemit (shard, due_at, id, gen, at, n) \
     SELECT k.shard, k.due_at, k.id, k.gen, k.at, k.n \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', gen INT UNSIGNED PATH '$[3]', at BIGINT PATH '$[4]', n TINYINT UNSIGNED PATH '$[5]')) AS k \
     STRAIGHT_JOIN pending AS p ON p.shard = k.shard AND p.due_at = k.due_at AND p.id = k.id AND p.gen = k.gen \
     ON DUPLICATE KEY UPDATE gen = VALUES(gen), at = VALUES(at), n = VALUES(n)",
    &[Bind::S("[[1,5,7,1,99,1],[3,5,8,1,99,2]]")],
);
static ROWS: Sql = Sql::hot(
    "reemit_rows",
    concat!(
        "SELECT ",
        pending_columns!(),
        " FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
         id BIGINT UNSIGNED PATH '$[2]', gen INT UNSIGNED PATH '$[3]')) AS k \
         STRAIGHT_JOIN pending AS p ON p.shard = k.shard AND p.due_at = k.due_at AND p.id = k.id AND p.gen = k.gen \
         WHERE NOT EXISTS (SELECT 1 FROM `change` AS c WHERE c.id = p.id AND c.gen = p.gen AND c.kind IN (1, 3))"
    ),
    &[Bind::S("[[1,5,7,1],[3,5,8,1]]")],
);
static FORGET: Sql = Sql::hot(
    "reemit_forget",
    "DELETE r FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', gen INT UNSIGNED PATH '$[3]')) AS k \
     STRAIGHT_JOIN reemit AS r ON r.shard = k.shard AND r.due_at = k.due_at AND r.id = k.id AND r.gen = k.gen",
    &[Bind::S("[[1,5,7,1],[3,5,8,1]]")],
);

/// What is known of a slot's owner. Read in the same round of the loop as the gate is judged.
pub async fn health_of(
    session: &mut Session,
    journal: SourceId,
    slot: Slot,
) -> Result<SlotHealth, StoreError> {
    let position = position::read(session, journal, i32::from(slot.0)).await?;
    Ok(position.map_or_else(SlotHealth::default, |p| SlotHealth {
        hb_at: p.hb_at,
        backlog: p.backlog,
        cold_upto: p.cold_upto,
    }))
}

/// A stretch of one shard to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The shard.
    pub shard: Shard,
    /// Rows behind it …
    pub after: ScanPoint,
    /// … and due at or before it.
    pub upto_at: i64,
    /// Most rows.
    pub limit: u32,
}

impl Stretch {
    fn of(&self, sql: &'static Sql) -> super::Call {
        let Stretch { shard, after, upto_at, limit } = *self;
        sql.bind(shard.0).bind(after.due_at).bind(after.id.0).bind(after.due_at).bind(upto_at).bind(limit)
    }
}

/// A row of `reemit`, and its row in `pending` if that is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Its place.
    pub point: ScanPoint,
    /// The note.
    pub again: Again,
    /// The row as it stands; `None`: settled, the note is to be forgotten.
    pub candidate: Option<Candidate>,
}

struct Line {
    point: ScanPoint,
    pending: Option<u32>,
    again: Option<Again>,
    spoken_for: bool,
}

impl<'r> FromRow<'r, MySqlRow> for Line {
    fn from_row(row: &'r MySqlRow) -> Result<Line, sqlx::Error> {
        let noted: Option<u32> = row.try_get(3)?;
        let again = match noted {
            None => None,
            Some(gen_) => {
                Some(Again { generation: Generation(gen_), at: row.try_get(4)?, n: row.try_get(5)? })
            }
        };
        Ok(Line {
            point: ScanPoint { due_at: row.try_get(0)?, id: RowId(row.try_get(1)?) },
            pending: row.try_get(2)?,
            again,
            spoken_for: row.try_get::<i64, _>(6)? != 0,
        })
    }
}

impl Line {
    fn candidate(&self) -> Option<Candidate> {
        let generation = Generation(self.pending?);
        Some(Candidate { point: self.point, generation, again: self.again, spoken_for: self.spoken_for })
    }
}

/// Rows that still are pending although their time is over, in the order of the key. Reads exactly its rows.
pub async fn stalled(session: &mut Session, stretch: &Stretch) -> Result<Vec<Candidate>, StoreError> {
    let lines = session.all::<Line>(stretch.of(&STALLED)).await?;
    Ok(lines.iter().filter_map(Line::candidate).collect())
}

/// Rows of `reemit`, in the order of the key.
pub async fn noted(session: &mut Session, stretch: &Stretch) -> Result<Vec<Noted>, StoreError> {
    let lines = session.all::<Line>(stretch.of(&NOTED)).await?;
    let noted =
        |line: &Line| Some(Noted { point: line.point, again: line.again?, candidate: line.candidate() });
    Ok(lines.iter().filter_map(noted).collect())
}

/// Writes when each row may be emitted again, *before* it is emitted: a `stale` entry that answers the emission then
/// finds the note and overrules it. Rows that have been settled meanwhile get none.
pub async fn note(
    session: &mut Session,
    shard: Shard,
    notes: &[(ScanPoint, Again)],
) -> Result<(), StoreError> {
    if notes.is_empty() {
        return Ok(());
    }
    let keys = JsonRows::of(notes, |row, (point, again)| {
        row.uint(shard.0)
            .int(point.due_at)
            .uint(point.id.0)
            .uint(again.generation.0)
            .int(again.at)
            .uint(again.n);
    });
    session.run(NOTE.bind(keys.into_text())).await?;
    Ok(())
}

/// Rows as they stand now, and the fence of their slot, which was read before them. What was settled meanwhile, has
/// another gen or an open intent by now is left out. At most `max_bytes`, and one row: `true` says that some are missing
/// for that reason.
pub async fn rows(
    session: &mut Session,
    journal: SourceId,
    slot: Slot,
    shard: Shard,
    keys: &[(ScanPoint, Generation)],
    max_bytes: u64,
) -> Result<(i64, Vec<PendingRow>, bool), StoreError> {
    let fence = fence_of(session, journal, slot).await?;
    let mut bytes = 0;
    let full = |row: &PendingRow| {
        bytes += row.weight_bytes() as u64;
        bytes >= max_bytes
    };
    let (rows, cut) = session.some::<PendingRow>(ROWS.bind(keys_of(shard, keys)), full).await?;
    Ok((fence, rows, cut))
}

/// Deletes notes whose rows are settled.
pub async fn forget(
    session: &mut Session,
    shard: Shard,
    keys: &[(ScanPoint, Generation)],
) -> Result<(), StoreError> {
    if keys.is_empty() {
        return Ok(());
    }
    session.run(FORGET.bind(keys_of(shard, keys))).await?;
    Ok(())
}

fn keys_of(shard: Shard, keys: &[(ScanPoint, Generation)]) -> String {
    JsonRows::of(keys, |row, (point, generation)| {
        row.uint(shard.0).int(point.due_at).uint(point.id.0).uint(generation.0);
    })
    .into_text()
}

pub(super) const QUERIES: &[&Sql] = &[&STALLED, &NOTED, &NOTE, &ROWS, &FORGET];
