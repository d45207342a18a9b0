//! Copies records of `due` that are none to `rejected`, beside the slots' transactions: a `rejected` that is away holds up
//! no delivery.

use crate::records::Addresses;
use protocol::slot::{Stray, StrayEnd};
use runtime::kafka::{
    BatchProducer, BatchSettings, Cluster, Disposition, KafkaFault, OutRecord, Placed, Refusal,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// A copy that is not acked within this time has failed.
const MESSAGE: Duration = Duration::from_secs(5);

/// The producer of copies, shared by all slots; it connects when it is needed. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keeper {
    cluster: Cluster,
    producer: Arc<Mutex<Option<Arc<BatchProducer>>>>,
}

/// The copies of one slot that are under way.
pub(crate) struct Strays {
    keeper: Keeper,
    under_way: Option<oneshot::Receiver<Vec<StrayEnd>>>,
}

impl Keeper {
    pub(crate) fn new(cluster: Cluster) -> Keeper {
        Keeper { cluster, producer: Arc::default() }
    }

    fn producer(&self) -> Result<Arc<BatchProducer>, KafkaFault> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*producer {
            return Ok(Arc::clone(producer));
        }
        let settings = BatchSettings { message_timeout: MESSAGE, ..BatchSettings::new("rejected") };
        let made = Arc::new(BatchProducer::new(&self.cluster, &settings)?);
        *producer = Some(Arc::clone(&made));
        Ok(made)
    }

    async fn send(&self, records: Vec<OutRecord>) -> Vec<StrayEnd> {
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(fault) => return vec![StrayEnd::Failed(fault.to_string()); records.len()],
        };
        let results = producer.send_batch(&records).await;
        let broken = |result: &Result<Placed, KafkaFault>| {
            let disposition = result.as_ref().err().map(KafkaFault::disposition);
            matches!(disposition, Some(Disposition::Fatal | Disposition::Fenced))
        };
        if results.iter().any(broken) {
            // The client is of no more use: the next attempt makes another.
            *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        results.into_iter().map(end_of).collect()
    }
}

fn end_of(result: Result<Placed, KafkaFault>) -> StrayEnd {
    match result {
        Ok(_) => StrayEnd::Kept,
        Err(fault) => match fault.disposition() {
            Disposition::Poison(Refusal::TooLarge | Refusal::Invalid) => StrayEnd::Refused(fault.to_string()),
            // `rejected` is ours: somebody will give it back, or the rights to it.
            Disposition::Poison(_) | Disposition::Retry | Disposition::Fenced | Disposition::Fatal => {
                StrayEnd::Failed(fault.to_string())
            }
        },
    }
}

impl Strays {
    pub(crate) fn new(keeper: Keeper) -> Strays {
        Strays { keeper, under_way: None }
    }

    /// Begins.
    pub(crate) fn keep(&mut self, to: &Addresses, strays: &[Arc<Stray>]) {
        let records: Vec<OutRecord> = strays.iter().map(|stray| to.rejected(stray)).collect();
        let (done, under_way) = oneshot::channel();
        let keeper = self.keeper.clone();
        tokio::spawn(async move {
            // The slot may have gone to another owner meanwhile, who copies them again.
            drop(done.send(keeper.send(records).await));
        });
        self.under_way = Some(under_way);
    }

    /// How they ended, once they have.
    pub(crate) fn ended(&mut self) -> Option<Vec<StrayEnd>> {
        match self.under_way.as_mut()?.try_recv() {
            Ok(ends) => {
                self.under_way = None;
                Some(ends)
            }
            Err(oneshot::error::TryRecvError::Empty) => None,
            // The task is gone without an answer: none is kept.
            Err(oneshot::error::TryRecvError::Closed) => {
                self.under_way = None;
                Some(Vec::new())
            }
        }
    }

    /// A take-over: what was under way is begun anew.
    pub(crate) fn forget(&mut self) {
        self.under_way = None;
    }
}
