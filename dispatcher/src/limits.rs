//! The limits of callback topics, as one slot sees them: from `control`, shared by all slots of this process, and back.

use crate::driver::stray;
use crate::metrics::CONTROL_RECORDS;
use crate::records::rejected;
use crate::strays::Keeper;
use crate::world::World;
use protocol::limits::SlotView;
use protocol::slot::Stray;
use protocol::slot_store::Topic;
use runtime::control::Control;
use runtime::kafka::Record;
use runtime::lifecycle::Lifecycle;
use schemas::control::{ControlKey, TopicShare};
use schemas::ids::Slot;
use std::sync::Arc;
use tokio::sync::watch;

/// Begins to follow `control`. What is none of our records is copied to `rejected` when it comes; what stood there before the
/// start was copied then, and still stands there.
pub(crate) fn follow(world: &World, keeper: &Keeper, life: &Lifecycle) -> Arc<Control> {
    let (keeper, topic, to) =
        (keeper.clone(), world.names.control(), Arc::<str>::from(world.names.rejected()));
    let foreign = move |record: &Record, problem: &str, following: bool| {
        tracing::error!(
            offset = record.offset,
            "control holds a record that no program of ours wrote: {problem}"
        );
        CONTROL_RECORDS.with(&["foreign"]).increment(1);
        if !following {
            return;
        }
        let stray = Stray { problem: problem.to_owned(), ..stray(record.clone()) };
        let (keeper, copy) = (keeper.clone(), rejected(&to, (&topic, record.partition), &stray));
        tokio::spawn(async move { keeper.keep(copy).await });
    };
    Control::follow(&world.cluster, &world.names, "dispatcher", life, Box::new(foreign))
}

/// One slot's part.
pub(crate) struct Limits {
    control: Arc<Control>,
    slot: Slot,
    changes: watch::Receiver<u64>,
}

impl Limits {
    pub(crate) fn new(control: Arc<Control>, slot: Slot) -> Limits {
        let mut changes = control.changes();
        // What is there now is news to a new slot.
        changes.mark_changed();
        Limits { control, slot, changes }
    }

    /// What `control` says, where that has changed since the last call.
    pub(crate) fn news(&mut self) -> Option<SlotView> {
        if !self.changes.has_changed().unwrap_or(false) {
            return None;
        }
        self.changes.mark_unchanged();
        Some(self.control.board().of_slot(self.slot))
    }

    /// Waits for news.
    pub(crate) async fn changed(&mut self) {
        if self.changes.changed().await.is_ok() {
            self.changes.mark_changed();
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Begins to write what the slot wants of limits.
    pub(crate) fn ask(&self, shares: &[(Topic, Option<TopicShare>)]) {
        CONTROL_RECORDS.with(&["share"]).increment(shares.len() as u64);
        let key = |topic: &Topic| ControlKey::Share(topic.to_string(), self.slot);
        let records = shares
            .iter()
            .map(|(topic, share)| (key(topic), share.as_ref().map(TopicShare::encode)))
            .collect();
        let control = Arc::clone(&self.control);
        tokio::spawn(async move { control.write(records).await });
    }
}
