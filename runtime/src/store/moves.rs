//! Where rows go: the net effect of a transaction on each row it holds, written in bulk. Bodies never leave the server.
//!
//! ```text
//!            ┌── moved (due time, gen, attempt, …) ──┐        ┌── moved (deadline, progress, stop) ──┐
//!            ▼                                       │        ▼                                      │
//!  pending ──┴──────────── delivered, on_ack ────────┴──▶ running ───────────────────────────────────┘
//!     ▲  └────────────────── next attempt, or to be buried ◀─┘ │
//!     └──▶ gone (final) ◀──────────────────────────────────────┘
//! ```
//!
//! Rows come sorted by id, and in each table are written in the order of its key, as everybody does.

use super::error::StoreError;
use super::json::JsonRows;
use super::session::Tx;
use super::sql::{Bind, Sql};
use protocol::life::{Live, Moved, Place, RowKey, Waiting, Working};
use schemas::delivery::DeadReason;

/// About the most that the JSON of one statement weighs.
const MAX_BYTES: usize = 2 << 20;

static TASKS: Sql = Sql::hot(
    "move_tasks",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', state TINYINT UNSIGNED PATH '$[1]', \
     due_at BIGINT PATH '$[2]', gen INT UNSIGNED PATH '$[3]', attempt SMALLINT UNSIGNED PATH '$[4]', \
     finished_at BIGINT PATH '$[5]')) AS k \
     STRAIGHT_JOIN task AS t FORCE INDEX (PRIMARY) ON t.id = k.id \
     SET t.state = k.state, t.due_at = COALESCE(k.due_at, t.due_at), t.gen = k.gen, t.attempt = k.attempt, \
     t.finished_at = k.finished_at",
    &[Bind::S("[[7,3,null,1,1,99],[8,1,70,2,2,null]]")],
);
static PENDING: Sql = Sql::hot(
    "move_pending",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', new_due_at BIGINT PATH '$[3]', gen INT UNSIGNED PATH '$[4]', \
     attempt SMALLINT UNSIGNED PATH '$[5]', failures SMALLINT UNSIGNED PATH '$[6]', stalls SMALLINT UNSIGNED PATH '$[7]', \
     bury TINYINT UNSIGNED PATH '$[8]', options VARCHAR(4096) PATH '$[9]', history VARCHAR(8192) PATH '$[10]')) AS k \
     STRAIGHT_JOIN pending AS p FORCE INDEX (PRIMARY) ON p.shard = k.shard AND p.due_at = k.due_at AND p.id = k.id \
     SET p.due_at = k.new_due_at, p.gen = k.gen, p.attempt = k.attempt, p.failures = k.failures, p.stalls = k.stalls, \
     p.bury = k.bury, p.options = COALESCE(UNHEX(k.options), p.options), p.history = COALESCE(UNHEX(k.history), p.history)",
    &[Bind::S(r#"[[1,5,7,70,2,2,1,0,null,"00ff",null],[3,5,8,5,2,1,0,0,3,null,null]]"#)],
);
static TO_RUNNING: Sql = Sql::hot(
    "move_pending_to_running",
    "INSERT INTO running (shard, deadline_at, id, due_at, gen, attempt, failures, stalls, task_id, shard_key, \
     callback_topic, options, history, body, progress, stop) \
     SELECT p.shard, k.deadline_at, p.id, p.due_at, k.gen, k.attempt, p.failures, p.stalls, p.task_id, p.shard_key, \
     p.callback_topic, p.options, p.history, p.body, UNHEX(k.progress), k.stop \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', deadline_at BIGINT PATH '$[3]', gen INT UNSIGNED PATH '$[4]', \
     attempt SMALLINT UNSIGNED PATH '$[5]', progress VARCHAR(2048) PATH '$[6]', stop TINYINT UNSIGNED PATH '$[7]')) AS k \
     STRAIGHT_JOIN pending AS p FORCE INDEX (PRIMARY) ON p.shard = k.shard AND p.due_at = k.due_at AND p.id = k.id",
    &[Bind::S(r#"[[1,5,7,905,1,1,"00ff",0],[3,5,8,905,1,1,null,1]]"#)],
);
static TO_PENDING: Sql = Sql::hot(
    "move_running_to_pending",
    "INSERT INTO pending (shard, due_at, id, gen, attempt, failures, stalls, task_id, shard_key, callback_topic, bury, \
     options, history, body) \
     SELECT q.shard, k.due_at, q.id, k.gen, k.attempt, k.failures, k.stalls, q.task_id, q.shard_key, q.callback_topic, \
     k.bury, COALESCE(UNHEX(k.options), q.options), COALESCE(UNHEX(k.history), q.history), q.body \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', deadline_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', due_at BIGINT PATH '$[3]', gen INT UNSIGNED PATH '$[4]', \
     attempt SMALLINT UNSIGNED PATH '$[5]', failures SMALLINT UNSIGNED PATH '$[6]', stalls SMALLINT UNSIGNED PATH '$[7]', \
     bury TINYINT UNSIGNED PATH '$[8]', options VARCHAR(4096) PATH '$[9]', history VARCHAR(8192) PATH '$[10]')) AS k \
     STRAIGHT_JOIN running AS q FORCE INDEX (PRIMARY) ON q.shard = k.shard AND q.deadline_at = k.deadline_at AND q.id = k.id",
    &[Bind::S(r#"[[1,5,200007,70,2,2,1,0,null,"00ff",null],[3,5,8,5,2,1,0,0,3,null,null]]"#)],
);
static RUNNING: Sql = Sql::hot(
    "move_running",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', deadline_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]', new_deadline_at BIGINT PATH '$[3]', progress VARCHAR(2048) PATH '$[4]', \
     stop TINYINT UNSIGNED PATH '$[5]')) AS k \
     STRAIGHT_JOIN running AS q FORCE INDEX (PRIMARY) ON q.shard = k.shard AND q.deadline_at = k.deadline_at AND q.id = k.id \
     SET q.deadline_at = k.new_deadline_at, q.progress = UNHEX(k.progress), q.stop = k.stop",
    &[Bind::S(r#"[[1,5,7,70,"00ff",0],[3,5,8,5,null,1]]"#)],
);
static DELETE_PENDING: Sql = Sql::hot(
    "move_delete_pending",
    "DELETE p FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', due_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]')) AS k \
     STRAIGHT_JOIN pending AS p FORCE INDEX (PRIMARY) ON p.shard = k.shard AND p.due_at = k.due_at AND p.id = k.id",
    &[Bind::S("[[1,5,7],[3,5,8]]")],
);
static DELETE_RUNNING: Sql = Sql::hot(
    "move_delete_running",
    "DELETE q FROM JSON_TABLE(?, '$[*]' COLUMNS (shard SMALLINT UNSIGNED PATH '$[0]', deadline_at BIGINT PATH '$[1]', \
     id BIGINT UNSIGNED PATH '$[2]')) AS k \
     STRAIGHT_JOIN running AS q FORCE INDEX (PRIMARY) ON q.shard = k.shard AND q.deadline_at = k.deadline_at AND q.id = k.id",
    &[Bind::S("[[1,5,7],[3,5,8]]")],
);
/// Writes where the rows go, in the transaction that locked them. Each row at most once.
pub async fn write(tx: &mut Tx, moved: &[Moved]) -> Result<(), StoreError> {
    let mut by_id: Vec<&Moved> = moved.iter().collect();
    by_id.sort_unstable_by_key(|row| row.from.id);
    Batch::of(&TASKS, &by_id, task).run(tx).await?;
    let mut kinds = Kinds::default();
    moved.iter().for_each(|row| kinds.sort_in(row));
    kinds.order();
    // Into the other table before the row goes from its own.
    Batch::of(&TO_RUNNING, &kinds.to_running, to_running).run(tx).await?;
    Batch::of(&TO_PENDING, &kinds.to_pending, to_pending).run(tx).await?;
    Batch::of(&PENDING, &kinds.within_pending, within_pending).run(tx).await?;
    Batch::of(&RUNNING, &kinds.within_running, within_running).run(tx).await?;
    Batch::of(&DELETE_PENDING, &kinds.from_pending, key).run(tx).await?;
    Batch::of(&DELETE_RUNNING, &kinds.from_running, key).run(tx).await
}

/// Rows by what has to be written for them.
#[derive(Default)]
struct Kinds<'a> {
    to_running: Vec<(RowKey, &'a Moved, &'a Working)>,
    to_pending: Vec<(RowKey, &'a Moved, &'a Waiting, &'a Live)>,
    within_pending: Vec<(RowKey, &'a Moved, &'a Waiting, &'a Live)>,
    within_running: Vec<(RowKey, &'a Working)>,
    from_pending: Vec<RowKey>,
    from_running: Vec<RowKey>,
}

impl<'a> Kinds<'a> {
    /// By the keys under which the rows lie now.
    fn order(&mut self) {
        self.to_running.sort_unstable_by_key(|row| row.0);
        self.to_pending.sort_unstable_by_key(|row| row.0);
        self.within_pending.sort_unstable_by_key(|row| row.0);
        self.within_running.sort_unstable_by_key(|row| row.0);
        for keys in [&mut self.from_pending, &mut self.from_running] {
            keys.sort_unstable();
        }
    }

    fn sort_in(&mut self, moved: &'a Moved) {
        match (&moved.from.place, &moved.to.place) {
            (Place::Pending(from), to) => {
                let key = from.key;
                match to {
                    Place::Pending(to) => self.within_pending.push((key, moved, to, &from.live)),
                    Place::Running(to) => {
                        self.to_running.push((key, moved, to));
                        self.from_pending.push(key);
                    }
                    Place::Bodiless(_) | Place::Final(_) => self.from_pending.push(key),
                }
            }
            (Place::Running(from), to) => {
                let key = from.key;
                match to {
                    Place::Pending(to) => {
                        self.to_pending.push((key, moved, to, &from.live));
                        self.from_running.push(key);
                    }
                    Place::Running(to) => self.within_running.push((key, to)),
                    Place::Bodiless(_) | Place::Final(_) => self.from_running.push(key),
                }
            }
            // There is no body to put anywhere: only the task is written. Of a replay the dead letter has it, see
            // `tasks::put_back`.
            (Place::Bodiless(_) | Place::Final(_), _) => {}
        }
    }
}

fn task(row: &mut JsonRows, moved: &&Moved) {
    let to = &moved.to;
    let (due_at, finished_at) = match &to.place {
        Place::Pending(to) => (Some(to.key.due_at), None),
        Place::Running(to) => (Some(to.key.due_at), None),
        Place::Bodiless(_) => (None, None),
        Place::Final(ended) => (None, Some(ended.finished_at)),
    };
    row.uint(to.id.0)
        .uint(to.state().code())
        .int_or_null(due_at)
        .uint(to.generation.0)
        .uint(to.attempt)
        .int_or_null(finished_at);
}

/// Shard, due time or deadline, id.
fn key(row: &mut JsonRows, key: &RowKey) {
    row.uint(key.shard.0).int(key.due_at).uint(key.id.0);
}

fn to_running(row: &mut JsonRows, (from, moved, to): &(RowKey, &Moved, &Working)) {
    key(row, from);
    row.int(to.key.due_at)
        .uint(moved.to.generation.0)
        .uint(moved.to.attempt)
        .hex_or_null(to.progress.as_deref())
        .uint(u8::from(to.stop));
}

fn within_running(row: &mut JsonRows, (from, to): &(RowKey, &Working)) {
    key(row, from);
    row.int(to.key.due_at).hex_or_null(to.progress.as_deref()).uint(u8::from(to.stop));
}

/// Options and history only where they change: they are most of what a statement weighs.
fn within_pending(row: &mut JsonRows, (from, moved, to, was): &(RowKey, &Moved, &Waiting, &Live)) {
    key(row, from);
    row.int(to.key.due_at)
        .uint(moved.to.generation.0)
        .uint(moved.to.attempt)
        .uint(to.live.failures)
        .uint(to.live.stalls)
        .uint_or_null(to.bury.map(burial));
    let options = (to.live.options != was.options).then(|| to.live.options.encode());
    let history = (to.live.history != was.history).then(|| to.live.history.encode());
    row.hex_or_null(options.as_deref()).hex_or_null(history.as_deref());
}

fn to_pending(row: &mut JsonRows, moved: &(RowKey, &Moved, &Waiting, &Live)) {
    within_pending(row, moved);
}

/// Column `bury` holds the place of a reason in [`DeadReason::ALL`].
fn burial(reason: DeadReason) -> u8 {
    DeadReason::ALL
        .iter()
        .position(|known| *known == reason)
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(u8::MAX)
}

/// Rows of one statement, cut so that none weighs too much.
struct Batch {
    sql: &'static Sql,
    parts: Vec<JsonRows>,
}

impl Batch {
    fn of<T>(sql: &'static Sql, rows: &[T], fill: impl Fn(&mut JsonRows, &T)) -> Batch {
        let mut parts: Vec<JsonRows> = Vec::new();
        for row in rows {
            if parts.last().is_none_or(|part| part.bytes() >= MAX_BYTES) {
                parts.push(JsonRows::new());
            }
            if let Some(part) = parts.last_mut() {
                part.row();
                fill(part, row);
            }
        }
        Batch { sql, parts }
    }

    /// Every row was found under this transaction's lock, so each is matched; sqlx counts matched rows.
    async fn run(self, tx: &mut Tx) -> Result<(), StoreError> {
        for part in self.parts {
            let count = part.len() as u64;
            let matched = tx.run(self.sql.bind(part.into_text())).await?;
            if matched != count {
                let what = format!("{matched} of {count} locked rows were changed");
                return Err(StoreError::Invariant { op: self.sql.name, what });
            }
        }
        Ok(())
    }
}

pub(super) const QUERIES: &[&Sql] =
    &[&TASKS, &PENDING, &TO_RUNNING, &TO_PENDING, &RUNNING, &DELETE_PENDING, &DELETE_RUNNING];
