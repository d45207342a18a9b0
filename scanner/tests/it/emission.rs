use crate::world::{RULE, Scanner};
use protocol::cursor::ScanRule;
use runtime::store::PendingRow;
use runtime::testing::{TestPipeline, row, until};
use schemas::due::{DueKind, DueRecord};
use schemas::ids::{RowId, Slot};
use schemas::row::RowBody;

fn ids(records: &[DueRecord]) -> Vec<u64> {
    records.iter().map(|record| record.id.0).collect()
}

async fn until_confirmed_everywhere(pipeline: &TestPipeline) {
    until("every shard is scanned to its cursor", async || {
        let rows = pipeline.shard_rows().await;
        let behind = |row: &&runtime::store::shard::ShardRow| row.cursor_at == 0 || row.confirmed_due < 1;
        if rows.iter().any(|row| behind(&row)) { Err(rows) } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn a_scan_emits_exactly_its_rows_in_order_and_leaves_what_lies_beyond_the_cursor() {
    let pipeline = TestPipeline::fresh(2, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    let near: Vec<PendingRow> = (0..250).map(|i| row(0, now + (i as i64 * 37) % 5_000, i)).collect();
    let far: Vec<PendingRow> = (250..300).map(|i| row(0, now + 3_600_000, i)).collect();
    let other = row(1, now - 60_000, 900);
    pipeline.insert(&near).await;
    pipeline.insert(&far).await;
    pipeline.insert(std::slice::from_ref(&other)).await;

    let scanner = Scanner::start(&pipeline, 0, RULE).await;
    pipeline.due_records_from(Slot(0), 251).await;
    until_confirmed_everywhere(&pipeline).await;
    scanner.stop().await;

    let records = pipeline.due_records(Slot(0)).await;
    let (of_shard_0, of_shard_1): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.shard.0 == 0);
    let mut expected: Vec<(i64, u64)> = near.iter().map(|row| (row.due_at, row.id.0)).collect();
    expected.sort_unstable();
    assert_eq!(of_shard_0.iter().map(|r| (r.due_at, r.id.0)).collect::<Vec<_>>(), expected);
    assert_eq!(ids(&of_shard_1), [900], "overdue since before the first scan");
    let DueKind::Deliver(deliver) = &of_shard_1[0].kind else { panic!("a delivery") };
    assert_eq!(deliver.value.as_deref(), Some(&b"payload of 900"[..]));
    for row in pipeline.shard_rows().await {
        assert!(row.cursor_at >= now + RULE.horizon_ms && row.cursor_at < now + 3_600_000, "{row:?}");
    }
}

#[tokio::test]
async fn a_herd_of_equal_due_times_leaves_in_submit_order_over_many_pages() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let at = pipeline.db.db.now().await.unwrap() + 5_000;
    let herd: Vec<PendingRow> = (0..1_234).map(|id| row(0, at, id)).collect();
    pipeline.insert(&herd).await;
    let scanner = Scanner::start(&pipeline, 0, RULE).await;
    let records = pipeline.due_records_from(Slot(0), 1_234).await;
    scanner.stop().await;
    assert_eq!(ids(&records), (0..1_234).collect::<Vec<u64>>());
}

#[tokio::test]
async fn rows_that_come_within_the_next_buckets_are_emitted_as_time_goes_on() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let rule = ScanRule { horizon_ms: 1_000, horizon_min_ms: 500, ..RULE };
    let now = pipeline.db.db.now().await.unwrap();
    let rows: Vec<PendingRow> = (0..60).map(|id| row(0, now + 100 * id as i64, id)).collect();
    pipeline.insert(&rows).await;
    let scanner = Scanner::start(&pipeline, 0, rule).await;
    let first = pipeline.due_records_from(Slot(0), 1).await.len();
    assert!(first < 60, "the last rows are far beyond the first cursor");
    let records = pipeline.due_records_from(Slot(0), 60).await;
    scanner.stop().await;
    assert_eq!(ids(&records), (0..60).collect::<Vec<u64>>(), "each once, in order");
}

#[tokio::test]
async fn pages_of_large_rows_end_at_their_size_in_bytes() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    let large = |id| {
        let body = RowBody { key: None, headers: Vec::new(), value: Some(vec![b'x'; 800 << 10]) };
        PendingRow { body: body.encode(), ..row(0, now, id) }
    };
    for id in 0..9 {
        pipeline.insert(&[large(id)]).await;
    }
    let rule = ScanRule { page_bytes: 2 << 20, ..RULE };
    let scanner = Scanner::start(&pipeline, 0, rule).await;
    let records = pipeline.due_records_from(Slot(0), 9).await;
    scanner.stop().await;
    assert_eq!(ids(&records), (0..9).collect::<Vec<u64>>());
}

#[tokio::test]
async fn each_record_carries_the_fence_that_stood_before_its_row_was_read() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let mut tx = pipeline.db.db.begin("test").await.unwrap();
    runtime::store::position::advance(&mut tx, pipeline.journal, 0, 0, 77).await.unwrap();
    tx.commit().await.unwrap();
    let now = pipeline.db.db.now().await.unwrap();
    pipeline.insert(&[row(0, now, 1)]).await;
    let scanner = Scanner::start(&pipeline, 0, RULE).await;
    let records = pipeline.due_records_from(Slot(0), 1).await;
    scanner.stop().await;
    assert_eq!(records[0].fence, 77);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_holds_up_no_other() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    let garbage = PendingRow { body: vec![0xff; 9], ..row(0, now, 2) };
    pipeline.insert(&[row(0, now, 1), garbage, row(0, now, 3)]).await;
    let scanner = Scanner::start(&pipeline, 0, RULE).await;
    let records = pipeline.due_records_from(Slot(0), 2).await;
    until_confirmed_everywhere(&pipeline).await;
    scanner.stop().await;
    assert_eq!(ids(&records), [1, 3]);
    assert_eq!(pipeline.shard_rows().await[0].confirmed_id, RowId(u64::MAX), "the scan came to its end");
}
