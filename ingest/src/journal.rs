//! The journal's side: what was delivered, withdrawn and buried reaches MySQL, and what the slots report.

use crate::deps::Deps;
use crate::metrics::{ALARMS, EMITTED, ENTRIES, RECORDS, REJECTED};
use crate::partition::{Applied, Commit, Input, Limits};
use crate::side;
use crate::tasks::rejection;
use crate::turn::{Halt, Stop, Turn};
use crate::world::Registrar;
use protocol::apply::{self, Beat, Changes, Hold, Nexts};
use protocol::position::BatchLimits;
use runtime::kafka::{KafkaFault, OutRecord, Record, TopicId};
use runtime::store::position::{self, Heartbeat};
use runtime::store::{StoreError, apply as rows, source};
use schemas::avro::DecodeError;
use schemas::command::{ReasonCode, Refusal};
use schemas::ids::{RowId, Slot, SourceId};
use schemas::journal::{EntryKind, JournalEntry, JournalRecord};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Finds out whether the journal is the one that MySQL knows.
pub struct Side {
    deps: Arc<Deps>,
    registrar: Registrar,
}

impl Side {
    /// The side, and where it says under which number the journal is registered.
    pub fn new(deps: Arc<Deps>, registrar: Registrar) -> Side {
        Side { deps, registrar }
    }
}

impl side::Side for Side {
    type Input = Journal;
    const STREAM: &'static str = "journal";

    fn topic(&self) -> String {
        self.deps.names.journal()
    }

    fn group(&self) -> String {
        self.deps.names.group("ingest-journal")
    }

    fn making_of(&self) -> String {
        "run `duectl init`".to_owned()
    }

    /// `duectl init` and the check of the world have seen to it.
    async fn unfit(&self) -> Result<Option<String>, KafkaFault> {
        Ok(None)
    }

    async fn open(&self, id: TopicId) -> Result<Journal, String> {
        let topic = self.topic();
        let mut session = self.deps.db.session().await.map_err(|error| error.to_string())?;
        let known = source::all(&mut session).await.map_err(|error| error.to_string())?;
        let registered = known.iter().rfind(|source| source.topic == topic);
        match registered {
            Some(source) if source.topic_uuid == *id.as_bytes() => {
                self.registrar.send_replace(Some(source.id));
                Ok(Journal { deps: self.deps.clone(), source: source.id })
            }
            Some(_) => {
                ALARMS.with(&["topic_recreated"]).increment(1);
                Err(format!(
                    "topic {topic} was created again (its id is {id} now): what it held of deliveries is lost. Nothing is \
                     guessed: `duectl` must be told whether what was under way is to be delivered maybe twice or maybe never"
                ))
            }
            None => Err(format!("topic {topic} is not registered: run `duectl init`")),
        }
    }

    fn closed(&self) {
        self.registrar.send_replace(None);
    }
}

/// The registered journal.
pub struct Journal {
    deps: Arc<Deps>,
    source: SourceId,
}

/// What is left to do for a batch.
pub struct Effects {
    /// Rows with a new generation.
    renewed: Vec<RowId>,
    /// Bytes that are no journal record.
    rejected: Vec<OutRecord>,
}

struct Decoded<'r> {
    records: Vec<(i64, JournalRecord)>,
    unreadable: Vec<(&'r Record, DecodeError)>,
}

/// Records of the journal in their order. A record of a schema that is not known yet holds the batch: its fates would
/// be lost, and their rows delivered again. Anything else that cannot be read was not written by a dispatcher.
fn decode(batch: &[Record]) -> Result<Decoded<'_>, Halt> {
    let mut decoded = Decoded { records: Vec::with_capacity(batch.len()), unreadable: Vec::new() };
    for record in batch {
        match JournalRecord::decode(record.value.as_deref().unwrap_or_default()) {
            Ok(read) => decoded.records.push((record.at, read)),
            Err(error @ DecodeError::UnknownSchema { .. }) => {
                return Err(Halt::new("journal_unreadable", format!("offset {}: {error}", record.offset)));
            }
            Err(error) => decoded.unreadable.push((record, error)),
        }
    }
    Ok(decoded)
}

impl Decoded<'_> {
    fn entries(&self) -> impl Iterator<Item = &JournalEntry> {
        self.records.iter().flat_map(|(_, record)| &record.entries)
    }

    fn beat(&self) -> Option<Beat> {
        Beat::fold(self.records.iter().map(|(at, record)| (*at, record)))
    }

    fn rejections(&self, deps: &Deps) -> Vec<OutRecord> {
        let refusal = |error: &DecodeError| Refusal::of_record(ReasonCode::ForeignRecord, &error.to_string());
        self.unreadable
            .iter()
            .map(|(record, error)| rejection::of(record, &refusal(error), &deps.names))
            .collect()
    }
}

impl Input for Journal {
    type Effects = Effects;

    fn source(&self) -> SourceId {
        self.source
    }

    fn limits(&self) -> Limits {
        let cfg = &self.deps.cfg.journal;
        let batch = BatchLimits { records: cfg.batch, bytes: cfg.batch_bytes };
        Limits::new(batch, cfg.linger, cfg.in_flight, &self.deps.cfg.confirm)
    }

    fn makes_positions(&self) -> bool {
        false
    }

    async fn apply(
        &self,
        batch: &[Record],
        commit: &Commit,
        refused: Option<&StoreError>,
        turn: &Turn,
    ) -> Result<Applied<Effects>, Stop> {
        if let Some(error) = refused {
            let reason = format!("MySQL refuses what the journal says (offset {}): {error}", commit.to - 1);
            return Err(Halt::new("store", reason).into());
        }
        let decoded = decode(batch)?;
        let written = turn.store(|| self.write(&decoded, commit, turn)).await?;
        let changes = written.map_err(held)?;
        count(&turn.source, batch.len(), &decoded, &changes);
        let renewed = changes.renewed.iter().map(|row| row.key.id).collect();
        Ok(applied(renewed, decoded.rejections(&self.deps)))
    }

    async fn recall(&self, batch: &[Record], turn: &Turn) -> Result<Applied<Effects>, Stop> {
        let decoded = decode(batch)?;
        RECORDS.with(&["journal", &turn.source, "repeated"]).increment(batch.len() as u64);
        let withdrawn = decoded.entries().filter(|entry| entry.kind == EntryKind::Withdrawn);
        let renewed: BTreeSet<RowId> = withdrawn.map(|entry| entry.id).collect();
        Ok(applied(renewed.into_iter().collect(), decoded.rejections(&self.deps)))
    }

    async fn carry_out(self: Arc<Self>, effects: Effects, turn: Arc<Turn>) -> Result<(), Stop> {
        rejection::send(&self.deps, effects.rejected, &turn).await?;
        let emissions = self.deps.emit_again(&effects.renewed, &turn).await?;
        let count = emissions.len() as u64;
        self.deps.emit(emissions, &turn).await?;
        EMITTED.with(&["withdrawn"]).increment(count);
        Ok(())
    }
}

impl Journal {
    /// One transaction: positions, rows under lock, what was decided, the report of the slot.
    async fn write(
        &self,
        decoded: &Decoded<'_>,
        commit: &Commit,
        turn: &Turn,
    ) -> Result<Result<Changes, Hold>, StoreError> {
        let ids: BTreeSet<RowId> = decoded.entries().map(|entry| entry.id).collect();
        let mut tx = turn.db().begin("journal_apply").await?;
        commit.advance(&mut tx).await?;
        let found = rows::lock_rows(&mut tx, &ids).await?;
        let missing: Vec<RowId> = ids.into_iter().filter(|id| !found.contains_key(id)).collect();
        let nexts = if missing.is_empty() { Nexts::new() } else { rows::nexts(&mut tx, missing).await? };
        let changes = match apply::decide(decoded.entries(), found, &nexts) {
            Ok(changes) => changes,
            Err(hold) => {
                tx.rollback().await?;
                return Ok(Err(hold));
            }
        };
        rows::write(&mut tx, &changes).await?;
        if let Some(beat) = decoded.beat() {
            let slot = Slot(u16::try_from(commit.partition).unwrap_or(u16::MAX));
            let Beat { hb_at, backlog, credit, cold_upto } = beat;
            position::heartbeat(&mut tx, self.source, slot, &Heartbeat { hb_at, backlog, credit, cold_upto })
                .await?;
        }
        tx.commit().await?;
        Ok(Ok(changes))
    }
}

fn applied(renewed: Vec<RowId>, rejected: Vec<OutRecord>) -> Applied<Effects> {
    let nothing = renewed.is_empty() && rejected.is_empty();
    // The bytes of garbage are read again after a crash, and found to be garbage again: nothing is owed in MySQL.
    Applied { effects: (!nothing).then_some(Effects { renewed, rejected }), answers: false }
}

fn held(hold: Hold) -> Halt {
    match hold {
        Hold::SourceBehind { .. } => Halt {
            again_after: Duration::from_secs(1),
            ..Halt::new("source_behind", format!("{hold}; waiting until it is"))
        },
        Hold::CompletesOnAck { .. } => Halt::new("completes_on_ack", hold.to_string()),
    }
}

fn count(source: &str, records: usize, decoded: &Decoded<'_>, changes: &Changes) {
    let unreadable = decoded.unreadable.len() as u64;
    RECORDS.with(&["journal", source, "applied"]).increment(records as u64 - unreadable);
    if unreadable > 0 {
        RECORDS.with(&["journal", source, "rejected"]).increment(unreadable);
        REJECTED.with(&[source, ReasonCode::ForeignRecord.as_str()]).increment(unreadable);
        ALARMS.with(&["journal_unreadable"]).increment(unreadable);
        for (record, error) in &decoded.unreadable {
            tracing::error!(
                offset = record.offset,
                "the journal holds bytes that no dispatcher wrote: {error}"
            );
        }
    }
    let (mut delivered, mut withdrawn, mut buried, mut stale) = (0, 0, 0, 0);
    for entry in decoded.entries() {
        match entry.kind {
            EntryKind::Delivered => delivered += 1,
            EntryKind::Withdrawn => withdrawn += 1,
            EntryKind::Buried => buried += 1,
            EntryKind::Stale => stale += 1,
        }
    }
    for (kind, n) in
        [("delivered", delivered), ("withdrawn", withdrawn), ("buried", buried), ("stale", stale)]
    {
        if n > 0 {
            ENTRIES.with(&[kind]).increment(n);
        }
    }
    for alarm in &changes.alarms {
        ALARMS.with(&["journal_miss"]).increment(1);
        tracing::error!("invariant broken: {alarm}");
    }
}
