//! Rows for unit tests.

use super::{Cursors, Effects, Ended, Held, Life, Live, Open, Place, RowKey, Waiting, What, Working};
use crate::ack::{Ack, Report};
use crate::change::Intent;
use crate::state::TaskState;
use schemas::due::Completion;
use schemas::ids::{Generation, RowId, Shard, SourceId};
use schemas::row::RowOptions;

pub const SHARD: Shard = Shard(3);
pub const DUE_AT: i64 = 1_000_000;
pub const TASKS: SourceId = SourceId(2);
pub const ACKS: SourceId = SourceId(5);

/// The row made by the command at an offset.
pub fn row_id(offset: i64) -> RowId {
    RowId::pack(TASKS, 1, offset).unwrap()
}

/// A command of another partition, so that it is later than no row.
pub fn command(offset: i64) -> RowId {
    RowId::pack(TASKS, 2, offset).unwrap()
}

/// The record of an ack.
pub fn ack_id(offset: i64) -> RowId {
    RowId::pack(ACKS, 0, offset).unwrap()
}

pub fn key(id: RowId, due_at: i64) -> RowKey {
    RowKey { shard: SHARD, due_at, id }
}

pub fn on_ack() -> Live {
    Live { options: RowOptions { completion: Completion::OnAck, ..RowOptions::default() }, ..Live::default() }
}

pub fn held(id: RowId, generation: u32, place: Place) -> Held {
    Held { id, generation: Generation(generation), attempt: 1, callback_topic: "orders".into(), place }
}

/// Waits at [`DUE_AT`], completes on delivery.
pub fn pending(id: RowId, generation: u32) -> Held {
    waits(id, generation, Live::default())
}

pub fn waits(id: RowId, generation: u32, live: Live) -> Held {
    held(id, generation, Place::Pending(Waiting { key: key(id, DUE_AT), bury: None, noted: false, live }))
}

/// Was due at [`DUE_AT`], and is past its deadline at `deadline_at`.
pub fn running(id: RowId, generation: u32, deadline_at: i64) -> Held {
    let key = key(id, deadline_at);
    let working = Working { key, due_at: DUE_AT, progress: None, stop: false, live: on_ack() };
    held(id, generation, Place::Running(working))
}

pub fn ended(id: RowId, generation: u32, state: TaskState, finished_at: i64) -> Held {
    held(id, generation, Place::Final(Ended { state, finished_at, shard: SHARD }))
}

/// Changes what is known of a pending row.
pub fn waiting(mut row: Held, change: impl FnOnce(&mut Waiting)) -> Held {
    if let Place::Pending(waiting) = &mut row.place {
        change(waiting);
    }
    row
}

/// Changes what is known of a running row.
pub fn working(mut row: Held, change: impl FnOnce(&mut Working)) -> Held {
    if let Place::Running(working) = &mut row.place {
        change(working);
    }
    row
}

pub fn intent(command: RowId, id: RowId, generation: u32, intent: Intent) -> Open {
    Open { command, id, generation: Generation(generation), what: What::Intent(intent) }
}

pub fn parked(ack: Ack) -> Open {
    Open { command: ack.command, id: ack.id, generation: ack.generation, what: What::Parked(ack) }
}

pub fn ack(offset: i64, at: i64, id: RowId, generation: u32, (report, progress): Said) -> Ack {
    Ack { command: ack_id(offset), at, id, generation: Generation(generation), report, progress }
}

/// A report and how far the consumer got.
pub type Said = (Report, Option<Vec<u8>>);

pub fn failed() -> Said {
    (Report::Failed { reason: Some("no room".into()), permanent: false }, None)
}

pub fn permanent() -> Said {
    (Report::Failed { reason: None, permanent: true }, None)
}

pub fn succeeded() -> Said {
    (Report::Succeeded, None)
}

pub fn progress(bytes: &[u8]) -> Said {
    (Report::Progress, Some(bytes.to_vec()))
}

/// The cursor of [`SHARD`].
pub fn cursor(at: i64) -> Cursors {
    Cursors::from([(SHARD, at)])
}

/// Where the only row ends.
pub fn only_row(effects: &Effects) -> &Held {
    assert_eq!(effects.moved.len(), 1, "{effects:?}");
    &effects.moved[0].to
}

pub fn life(rows: &[Held], open: &[Open]) -> Life {
    Life::new(rows.iter().cloned(), open.iter().cloned())
}
