//! Reads `journal[s]` at a take-over, and looks at both logs of the slot. Calls block.

use crate::world::World;
use protocol::slot::{JournalChunk, JournalItem, LogBounds};
use runtime::clock;
use runtime::kafka::{JournalReader, KafkaFault};
use schemas::ids::Slot;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Fates in one chunk, about: what is settled in Redis between two reads.
const CHUNK_ENTRIES: usize = 20_000;
const CHUNK_RECORDS: usize = 5_000;
/// One stretch must be read within this; a foreign transaction that holds the journal shows here.
const READ: Duration = Duration::from_secs(8);
const CALL: Duration = Duration::from_secs(10);
/// How far back the last record is looked for: markers and aborted records lie behind it.
const TAIL: i64 = 200;

/// Reader of one slot.
pub(crate) struct Journal {
    reader: JournalReader,
    partition: i32,
}

impl Journal {
    pub(crate) fn new(world: &World, slot: Slot) -> Result<Journal, KafkaFault> {
        let names = &world.names;
        let reader = JournalReader::new(&world.cluster, &names.group("dispatcher"), &names.journal())?;
        Ok(Journal { reader, partition: i32::from(slot.0) })
    }

    /// A stretch from `from` on, at most up to `to`.
    pub(crate) fn read(&self, from: i64, to: i64) -> Result<JournalChunk, String> {
        let (start, _) = self.reader.stable_range(self.partition, CALL).map_err(text)?;
        let begin = from.max(start);
        let mut chunk = JournalChunk { start: begin, records: Vec::new(), next: begin, done: true };
        let mut entries = 0;
        let mut each = |record: runtime::kafka::Record| {
            let item = JournalItem::read(record.value.as_deref().unwrap_or_default());
            if let JournalItem::Known(known) = &item {
                entries += known.entries.len();
            }
            chunk.next = record.offset + 1;
            chunk.records.push((record.offset, item));
            if record.offset < to && (entries >= CHUNK_ENTRIES || chunk.records.len() >= CHUNK_RECORDS) {
                chunk.done = false;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        self.reader.read(self.partition, begin, to, Instant::now() + READ, &mut each).map_err(text)?;
        if chunk.done {
            chunk.next = chunk.next.max(to + 1);
        }
        Ok(chunk)
    }

    /// First offset younger than W before the last record that is decided.
    fn window(&self, start: i64, end: i64, window_ms: i64) -> Result<i64, KafkaFault> {
        if start >= end {
            return Ok(end);
        }
        let tail =
            self.reader.read_all(self.partition, start.max(end - TAIL), end - 1, Instant::now() + READ)?;
        let last_at = tail.last().map_or_else(clock::now_ms, |record| record.at);
        self.reader.offset_at(self.partition, last_at - window_ms, CALL)
    }

    /// Bounds of both logs.
    pub(crate) async fn inspect(&self, world: &World, window_ms: i64) -> Result<LogBounds, String> {
        let (journal, due) = (world.names.journal(), world.names.due());
        let id = world.admin.topic_id(&journal).await.map_err(text)?;
        let (due_start, due_end) = world.admin.watermarks(&due, self.partition).await.map_err(text)?;
        let recent_at = clock::now_ms() - window_ms;
        let due_recent = world.admin.offset_at(&due, self.partition, recent_at).await.map_err(text)?;
        let (journal_start, journal_end) =
            world.admin.watermarks(&journal, self.partition).await.map_err(text)?;
        let journal_recent = self.reader.offset_at(self.partition, recent_at, CALL).map_err(text)?;
        // A stranger's open transaction may hold the journal below its end: that is a delay, no loss.
        let (_, decided) = self.reader.stable_range(self.partition, CALL).map_err(text)?;
        let journal_window = self.window(journal_start, decided, window_ms).map_err(text)?;
        Ok(LogBounds {
            same_journal: id == Some(world.journal_id),
            journal_start,
            journal_end,
            journal_window,
            journal_recent,
            due_start,
            due_end,
            due_recent: due_recent.clamp(due_start, due_end),
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(fault: KafkaFault) -> String {
    fault.to_string()
}
