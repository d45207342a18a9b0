//! Counts what is in flight to callback topics whose deliveries in flight are limited, and says so on `control`: dispatchers
//! do without MySQL. Each slot is counted by who reads its journal.

use crate::deps::Deps;
use crate::metrics::COUNTS;
use protocol::limits::Board;
use runtime::control::Control;
use runtime::lifecycle::Lifecycle;
use runtime::store::{StoreError, position, running};
use schemas::control::{ControlKey, TopicRunning};
use schemas::ids::{Slot, SourceId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Between two counts. A topic without such a limit costs nothing.
const EVERY: Duration = Duration::from_millis(500);

/// The counting of this process.
pub struct Counts {
    control: Arc<Control>,
    /// Slots whose journal is read here, until they are gone.
    slots: Mutex<HashMap<Slot, CancellationToken>>,
}

type Records = Vec<(ControlKey, Option<Vec<u8>>)>;

impl Counts {
    /// Begins to follow `control` and to count.
    pub fn start(deps: &Arc<Deps>, life: &Lifecycle) -> Arc<Counts> {
        // Dispatchers copy what is none of our records to `rejected`.
        let foreign = |record: &runtime::kafka::Record, problem: &str, _| {
            tracing::warn!(
                offset = record.offset,
                "control holds a record that no program of ours wrote: {problem}"
            );
        };
        let control = Control::follow(&deps.cluster, &deps.names, "ingest-control", life, Box::new(foreign));
        let counts = Arc::new(Counts { control, slots: Mutex::default() });
        life.spawn("counts", Arc::clone(&counts).run(deps.clone(), life.token()));
        counts
    }

    /// The journal of a slot is read here until `gone`.
    pub fn own(&self, slot: Slot, gone: CancellationToken) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, gone);
    }

    fn owned(&self) -> Vec<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|_, gone| !gone.is_cancelled());
        slots.keys().copied().collect()
    }

    async fn run(self: Arc<Self>, deps: Arc<Deps>, stop: CancellationToken) -> anyhow::Result<()> {
        let mut pause = interval(EVERY);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = self.control.ready() => {}
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                _ = pause.tick() => {}
            }
            let counted = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                counted = self.count(&deps) => counted,
            };
            match counted {
                Ok(records) if records.is_empty() => {}
                Ok(records) => {
                    COUNTS.with(&[]).increment(records.len() as u64);
                    self.control.write(records).await;
                }
                // The dispatchers go on with the last counts and with what they delivered since.
                Err(error) => tracing::debug!("deliveries in flight were not counted: {error}"),
            }
        }
    }

    /// What is to be written.
    async fn count(&self, deps: &Deps) -> Result<Records, StoreError> {
        let owned = self.owned();
        let (topics, mut records) = {
            let board = self.control.board();
            (board.counted().cloned().collect::<Vec<_>>(), idle(&board, &owned))
        };
        let journal = *deps.journal.borrow();
        let (false, Some(journal)) = (topics.is_empty() || owned.is_empty(), journal) else {
            return Ok(records);
        };
        let mut session = deps.db.session().await?;
        // The positions first: what is applied meanwhile is counted twice then, by the dispatcher too, and never missed.
        let next = positions(&mut session, journal).await?;
        let now = runtime::clock::now_ms();
        for topic in topics {
            let mut running: BTreeMap<Slot, i64> = BTreeMap::new();
            for (shard, n) in running::count(&mut session, &topic).await? {
                *running.entry(deps.routes.slot_at(shard, now)).or_default() += n.cast_signed();
            }
            let board = self.control.board();
            for slot in &owned {
                let Some(journal_next) = next.get(slot).copied() else { continue };
                let count =
                    TopicRunning { running: running.get(slot).copied().unwrap_or(0), journal_next, at: now };
                if is_news(&board, &topic, *slot, &count) {
                    records.push((ControlKey::Running(topic.to_string(), *slot), Some(count.encode())));
                }
            }
        }
        Ok(records)
    }
}

async fn positions(
    session: &mut runtime::store::Session,
    journal: SourceId,
) -> Result<HashMap<Slot, i64>, StoreError> {
    let positions = position::read_all(session, journal).await?;
    let of_slot =
        positions.into_iter().filter_map(|at| Some((Slot(u16::try_from(at.partition).ok()?), at.next)));
    Ok(of_slot.collect())
}

/// Counts of owned slots that nobody needs any more, to be taken back.
fn idle(board: &Board, owned: &[Slot]) -> Records {
    let idle = board.idle_counts().filter(|(_, slot)| owned.contains(slot));
    idle.map(|(topic, slot)| (ControlKey::Running(topic.to_string(), slot), None)).collect()
}

/// Whether a count differs from the one that stands there, or reaches as far as the slot's dispatcher waits for.
fn is_news(board: &Board, topic: &str, slot: Slot, count: &TopicRunning) -> bool {
    let Some((_, known)) = board.running_of(topic).find(|(of, _)| *of == slot) else { return true };
    let wanted =
        board.shares_of(topic).find(|(of, _)| *of == slot).map(|(_, share)| share.said.journal_wanted);
    known.running != count.running
        || wanted.is_some_and(|wanted| known.journal_next < wanted && wanted <= count.journal_next)
}
