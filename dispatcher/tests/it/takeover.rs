//! Warm and cold, with nothing lost and nothing twice.

use crate::rig::{Rig, due, now_ms, task_ids};
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_what_is_in_redis_is_delivered_and_nothing_twice() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    let base = now_ms();
    let records: Vec<_> = (0..100).map(|n| due(n, &topic, base + i64::try_from(n).unwrap() * 40)).collect();
    rig.emit(0, &records).await;
    rig.visible_when(&topic, 20).await;
    running.stop().await;
    // Doubled while nobody was there.
    rig.emit(0, &records).await;
    let running = rig.start().await;
    rig.visible_when(&topic, 100).await;
    running.stop().await;
    let seen = task_ids(&rig.visible(&topic).await);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 100);
    assert_eq!(seen.len(), 100);
    let journal = rig.journal().await;
    let cold: Vec<bool> = journal
        .iter()
        .filter(|record| record.kind == schemas::journal::JournalKind::Barrier)
        .map(|record| record.cold)
        .collect();
    assert_eq!(cold, [true, false], "a new slot is built cold, a restart finds it warm");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_redis_under_a_live_owner_is_rebuilt() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start_with(&[("DELIVERY__HEARTBEAT", "200ms")]).await;
    let base = now_ms() + 500;
    let records: Vec<_> = (0..200).map(|n| due(n, &topic, base + i64::try_from(n).unwrap() * 15)).collect();
    rig.emit(0, &records).await;
    for count in [30, 100] {
        rig.visible_when(&topic, count).await;
        rig.flush().await;
    }
    rig.visible_when(&topic, 200).await;
    running.stop().await;
    let seen = task_ids(&rig.visible(&topic).await);
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (200, 200));
    assert!(rig.barriers().await >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_made_anew_halts_the_slot() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start_with(&[("DELIVERY__HEARTBEAT", "200ms")]).await;
    rig.emit(0, &[due(1, &topic, now_ms())]).await;
    rig.visible_when(&topic, 1).await;
    running.stop().await;
    let journal = rig.names.journal();
    rig.admin.delete_topics(&[&journal]).await.unwrap();
    rig.until("the journal to be gone", async || {
        rig.admin.topic(&journal).await.unwrap().is_none().then_some(())
    })
    .await;
    rig.topic(&journal, 1, &[]).await;
    let running = rig.begin(&[]).await;
    rig.emit(0, &[due(2, &topic, now_ms())]).await;
    rig.until("the slot to stand still", async || running.reasons().contains("stands still").then_some(()))
        .await;
    assert_eq!(rig.visible(&topic).await.len(), 1, "it delivers nothing until somebody decides");
    assert_eq!(rig.barriers().await, 0);
    assert_eq!(running.failure(), None);
    running.stop().await;
}
