//! Sends commands in batches, several under way, in the order of the file per key.

use super::progress::Progress;
use futures::stream::{FuturesOrdered, StreamExt};
use runtime::kafka::{BatchProducer, BatchResult, OutRecord, Placed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records of one batch.
const BATCH: usize = 500;
/// Batches under way.
const UNDER_WAY: usize = 8;

/// What became of the records.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) submitted: u64,
    pub(crate) failed: u64,
    /// The first few reasons.
    pub(crate) problems: Vec<String>,
    /// Where the last one lies.
    pub(crate) last: Option<Placed>,
}

/// Sends all, at most `rate` per second.
pub(crate) async fn send(
    producer: Arc<BatchProducer>,
    mut records: impl Iterator<Item = OutRecord>,
    rate: Option<u32>,
    mut progress: Option<Progress>,
) -> Sent {
    let size = rate.map_or(BATCH, |rate| (rate as usize / 20).clamp(1, BATCH));
    let (began, mut taken, mut sent) = (Instant::now(), 0_u64, Sent::default());
    let mut under_way = FuturesOrdered::new();
    loop {
        let batch: Vec<OutRecord> = records.by_ref().take(size).collect();
        if batch.is_empty() {
            break;
        }
        if let Some(rate) = rate {
            let at = began + Duration::from_secs_f64(taken as f64 / f64::from(rate.max(1)));
            tokio::time::sleep_until(at.into()).await;
        }
        taken += batch.len() as u64;
        let producer = producer.clone();
        under_way.push_back(async move { producer.send_batch(&batch).await });
        if under_way.len() >= UNDER_WAY
            && let Some(result) = under_way.next().await
        {
            sent.take(result, progress.as_mut());
        }
    }
    while let Some(result) = under_way.next().await {
        sent.take(result, progress.as_mut());
    }
    if let Some(progress) = progress {
        progress.finish();
    }
    sent
}

impl Sent {
    fn take(&mut self, result: BatchResult, progress: Option<&mut Progress>) {
        if let Some(progress) = progress {
            progress.add(result.len() as u64);
        }
        for one in result {
            match one {
                Ok(placed) => {
                    self.submitted += 1;
                    self.last = Some(placed);
                }
                Err(fault) => {
                    self.failed += 1;
                    if self.problems.len() < 3 {
                        self.problems.push(fault.to_string());
                    }
                }
            }
        }
    }
}
