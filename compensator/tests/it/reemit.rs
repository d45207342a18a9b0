use crate::world::{deps, heartbeat, move_cursors, numbers, sql};
use compensator::Reemitter;
use protocol::cursor::ScanPoint;
use protocol::reemit::Again;
use runtime::store::{position, reemit};
use runtime::testing::{TestPipeline, row};
use schemas::ids::{Generation, RowId, Shard, Slot};

const SLOT: Slot = Slot(0);

async fn emitted(pipeline: &TestPipeline) -> Vec<u64> {
    pipeline.due_records(SLOT).await.iter().map(|record| record.id.0).collect()
}

/// A pipeline of one slot and one shard whose cursor lies 10 s ahead, and the database's clock.
async fn one_shard() -> (TestPipeline, i64) {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    move_cursors(&pipeline, now + 10_000).await;
    (pipeline, now)
}

#[tokio::test]
async fn a_stalled_row_is_emitted_again_only_while_the_gate_is_open_and_then_waits_for_its_pause() {
    let (pipeline, now) = one_shard().await;
    let mut tx = pipeline.db.db.begin("test").await.unwrap();
    position::advance(&mut tx, pipeline.journal, 0, 0, 55).await.unwrap();
    tx.commit().await.unwrap();
    pipeline.insert(&[row(0, now - 40_000, 1), row(0, now - 10_000, 2)]).await;
    let mut reemitter = Reemitter::new(deps(&pipeline, ""), SLOT);

    assert_eq!(reemitter.pass().await.unwrap(), 0, "no heartbeat was ever applied");
    heartbeat(&pipeline, 0, now - 60_000, 0, None).await;
    assert_eq!(reemitter.pass().await.unwrap(), 0, "the last one is too old");
    heartbeat(&pipeline, 0, now + 30_000, 100_001, None).await;
    assert_eq!(reemitter.pass().await.unwrap(), 0, "the slot is drowning");
    heartbeat(&pipeline, 0, now + 30_000, 10, None).await;
    assert_eq!(reemitter.pass().await.unwrap(), 1, "row 2 is within its grace");
    assert_eq!(reemitter.pass().await.unwrap(), 0, "row 1 pauses");

    let records = pipeline.due_records(SLOT).await;
    assert_eq!(records.iter().map(|record| (record.id.0, record.fence)).collect::<Vec<_>>(), [(1, 55)]);
    let notes =
        numbers(&pipeline, "SELECT CAST(at AS UNSIGNED) FROM reemit WHERE id = 1 AND n = 1".into()).await;
    assert!(notes[0] >= (now + 30_000).unsigned_abs(), "{notes:?}");
}

#[tokio::test]
async fn nothing_beyond_the_cursor_is_emitted_even_if_it_is_overdue_or_handed_back() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    move_cursors(&pipeline, now - 50_000).await;
    heartbeat(&pipeline, 0, now + 30_000, 0, Some(now)).await;
    pipeline.insert(&[row(0, now - 40_000, 1), row(0, now - 60_000, 2)]).await;
    let mut session = pipeline.db.db.session().await.unwrap();
    let point = ScanPoint { due_at: now - 40_000, id: RowId(1) };
    let handed_back = Again { generation: Generation(1), at: 0, n: 0 };
    reemit::note(&mut session, Shard(0), &[(point, handed_back)]).await.unwrap();
    drop(session);
    Reemitter::new(deps(&pipeline, ""), SLOT).pass().await.unwrap();
    assert_eq!(emitted(&pipeline).await, [2]);
}

#[tokio::test]
async fn a_row_that_was_handed_back_is_emitted_at_once_and_before_it_is_due() {
    let (pipeline, now) = one_shard().await;
    heartbeat(&pipeline, 0, now + 30_000, 0, None).await;
    pipeline.insert(&[row(0, now + 8_000, 1), row(0, now + 8_000, 2)]).await;
    let mut session = pipeline.db.db.session().await.unwrap();
    let point = ScanPoint { due_at: now + 8_000, id: RowId(2) };
    let handed_back = Again { generation: Generation(1), at: 0, n: 0 };
    reemit::note(&mut session, Shard(0), &[(point, handed_back)]).await.unwrap();
    drop(session);
    let mut reemitter = Reemitter::new(deps(&pipeline, ""), SLOT);
    assert_eq!(reemitter.pass().await.unwrap(), 1);
    assert_eq!(reemitter.pass().await.unwrap(), 0);
    assert_eq!(emitted(&pipeline).await, [2]);
}

#[tokio::test]
async fn after_a_cold_take_over_what_is_due_by_then_is_emitted_without_grace_once() {
    let (pipeline, now) = one_shard().await;
    pipeline.insert(&[row(0, now - 3_000, 1), row(0, now + 9_000, 2)]).await;
    heartbeat(&pipeline, 0, now + 30_000, 0, Some(now)).await;
    let mut reemitter = Reemitter::new(deps(&pipeline, ""), SLOT);
    assert_eq!(reemitter.pass().await.unwrap(), 1);
    assert_eq!(reemitter.pass().await.unwrap(), 0);
    assert_eq!(emitted(&pipeline).await, [1]);
}

#[tokio::test]
async fn a_row_with_an_open_intent_or_a_parked_ack_is_left_alone() {
    let (pipeline, now) = one_shard().await;
    heartbeat(&pipeline, 0, now + 30_000, 0, None).await;
    pipeline.insert(&(1..=4).map(|id| row(0, now - 40_000, id)).collect::<Vec<_>>()).await;
    let change = |command: u64, id: u64, generation: u32, kind: u8| {
        format!(
            "INSERT INTO `change` (command, id, gen, kind, received_at) VALUES ({command}, {id}, {generation}, {kind}, 0);"
        )
    };
    // 1: intent. 2: answer owed. 3: parked ack. 4: intent of another gen.
    sql(&pipeline, change(11, 1, 1, 1) + &change(12, 2, 1, 2) + &change(13, 3, 1, 3) + &change(14, 4, 9, 1))
        .await;
    Reemitter::new(deps(&pipeline, ""), SLOT).pass().await.unwrap();
    assert_eq!(emitted(&pipeline).await, [2, 4]);
}

#[tokio::test]
async fn a_pass_is_capped_and_the_next_one_goes_on_behind_it() {
    let (pipeline, now) = one_shard().await;
    heartbeat(&pipeline, 0, now + 30_000, 0, None).await;
    pipeline.insert(&(0..250).map(|id| row(0, now - 40_000, id)).collect::<Vec<_>>()).await;
    let file = "[reemit]\nrows_per_pass = 70\nexamine_per_pass = 100\n";
    let mut reemitter = Reemitter::new(deps(&pipeline, file), SLOT);
    let mut passes = Vec::new();
    for _ in 0..12 {
        passes.push(reemitter.pass().await.unwrap());
    }
    assert!(passes.iter().all(|n| *n <= 70), "{passes:?}");
    assert_eq!(passes.iter().sum::<u64>(), 250, "{passes:?}");
    let mut all = emitted(&pipeline).await;
    all.sort_unstable();
    assert_eq!(all, (0..250).collect::<Vec<u64>>(), "each once");
}

#[tokio::test]
async fn notes_of_settled_rows_are_forgotten() {
    let (pipeline, now) = one_shard().await;
    heartbeat(&pipeline, 0, now + 30_000, 0, None).await;
    pipeline.insert(&[row(0, now - 40_000, 1)]).await;
    sql(
        &pipeline,
        format!(
            "INSERT INTO reemit VALUES (0, {}, 1, 1, 0, 0), (0, {}, 7, 1, {now}, 3)",
            now - 40_000,
            now - 90_000
        ),
    )
    .await;
    Reemitter::new(deps(&pipeline, ""), SLOT).pass().await.unwrap();
    assert_eq!(numbers(&pipeline, "SELECT id FROM reemit".into()).await, [1]);
}
