//! A look at where Redis has one member, for people. Reads only, takes part in nothing.

use super::{SlotClient, SlotError, SlotKeys};
use redis::{FromRedisValue, Value};
use schemas::ids::{RowGen, Slot};

/// Where a member of a slot is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// Waits in store, to be delivered at this time, epoch ms.
    Store {
        /// Its score.
        at: i64,
    },
    /// Taken for delivery (or a withdraw intent) and not yet settled.
    Prepare,
    /// Nowhere.
    Absent,
}

/// Where a member is. `topic`: its callback topic.
pub async fn place_of(
    client: &mut SlotClient,
    prefix: &str,
    slot: Slot,
    topic: &str,
    member: RowGen,
) -> Result<Place, SlotError> {
    let keys = SlotKeys::new(prefix, slot);
    if let Some(score) = score(client, &keys.store(topic), member).await? {
        // Scores are epoch ms, which a double holds exactly.
        return Ok(Place::Store { at: score as i64 });
    }
    let prepared = score(client, &keys.prepare(topic), member).await?;
    Ok(prepared.map_or(Place::Absent, |_| Place::Prepare))
}

async fn score(client: &mut SlotClient, key: &str, member: RowGen) -> Result<Option<f64>, SlotError> {
    let mut command = redis::cmd("ZSCORE");
    command.arg(key).arg(&member.member()[..]);
    let answer: Value = client.send("zscore", command, Some(key)).await?;
    Option::<f64>::from_redis_value(answer)
        .map_err(|e| SlotError::Script { script: "zscore", what: e.to_string() })
}
