//! Sends batches until every record of them is acked, whatever Kafka does meanwhile.

use crate::turn::{Stop, Turn};
use runtime::kafka::{BatchProducer, BatchSettings, Cluster, Disposition, KafkaFault, OutRecord, Refusal};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The producer of emissions and rejections, shared by all partitions.
pub struct Emitter {
    cluster: Cluster,
    producer: Mutex<Option<Arc<BatchProducer>>>,
}

impl Emitter {
    /// An emitter that connects when it is needed.
    pub fn new(cluster: Cluster) -> Emitter {
        Emitter { cluster, producer: Mutex::new(None) }
    }

    /// Sends until all is acked. What Kafka will never take, whatever else works, comes back.
    pub async fn send_all(
        &self,
        mut records: Vec<OutRecord>,
        turn: &Turn,
    ) -> Result<Vec<(OutRecord, KafkaFault)>, Stop> {
        let mut refused = Vec::new();
        let mut tries = 0;
        while !records.is_empty() {
            let (again, last) = match self.producer() {
                Ok(producer) => {
                    let results = tokio::select! {
                        () = turn.gone.cancelled() => return Err(Stop::Gone),
                        results = producer.send_batch(&records) => results,
                    };
                    self.sort(records, results, &producer, &mut refused)
                }
                Err(fault) => (records, Some(fault)),
            };
            records = again;
            let Some(fault) = last else { break };
            tries += 1;
            turn.kafka.trouble(fault.to_string());
            if u32::is_power_of_two(tries) {
                tracing::warn!(
                    source = &*turn.source,
                    partition = turn.partition,
                    records = records.len(),
                    tries,
                    "waiting for Kafka: {fault}"
                );
            }
            turn.pause(turn.backoff(tries, Duration::from_millis(50))).await?;
        }
        turn.kafka.well();
        Ok(refused)
    }

    /// What must be sent again, and the last reason for it.
    fn sort(
        &self,
        records: Vec<OutRecord>,
        results: Vec<Result<runtime::kafka::Placed, KafkaFault>>,
        producer: &Arc<BatchProducer>,
        refused: &mut Vec<(OutRecord, KafkaFault)>,
    ) -> (Vec<OutRecord>, Option<KafkaFault>) {
        let (mut again, mut last) = (Vec::new(), None);
        for (record, result) in records.into_iter().zip(results) {
            let Err(fault) = result else { continue };
            match fault.disposition() {
                // It is this record: nothing will make it acceptable.
                Disposition::Poison(Refusal::TooLarge | Refusal::Invalid) => {
                    refused.push((record, fault));
                    continue;
                }
                // Our own topics: somebody will give them back, or the rights to them.
                Disposition::Poison(
                    Refusal::UnknownTopic | Refusal::UnknownPartition | Refusal::NotAuthorized,
                )
                | Disposition::Retry => {}
                // The client is of no more use. The next one begins anew; a record sent twice is harmless.
                Disposition::Fenced | Disposition::Fatal => self.renew(producer),
            }
            again.push(record);
            last = Some(fault);
        }
        (again, last)
    }

    fn producer(&self) -> Result<Arc<BatchProducer>, KafkaFault> {
        let mut current = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*current {
            return Ok(producer.clone());
        }
        let producer = Arc::new(BatchProducer::new(&self.cluster, &BatchSettings::new("ingest"))?);
        *current = Some(producer.clone());
        Ok(producer)
    }

    /// Makes the next call take a new producer, unless another partition did so already.
    fn renew(&self, broken: &Arc<BatchProducer>) {
        let mut current = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, broken)) {
            *current = None;
        }
    }
}
