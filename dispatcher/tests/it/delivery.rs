//! Once, on time, in order, as submitted.

use crate::rig::{Rig, due, due_with, header, now_ms, task_ids, withdraw};
use schemas::journal::EntryKind;
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn due_records_are_delivered_once_on_time_and_in_order() {
    let rig = Rig::new(2).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    let base = now_ms() + 1_500;
    let records: Vec<_> =
        (0..200).map(|n| due(n, &topic, base + i64::try_from(n / 4).unwrap() * 10)).collect();
    let mut shuffled = records.clone();
    shuffled.reverse();
    rig.emit(1, &shuffled).await;
    // Doubled on its way.
    rig.emit(1, &records[..50]).await;
    let seen = rig.visible_when(&topic, 200).await;
    assert_eq!(seen.len(), 200);
    let expected: Vec<String> = (0..200).map(|n| format!("task-{n}")).collect();
    assert_eq!(task_ids(&seen), expected, "one key: one partition, in the order of (due, submit)");
    let mut worst = 0;
    for record in &seen {
        let number = |name: &str| header(record, name).unwrap().parse::<i64>().unwrap();
        let late = number("duestream-delivered-at") - number("duestream-due-at");
        assert!(late >= 0, "early by {late} ms");
        worst = worst.max(late);
    }
    assert!(worst < 1_000, "late by {worst} ms");
    let stopped = running.stop().await;
    assert!(stopped < Duration::from_secs(2), "stopping took {stopped:?}");
    assert_eq!(rig.fates().await.len(), 200);
    assert!(rig.keys().await.iter().all(|key| key.ends_with(":meta")), "{:?}", rig.keys().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_record_is_as_submitted_with_our_headers_behind() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    let null = due_with(1, &topic, now_ms(), |d| (d.key, d.value, d.partition) = (None, None, Some(1)));
    let empty = due_with(2, &topic, now_ms(), |d| (d.key, d.value) = (Some(vec![]), Some(vec![])));
    rig.emit(0, &[null, empty]).await;
    let mut seen = rig.visible_when(&topic, 2).await;
    seen.sort_by_key(|record| header(record, "duestream-task-id"));
    assert_eq!((seen[0].key.clone(), seen[0].value.clone(), seen[0].partition), (None, None, 1));
    assert_eq!(seen[1].key.as_deref(), Some(&b""[..]));
    assert_eq!(seen[1].value.as_deref(), Some(&b""[..]));
    let names: Vec<&str> = seen[0].headers.iter().map(|header| header.name.as_str()).collect();
    assert_eq!(names[0], "colour", "the user's own come first");
    assert_eq!(header(&seen[0], "duestream-attempt").as_deref(), Some("1"));
    assert_eq!(header(&seen[0], "duestream-shard-key").as_deref(), Some("shop-7"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdraw_before_the_due_time_is_journaled_and_nothing_is_delivered() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    let at = now_ms() + 1_500;
    let records = [due(1, &topic, at), due(2, &topic, at)];
    rig.emit(0, &records).await;
    // The other order, for a row whose deliver record comes late.
    let late = due(3, &topic, at);
    rig.emit(0, &[withdraw(&records[0]), withdraw(&late), late]).await;
    let mut fates = rig.fates_when(3).await;
    fates.sort_by_key(|(id, ..)| *id);
    let kinds: Vec<_> = fates.iter().map(|(id, kind, _)| (*id, *kind)).collect();
    assert_eq!(kinds, [(1, EntryKind::Withdrawn), (2, EntryKind::Delivered), (3, EntryKind::Withdrawn)]);
    assert_eq!(task_ids(&rig.visible(&topic).await), ["task-2"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_and_bury_marked_tasks_go_to_dead_with_their_reason() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    let expired = due_with(1, &topic, now_ms() - 10, |d| d.expires_at = Some(now_ms() - 5));
    let given_up = due_with(2, &topic, now_ms(), |d| d.bury = Some("attempts_exhausted".into()));
    rig.emit(0, &[expired, given_up]).await;
    let fates = rig.fates_when(2).await;
    assert!(fates.contains(&(1, EntryKind::Buried, Some("expired".into()))), "{fates:?}");
    assert!(fates.contains(&(2, EntryKind::Buried, Some("attempts_exhausted".into()))), "{fates:?}");
    let dead = rig.visible_when(&rig.names.dead(), 2).await;
    let keys: BTreeSet<_> = dead.iter().map(|record| record.key.clone().unwrap()).collect();
    assert_eq!(keys.len(), 2);
    assert!(dead.iter().all(|record| header(record, "duestream-topic").as_deref() == Some(&topic)));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_slot_beats_and_reports_its_credit() {
    let rig = Rig::new(1).await;
    let running = rig.start_with(&[("DELIVERY__HEARTBEAT", "200ms")]).await;
    let beats = rig
        .until("five heartbeats", async || Some(rig.journal().await).filter(|journal| journal.len() >= 6))
        .await;
    let last = beats.last().unwrap();
    assert!(last.credit > 0 && last.backlog == 0 && last.entries.is_empty());
    assert!((last.local_at - last.redis_at).abs() < 2_000);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_dispatchers_share_the_slots_and_hand_them_over_without_a_duplicate() {
    let rig = Rig::new(4).await;
    let topic = rig.callback_topic("calls").await;
    let first = rig.start().await;
    let base = now_ms() + 1_000;
    for slot in 0..4_u64 {
        let records: Vec<_> =
            (0..250).map(|n| due(slot * 1_000 + n, &topic, base + i64::try_from(n).unwrap() * 20)).collect();
        rig.emit(i32::try_from(slot).unwrap(), &records).await;
    }
    let second = rig.start().await;
    rig.visible_when(&topic, 300).await;
    first.stop().await;
    rig.visible_when(&topic, 1_000).await;
    second.stop().await;
    let seen = task_ids(&rig.visible(&topic).await);
    let distinct: BTreeSet<&String> = seen.iter().collect();
    assert_eq!((seen.len(), distinct.len()), (1_000, 1_000));
    assert_eq!(rig.fates().await.len(), 1_000);
}
