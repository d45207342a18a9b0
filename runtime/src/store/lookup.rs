//! All that the tables say of one task, for people: `duectl get`.

use super::error::StoreError;
use super::rows::{PendingRow, RunningRow, TaskRow};
use super::session::Session;
use super::sql::{Bind, Sql};
use crate::{pending_columns, running_columns, task_columns};
use schemas::ids::{RowGen, Shard};

const KEY: &[Bind] = &[Bind::U(1), Bind::I(5), Bind::U(7)];

static TASK: Sql = Sql::hot(
    "lookup_task",
    concat!("SELECT ", task_columns!(), " FROM task AS t WHERE t.identity = ?"),
    &[Bind::B(&[7; 16])],
);
static PENDING: Sql = Sql::hot(
    "lookup_pending",
    concat!(
        "SELECT ",
        pending_columns!(),
        " FROM pending AS p WHERE p.shard = ? AND p.due_at = ? AND p.id = ?"
    ),
    KEY,
);
static RUNNING: Sql = Sql::hot(
    "lookup_running",
    concat!(
        "SELECT ",
        running_columns!(),
        " FROM running AS r WHERE r.shard = ? AND r.deadline_at = ? AND r.id = ?"
    ),
    KEY,
);
static REEMIT: Sql = Sql::hot(
    "lookup_reemit",
    "SELECT CAST(n AS UNSIGNED), at FROM reemit WHERE shard = ? AND due_at = ? AND id = ? AND gen = ?",
    &[Bind::U(1), Bind::I(5), Bind::U(7), Bind::U(1)],
);
static INTENTS: Sql = Sql::hot(
    "lookup_intents",
    "SELECT CAST(COUNT(*) AS SIGNED) FROM `change` WHERE id = ? AND gen = ? AND kind = 1",
    &[Bind::U(7), Bind::U(1)],
);

/// When a row that was emitted again may be so once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reemission {
    /// Emissions so far.
    pub count: u64,
    /// Not before, epoch ms.
    pub at: i64,
}

/// The task of an identity.
pub async fn task(session: &mut Session, identity: &[u8; 16]) -> Result<Option<TaskRow>, StoreError> {
    session.maybe(TASK.bind(&identity[..])).await
}

/// The row of a scheduled task.
pub async fn pending(session: &mut Session, task: &TaskRow) -> Result<Option<PendingRow>, StoreError> {
    session.maybe(PENDING.bind(task.shard.0).bind(task.due_at).bind(task.id.0)).await
}

/// The row of a running task.
pub async fn running(session: &mut Session, task: &TaskRow) -> Result<Option<RunningRow>, StoreError> {
    session.maybe(RUNNING.bind(task.shard.0).bind(task.due_at).bind(task.id.0)).await
}

/// What is known of re-emissions of a row.
pub async fn reemission(
    session: &mut Session,
    shard: Shard,
    due_at: i64,
    row: RowGen,
) -> Result<Option<Reemission>, StoreError> {
    let found: Option<(u64, i64)> =
        session.maybe(REEMIT.bind(shard.0).bind(due_at).bind(row.id.0).bind(row.generation.0)).await?;
    Ok(found.map(|(count, at)| Reemission { count, at }))
}

/// Open intents (cancel, reschedule, finish) of a row.
pub async fn intents(session: &mut Session, row: RowGen) -> Result<i64, StoreError> {
    Ok(session.one::<(i64,)>(INTENTS.bind(row.id.0).bind(row.generation.0)).await?.0)
}

pub(super) const QUERIES: &[&Sql] = &[&TASK, &PENDING, &RUNNING, &REEMIT, &INTENTS];
