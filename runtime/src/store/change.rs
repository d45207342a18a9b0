//! Answers owed (table `change`): what cannot be read back from a task's row and must be said again after a crash.
//!
//! Written in the transaction that decides the command, deleted once the answer was acked. The bytes of a refused
//! command are not kept here: they are read again from their topic, where `confirmed` has not passed them.

use super::bulk::Bulk;
use super::error::StoreError;
use super::session::{Session, Tx};
use super::sql::{Bind, Call, Sql};
use schemas::command::{ReasonCode, Refusal};
use schemas::ids::RowId;

/// Column `kind`: an answer that was decided and not acked. (1 = intent, 3 = parked ack.)
const ANSWER_OWED: u8 = 2;
/// Column `answer`: the command was refused and goes to `rejected`.
const REJECTED: u8 = 7;
/// Longest field and message that are kept: together they fit `payload`.
const MAX_FIELD_BYTES: usize = 300;
const MAX_MESSAGE_BYTES: usize = 1700;
/// Between field and message in `payload`: a byte that UTF-8 never holds.
const SEPARATOR: u8 = 0xff;

static INSERT: Bulk = Bulk::insert(
    "change_insert_answer",
    "`change`",
    &["command", "id", "gen", "kind", "received_at", "answer", "reason", "payload"],
);
static OWED: Sql = Sql::range(
    "change_owed",
    "SELECT command, reason, payload FROM `change` WHERE command >= ? AND command <= ? AND kind = 2 AND answer = 7",
    &[Bind::U(10), Bind::U(20)],
);
static ANSWERED: Sql = Sql::range(
    "change_answered",
    "DELETE FROM `change` WHERE command >= ? AND command < ? AND kind = 2",
    &[Bind::U(10), Bind::U(20)],
);

/// A command that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The command.
    pub command: RowId,
    /// When it was refused.
    pub received_at: i64,
    /// Why.
    pub refusal: Refusal,
}

/// Notes that these commands are refused and nobody has been told yet.
pub async fn owe_rejections(tx: &mut Tx, refused: &[Refused]) -> Result<(), StoreError> {
    let rows: Vec<(&Refused, Vec<u8>)> = refused.iter().map(|r| (r, payload(&r.refusal))).collect();
    let bind = |call: Call, (refused, payload): &(&Refused, Vec<u8>)| {
        call.bind(refused.command.0)
            .bind(refused.command.0)
            .bind(0u32)
            .bind(ANSWER_OWED)
            .bind(refused.received_at)
            .bind(REJECTED)
            .bind(refused.refusal.code.as_str().as_bytes())
            .bind(&payload[..])
    };
    tx.insert(&INSERT, &rows, |(_, payload)| 80 + payload.len(), bind).await
}

/// The rejections that are still owed for commands from `first` to `last`, which are of one partition.
pub async fn owed_rejections(
    session: &mut Session,
    first: RowId,
    last: RowId,
) -> Result<Vec<(RowId, Refusal)>, StoreError> {
    let rows =
        session.all::<(u64, Option<Vec<u8>>, Option<Vec<u8>>)>(OWED.bind(first.0).bind(last.0)).await?;
    rows.into_iter()
        .map(|(command, reason, payload)| {
            let refusal =
                read_back(reason.as_deref(), payload.as_deref()).ok_or_else(|| StoreError::Invariant {
                    op: OWED.name,
                    what: format!("the refusal of command {command} cannot be read back"),
                })?;
            Ok((RowId(command), refusal))
        })
        .collect()
}

/// The answers to commands from `first` up to, not including, `end` were acked.
pub async fn forget_answered(session: &mut Session, first: RowId, end: RowId) -> Result<u64, StoreError> {
    session.run(ANSWERED.bind(first.0).bind(end.0)).await
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

fn read_back(reason: Option<&[u8]>, payload: Option<&[u8]>) -> Option<Refusal> {
    let reason = std::str::from_utf8(reason?).ok()?;
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
        assert_eq!(read_back(Some(b"invalid_time"), Some(&payload)), Some(refusal));
        let whole = Refusal::of_record(ReasonCode::NotACommand, "is garbage");
        let payload = super::payload(&whole);
        assert_eq!(read_back(Some(b"not_a_command"), Some(&payload)), Some(whole));
    }

    #[test]
    fn the_longest_refusal_fits_its_column_and_is_cut_at_a_character() {
        for c in ["\0", "\"", "ä", "𝄞"] {
            let code = ReasonCode::InvalidTime;
            let refusal = Refusal { code, field: Some(c.repeat(500)), message: c.repeat(5000) };
            let payload = payload(&refusal);
            assert!(payload.len() <= 2048, "{c:?}");
            let back = read_back(Some(b"invalid_time"), Some(&payload)).unwrap();
            assert!(refusal.message.starts_with(&back.message) && back.message.len() > 1600);
        }
    }
}
