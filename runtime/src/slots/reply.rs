//! Reads the answers of scripts.

use super::error::SlotError;
use protocol::slot_store::Refusal;
use redis::Value;
use schemas::ids::RowGen;

/// The parts of an answer, one after the other.
pub(super) struct Reply {
    script: &'static str,
    parts: std::vec::IntoIter<Value>,
}

impl Reply {
    pub(super) fn new(script: &'static str, value: Value) -> Result<Reply, SlotError> {
        match value {
            Value::Array(parts) => Ok(Reply { script, parts: parts.into_iter() }),
            other => Err(SlotError::Script { script, what: format!("answered {other:?}") }),
        }
    }

    /// The first word of each answer.
    pub(super) fn status(&mut self) -> Result<Result<(), Refusal>, SlotError> {
        let word = self.text()?;
        match word.as_str() {
            "OK" => Ok(Ok(())),
            "FENCED" => Ok(Err(Refusal::Fenced)),
            "ROLLED_BACK" => Ok(Err(Refusal::RolledBack)),
            "LOST" => Ok(Err(Refusal::Lost)),
            _ => Err(self.unexpected("status")),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, SlotError> {
        match self.parts.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            _ => Err(self.unexpected("text")),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, SlotError> {
        String::from_utf8(self.bytes()?).map_err(|_| self.unexpected("UTF-8"))
    }

    pub(super) fn int(&mut self) -> Result<i64, SlotError> {
        self.optional_int()?.ok_or_else(|| self.unexpected("number"))
    }

    pub(super) fn size(&mut self) -> Result<u64, SlotError> {
        u64::try_from(self.int()?).map_err(|_| self.unexpected("size"))
    }

    /// A number, or `None` for an empty text.
    pub(super) fn optional_int(&mut self) -> Result<Option<i64>, SlotError> {
        let text = self.text()?;
        if text.is_empty() { Ok(None) } else { self.parse(&text).map(Some) }
    }

    pub(super) fn member(&mut self) -> Result<RowGen, SlotError> {
        RowGen::from_member(&self.bytes()?).ok_or_else(|| self.unexpected("member"))
    }

    /// A nested list.
    pub(super) fn list(&mut self) -> Result<Reply, SlotError> {
        match self.parts.next() {
            Some(value) => Reply::new(self.script, value),
            None => Err(self.unexpected("list")),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.len() == 0
    }

    pub(super) fn parse(&self, text: &str) -> Result<i64, SlotError> {
        text.parse().map_err(|_| self.unexpected("number"))
    }

    pub(super) fn unexpected(&self, wanted: &str) -> SlotError {
        SlotError::Script { script: self.script, what: format!("answered without the {wanted} expected") }
    }
}
