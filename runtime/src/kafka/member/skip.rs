//! Where a batch ends that cannot be unpacked.
//!
//! librdkafka has no answer to a batch whose compressed bytes are broken, or larger than it may unpack: it asks for it for
//! ever, and the partition stands still (I-6). It passes over a batch that lies wholly below the position, though, without
//! unpacking it. So the end is searched for: a position lies in the batch as long as reading from it fails with the same batch.

use crate::kafka::client::{Cluster, Quiet};
use crate::kafka::error::KafkaFault;
use crate::kafka::native::{self, Found};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use std::time::{Duration, Instant};

const OP: &str = "look for the end of a batch";
/// For one look.
const PATIENCE: Duration = Duration::from_secs(20);

/// The offset behind the batch at `first`. `None`: it can be unpacked after all. Blocks.
pub(super) fn end_of_batch(
    cluster: &Cluster,
    group: &str,
    (topic, partition): (&str, i32),
    first: i64,
) -> Result<Option<i64>, KafkaFault> {
    let mut config =
        cluster.consumer_config(group, &[("fetch.wait.max.ms", "50"), ("fetch.error.backoff.ms", "50")]);
    config.set("enable.partition.eof", "true");
    let consumer: BaseConsumer<Quiet> =
        config.create_with_context(Quiet { role: "batch_end" }).map_err(KafkaFault::at(OP))?;
    let look = |offset: i64| {
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).map_err(KafkaFault::at(OP))?;
        consumer.assign(&list).map_err(KafkaFault::at(OP))?;
        let deadline = Instant::now() + PATIENCE;
        let found = loop {
            match native::poll_offset(&consumer, Duration::from_millis(200)) {
                Found::Nothing if Instant::now() < deadline => {}
                Found::Nothing => {
                    let last = format!("nothing was read from {topic}[{partition}] at {offset}");
                    return Err(KafkaFault::Deadline { op: OP, last });
                }
                found => break found,
            }
        };
        consumer.unassign().map_err(KafkaFault::at(OP))?;
        Ok(found)
    };
    search(first, look)
}

/// Doubling steps until a position is found behind the batch, then halving.
fn search<E>(first: i64, mut look: impl FnMut(i64) -> Result<Found, E>) -> Result<Option<i64>, E> {
    let Found::Undecodable { base } = look(first)? else { return Ok(None) };
    let mut is_inside = |offset| Ok(look(offset)? == Found::Undecodable { base });
    let (mut inside, mut step) = (first, 1);
    let mut behind = loop {
        if !is_inside(inside + step)? {
            break inside + step;
        }
        inside += step;
        step *= 2;
    };
    while behind - inside > 1 {
        let middle = inside + (behind - inside) / 2;
        if is_inside(middle)? { inside = middle } else { behind = middle }
    }
    Ok(Some(behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log of batches: where each begins and ends, and whether it can be unpacked.
    fn log(batches: &[(i64, i64, bool)], first: i64) -> (Option<i64>, u32) {
        let mut looks = 0;
        let end = search(first, |offset| {
            looks += 1;
            let at = batches.iter().find(|(_, end, _)| offset < *end);
            Ok::<_, ()>(match at {
                Some((_, _, true)) => Found::Record,
                Some((base, _, false)) => Found::Undecodable { base: *base },
                None => Found::End,
            })
        });
        (end.unwrap(), looks)
    }

    #[test]
    fn the_end_is_found_exactly_whatever_comes_behind() {
        for size in [1, 2, 3, 7, 8, 100_000] {
            for start in [10, 10 + size / 2, 10 + size - 1] {
                let end = 10 + size;
                let alone = [(0, 10, true), (10, end, false)];
                let before_good = [(10, end, false), (end, end + 1, true)];
                let between_bad = [(10, end, false), (end, end + 1, true), (end + 1, end + 900_000, false)];
                let before_bad = [(10, end, false), (end, end + 5, false)];
                for batches in [&alone[..], &before_good, &between_bad, &before_bad] {
                    let (found, looks) = log(batches, start);
                    assert_eq!(found, Some(end), "{batches:?} from {start}");
                    assert!(looks < 40, "{looks} looks");
                }
            }
        }
        assert_eq!(log(&[(10, 20, true)], 12).0, None);
    }
}
