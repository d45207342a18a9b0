//! Acks of consumers, and the ticks that say how far they were applied.

use super::{Did, Hold, Ingest, Work};
use crate::kafka::AckRecord;
use crate::programs::effects::Effect;
use crate::world::{Mishap, World};
use protocol::ack::{self, Ack, Dropped, Outcome};
use protocol::life::Effects;
use protocol::position::Handling;
use schemas::ids::RowId;
use std::collections::BTreeSet;

type Records = Vec<(i64, i64, AckRecord)>;

impl Ingest {
    pub(super) fn fetch_acks(&mut self, w: &mut World, hold: &mut Hold, partition: i32) -> bool {
        let end = w.kafka.acks[partition as usize].len() as i64;
        let record = |w: &World, offset: i64| Some(w.kafka.acks[partition as usize][offset as usize].clone());
        let Some(stretch) = Ingest::stretch(w, hold, end, record) else { return false };
        let (records, end) = (stretch.records, stretch.end);
        match stretch.handling {
            Handling::Apply => hold.work = Some(Work::Acks { records, end }),
            Handling::Repeat => {
                let mut effect = Effect::default();
                effect.look(rows(&records).into_iter().collect());
                self.repeat(w, hold, end, effect);
            }
            Handling::Skip => {}
        }
        true
    }

    pub(super) fn acks(&mut self, w: &mut World, hold: &mut Hold, records: Records, end: i64) -> Option<Did> {
        let mishap = w.db_mishap("acks", true);
        if mishap == Mishap::Refused {
            hold.work = Some(Work::Acks { records, end });
            return Some(Did::Work);
        }
        let mut effects = Effects::default();
        let written = self.commit(w, hold, end, |w| {
            effects = self.apply_acks(w, &records);
            Ok(())
        });
        w.say(&self.name, || {
            format!("applies {} acks and ticks up to {end}: {written:?} ({mishap:?})", records.len())
        });
        written.ok()?;
        if mishap == Mishap::AnswerLost {
            hold.work = Some(Work::Acks { records, end });
            return Some(Did::Work);
        }
        let mut effect = Effect::default();
        effect.look(effects.look.into_iter().collect());
        self.committed(hold, end, effect);
        Some(Did::Work)
    }

    /// The transaction.
    fn apply_acks(&self, w: &mut World, records: &Records) -> Effects {
        let mut life = w.db.life(rows(records));
        let cursors = w.db.cursors();
        for (offset, at, record) in records {
            let AckRecord::Ack { row_gen, report, progress } = record else { continue };
            let ack = Ack {
                command: self.id(*offset),
                at: *at,
                id: row_gen.id,
                generation: row_gen.generation,
                report: report.clone(),
                progress: progress.clone(),
            };
            let outcome = ack::decide(&mut life, &ack, &cursors);
            w.say(&self.name, || format!("decides {ack:?}: {outcome:?}"));
            saw(w, outcome);
        }
        let effects = life.into_effects();
        let now = w.now;
        w.db.write(&effects, now, |_| false);
        w.oracle.wrote(&effects);
        let applied_at = records.last().map(|(_, at, _)| *at);
        let health = &mut w.db.position.entry(self.stream.key()).or_default().health;
        health.hb_at = health.hb_at.max(applied_at);
        effects
    }
}

fn rows(records: &Records) -> BTreeSet<RowId> {
    let acks = records.iter().filter_map(|(_, _, record)| match record {
        AckRecord::Ack { row_gen, .. } => Some(row_gen.id),
        AckRecord::Tick => None,
    });
    acks.collect()
}

fn saw(w: &mut World, outcome: Outcome) {
    w.saw(match outcome {
        Outcome::Finished => "ack: finished",
        Outcome::FinishIntended => "ack: finish intended",
        Outcome::Retried => "ack: retried",
        Outcome::ToBury => "ack: to bury",
        Outcome::Cancelled => "ack: cancelled",
        Outcome::Progressed => "ack: progressed",
        Outcome::Parked => "ack: parked",
        Outcome::Dropped(Dropped::Unknown) => "ack dropped: unknown",
        Outcome::Dropped(Dropped::Over) => "ack dropped: over",
        Outcome::Dropped(Dropped::Old) => "ack dropped: old",
        Outcome::Dropped(Dropped::Doubled) => "ack dropped: doubled",
        Outcome::Dropped(Dropped::FromAhead) => "ack dropped: from ahead",
        Outcome::Dropped(Dropped::NotWanted) => "ack dropped: not wanted",
    });
}
