//! The two hashes of a command: which task it speaks of, and what it says.
//!
//! Both lie in MySQL for the retention time, so their inputs never change; golden values stand in the tests.

use crate::due::Completion;
use crate::ids::RowId;
use crate::options::TaskOptions;
use crate::row::RowBody;

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
    // What is delivered names the task id as shard key where there is none.
    let shard_key = shard_key.filter(|shard_key| *shard_key != task_id);
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

/// Where and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) partition: Option<i32>,
    pub(super) expires_at: Option<i64>,
}

/// 128 bits over what was submitted, besides the identity. The form does not matter, nor does how a time was written;
/// a delay counts as a delay, so that resubmitting it later is the same content.
///
/// Options that came later stand behind, each with a tag of its own and only where it is given: without them the hash is
/// what it was before they came. Defaults that a configuration adds are no part of it.
pub(super) fn content(
    asked: AskedDue,
    topic: &str,
    body: &RowBody,
    place: &Place,
    options: &TaskOptions,
) -> [u8; 16] {
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
    hasher.optional(place.partition.map(i32::to_le_bytes).as_ref().map(<[u8; 4]>::as_slice));
    hasher.optional(place.expires_at.map(i64::to_le_bytes).as_ref().map(<[u8; 8]>::as_slice));
    hasher.byte(match options.completion.unwrap_or_default() {
        Completion::OnDelivery => 0,
        Completion::OnAck => 1,
    });
    let texts = [
        (1, options.max_attempts.map(|n| n.to_string())),
        (2, options.backoff.map(|backoff| backoff.to_string())),
        (3, options.ack_timeout_ms.map(|ms| ms.to_string())),
        (4, options.max_stalls.map(|n| n.to_string())),
        (5, options.spread.map(|spread| spread.to_string())),
        (6, options.window.map(|window| window.to_string())),
    ];
    for (tag, text) in texts {
        if let Some(text) = text {
            hasher.byte(tag);
            hasher.bytes(text.as_bytes());
        }
    }
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
