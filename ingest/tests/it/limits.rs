//! Counts of what is in flight, for topics in which that is limited.

use crate::life::{ack, acked, settle, waiting_for_acks};
use crate::pipeline::{Pipeline, until};
use protocol::limits::Board;
use runtime::kafka::OutRecord;
use schemas::control::TopicLimit;
use schemas::ids::Slot;
use schemas::journal::EntryKind;

async fn limit(pipeline: &Pipeline, limit: Option<TopicLimit>) {
    let mut record = OutRecord::to("").key(pipeline.callback.clone());
    record.value = limit.map(|limit| limit.encode().into());
    pipeline.send(&pipeline.names.control(), vec![record]).await;
}

/// Counts of the callback topic by slot, as whoever reads `control` sees them.
async fn counts(pipeline: &Pipeline) -> Vec<(u16, i64)> {
    let mut board = Board::default();
    for record in pipeline.read(&pipeline.names.control()).await {
        board.apply(record.offset, record.key.as_deref().unwrap(), record.value.as_deref()).unwrap();
    }
    board.running_of(&pipeline.callback).map(|(Slot(slot), count)| (slot, count.running)).collect()
}

async fn counts_are(pipeline: &Pipeline, wanted: &[(u16, i64)]) {
    until("the counts", || async {
        let counts = counts(pipeline).await;
        if counts == wanted { Ok(()) } else { Err(counts) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_flight_is_counted_for_topics_in_which_it_is_limited_and_for_no_others() {
    let names = ["a", "b", "c"];
    let (pipeline, ingest, rows) = waiting_for_acks(&names, "").await;
    settle(&pipeline, &rows.values().map(|row| (row, EntryKind::Delivered)).collect::<Vec<_>>()).await;
    assert_eq!(counts(&pipeline).await, [], "nobody asked");

    limit(&pipeline, Some(TopicLimit { in_flight: Some(3), ..TopicLimit::default() })).await;
    counts_are(&pipeline, &[(0, 3), (1, 0)]).await;
    acked(&pipeline, vec![ack(&rows["a"], "succeeded")]).await;
    counts_are(&pipeline, &[(0, 2), (1, 0)]).await;
    let records = pipeline.read(&pipeline.names.control()).await.len();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(
        pipeline.read(&pipeline.names.control()).await.len(),
        records,
        "what does not change is told once"
    );

    limit(&pipeline, None).await;
    counts_are(&pipeline, &[]).await;
    ingest.stop().await;
    pipeline.finish().await;
}
