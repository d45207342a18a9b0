//! Answers owed (table `change`): what cannot be read back from a task's row and must be said again after a crash. That a
//! command was refused, and the reply to a command that asked for one.
//!
//! Written in the transaction that decides the command, deleted once the answer was acked. The bytes of a refused
//! command are not kept here: they are read again from their topic, where `confirmed` has not passed them.

use super::bulk::Bulk;
use super::error::StoreError;
use super::session::{Session, Tx};
use super::sql::{Bind, Call, Sql};
use schemas::command::{ReasonCode, Refusal};
use schemas::ids::RowId;
use schemas::reply::Answer;
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};

/// Column `kind`: an answer that was decided and not acked. (1 = intent, 3 = parked ack.)
const ANSWER_OWED: u8 = 2;
/// Column `reply`: the value is JSON.
const AS_JSON: u8 = 1;
/// Column `reply`: the value is Avro.
const AS_AVRO: u8 = 3;
/// Longest field and message that are kept: together they fit `payload`.
const MAX_FIELD_BYTES: usize = 300;
const MAX_MESSAGE_BYTES: usize = 1700;
/// Between field and message in `payload`: a byte that UTF-8 never holds.
const SEPARATOR: u8 = 0xff;

static INSERT: Bulk = Bulk::insert(
    "change_insert_answer",
    "`change`",
    &[
        "command",
        "id",
        "gen",
        "kind",
        "received_at",
        "answer",
        "reason",
        "payload",
        "reply",
        "task_id",
        "shard_key",
        "correlation",
        "new_due_at",
    ],
);
static OWED: Sql = Sql::range(
    "change_owed",
    "SELECT command, received_at, answer, reason, payload, reply, task_id, shard_key, correlation, new_due_at \
     FROM `change` WHERE command >= ? AND command <= ? AND kind = 2",
    &[Bind::U(10), Bind::U(20)],
);
static ANSWERED: Sql = Sql::range(
    "change_answered",
    "DELETE FROM `change` WHERE command >= ? AND command < ? AND kind = 2",
    &[Bind::U(10), Bind::U(20)],
);

/// What is owed for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed {
    /// The command.
    pub command: RowId,
    /// When it was decided.
    pub received_at: i64,
    /// Why it was refused: it goes to `rejected`.
    pub refusal: Option<Refusal>,
    /// The reply that it asked for.
    pub reply: Option<OwedReply>,
}

impl Owed {
    /// What is owed for a command. A refusal is cut to what the table keeps, so that it says the same each time.
    pub fn new(command: RowId, received_at: i64, refusal: Option<Refusal>, reply: Option<OwedReply>) -> Owed {
        let refusal = refusal.map(|refusal| Refusal {
            code: refusal.code,
            field: refusal.field.map(|field| cut(&field, MAX_FIELD_BYTES).to_owned()),
            message: cut(&refusal.message, MAX_MESSAGE_BYTES).to_owned(),
        });
        Owed { command, received_at, refusal, reply }
    }
}

/// A reply that is owed. Where the command stood, and why it was refused, [`Owed`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedReply {
    /// What became of the command.
    pub answer: Answer,
    /// Task that it speaks of, if that could be read.
    pub task_id: Option<String>,
    /// Its shard key.
    pub shard_key: Option<String>,
    /// When the task is due, epoch ms.
    pub due_at: Option<i64>,
    /// The command's.
    pub correlation: Option<Vec<u8>>,
    /// Whether it goes as Avro.
    pub as_avro: bool,
}

/// Column `answer`. Never changes.
fn code(answer: Answer) -> u8 {
    match answer {
        Answer::Accepted => 1,
        Answer::Duplicate => 2,
        Answer::Conflict => 3,
        Answer::Cancelled => 4,
        Answer::AlreadySent => 5,
        Answer::NotFound => 6,
        Answer::Rejected => 7,
    }
}

/// Notes that these answers were decided and nobody has been told yet.
pub async fn owe(tx: &mut Tx, owed: &[Owed]) -> Result<(), StoreError> {
    let rows: Vec<Line<'_>> = owed.iter().map(Line::of).collect();
    tx.insert(&INSERT, &rows, Line::weight_bytes, |call, line| line.bind(call)).await
}

/// What is still owed for commands from `first` to `last`, which are of one partition.
pub async fn owed(session: &mut Session, first: RowId, last: RowId) -> Result<Vec<Owed>, StoreError> {
    let rows = session.all::<Stored>(OWED.bind(first.0).bind(last.0)).await?;
    rows.into_iter()
        .map(|stored| {
            let command = stored.command;
            stored.read_back().ok_or_else(|| StoreError::Invariant {
                op: OWED.name,
                what: format!("the answer to command {command} cannot be read back"),
            })
        })
        .collect()
}

/// The answers to commands from `first` up to, not including, `end` were acked.
pub async fn forget_answered(session: &mut Session, first: RowId, end: RowId) -> Result<u64, StoreError> {
    session.run(ANSWERED.bind(first.0).bind(end.0)).await
}

/// An answer on its way into the table.
struct Line<'a> {
    owed: &'a Owed,
    answer: Answer,
    payload: Option<Vec<u8>>,
}

impl<'a> Line<'a> {
    fn of(owed: &'a Owed) -> Line<'a> {
        // Without a reply the column only tells people what the row is about.
        let answer = owed.reply.as_ref().map_or(Answer::Rejected, |reply| reply.answer);
        Line { owed, answer, payload: owed.refusal.as_ref().map(payload) }
    }

    fn weight_bytes(&self) -> usize {
        let ids = self.owed.reply.as_ref().map_or(0, |reply| {
            let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            text(&reply.task_id) + text(&reply.shard_key) + reply.correlation.as_ref().map_or(0, Vec::len)
        });
        120 + self.payload.as_ref().map_or(0, Vec::len) + ids
    }

    fn bind(&self, call: Call) -> Call {
        let reply = self.owed.reply.as_ref();
        let text = |text: Option<&'a String>| text.map(|text| text.as_bytes());
        call.bind(self.owed.command.0)
            .bind(self.owed.command.0)
            .bind(0u32)
            .bind(ANSWER_OWED)
            .bind(self.owed.received_at)
            .bind(code(self.answer))
            .bind(self.owed.refusal.as_ref().map(|refusal| refusal.code.as_str().as_bytes()))
            .bind(self.payload.as_deref())
            .bind(reply.map(|reply| if reply.as_avro { AS_AVRO } else { AS_JSON }))
            .bind(text(reply.and_then(|reply| reply.task_id.as_ref())))
            .bind(text(reply.and_then(|reply| reply.shard_key.as_ref())))
            .bind(reply.and_then(|reply| reply.correlation.as_deref()))
            .bind(reply.and_then(|reply| reply.due_at))
    }
}

/// A row of the table.
struct Stored {
    command: u64,
    received_at: i64,
    answer: Option<u8>,
    reason: Option<Vec<u8>>,
    payload: Option<Vec<u8>>,
    reply: Option<u8>,
    task_id: Option<Vec<u8>>,
    shard_key: Option<Vec<u8>>,
    correlation: Option<Vec<u8>>,
    due_at: Option<i64>,
}

impl<'r> FromRow<'r, MySqlRow> for Stored {
    fn from_row(row: &'r MySqlRow) -> Result<Stored, sqlx::Error> {
        Ok(Stored {
            command: row.try_get(0)?,
            received_at: row.try_get(1)?,
            answer: row.try_get(2)?,
            reason: row.try_get(3)?,
            payload: row.try_get(4)?,
            reply: row.try_get(5)?,
            task_id: row.try_get(6)?,
            shard_key: row.try_get(7)?,
            correlation: row.try_get(8)?,
            due_at: row.try_get(9)?,
        })
    }
}

impl Stored {
    fn read_back(self) -> Option<Owed> {
        let refusal = match (self.reason, self.payload) {
            (None, _) => None,
            (Some(reason), payload) => Some(read_back(&reason, payload.as_deref())?),
        };
        let text = |bytes: Option<Vec<u8>>| bytes.map(String::from_utf8).transpose().ok();
        let reply = match self.reply {
            None => None,
            Some(form) => Some(OwedReply {
                answer: Answer::ALL.iter().copied().find(|answer| Some(code(*answer)) == self.answer)?,
                task_id: text(self.task_id)?,
                shard_key: text(self.shard_key)?,
                due_at: self.due_at,
                correlation: self.correlation,
                as_avro: form == AS_AVRO,
            }),
        };
        Some(Owed { command: RowId(self.command), received_at: self.received_at, refusal, reply })
    }
}

/// `field 0xff message`, or `message` where the refusal names no field.
fn payload(refusal: &Refusal) -> Vec<u8> {
    let mut payload = Vec::new();
    if let Some(field) = &refusal.field {
        payload.extend_from_slice(cut(field, MAX_FIELD_BYTES).as_bytes());
        payload.push(SEPARATOR);
    }
    payload.extend_from_slice(cut(&refusal.message, MAX_MESSAGE_BYTES).as_bytes());
    payload
}

fn read_back(reason: &[u8], payload: Option<&[u8]>) -> Option<Refusal> {
    let reason = std::str::from_utf8(reason).ok()?;
    let code = ReasonCode::ALL.iter().copied().find(|code| code.as_str() == reason)?;
    let payload = payload?;
    let (field, message) = match payload.iter().position(|byte| *byte == SEPARATOR) {
        Some(at) => (Some(&payload[..at]), &payload[at + 1..]),
        None => (None, payload),
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let field = match field {
        Some(field) => Some(text(field)?),
        None => None,
    };
    Some(Refusal { code, field, message: text(message)? })
}

/// The longest prefix of at most `bytes` bytes that ends at a character.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

pub(super) const QUERIES: &[&Sql] = &[&OWED, &ANSWERED];
pub(super) const BULKS: &[&Bulk] = &[&INSERT];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_back_as_it_was() {
        let refusal =
            Refusal::of_value(ReasonCode::InvalidTime, "duestream-due-at", b"tomorrow", "is no time");
        let payload = payload(&refusal);
        assert_eq!(read_back(b"invalid_time", Some(&payload)), Some(refusal));
        let whole = Refusal::of_record(ReasonCode::NotACommand, "is garbage");
        let payload = super::payload(&whole);
        assert_eq!(read_back(b"not_a_command", Some(&payload)), Some(whole));
    }

    #[test]
    fn the_longest_refusal_fits_its_column_and_is_cut_at_a_character() {
        for c in ["\0", "\"", "ä", "𝄞"] {
            let code = ReasonCode::InvalidTime;
            let refusal = Refusal { code, field: Some(c.repeat(500)), message: c.repeat(5000) };
            let payload = payload(&refusal);
            assert!(payload.len() <= 2048, "{c:?}");
            let back = read_back(b"invalid_time", Some(&payload)).unwrap();
            assert!(refusal.message.starts_with(&back.message) && back.message.len() > 1600);
        }
    }

    #[test]
    fn every_answer_has_a_code_of_its_own() {
        let codes: std::collections::BTreeSet<u8> = Answer::ALL.iter().map(|answer| code(*answer)).collect();
        assert_eq!(codes.len(), Answer::ALL.len());
    }
}
