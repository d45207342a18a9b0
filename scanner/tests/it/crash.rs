use crate::world::{RULE, Scanner};
use protocol::cursor::SlotScan;
use runtime::store::{StoreError, scan};
use runtime::testing::{TestPipeline, row, until};
use schemas::ids::{Shard, Slot};
use std::collections::BTreeSet;

#[tokio::test]
async fn a_crash_between_the_cursors_commit_and_the_emission_is_made_good_from_what_is_confirmed() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    pipeline.insert(&[row(0, now, 1), row(0, now + 1_000, 2)]).await;

    // A scanner that commits its cursor and then dies.
    let mut dead = SlotScan::new(RULE, [Shard(0)]);
    dead.start(now).unwrap();
    let advances =
        scan::start(&pipeline.db.db, &BTreeSet::from([Shard(0)]), |now, rows| dead.advance(now, rows)).await;
    assert!(advances.unwrap()[0].cursor_at >= now + RULE.horizon_ms);
    assert!(pipeline.due_records(Slot(0)).await.is_empty());

    let scanner = Scanner::start(&pipeline, 0, RULE).await;
    let records = pipeline.due_records_from(Slot(0), 2).await;
    scanner.stop().await;
    assert_eq!(records.iter().map(|r| r.id.0).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn a_scanner_killed_in_a_herd_leaves_no_gap() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let at = pipeline.db.db.now().await.unwrap() + 2_000;
    let herd: Vec<_> = (0..3_000).map(|id| row(0, at, id)).collect();
    pipeline.insert(&herd).await;
    for emitted in [100, 700, 1_500] {
        let scanner = Scanner::start(&pipeline, 0, RULE).await;
        pipeline.due_records_from(Slot(0), emitted).await;
        scanner.kill();
    }
    let scanner = Scanner::start(&pipeline, 0, RULE).await;
    let seen = until("every row of the herd", async || {
        let seen: BTreeSet<u64> = pipeline.due_records(Slot(0)).await.iter().map(|r| r.id.0).collect();
        if seen.len() == 3_000 { Ok(seen) } else { Err(seen.len()) }
    })
    .await;
    scanner.stop().await;
    assert_eq!(seen, (0..3_000).collect());
    let row = pipeline.shard_rows().await[0];
    assert!(row.epoch >= 4, "each start bumps the epoch: {row:?}");
}

#[tokio::test]
async fn a_fenced_scanner_writes_nothing() {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let db = &pipeline.db.db;
    let shards = BTreeSet::from([Shard(0)]);
    let now = db.now().await.unwrap();
    let mut old = SlotScan::new(RULE, [Shard(0)]);
    old.start(now).unwrap();
    let advances = scan::start(db, &shards, |now, rows| old.advance(now, rows)).await.unwrap();
    old.advanced(&advances);

    let new = Scanner::start(&pipeline, 0, RULE).await;
    until("the new scanner has the shard", async || {
        let row = pipeline.shard_rows().await[0];
        if row.epoch > advances[0].epoch { Ok(()) } else { Err(row) }
    })
    .await;
    new.stop().await;
    let before = pipeline.shard_rows().await;

    let confirm = protocol::cursor::Confirm {
        shard: Shard(0),
        epoch: advances[0].epoch,
        upto: protocol::cursor::ScanPoint::end_of(i64::MAX),
    };
    let confirmed = scan::confirm(&mut db.session().await.unwrap(), &[confirm]).await;
    assert!(matches!(confirmed, Err(StoreError::Fenced { .. })), "{confirmed:?}");
    let start = scan::start(db, &shards, |now, rows| old.advance(now, rows)).await;
    assert!(matches!(start, Err(StoreError::Fenced { .. })), "{start:?}");
    assert_eq!(pipeline.shard_rows().await, before);
}
