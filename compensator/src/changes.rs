//! Takes care of changes that have waited for too long: a withdraw whose record or whose answer was lost is emitted again,
//! an answer that was not told is told.

use crate::{Deps, metrics, near};
use protocol::change::{self, Stranded};
use protocol::life::{Closed, Open, What};
use protocol::reemit::{Gate, ReemitRule, SlotHealth};
use runtime::answering::reply_record;
use runtime::store::intents::{self, Telling, Waiting};
use runtime::store::{Session, held, position, source};
use schemas::ids::{RowId, Slot, SourceId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The looks at one share of the changes: those whose row ids fall to the slot by their remainder. (Where a row is
/// delivered is looked up for each.)
pub struct Resender {
    deps: Arc<Deps>,
    share: Slot,
    rule: ReemitRule,
}

impl Resender {
    /// Nothing looked at yet.
    pub fn new(deps: Arc<Deps>, share: Slot) -> Resender {
        let rule = deps.reemit.rule();
        Resender { deps, share, rule }
    }

    /// One look. Answers how many changes it took care of.
    pub async fn pass(&mut self) -> anyhow::Result<u64> {
        let mut session = self.deps.db.session().await?;
        let now = runtime::store::now(&mut session).await?;
        let limit = self.deps.changes.rows_per_pass;
        let waiting = intents::waiting(&mut session, now, self.deps.slots, self.share.0, limit).await?;
        if waiting.is_empty() {
            return Ok(0);
        }
        // First, so that whatever fails below is not tried again at once, and what cannot be done holds up nobody.
        let later: Vec<(RowId, i64)> =
            waiting.iter().map(|row| (row.command, now + self.pause(row, now))).collect();
        intents::later(&mut session, &later).await?;
        let (answered, open): (Vec<Waiting>, Vec<Waiting>) =
            waiting.into_iter().partition(|row| row.answered);
        self.withdraw(&mut session, &open, now).await?;
        self.tell(&mut session, answered.iter().map(|row| row.id).collect()).await?;
        Ok((answered.len() + open.len()) as u64)
    }

    /// As long again as it has waited, within bounds: a row in a slot that is shut is looked at less and less.
    fn pause(&self, row: &Waiting, now: i64) -> i64 {
        let (least, most) = (self.deps.changes.pause.as_ms(), self.deps.changes.pause_max.as_ms());
        now.saturating_sub(row.received_at).clamp(least, most.max(least))
    }

    /// Intents: withdrawn once more where the row still waits; answered from the row where it went on without them.
    async fn withdraw(&self, session: &mut Session, waiting: &[Waiting], now: i64) -> anyhow::Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let wanted: BTreeSet<RowId> = waiting.iter().map(|row| row.command).collect();
        let ids: BTreeSet<RowId> = waiting.iter().map(|row| row.id).collect();
        let mut tx = self.deps.db.begin("changes_stranded").await?;
        let rows: HashMap<RowId, _> =
            held::lock(&mut tx, &ids).await?.into_iter().map(|row| (row.id, row)).collect();
        let open = intents::open(&mut tx, &ids).await?;
        let (mut withdraw, mut closed) = (BTreeSet::new(), Vec::new());
        for Open { command, id, generation, what } in
            open.iter().filter(|open| wanted.contains(&open.command))
        {
            let What::Intent(intent) = what else { continue };
            let fate = change::stranded(*intent, *generation, rows.get(id));
            metrics::CHANGES.with(&[label(fate)]).increment(1);
            match fate {
                Stranded::Withdraw => drop(withdraw.insert(*id)),
                Stranded::Answer(answer) => closed.push(Closed { command: *command, answer: Some(answer) }),
                Stranded::Drop => closed.push(Closed { command: *command, answer: None }),
            }
        }
        let nobody = HashMap::new();
        let telling = Telling { received_at: now, resend_at: now, asked: &nobody };
        intents::write(&mut tx, &[], &closed, telling).await?;
        tx.commit().await?;
        if withdraw.is_empty() {
            return Ok(());
        }
        let routes = self.deps.routes().await?;
        let health = self.health(session).await?;
        let open = |slot| health.get(&slot).is_some_and(|health| self.rule.gate(now, health) == Gate::Open);
        near::emit(&self.deps, session, &routes, &withdraw, open).await?;
        Ok(())
    }

    /// What is known of the owner of every slot.
    async fn health(&self, session: &mut Session) -> anyhow::Result<BTreeMap<Slot, SlotHealth>> {
        let positions = position::read_all(session, self.deps.journal).await?;
        let health = positions.into_iter().filter_map(|p| {
            let health = SlotHealth { hb_at: p.hb_at, backlog: p.backlog, cold_upto: p.cold_upto };
            Some((Slot(u16::try_from(p.partition).ok()?), health))
        });
        Ok(health.collect())
    }

    /// Answers that are owed for changes of these rows.
    async fn tell(&self, session: &mut Session, ids: BTreeSet<RowId>) -> anyhow::Result<()> {
        let owed = intents::owed(session, &ids).await?;
        if owed.is_empty() {
            return Ok(());
        }
        let topics: BTreeMap<SourceId, String> =
            source::all(session).await?.into_iter().map(|source| (source.id, source.topic)).collect();
        let record = |owed: &_| {
            let owed: &runtime::store::change::Owed = owed;
            let record = reply_record(owed, topics.get(&owed.command.source())?, &self.deps.names)?;
            Some((owed.command, record))
        };
        let (commands, records): (Vec<RowId>, Vec<_>) = owed.iter().filter_map(record).unzip();
        let mut told = Vec::with_capacity(commands.len());
        for (command, result) in commands.into_iter().zip(self.deps.producer.send_batch(&records).await) {
            match result {
                Ok(_) => told.push(command),
                Err(fault) => {
                    tracing::warn!(%command, "an answer is not taken and is sent again later: {fault}")
                }
            }
        }
        metrics::CHANGES.with(&["told"]).increment(told.len() as u64);
        intents::told(session, told).await?;
        Ok(())
    }
}

fn label(fate: Stranded) -> &'static str {
    match fate {
        Stranded::Withdraw => "withdrawn",
        Stranded::Answer(_) => "answered",
        Stranded::Drop => "dropped",
    }
}
