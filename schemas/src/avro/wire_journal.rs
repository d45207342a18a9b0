//! Codec of the journal record.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::LazyLock;

use super::codec::{Codec, DecodeError};
use super::wire_parts::RULE_U16;
use crate::ids::{Generation, RowId, Shard};
use crate::journal::{EntryKind, JournalEntry, JournalKind, JournalRecord, OwnerToken};

const RECORD: &str = "journal record";
pub(super) const VERSIONS: &[&str] = &[include_str!("../../avsc/journal_record/v1.avsc")];
static CODEC: LazyLock<Codec<WireJournal<'static>>> = LazyLock::new(|| Codec::new(RECORD, VERSIONS));

#[derive(Serialize, Deserialize)]
#[serde(rename = "JournalRecord")]
struct WireJournal<'a> {
    #[serde(with = "apache_avro::serde::fixed")]
    token: [u8; 16],
    kind: WireJournalKind,
    cold: bool,
    backlog: i64,
    credit: i64,
    local_at: i64,
    redis_at: i64,
    entries: Vec<WireEntry<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "JournalKind", rename_all = "SCREAMING_SNAKE_CASE")]
enum WireJournalKind {
    Barrier,
    Batch,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "JournalEntry")]
struct WireEntry<'a> {
    kind: WireEntryKind,
    shard: i32,
    due_at: i64,
    id: i64,
    #[serde(rename = "gen")]
    generation: i32,
    at: i64,
    reason: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "EntryKind", rename_all = "SCREAMING_SNAKE_CASE")]
enum WireEntryKind {
    Delivered,
    Withdrawn,
    Buried,
    Stale,
}

impl JournalRecord {
    /// Avro single-object encoding.
    pub fn encode(&self) -> Vec<u8> {
        let wire = WireJournal {
            token: self.token.0.to_be_bytes(),
            kind: match self.kind {
                JournalKind::Barrier => WireJournalKind::Barrier,
                JournalKind::Batch => WireJournalKind::Batch,
            },
            cold: self.cold,
            backlog: self.backlog,
            credit: self.credit,
            local_at: self.local_at,
            redis_at: self.redis_at,
            entries: self.entries.iter().map(WireEntry::from).collect(),
        };
        CODEC.encode(&wire, 64 + self.entries.len() * 40)
    }

    /// Reads what any shipped version of `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<JournalRecord, DecodeError> {
        let wire = CODEC.decode(bytes)?;
        let entries: Option<Vec<_>> = wire.entries.into_iter().map(WireEntry::into_entry).collect();
        Ok(JournalRecord {
            token: OwnerToken(u128::from_be_bytes(wire.token)),
            kind: match wire.kind {
                WireJournalKind::Barrier => JournalKind::Barrier,
                WireJournalKind::Batch => JournalKind::Batch,
            },
            cold: wire.cold,
            backlog: wire.backlog,
            credit: wire.credit,
            local_at: wire.local_at,
            redis_at: wire.redis_at,
            entries: entries.ok_or(DecodeError::Field {
                record: RECORD,
                field: "entries.shard",
                rule: RULE_U16,
            })?,
        })
    }
}

impl<'a> From<&'a JournalEntry> for WireEntry<'a> {
    fn from(entry: &'a JournalEntry) -> Self {
        WireEntry {
            kind: match entry.kind {
                EntryKind::Delivered => WireEntryKind::Delivered,
                EntryKind::Withdrawn => WireEntryKind::Withdrawn,
                EntryKind::Buried => WireEntryKind::Buried,
                EntryKind::Stale => WireEntryKind::Stale,
            },
            shard: entry.shard.0.into(),
            due_at: entry.due_at,
            id: entry.id.0.cast_signed(),
            generation: entry.generation.0.cast_signed(),
            at: entry.at,
            reason: entry.reason.as_deref().map(Cow::Borrowed),
        }
    }
}

impl WireEntry<'_> {
    /// `None`: the shard does not fit 16 bits.
    fn into_entry(self) -> Option<JournalEntry> {
        Some(JournalEntry {
            kind: match self.kind {
                WireEntryKind::Delivered => EntryKind::Delivered,
                WireEntryKind::Withdrawn => EntryKind::Withdrawn,
                WireEntryKind::Buried => EntryKind::Buried,
                WireEntryKind::Stale => EntryKind::Stale,
            },
            shard: Shard(self.shard.try_into().ok()?),
            due_at: self.due_at,
            id: RowId(self.id.cast_unsigned()),
            generation: Generation(self.generation.cast_unsigned()),
            at: self.at,
            reason: self.reason.map(Cow::into_owned),
        })
    }
}
