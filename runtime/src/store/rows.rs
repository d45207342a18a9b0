//! Rows that several files of statements read and write. Numbers and blobs as they lie in the table: what the blobs
//! hold is `schemas::row`, what the states mean is `protocol::state`.

use schemas::ids::{Generation, RowGen, RowId, Shard};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};

/// Columns of [`TaskRow`], of a table or alias `t`, in the order in which it reads them.
#[macro_export]
#[doc(hidden)]
macro_rules! task_columns {
    () => {
        "t.id, t.identity, t.state, t.shard, t.due_at, t.task_id, t.shard_key, t.callback_topic, t.content_hash, t.gen, \
         t.attempt, t.created_at, t.finished_at"
    };
}

/// Columns of [`PendingRow`], of a table or alias `p`, in the order in which it reads them.
#[macro_export]
#[doc(hidden)]
macro_rules! pending_columns {
    () => {
        "p.shard, p.due_at, p.id, p.gen, p.attempt, p.failures, p.stalls, p.task_id, p.shard_key, p.callback_topic, \
         p.bury, p.options, p.history, p.body"
    };
}

/// Columns of [`RunningRow`], of a table or alias `r`, in the order in which it reads them.
#[macro_export]
#[doc(hidden)]
macro_rules! running_columns {
    () => {
        "r.shard, r.due_at, r.id, r.gen, r.attempt, r.failures, r.stalls, r.task_id, r.shard_key, r.callback_topic, \
         NULL, r.options, r.history, r.body, r.deadline_at, r.progress, r.stop"
    };
}

/// One row of `task`: what is known about a task, and its fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// Where its command came from.
    pub id: RowId,
    /// Hash of (shard key, task id).
    pub identity: [u8; 16],
    /// Code of its state.
    pub state: u8,
    /// Shard of its row in `pending` or `running`.
    pub shard: Shard,
    /// Due time (`pending`) or deadline (`running`) of that row.
    pub due_at: i64,
    /// As the producer chose it, or the row id in decimal.
    pub task_id: String,
    /// `None`: the task id serves.
    pub shard_key: Option<String>,
    /// Where it is delivered to.
    pub callback_topic: String,
    /// Hash over the fields as submitted.
    pub content_hash: [u8; 16],
    /// Its generation.
    pub generation: Generation,
    /// Its attempt.
    pub attempt: u16,
    /// When it was accepted.
    pub created_at: i64,
    /// When it became final.
    pub finished_at: Option<i64>,
}

/// One row of `pending`: what waits for its due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRow {
    /// Shard.
    pub shard: Shard,
    /// Due time of this generation.
    pub due_at: i64,
    /// The row.
    pub id: RowId,
    /// Its generation.
    pub generation: Generation,
    /// Its attempt.
    pub attempt: u16,
    /// Attempts that failed.
    pub failures: u16,
    /// Attempts that stalled.
    pub stalls: u16,
    /// As the producer chose it, or the row id in decimal.
    pub task_id: String,
    /// `None`: the task id serves.
    pub shard_key: Option<String>,
    /// Where it is delivered to.
    pub callback_topic: String,
    /// Code of the reason for which it is to be buried instead of delivered.
    pub bury: Option<u8>,
    /// Avro of `schemas::row::RowOptions`.
    pub options: Vec<u8>,
    /// Avro of `schemas::row::RowHistory`.
    pub history: Vec<u8>,
    /// Avro of `schemas::row::RowBody`.
    pub body: Vec<u8>,
}

/// One row of `running`: what waits for its consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningRow {
    /// As it was pending; `due_at` is that of the generation that was delivered, `bury` is `None`.
    pub row: PendingRow,
    /// When it counts as stalled.
    pub deadline_at: i64,
    /// Last progress reported.
    pub progress: Option<Vec<u8>>,
    /// No further attempts: a failure cancels.
    pub stop: bool,
}

impl PendingRow {
    /// The `(row, gen)` that waits.
    pub fn row_gen(&self) -> RowGen {
        RowGen { id: self.id, generation: self.generation }
    }

    /// About what it weighs in a statement or a record.
    pub fn weight_bytes(&self) -> usize {
        100 + self.task_id.len()
            + self.shard_key.as_ref().map_or(0, String::len)
            + self.callback_topic.len()
            + self.options.len()
            + self.history.len()
            + self.body.len()
    }
}

impl<'r> FromRow<'r, MySqlRow> for TaskRow {
    fn from_row(row: &'r MySqlRow) -> Result<TaskRow, sqlx::Error> {
        Ok(TaskRow {
            id: RowId(row.try_get(0)?),
            identity: hash(row, 1)?,
            state: row.try_get(2)?,
            shard: Shard(row.try_get(3)?),
            due_at: row.try_get(4)?,
            task_id: text(row, 5)?,
            shard_key: text_or_null(row, 6)?,
            callback_topic: text(row, 7)?,
            content_hash: hash(row, 8)?,
            generation: Generation(row.try_get(9)?),
            attempt: row.try_get(10)?,
            created_at: row.try_get(11)?,
            finished_at: row.try_get(12)?,
        })
    }
}

impl<'r> FromRow<'r, MySqlRow> for PendingRow {
    fn from_row(row: &'r MySqlRow) -> Result<PendingRow, sqlx::Error> {
        Ok(PendingRow { bury: row.try_get(10)?, ..common(row)? })
    }
}

impl<'r> FromRow<'r, MySqlRow> for RunningRow {
    fn from_row(row: &'r MySqlRow) -> Result<RunningRow, sqlx::Error> {
        Ok(RunningRow {
            row: common(row)?,
            deadline_at: row.try_get(14)?,
            progress: row.try_get(15)?,
            stop: row.try_get::<u8, _>(16)? != 0,
        })
    }
}

/// All but `bury` (column 10), which `running` has not.
fn common(row: &MySqlRow) -> Result<PendingRow, sqlx::Error> {
    Ok(PendingRow {
        shard: Shard(row.try_get(0)?),
        due_at: row.try_get(1)?,
        id: RowId(row.try_get(2)?),
        generation: Generation(row.try_get(3)?),
        attempt: row.try_get(4)?,
        failures: row.try_get(5)?,
        stalls: row.try_get(6)?,
        task_id: text(row, 7)?,
        shard_key: text_or_null(row, 8)?,
        callback_topic: text(row, 9)?,
        bury: None,
        options: row.try_get(11)?,
        history: row.try_get(12)?,
        body: row.try_get(13)?,
    })
}

/// Reads BINARY(16).
pub(super) fn hash(row: &MySqlRow, column: usize) -> Result<[u8; 16], sqlx::Error> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes.try_into().map_err(|_| undecodable(column, format!("{} bytes, not 16", bytes.len()).into()))
}

/// Reads VARBINARY that holds UTF-8.
pub(super) fn text(row: &MySqlRow, column: usize) -> Result<String, sqlx::Error> {
    let bytes: Vec<u8> = row.try_get(column)?;
    String::from_utf8(bytes).map_err(|e| undecodable(column, e.into()))
}

/// Reads VARBINARY that holds UTF-8, or NULL.
pub(super) fn text_or_null(row: &MySqlRow, column: usize) -> Result<Option<String>, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    bytes.map(|b| String::from_utf8(b).map_err(|e| undecodable(column, e.into()))).transpose()
}

fn undecodable(column: usize, source: Box<dyn std::error::Error + Send + Sync>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_string(), source }
}
