//! Bad callback topics among healthy ones.

use crate::rig::{Rig, due, due_with, now_ms, task_ids};
use schemas::journal::EntryKind;

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_be_written_is_buried_and_its_neighbours_are_delivered() {
    let rig = Rig::new(1).await;
    let good = rig.callback_topic("good").await;
    let small = rig.name("small");
    rig.topic(&small, 1, &[("max.message.bytes", "2000")]).await;
    let compacted = rig.name("compacted");
    rig.topic(&compacted, 1, &[("cleanup.policy", "compact")]).await;
    let missing = rig.name("missing");
    let running = rig.start().await;
    let at = now_ms() + 300;
    let large = due_with(3, &small, at, |d| d.value = Some(vec![b'x'; 5_000]));
    let keyless = due_with(4, &compacted, at, |d| d.key = None);
    let elsewhere = due_with(5, &good, at, |d| d.partition = Some(7));
    let fits = due(6, &small, at);
    rig.emit(0, &[due(1, &missing, at), due(2, &good, at), large, keyless, elsewhere, fits]).await;
    let mut fates = rig.fates_when(6).await;
    fates.sort_by_key(|(id, ..)| *id);
    let buried = |reason: &str| (EntryKind::Buried, Some(reason.to_owned()));
    let expected = [
        buried("unknown_topic"),
        (EntryKind::Delivered, None),
        buried("too_large"),
        buried("key_required"),
        buried("unknown_partition"),
        (EntryKind::Delivered, None),
    ];
    let found: Vec<_> = fates.into_iter().map(|(_, kind, reason)| (kind, reason)).collect();
    assert_eq!(found, expected);
    assert_eq!(rig.visible_when(&rig.names.dead(), 4).await.len(), 4);
    assert_eq!(rig.barriers().await, 1, "nothing of this spoils a transaction");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_deleted_under_way_is_buried_and_the_others_go_on() {
    let rig = Rig::new(1).await;
    let (good, doomed) = (rig.callback_topic("good").await, rig.callback_topic("doomed").await);
    let running = rig.start().await;
    rig.emit(0, &[due(1, &good, now_ms()), due(2, &doomed, now_ms())]).await;
    rig.fates_when(2).await;
    rig.admin.delete_topics(&[&doomed]).await.unwrap();
    let base = now_ms() + 500;
    let mut records: Vec<_> =
        (0..50).map(|n| due(100 + n, &good, base + i64::try_from(n).unwrap() * 100)).collect();
    records.push(due(3, &doomed, base + 100));
    rig.emit(0, &records).await;
    let fates = rig.fates_when(53).await;
    assert!(fates.contains(&(3, EntryKind::Buried, Some("unknown_topic".into()))), "{fates:?}");
    assert_eq!(task_ids(&rig.visible(&good).await).len(), 51);
    running.stop().await;
}
