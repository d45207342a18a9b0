//! Replays: the body of a dead letter becomes the body of a row again. The decision is `protocol::change`'s.

use protocol::change::Replay;
use protocol::life::{Effects, Held, Live, Place};
use runtime::store::PendingRow;
use schemas::ids::RowId;
use schemas::row::RowBody;
use std::collections::HashMap;

/// What a dead letter has and MySQL has not.
#[derive(Clone, Debug)]
pub struct Letter {
    row: RowId,
    callback_topic: String,
    task_id: String,
    shard_key: Option<String>,
    body: RowBody,
}

impl Letter {
    /// What is to be decided, and what to be kept for whoever carries it out.
    pub fn open(replay: schemas::command::Replay) -> (Replay, Letter) {
        let schemas::command::Replay {
            task_id,
            shard_key,
            delivery_id,
            callback_topic,
            body,
            options,
            history,
            ..
        } = replay;
        // A letter always has a shard key; a row only where it is another than the task id.
        let shard_key = shard_key.filter(|key| *key != task_id);
        let letter = Letter { row: delivery_id.id, callback_topic, task_id, shard_key, body };
        let live = Live { failures: 0, stalls: 0, options, history };
        (Replay { generation: delivery_id.generation, live }, letter)
    }

    /// Whether this is the row that was buried.
    pub fn speaks_of(&self, row: &Held) -> bool {
        self.row == row.id && self.callback_topic == row.callback_topic
    }
}

/// The rows of `pending` that replays make, as the transaction leaves them. One that was cancelled again in the same batch is
/// none of them.
pub fn rows(effects: &Effects, letters: &HashMap<RowId, &Letter>) -> Vec<PendingRow> {
    let replayed = effects.moved.iter().filter(|moved| matches!(moved.from.place, Place::Final(_)));
    let rows = replayed.filter_map(|moved| {
        let (Place::Pending(waiting), letter) = (&moved.to.place, letters.get(&moved.to.id)?) else {
            return None;
        };
        Some(PendingRow {
            shard: waiting.key.shard,
            due_at: waiting.key.due_at,
            id: moved.to.id,
            generation: moved.to.generation,
            attempt: moved.to.attempt,
            failures: waiting.live.failures,
            stalls: waiting.live.stalls,
            task_id: letter.task_id.clone(),
            shard_key: letter.shard_key.clone(),
            callback_topic: moved.to.callback_topic.clone(),
            bury: None,
            options: waiting.live.options.encode(),
            history: waiting.live.history.encode(),
            body: letter.body.encode(),
        })
    });
    rows.collect()
}
