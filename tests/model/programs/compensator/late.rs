//! What else the compensator sees to: consumers that stalled, intents and answers that got lost.

use super::{Compensator, Stage};
use crate::mysql::{ACKS, Db, Kind, key};
use crate::programs::effects::{Effect, owed_late};
use crate::setup::Mutation;
use crate::world::{Mishap, World};
use protocol::ack::Outcome;
use protocol::life::{Held, What};
use protocol::stall;
use schemas::ids::{RowGen, RowId};
use std::collections::BTreeSet;

/// Rows in one transaction.
const AT_ONCE: usize = 4;

impl Compensator {
    /// How far deadlines may be judged, and what lies before it.
    pub(super) fn overdue(&self, w: &mut World) -> Stage {
        // What a stalled attempt is followed by is re-emitted by time, where its first emission is lost.
        if !w.setup.by_time || w.db_mishap("overdue", false) != Mishap::None {
            return Stage::Intents;
        }
        let ticks = w.db.position.iter().filter(|((source, _), _)| *source == ACKS);
        let ticks: Vec<Option<i64>> = ticks.map(|(_, position)| position.health.hb_at).collect();
        let judged =
            if w.has(Mutation::StallWithoutTicks) { Some(w.now) } else { stall::judged_upto(w.now, ticks) };
        let Some(upto) = judged else { return Stage::Intents };
        let mut rows = Vec::new();
        for shard in w.routes.scanned_by(self.slot) {
            let overdue = Db::page(&w.db.running, shard, super::START, upto).take(AT_ONCE);
            rows.extend(overdue.map(|(_, row)| row.row_gen()));
        }
        rows.truncate(AT_ONCE);
        if rows.is_empty() { Stage::Intents } else { Stage::Stall { rows, upto } }
    }

    /// The transaction.
    pub(super) fn stall(&self, w: &mut World, rows: &[RowGen], upto: i64) -> Stage {
        let mishap = w.db_mishap("stall", true);
        if mishap == Mishap::Refused {
            return Self::rest(w);
        }
        let ids: BTreeSet<RowId> = rows.iter().map(|row_gen| row_gen.id).collect();
        let mut life = w.db.life(ids);
        for row_gen in rows {
            let before: Option<Held> = life.get(row_gen.id).cloned();
            let outcome = stall::decide(&mut life, *row_gen, w.now, upto);
            w.say(&self.name, || format!("judges {row_gen:?}: {outcome:?}"));
            let (Some(before), Some(outcome)) = (before, outcome) else { continue };
            w.oracle.stalled(&w.db, &w.kafka, &before);
            w.saw(match outcome {
                Outcome::Retried => "stalled: retried",
                Outcome::ToBury => "stalled: to bury",
                Outcome::Cancelled => "stalled: cancelled",
                _ => "stalled: otherwise",
            });
        }
        let effects = life.into_effects();
        let now = w.now;
        w.db.write(&effects, now, |_| false);
        w.oracle.wrote(&effects);
        if mishap != Mishap::None {
            return Self::rest(w);
        }
        let mut effect = Effect::default();
        effect.look(effects.look.into_iter().collect());
        if effect.is_empty() { Stage::Intents } else { Stage::Effects(effect) }
    }

    /// Intents whose withdraw may be lost, and answers that may be.
    pub(super) fn intents(&self, w: &mut World) -> Stage {
        if w.db_mishap("intents", false) != Mishap::None {
            return Self::rest(w);
        }
        let rule = w.setup.reemit;
        let (mut ids, mut notes) = (BTreeSet::new(), Vec::new());
        for change in w.db.change.values() {
            if !matches!(change.kind, Kind::Open(What::Intent(_))) {
                continue;
            }
            let Some(row) = w.db.waiting(change.row_gen.id).filter(|row| row.row_gen() == change.row_gen)
            else {
                w.oracle.violations.push(format!("I-1: an intent has outlived {:?}", change.row_gen));
                return Self::rest(w);
            };
            let Some(candidate) = w.db.candidate(key(&row)) else { continue };
            let cursor_at = w.db.shard[&key(&row).shard].cursor_at;
            let late = w.setup.by_time && change.resend_at <= self.now;
            let lost = rule.is_lost(self.now, cursor_at, &self.health, &candidate);
            if w.slot_of(&row) == self.slot && (late || lost) && ids.insert(row.id) {
                notes.push((key(&row), rule.next(self.now, &candidate)));
            }
            if ids.len() == AT_ONCE {
                break;
            }
        }
        let mut effect = Effect::default();
        if !ids.is_empty() {
            w.saw("withdraw emitted again");
            notes.into_iter().for_each(|(key, again)| w.db.note(key, again));
            for change in w.db.change.values_mut().filter(|change| ids.contains(&change.row_gen.id)) {
                change.resend_at = w.now + 3_000;
            }
            effect.look(ids.into_iter().collect());
        }
        if w.setup.by_time {
            let mut owed = owed_late(w, |change| change.resend_at <= self.now);
            owed.truncate(AT_ONCE);
            if !owed.is_empty() {
                w.saw("answer sent again");
                effect.tell_late(owed);
            }
        }
        if effect.is_empty() { Self::rest(w) } else { Stage::Last(effect) }
    }
}
