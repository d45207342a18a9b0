//! What the tests of acks and changes have in common: tasks that wait for acks, and the words of a dispatcher.

use crate::pipeline::{Pipeline, Running, now_ms, until};
use runtime::kafka::OutRecord;
use runtime::store::PendingRow;
use schemas::delivery::DeliveryId;
use schemas::due::Completion;
use schemas::journal::{EntryKind, JournalEntry, JournalKind, JournalRecord, OwnerToken};
use schemas::options::Backoff;
use schemas::row::RowOptions;
use std::collections::BTreeMap;

pub const HOUR_MS: i64 = 3_600_000;

/// A pipeline whose cursors lie an hour ahead, ingest, and tasks in slot 0 that are due in a moment and wait for acks.
pub async fn waiting_for_acks(
    names: &[&str],
    toml: &str,
) -> (Pipeline, Running, BTreeMap<String, PendingRow>) {
    let pipeline = Pipeline::new().await;
    pipeline.sql(&format!("UPDATE shard SET cursor_at = {}", now_ms() + HOUR_MS)).await;
    let due_at = now_ms() + 1_000;
    pipeline
        .submit(
            names.iter().map(|id| pipeline.task(id, due_at).header("duestream-shard-key", "key 4")).collect(),
        )
        .await;
    assert_eq!(protocol::route::shard_of("", Some("key 4"), 4).0 & 1, 0, "slot 0");
    let ingest = pipeline.ingest(toml);
    pipeline.confirmed(&pipeline.names.tasks(), i64::try_from(names.len()).unwrap()).await;
    on_ack(&pipeline, &RowOptions::default()).await;
    let rows = pipeline.pending().await;
    (pipeline, ingest, rows)
}

/// Every pending row completes on ack, with a retry after exactly 7 s.
pub async fn on_ack(pipeline: &Pipeline, options: &RowOptions) {
    let backoff = "fixed:7s".parse::<Backoff>().ok();
    let options = RowOptions { completion: Completion::OnAck, backoff, ..options.clone() };
    let hex: String = options.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    pipeline.sql(&format!("UPDATE pending SET options = X'{hex}'")).await;
}

/// Writes fates of rows in their own generation into the journal, and waits until they are applied.
pub async fn settle(pipeline: &Pipeline, fates: &[(&PendingRow, EntryKind)]) -> i64 {
    let at = now_ms();
    let entries = fates
        .iter()
        .map(|(row, kind)| JournalEntry {
            kind: *kind,
            shard: row.shard,
            due_at: row.due_at,
            id: row.id,
            generation: row.generation,
            at,
            reason: None,
        })
        .collect();
    let record = JournalRecord {
        token: OwnerToken(7),
        kind: JournalKind::Batch,
        cold: false,
        backlog: 0,
        credit: 100,
        local_at: at,
        redis_at: at,
        entries,
    };
    let journal = pipeline.names.journal();
    let offsets = pipeline.send(&journal, vec![OutRecord::to("").value(record.encode())]).await;
    pipeline.applied(&journal, offsets[0] + 1).await;
    at
}

/// What a consumer echoes.
pub fn delivery_id(row: &PendingRow) -> String {
    let PendingRow { shard, due_at, id, generation, attempt, .. } = *row;
    DeliveryId { shard, due_at, id, generation, attempt }.to_string()
}

/// An ack by headers.
pub fn ack(row: &PendingRow, outcome: &str) -> OutRecord {
    OutRecord::to("")
        .key(row.task_id.clone())
        .header("duestream-delivery-id", delivery_id(row))
        .header("duestream-ack", outcome)
}

/// Sends acks and waits until they are applied; `at` of the last of them.
pub async fn acked(pipeline: &Pipeline, acks: Vec<OutRecord>) -> i64 {
    let topic = pipeline.names.acks();
    let offsets = pipeline.send(&topic, acks).await;
    let last = *offsets.last().unwrap();
    until("the acks are applied", || async {
        // Ticks come behind them.
        let (next, _) = pipeline.positions(&topic, 0).await;
        if next > last { Ok(()) } else { Err(format!("next {next}, wanted more than {last}")) }
    })
    .await;
    let records = pipeline.read(&topic).await;
    records.iter().find(|record| record.partition == 0 && record.offset == last).unwrap().at
}

/// `state attempt` of each task.
pub async fn states(pipeline: &Pipeline) -> BTreeMap<String, (u8, u16)> {
    pipeline.tasks().await.into_iter().map(|(id, task)| (id, (task.state, task.attempt))).collect()
}
