//! The delivery id: names one delivery, and leads an ack straight to its row.

use std::fmt;
use std::str::FromStr;

use crate::due::{Deliver, DueRecord};
use crate::ids::{Generation, RowId, Shard};

/// Names one delivery of one task: the same in every copy of it, never the same for two. Its text is
/// `<shard>.<due time>.<row id>.<generation>.<attempt>` in decimal, which consumers echo and need not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryId {
    /// Shard, due time and id are the key of the row.
    pub shard: Shard,
    /// Due time, epoch ms.
    pub due_at: i64,
    /// The row.
    pub id: RowId,
    /// Its generation.
    pub generation: Generation,
    /// What users see of the generation.
    pub attempt: u16,
}

/// Text that is no delivery id of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no delivery id: echo the header duestream-delivery-id as it was received")]
pub struct BadDeliveryId {
    text: String,
}

impl DeliveryId {
    /// Id of the delivery that a due record asks for.
    pub fn of(due: &DueRecord, deliver: &Deliver) -> DeliveryId {
        DeliveryId {
            shard: due.shard,
            due_at: due.due_at,
            id: due.id,
            generation: due.generation,
            attempt: deliver.attempt,
        }
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeliveryId { shard, due_at, id, generation, attempt } = self;
        write!(f, "{shard}.{due_at}.{id}.{}.{attempt}", generation.0)
    }
}

impl FromStr for DeliveryId {
    type Err = BadDeliveryId;

    fn from_str(text: &str) -> Result<DeliveryId, BadDeliveryId> {
        // Only what `Display` writes is taken (no leading zeros, no plus), so that one delivery has one text.
        read(text)
            .filter(|id| id.to_string() == text)
            .ok_or_else(|| BadDeliveryId { text: text.chars().take(100).collect() })
    }
}

fn read(text: &str) -> Option<DeliveryId> {
    let mut parts = text.split('.');
    let id = DeliveryId {
        shard: Shard(parts.next()?.parse().ok()?),
        due_at: parts.next()?.parse().ok()?,
        id: RowId(parts.next()?.parse().ok()?),
        generation: Generation(parts.next()?.parse().ok()?),
        attempt: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(id)
}
