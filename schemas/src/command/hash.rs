//! The two hashes of a command: which task it speaks of, and what it says.
//!
//! Both lie in MySQL for the retention time, so their inputs never change; golden values stand in the tests.

use crate::due::Completion;
use crate::ids::RowId;
use crate::row::{RowBody, RowOptions};

/// Headers that tell where a submission came from, not what it says: a resubmission has others.
const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Identity of a task: 128 bits over `(shard_key, task_id)`, each preceded by its length.
pub fn identity(shard_key: &str, task_id: &str) -> [u8; 16] {
    let mut hasher = Hasher::new(b"duestream identity 1");
    hasher.bytes(shard_key.as_bytes());
    hasher.bytes(task_id.as_bytes());
    hasher.finish()
}

/// Identity of a task whose producer chose no id. No task id that a producer chooses gives the same, not even the row id in
/// decimal, by which such a task is called: it would be taken for another's, or keep another from being accepted.
pub fn row_identity(shard_key: Option<&str>, id: RowId) -> [u8; 16] {
    let mut hasher = Hasher::new(b"duestream identity of a row 1");
    hasher.optional(shard_key.map(str::as_bytes));
    hasher.bytes(&id.0.to_le_bytes());
    hasher.finish()
}

/// The identities of the task that somebody means by this id: the one whose producer chose it, and, where it is a row id
/// in decimal, the one that is called by it because its producer chose none. They are looked for in this order.
pub fn identities(shard_key: Option<&str>, task_id: &str) -> Vec<[u8; 16]> {
    let chosen = identity(shard_key.unwrap_or(task_id), task_id);
    let row = task_id.parse().ok().map(RowId).filter(|id| id.to_string() == task_id);
    [Some(chosen), row.map(|id| row_identity(shard_key, id))].into_iter().flatten().collect()
}

/// Due time as the producer asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedDue {
    /// An instant, epoch ms.
    At(i64),
    /// So many ms after the record's timestamp.
    After(i64),
}

/// 128 bits over what was submitted, besides the identity. The form does not matter, nor does how a time was written;
/// a delay counts as a delay, so that resubmitting it later is the same content.
pub(super) fn content(asked: AskedDue, topic: &str, body: &RowBody, options: &RowOptions) -> [u8; 16] {
    let mut hasher = Hasher::new(b"duestream content 1");
    let (tag, ms) = match asked {
        AskedDue::At(at) => (0, at),
        AskedDue::After(delay_ms) => (1, delay_ms),
    };
    hasher.byte(tag);
    hasher.number(ms);
    hasher.bytes(topic.as_bytes());
    hasher.optional(body.key.as_deref());
    hasher.optional(body.value.as_deref());
    for header in body.headers.iter().filter(|header| !TRACE_HEADERS.contains(&header.name.as_str())) {
        hasher.byte(1);
        hasher.bytes(header.name.as_bytes());
        hasher.optional(header.value.as_deref());
    }
    hasher.byte(0);
    hasher.optional(options.partition.map(i32::to_le_bytes).as_ref().map(<[u8; 4]>::as_slice));
    hasher.optional(options.expires_at.map(i64::to_le_bytes).as_ref().map(<[u8; 8]>::as_slice));
    hasher.byte(match options.completion {
        Completion::OnDelivery => 0,
        Completion::OnAck => 1,
    });
    hasher.finish()
}

/// Length-prefixed parts, so that no two lists of parts give the same input.
struct Hasher(blake3::Hasher);

impl Hasher {
    fn new(purpose: &[u8]) -> Hasher {
        let mut hasher = Hasher(blake3::Hasher::new());
        hasher.bytes(purpose);
        hasher
    }

    fn byte(&mut self, byte: u8) {
        self.0.update(&[byte]);
    }

    fn number(&mut self, number: i64) {
        self.0.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn optional(&mut self, bytes: Option<&[u8]>) {
        self.byte(u8::from(bytes.is_some()));
        if let Some(bytes) = bytes {
            self.bytes(bytes);
        }
    }

    fn finish(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        out
    }
}
