use crate::world::{RULE, deps};
use runtime::kafka::{Member, MemberSettings};
use runtime::probes::Readiness;
use runtime::testing::{TestPipeline, row, until};
use scanner::scan_slot;
use schemas::ids::Slot;
use std::collections::BTreeSet;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

async fn process(pipeline: &TestPipeline) -> (CancellationToken, JoinHandle<anyhow::Result<()>>) {
    let settings = MemberSettings::new(pipeline.names.group("scanner"), [pipeline.names.slots()]);
    let member = Member::join(&pipeline.cluster, &settings).unwrap();
    let deps = deps(pipeline, RULE).await;
    let (stop, gate) = (CancellationToken::new(), Readiness::default().gate("slots", "joining"));
    let work = move |slot, stop| scan_slot(deps.clone(), slot, stop);
    (stop.clone(), tokio::spawn(runtime::slot_group::run(member, gate, stop, work)))
}

async fn all_of(pipeline: &TestPipeline, ids: std::ops::Range<u64>) {
    until("every row is emitted", async || {
        let mut seen = BTreeSet::new();
        for slot in 0..pipeline.slots {
            seen.extend(pipeline.due_records(Slot(slot)).await.iter().map(|r| r.id.0));
        }
        let missing = ids.clone().filter(|id| !seen.contains(id)).count();
        if missing == 0 { Ok(()) } else { Err(missing) }
    })
    .await;
}

#[tokio::test]
async fn two_scanners_share_the_slots_and_one_goes_on_alone() {
    let pipeline = TestPipeline::fresh(8, 4).await;
    let now = pipeline.db.db.now().await.unwrap();
    let rows =
        |ids: std::ops::Range<u64>| ids.map(|id| row((id % 8) as u16, now + 2_000, id)).collect::<Vec<_>>();

    let (stop_first, first) = process(&pipeline).await;
    pipeline.insert(&rows(0..80)).await;
    all_of(&pipeline, 0..80).await;
    let (stop_second, second) = process(&pipeline).await;
    stop_first.cancel();
    first.await.unwrap().unwrap();
    // Ingest would emit what it inserts at or below the cursor; here only the scanner does, so: beyond it.
    let later = pipeline.shard_rows().await.iter().map(|row| row.cursor_at).max().unwrap() + 500;
    let beyond: Vec<_> = (80..160u64).map(|id| row((id % 8) as u16, later, id)).collect();
    pipeline.insert(&beyond).await;
    all_of(&pipeline, 80..160).await;
    stop_second.cancel();
    second.await.unwrap().unwrap();

    for slot in 0..4 {
        for record in pipeline.due_records(Slot(slot)).await {
            assert_eq!(record.shard.0 % 4, slot, "each row on the partition of its slot");
        }
    }
}
