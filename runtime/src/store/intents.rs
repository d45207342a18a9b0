//! Changes that wait for the journal (table `change`): open intents, parked acks, and the answers that are owed for
//! intents once their fate is known.
//!
//! ```text
//! kind 1 intent ────── its row's fate was applied ──┬── somebody asked ──▶ kind 4 answer owed ── sent ──▶ gone
//! kind 3 parked ack ───────────────────────────────┴── nobody did ──▶ gone
//! ```
//!
//! An intent is written and closed only by who holds its row's lock, so who holds it sees all of them. What is owed for
//! commands that are decided at once (kind 2) is in `change`.

use super::bulk::Bulk;
use super::change::{self, Owed};
use super::error::StoreError;
use super::json::JsonRows;
use super::rows::{text_or_null, undecodable};
use super::session::{Session, Tx};
use super::sql::{Bind, Call, Sql};
use protocol::ack::{Ack, Report};
use protocol::change::{Answer, Intent, Reschedule};
use protocol::life::{Closed, Open, What};
use schemas::command::Asked;
use schemas::ids::{Generation, RowId};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row as _};
use std::collections::{BTreeSet, HashMap};

/// Column `kind`.
const INTENT: u8 = 1;
const PARKED: u8 = 3;
const OWED_ANSWER: u8 = 4;
/// Column `op` of an intent.
const CANCEL: u8 = 1;
const RESCHEDULE: u8 = 2;
const FINISH: u8 = 3;
/// Column `op` of a parked ack.
const PROGRESS: u8 = 1;
const SUCCEEDED: u8 = 2;
const FAILED: u8 = 3;
const FAILED_FOR_GOOD: u8 = 4;

/// Rows per statement.
const ROWS: usize = 1_000;
/// Longest reason of a failure that is kept.
const MAX_REASON_BYTES: usize = 255;

// FORCE INDEX: this table is empty most of the time, and a plan made of that would read all of it when it is not.
static OPEN: Sql = Sql::hot(
    "intents_open",
    "SELECT c.command, c.id, c.gen, c.op, c.new_due_at, c.expires_at, c.received_at, c.reason, c.payload, c.kind \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]')) AS k \
     STRAIGHT_JOIN `change` AS c FORCE INDEX (k_row) ON c.id = k.id \
     WHERE c.kind IN (1, 3)",
    &[Bind::S("[[70],[80]]")],
);
/// What was asked for is told again only where it is what came of it.
static OWE: Sql = Sql::hot(
    "intents_owe",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (command BIGINT UNSIGNED PATH '$[0]', answer TINYINT UNSIGNED PATH '$[1]', \
     reason VARCHAR(510) PATH '$[2]', payload VARCHAR(4096) PATH '$[3]', resend_at BIGINT PATH '$[4]')) AS k \
     STRAIGHT_JOIN `change` AS c FORCE INDEX (PRIMARY) ON c.command = k.command \
     SET c.kind = 4, c.answer = k.answer, c.reason = UNHEX(k.reason), c.payload = UNHEX(k.payload), \
     c.resend_at = k.resend_at, c.new_due_at = CASE WHEN k.answer = 1 THEN c.new_due_at END \
     WHERE c.kind = 1 AND c.reply IS NOT NULL",
    &[Bind::S(r#"[[300001,4,null,null,99],[300002,7,"64656164",null,99]]"#)],
);
static CLOSE: Sql = Sql::hot(
    "intents_close",
    "DELETE c FROM JSON_TABLE(?, '$[*]' COLUMNS (command BIGINT UNSIGNED PATH '$[0]')) AS k \
     STRAIGHT_JOIN `change` AS c FORCE INDEX (PRIMARY) ON c.command = k.command \
     WHERE c.kind IN (1, 3)",
    &[Bind::S("[[300001],[300002]]")],
);
static OWED: Sql = Sql::hot(
    "intents_owed",
    "SELECT c.command, c.received_at, c.answer, c.reason, c.payload, c.reply, c.task_id, c.shard_key, c.correlation, \
     c.new_due_at, c.op, c.id \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]')) AS k \
     STRAIGHT_JOIN `change` AS c FORCE INDEX (k_row) ON c.id = k.id \
     WHERE c.kind = 4",
    &[Bind::S("[[70],[80]]")],
);
static TOLD: Sql = Sql::hot(
    "intents_told",
    "DELETE c FROM JSON_TABLE(?, '$[*]' COLUMNS (command BIGINT UNSIGNED PATH '$[0]')) AS k \
     STRAIGHT_JOIN `change` AS c FORCE INDEX (PRIMARY) ON c.command = k.command \
     WHERE c.kind = 4",
    &[Bind::S("[[300001],[300002]]")],
);
/// The rows of which the intents of some commands speak.
static ROWS_OF: Sql = Sql::range(
    "intents_rows_of",
    "SELECT c.id FROM `change` AS c WHERE c.command >= ? AND c.command <= ? AND c.kind = 1",
    &[Bind::U(300_001), Bind::U(300_020)],
);
/// In the order in which they wait. Each instance takes those whose row id falls to it.
static WAITING: Sql = Sql::range(
    "intents_waiting",
    "SELECT c.command, c.id, c.gen, c.kind, c.received_at FROM `change` AS c FORCE INDEX (k_resend) \
     WHERE c.resend_at <= ? AND c.kind IN (1, 4) AND c.id % ? = ? ORDER BY c.resend_at LIMIT ?",
    &[Bind::I(200), Bind::U(8), Bind::U(0), Bind::U(100)],
);
static LATER: Sql = Sql::hot(
    "intents_later",
    "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (command BIGINT UNSIGNED PATH '$[0]', resend_at BIGINT PATH '$[1]')) AS k \
     STRAIGHT_JOIN `change` AS c FORCE INDEX (PRIMARY) ON c.command = k.command \
     SET c.resend_at = k.resend_at",
    &[Bind::S("[[300001,99],[300002,99]]")],
);
static INSERT: Bulk = Bulk::insert(
    "intents_insert",
    "`change`",
    &[
        "command",
        "id",
        "gen",
        "kind",
        "op",
        "new_due_at",
        "expires_at",
        "received_at",
        "resend_at",
        "reason",
        "payload",
        "reply",
        "task_id",
        "shard_key",
        "correlation",
    ],
);

/// When intents and answers are told of again, and whom.
#[derive(Clone, Copy, Debug)]
pub struct Telling<'a> {
    /// When the commands were received.
    pub received_at: i64,
    /// From when on the compensator takes care of what has not been told by then.
    pub resend_at: i64,
    /// Replies that commands ask for.
    pub asked: &'a HashMap<RowId, Asked>,
}

/// What waits for the journal of these rows, whatever their gen. Under the rows' locks this is all there is.
pub async fn open(session: &mut Session, ids: &BTreeSet<RowId>) -> Result<Vec<Open>, StoreError> {
    let ids: Vec<RowId> = ids.iter().copied().collect();
    let mut open = Vec::new();
    for chunk in ids.chunks(ROWS) {
        open.extend(session.all::<Stored>(OPEN.bind(keys(chunk))).await?.into_iter().map(|stored| stored.0));
    }
    Ok(open)
}

/// Notes what was opened, and answers or forgets what was closed. Under the rows' locks.
pub async fn write(
    tx: &mut Tx,
    opened: &[Open],
    closed: &[Closed],
    telling: Telling<'_>,
) -> Result<(), StoreError> {
    let line = |open| Line { open, telling, asked: telling.asked.get(&open.command) };
    let lines: Vec<Line<'_>> = opened.iter().map(line).collect();
    tx.insert(&INSERT, &lines, Line::weight_bytes, |call, line| line.bind(call)).await?;
    for chunk in closed.chunks(ROWS) {
        let answers: Vec<(RowId, Answer)> =
            chunk.iter().filter_map(|closed| Some((closed.command, closed.answer?))).collect();
        if !answers.is_empty() {
            tx.run(OWE.bind(answers_of(&answers, telling.resend_at))).await?;
        }
        // What is owed now has another kind.
        let commands = chunk.iter().map(|closed| closed.command);
        tx.run(CLOSE.bind(keys_of(commands))).await?;
    }
    Ok(())
}

/// Answers that are owed for changes of these rows.
pub async fn owed(session: &mut Session, ids: &BTreeSet<RowId>) -> Result<Vec<Owed>, StoreError> {
    let ids: Vec<RowId> = ids.iter().copied().collect();
    let mut owed = Vec::new();
    for chunk in ids.chunks(ROWS) {
        owed.extend(change::read_owed(session, &OWED, OWED.bind(keys(chunk))).await?);
    }
    Ok(owed)
}

/// These answers were acked.
pub async fn told(
    session: &mut Session,
    commands: impl IntoIterator<Item = RowId>,
) -> Result<(), StoreError> {
    let commands: Vec<RowId> = commands.into_iter().collect();
    for chunk in commands.chunks(ROWS) {
        session.run(TOLD.bind(keys(chunk))).await?;
    }
    Ok(())
}

/// The rows of which the intents of commands from `first` to `last` speak, which are of one partition.
pub async fn rows_of(
    session: &mut Session,
    first: RowId,
    last: RowId,
) -> Result<BTreeSet<RowId>, StoreError> {
    let rows = session.all::<(u64,)>(ROWS_OF.bind(first.0).bind(last.0)).await?;
    Ok(rows.into_iter().map(|(id,)| RowId(id)).collect())
}

/// An intent without an answer, or an answer that was not told, after its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The command.
    pub command: RowId,
    /// The row that it speaks of.
    pub id: RowId,
    /// The generation in which it found it.
    pub generation: Generation,
    /// Its fate is known, the answer is to be told.
    pub answered: bool,
    /// When the command was received.
    pub received_at: i64,
}

impl<'r> FromRow<'r, MySqlRow> for Waiting {
    fn from_row(row: &'r MySqlRow) -> Result<Waiting, sqlx::Error> {
        Ok(Waiting {
            command: RowId(row.try_get(0)?),
            id: RowId(row.try_get(1)?),
            generation: Generation(row.try_get(2)?),
            answered: row.try_get::<u8, _>(3)? == OWED_ANSWER,
            received_at: row.try_get(4)?,
        })
    }
}

/// What waits since its time, of the rows that fall to share `share` of `shares`.
pub async fn waiting(
    session: &mut Session,
    now: i64,
    shares: u16,
    share: u16,
    limit: u32,
) -> Result<Vec<Waiting>, StoreError> {
    session.all(WAITING.bind(now).bind(shares.max(1)).bind(share).bind(limit)).await
}

/// Not again before these times.
pub async fn later(session: &mut Session, times: &[(RowId, i64)]) -> Result<(), StoreError> {
    if times.is_empty() {
        return Ok(());
    }
    let times = JsonRows::of(times, |row, (command, resend_at)| {
        row.uint(command.0).int(*resend_at);
    });
    session.run(LATER.bind(times.into_text())).await?;
    Ok(())
}

/// A row of the table on its way in.
struct Line<'a> {
    open: &'a Open,
    telling: Telling<'a>,
    asked: Option<&'a Asked>,
}

/// What differs between the kinds.
#[derive(Default)]
struct Columns<'a> {
    kind: u8,
    op: u8,
    new_due_at: Option<i64>,
    expires_at: Option<i64>,
    received_at: i64,
    resend_at: Option<i64>,
    reason: Option<&'a [u8]>,
    payload: Option<&'a [u8]>,
}

impl<'a> Line<'a> {
    fn columns(&self) -> Columns<'a> {
        match &self.open.what {
            What::Intent(intent) => {
                let (op, reschedule) = match intent {
                    Intent::Cancel => (CANCEL, None),
                    Intent::Reschedule(reschedule) => (RESCHEDULE, Some(reschedule)),
                    Intent::Finish => (FINISH, None),
                };
                let (received_at, resend_at) = (self.telling.received_at, Some(self.telling.resend_at));
                let new_due_at = reschedule.map(|to| to.due_at);
                let expires_at = reschedule.and_then(|to| to.expires_at);
                Columns {
                    kind: INTENT,
                    op,
                    new_due_at,
                    expires_at,
                    received_at,
                    resend_at,
                    ..Columns::default()
                }
            }
            // It waits for the journal alone: nothing is sent again for it.
            What::Parked(ack) => {
                let payload = ack.progress.as_deref();
                let common = Columns { kind: PARKED, received_at: ack.at, payload, ..Columns::default() };
                match &ack.report {
                    Report::Progress => Columns { op: PROGRESS, ..common },
                    Report::Succeeded => Columns { op: SUCCEEDED, ..common },
                    Report::Failed { reason, permanent } => {
                        let reason = reason.as_deref();
                        let reason =
                            reason.map(|text| &text.as_bytes()[..text.floor_char_boundary(MAX_REASON_BYTES)]);
                        Columns { op: if *permanent { FAILED_FOR_GOOD } else { FAILED }, reason, ..common }
                    }
                }
            }
        }
    }

    fn weight_bytes(&self) -> usize {
        let columns = self.columns();
        let asked = self.asked.map_or(0, |asked| {
            asked.correlation.as_ref().map_or(0, Vec::len)
                + asked.task_id.as_ref().map_or(0, String::len)
                + asked.shard_key.as_ref().map_or(0, String::len)
        });
        120 + columns.reason.map_or(0, <[u8]>::len) + columns.payload.map_or(0, <[u8]>::len) + asked
    }

    fn bind(&self, call: Call) -> Call {
        let Columns { kind, op, new_due_at, expires_at, received_at, resend_at, reason, payload } =
            self.columns();
        call.bind(self.open.command.0)
            .bind(self.open.id.0)
            .bind(self.open.generation.0)
            .bind(kind)
            .bind(op)
            .bind(new_due_at)
            .bind(expires_at)
            .bind(received_at)
            .bind(resend_at)
            .bind(reason)
            .bind(payload)
            .bind(self.asked.map(|asked| change::reply_form(asked.as_avro)))
            .bind(self.asked.and_then(|asked| asked.task_id.as_deref()).map(str::as_bytes))
            .bind(self.asked.and_then(|asked| asked.shard_key.as_deref()).map(str::as_bytes))
            .bind(self.asked.and_then(|asked| asked.correlation.as_deref()))
    }
}

struct Stored(Open);

impl<'r> FromRow<'r, MySqlRow> for Stored {
    fn from_row(row: &'r MySqlRow) -> Result<Stored, sqlx::Error> {
        let command = RowId(row.try_get(0)?);
        let id = RowId(row.try_get(1)?);
        let generation = Generation(row.try_get(2)?);
        let op = row.try_get::<Option<u8>, _>(3)?.unwrap_or_default();
        let what = match (row.try_get::<u8, _>(9)?, op) {
            (INTENT, CANCEL) => What::Intent(Intent::Cancel),
            (INTENT, FINISH) => What::Intent(Intent::Finish),
            (INTENT, RESCHEDULE) => {
                let due_at = row.try_get::<Option<i64>, _>(4)?;
                let due_at =
                    due_at.ok_or_else(|| undecodable(4, "a reschedule without a due time".into()))?;
                What::Intent(Intent::Reschedule(Reschedule { due_at, expires_at: row.try_get(5)? }))
            }
            (PARKED, _) => {
                let (at, progress, report) = (row.try_get(6)?, row.try_get(8)?, report(row, op)?);
                What::Parked(Ack { command, at, id, generation, report, progress })
            }
            (kind, op) => {
                return Err(undecodable(3, format!("kind {kind} op {op} of a newer version").into()));
            }
        };
        Ok(Stored(Open { command, id, generation, what }))
    }
}

fn report(row: &MySqlRow, op: u8) -> Result<Report, sqlx::Error> {
    Ok(match op {
        PROGRESS => Report::Progress,
        SUCCEEDED => Report::Succeeded,
        FAILED | FAILED_FOR_GOOD => {
            Report::Failed { reason: text_or_null(row, 7)?, permanent: op == FAILED_FOR_GOOD }
        }
        op => return Err(undecodable(3, format!("parked ack {op} of a newer version").into())),
    })
}

fn answers_of(answers: &[(RowId, Answer)], resend_at: i64) -> String {
    JsonRows::of(answers, |row, (command, answer)| {
        let (answer, refusal) = answer.told();
        row.uint(command.0).uint(change::code(answer));
        match refusal {
            None => row.null().null(),
            Some(refusal) => row.hex(refusal.code.as_str().as_bytes()).hex(&change::payload(&refusal)),
        };
        row.int(resend_at);
    })
    .into_text()
}

fn keys(ids: &[RowId]) -> String {
    keys_of(ids.iter().copied())
}

fn keys_of(ids: impl Iterator<Item = RowId>) -> String {
    JsonRows::of(ids, |row, id| {
        row.uint(id.0);
    })
    .into_text()
}

pub(super) const QUERIES: &[&Sql] = &[&OPEN, &OWE, &CLOSE, &OWED, &TOLD, &ROWS_OF, &WAITING, &LATER];
pub(super) const BULKS: &[&Bulk] = &[&INSERT];
