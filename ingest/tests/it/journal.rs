//! The journal reaches MySQL, once.

use crate::pipeline::{Pipeline, Running, now_ms, reason};
use protocol::state::TaskState;
use runtime::kafka::OutRecord;
use schemas::ids::Generation;
use schemas::journal::{EntryKind, JournalEntry, JournalKind, JournalRecord, OwnerToken};
use schemas::topics::Names;

const HOUR_MS: i64 = 3_600_000;

/// The task ids of shards whose slot is 0, so that one partition of the journal holds all.
async fn submitted(pipeline: &Pipeline, wanted: usize) -> (Running, Vec<String>) {
    pipeline.sql(&format!("UPDATE shard SET cursor_at = {}", now_ms() + HOUR_MS)).await;
    let ids: Vec<String> = (0..)
        .map(|n| format!("task {n}"))
        .filter(|id| protocol::route::shard_of(id, None, 4).0 & 1 == 0)
        .take(wanted)
        .collect();
    let due_at = now_ms() + 1_000;
    pipeline.submit(ids.iter().map(|id| pipeline.task(id, due_at)).collect()).await;
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&pipeline.names.tasks(), i64::try_from(wanted).unwrap()).await;
    (ingest, ids)
}

async fn entry(pipeline: &Pipeline, task_id: &str, kind: EntryKind, generation: u32) -> JournalEntry {
    let task = &pipeline.tasks().await[task_id];
    JournalEntry {
        kind,
        shard: task.shard,
        due_at: task.due_at,
        id: task.id,
        generation: Generation(generation),
        at: now_ms(),
        reason: None,
    }
}

fn record(kind: JournalKind, cold: bool, entries: Vec<JournalEntry>) -> OutRecord {
    let record = JournalRecord {
        token: OwnerToken(7),
        kind,
        cold,
        backlog: 11,
        credit: 22,
        local_at: now_ms(),
        redis_at: now_ms(),
        entries,
    };
    OutRecord::to("").value(record.encode())
}

async fn state(pipeline: &Pipeline, task_id: &str) -> TaskState {
    TaskState::from_code(pipeline.tasks().await[task_id].state).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn fates_reach_the_rows_and_reading_them_twice_changes_nothing() {
    let pipeline = Pipeline::new().await;
    let (ingest, ids) = submitted(&pipeline, 5).await;
    let journal = pipeline.names.journal();
    let entries = [
        entry(&pipeline, &ids[0], EntryKind::Delivered, 1).await,
        entry(&pipeline, &ids[1], EntryKind::Buried, 1).await,
        entry(&pipeline, &ids[2], EntryKind::Withdrawn, 1).await,
        entry(&pipeline, &ids[3], EntryKind::Stale, 1).await,
    ];
    pipeline
        .send(
            &journal,
            vec![
                record(JournalKind::Barrier, true, vec![]),
                record(JournalKind::Batch, false, entries[..2].to_vec()),
                record(JournalKind::Batch, false, entries[2..].to_vec()),
            ],
        )
        .await;
    pipeline.confirmed(&journal, 3).await;

    assert_eq!(state(&pipeline, &ids[0]).await, TaskState::Done);
    assert_eq!(state(&pipeline, &ids[1]).await, TaskState::Dead);
    assert_eq!(state(&pipeline, &ids[2]).await, TaskState::Scheduled);
    assert_eq!(pipeline.tasks().await[&ids[0]].finished_at, Some(entries[0].at));
    let pending = pipeline.pending().await;
    assert_eq!(pending.keys().collect::<Vec<_>>(), [&ids[2], &ids[3], &ids[4]]);
    assert_eq!(pending[&ids[2]].generation, Generation(2));
    assert_eq!(pipeline.tasks().await[&ids[2]].generation, Generation(2));
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM reemit WHERE at = 0 AND gen = 1").await, 1);

    // The new generation lies below the cursor: whoever made it emits it, with a fence read before.
    let again: Vec<_> = pipeline.due().await.into_iter().filter(|(_, due)| due.generation.0 == 2).collect();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1.id, entries[2].id);

    // What the slot reported.
    let of_slot = |column: &str| {
        format!(
            "SELECT {column} FROM stream_position WHERE `partition` = 0 AND source = (SELECT source FROM source WHERE topic = '{journal}')"
        )
    };
    assert_eq!(pipeline.number(&of_slot("backlog")).await, 11);
    assert_eq!(pipeline.number(&of_slot("credit")).await, 22);
    let (hb_at, cold_upto) =
        (pipeline.number(&of_slot("hb_at")).await, pipeline.number(&of_slot("cold_upto")).await);
    assert!(cold_upto > 0 && hb_at >= cold_upto && now_ms() - hb_at < 60_000);

    // The same positions once more, as a new owner would after a crash before the acks.
    ingest.stop().await;
    pipeline.sql(&format!("UPDATE stream_position SET confirmed = 0 WHERE source = (SELECT source FROM source WHERE topic = '{journal}')")).await;
    let before = (pipeline.tasks().await, pipeline.pending().await);
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&journal, 3).await;
    assert_eq!((pipeline.tasks().await, pipeline.pending().await), before);
    let again = pipeline.due().await.into_iter().filter(|(_, due)| due.generation.0 == 2).count();
    assert_eq!(again, 2, "only the effect is repeated");

    // The withdrawn row is delivered in its new generation; its note and row go.
    let last = vec![
        entry(&pipeline, &ids[2], EntryKind::Delivered, 2).await,
        entry(&pipeline, &ids[3], EntryKind::Delivered, 1).await,
    ];
    pipeline.send(&journal, vec![record(JournalKind::Batch, false, last)]).await;
    pipeline.confirmed(&journal, 4).await;
    assert_eq!(state(&pipeline, &ids[2]).await, TaskState::Done);
    assert_eq!(state(&pipeline, &ids[3]).await, TaskState::Done);
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM reemit").await, 0);
    assert_eq!(pipeline.pending().await.len(), 1);

    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_fate_and_bytes_that_no_dispatcher_wrote_change_nothing_and_stop_nothing() {
    let pipeline = Pipeline::new().await;
    let (ingest, ids) = submitted(&pipeline, 2).await;
    let journal = pipeline.names.journal();
    let delivered = entry(&pipeline, &ids[0], EntryKind::Delivered, 1).await;
    let buried = JournalEntry { kind: EntryKind::Buried, ..delivered.clone() };
    let unknown = JournalEntry {
        id: schemas::ids::RowId::pack(delivered.id.source(), 0, 1).unwrap(),
        generation: Generation(9),
        ..delivered.clone()
    };
    // Offset 1 is applied, so this one is known: purge it, as if it had never been.
    pipeline.sql(&format!("DELETE FROM task WHERE id = {}", unknown.id)).await;
    pipeline.sql(&format!("DELETE FROM pending WHERE id = {}", unknown.id)).await;
    pipeline
        .send(
            &journal,
            vec![
                record(JournalKind::Batch, false, vec![delivered]),
                OutRecord::to("").value("garbage"),
                record(JournalKind::Batch, false, vec![buried, unknown]),
            ],
        )
        .await;
    pipeline.confirmed(&journal, 3).await;
    assert_eq!(state(&pipeline, &ids[0]).await, TaskState::Done, "the first fate counts");
    let rejected = pipeline.rejected().await;
    assert_eq!(rejected.iter().map(reason).collect::<Vec<_>>(), ["foreign_record"]);
    assert_eq!(rejected[0].value.as_deref(), Some(&b"garbage"[..]));
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fate_waits_for_a_command_that_is_not_applied_yet() {
    let pipeline = Pipeline::new().await;
    let (ingest, ids) = submitted(&pipeline, 1).await;
    let journal = pipeline.names.journal();
    let delivered = entry(&pipeline, &ids[0], EntryKind::Delivered, 1).await;
    ingest.stop().await;
    // MySQL restored from a backup older than the command.
    let source = delivered.id.source().0;
    pipeline.sql("DELETE FROM task").await;
    pipeline.sql("DELETE FROM pending").await;
    pipeline
        .sql(&format!("UPDATE stream_position SET next = 0, confirmed = 0 WHERE source = {source}"))
        .await;
    pipeline.send(&journal, vec![record(JournalKind::Batch, false, vec![delivered])]).await;
    let ingest = pipeline.ingest("");
    pipeline.confirmed(&journal, 1).await;
    assert_eq!(state(&pipeline, &ids[0]).await, TaskState::Done);
    assert!(pipeline.pending().await.is_empty());
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_was_created_again_halts_with_its_reason() {
    let pipeline = Pipeline::new().await;
    let ingest = pipeline.ingest("[confirm]\ntopic_check = \"100ms\"\n");
    ingest.ready().await;
    let journal = pipeline.names.journal();
    pipeline.delete_topic(&journal).await;
    pipeline.create_topic(&journal, 2).await;
    ingest.unready("maybe twice or maybe never").await;
    assert!(!ingest.token().is_cancelled(), "it stands still, it does not die");
    drop(ingest);
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_outside_the_log_halts_its_partition_with_the_reason() {
    let pipeline = Pipeline::new().await;
    let journal = pipeline.names.journal();
    pipeline
        .sql(&format!("UPDATE stream_position SET next = 5, confirmed = 5 WHERE `partition` = 1 AND source = (SELECT source FROM source WHERE topic = '{journal}')"))
        .await;
    let ingest = pipeline.ingest("");
    ingest.unready("position 5 lies above the end 0").await;
    // The other partition goes on.
    pipeline.send(&journal, vec![record(JournalKind::Batch, false, vec![])]).await;
    pipeline.confirmed(&journal, 1).await;
    drop(ingest);
    pipeline.finish().await;
}

#[test]
fn the_journal_has_its_own_group() {
    assert_eq!(Names::new("duestream.").group("ingest-journal"), "duestream-ingest-journal");
}
