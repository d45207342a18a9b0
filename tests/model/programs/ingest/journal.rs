//! Journal records: what the entries make of rows and intents, and the heartbeat.

use super::{Did, Hold, Ingest, Work, asks};
use crate::oracle::Reply;
use crate::programs::effects::Effect;
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use protocol::apply::{self, Beat, Nexts};
use protocol::life::{Effects, Life, Place, What};
use protocol::position::Handling;
use schemas::ids::{RowGen, RowId, Slot};
use schemas::journal::{JournalEntry, JournalRecord};
use std::collections::{BTreeSet, HashSet};

impl Ingest {
    pub(super) fn fetch_journal(&mut self, w: &mut World, hold: &mut Hold, slot: Slot) -> bool {
        let stable = w.kafka.stable(slot);
        let before = hold.read_from;
        let record = |w: &World, offset: i64| {
            let record = w.kafka.committed(slot, offset)?.clone();
            Some((w.kafka.journal[usize::from(slot.0)][offset as usize].0, record))
        };
        let Some(stretch) = Ingest::stretch(w, hold, stable, record) else { return hold.read_from > before };
        let (records, end) = (stretch.records, stretch.end);
        match stretch.handling {
            Handling::Apply => hold.work = Some(Work::Journal { records, end }),
            Handling::Repeat => {
                let fates: Vec<RowGen> = entries(&records)
                    .filter(|entry| entry.kind.is_fate())
                    .map(JournalEntry::row_gen)
                    .collect();
                let mut effect = Effect::default();
                let ids: BTreeSet<RowId> = fates.iter().map(|row_gen| row_gen.id).collect();
                effect.look(ids.into_iter().collect());
                if !fates.is_empty() {
                    effect.owed_late(fates.into_iter().collect::<HashSet<_>>());
                }
                self.repeat(w, hold, end, effect);
            }
            Handling::Skip => {}
        }
        true
    }

    pub(super) fn journal(
        &mut self,
        w: &mut World,
        hold: &mut Hold,
        records: Vec<(i64, i64, JournalRecord)>,
        end: i64,
    ) -> Option<Did> {
        let mishap = w.db_mishap("apply", true);
        if mishap == Mishap::Refused {
            hold.work = Some(Work::Journal { records, end });
            return Some(Did::Work);
        }
        let mut effects = Effects::default();
        let written = self.commit(w, hold, end, |w| {
            effects = self.apply(w, &records);
            Ok(())
        });
        w.say(&self.name, || {
            format!("applies {} entries up to {end}: {written:?} ({mishap:?})", entries(&records).count())
        });
        written.ok()?;
        if mishap == Mishap::AnswerLost {
            hold.work = Some(Work::Journal { records, end });
            return Some(Did::Work);
        }
        let mut effect = Effect::default();
        effect.look(effects.look.iter().copied().collect());
        let told = effects.closed.iter().filter(|closed| asks(&w.kafka.tasks, closed.command));
        let told = told.filter_map(|closed| Some((closed.command, Reply::Change(closed.answer?))));
        effect.tell_late(told.collect());
        if w.rough && w.dice.roll(2) == 1 {
            effect.answers_first();
        }
        if w.has(Mutation::SecondGeneration) {
            effect.renew(effects.look.iter().copied().collect());
        }
        self.committed(hold, end, effect);
        Some(Did::Work)
    }

    /// The transaction.
    fn apply(&self, w: &mut World, records: &[(i64, i64, JournalRecord)]) -> Effects {
        let ids: BTreeSet<RowId> = entries(records).map(|entry| entry.id).collect();
        let nexts: Nexts = w.db.position.iter().map(|(stream, position)| (*stream, position.next)).collect();
        let (rows, mut open) = w.db.lock(ids);
        if w.has(Mutation::ParkedNotApplied) {
            open.retain(|open| matches!(open.what, What::Intent(_)));
        }
        let turned = |command: RowId| RowId(u64::MAX - command.0);
        if w.has(Mutation::FoldedOutOfOrder) {
            let intents = open.iter_mut().filter(|open| open.is_intent());
            intents.for_each(|open| open.command = turned(open.command));
        }
        let before = open.clone();
        let mut life = Life::new(rows, open);
        if let Err(held) = apply::decide(entries(records), &mut life, &nexts) {
            w.oracle.fail(|| format!("ingest stands still: {held}"));
            return Effects::default();
        }
        let mut effects = life.into_effects();
        w.oracle.folded(&effects, &before, entries(records));
        if w.has(Mutation::FoldedOutOfOrder) {
            let intents = effects.closed.iter_mut().filter(|closed| closed.command.0 > u64::MAX / 2);
            intents.for_each(|closed| closed.command = turned(closed.command));
        }
        if w.has(Mutation::SameGeneration) {
            for moved in &mut effects.moved {
                if let (Place::Pending(_), Place::Pending(_)) = (&moved.from.place, &moved.to.place) {
                    moved.to.generation = moved.from.generation;
                }
            }
        }
        for closed in &effects.closed {
            let parked = before.iter().any(|open| open.command == closed.command && !open.is_intent());
            w.saw(if parked { "parked ack applied" } else { "intent settled" });
        }
        let (now, tasks) = (w.now, &w.kafka.tasks);
        w.db.write(&effects, now, |command| asks(tasks, command));
        if w.has(Mutation::AnswerNotOwed) {
            for closed in &effects.closed {
                w.db.change.remove(&closed.command);
            }
        }
        w.oracle.wrote(&effects);
        let key = self.stream.key();
        if let Some(beat) = Beat::fold(records.iter().map(|(_, at, record)| (*at, record))) {
            let position = w.db.position.entry(key).or_default();
            let health = &mut position.health;
            health.hb_at = health.hb_at.max(Some(beat.hb_at));
            health.backlog = beat.backlog.or(health.backlog);
            health.cold_upto = beat.cold_upto.or(health.cold_upto);
            position.credit = beat.credit.or(position.credit);
        }
        effects
    }
}

fn entries(records: &[(i64, i64, JournalRecord)]) -> impl Iterator<Item = &JournalEntry> {
    records.iter().flat_map(|(_, _, record)| &record.entries)
}
