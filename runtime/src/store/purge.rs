//! Forgetting final tasks (PROTOCOL §3), in the order of their ids. Which ones is decided in `protocol::retention`.

use super::error::StoreError;
use super::json::JsonRows;
use super::session::Session;
use super::sql::{Bind, Sql};
use protocol::retention::Kept;
use protocol::state::TaskState;
use schemas::ids::RowId;
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};

static CHUNK: Sql = Sql::range(
    "purge_chunk",
    "SELECT t.id, t.state, t.created_at, t.finished_at, EXISTS (SELECT 1 FROM `change` AS c WHERE c.id = t.id) \
     FROM task AS t WHERE t.id >= ? AND t.id < ? ORDER BY t.id LIMIT ?",
    &[Bind::U(5), Bind::U(90), Bind::U(1000)],
);
/// Asks everything again, under the lock of the row: a replay or a command may have come in between.
static DELETE: Sql = Sql::hot(
    "purge_delete",
    "DELETE t FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]')) AS k \
     STRAIGHT_JOIN task AS t ON t.id = k.id \
     WHERE t.state IN (3, 4, 5) AND t.finished_at <= ? AND NOT EXISTS (SELECT 1 FROM `change` AS c WHERE c.id = t.id)",
    &[Bind::S("[[7],[8]]"), Bind::I(5)],
);

struct Line(Kept);

impl<'r> FromRow<'r, MySqlRow> for Line {
    fn from_row(row: &'r MySqlRow) -> Result<Line, sqlx::Error> {
        Ok(Line(Kept {
            id: RowId(row.try_get(0)?),
            state: TaskState::from_code(row.try_get(1)?),
            created_at: row.try_get(2)?,
            finished_at: row.try_get(3)?,
            spoken_of: row.try_get::<i64, _>(4)? != 0,
        }))
    }
}

/// The next rows from `from` on, below `end`, in the order of their ids.
pub async fn chunk(
    session: &mut Session,
    from: RowId,
    end: RowId,
    limit: u32,
) -> Result<Vec<Kept>, StoreError> {
    let lines = session.all::<Line>(CHUNK.bind(from.0).bind(end.0).bind(limit)).await?;
    Ok(lines.into_iter().map(|line| line.0).collect())
}

/// Deletes those of the rows that are final since `finished_before` at the latest and of which no change speaks.
/// Answers how many went.
pub async fn delete(session: &mut Session, ids: &[RowId], finished_before: i64) -> Result<u64, StoreError> {
    if ids.is_empty() {
        return Ok(0);
    }
    let keys = JsonRows::of(ids, |row, id| {
        row.uint(id.0);
    });
    session.run(DELETE.bind(keys.into_text()).bind(finished_before)).await
}

pub(super) const QUERIES: &[&Sql] = &[&CHUNK, &DELETE];
