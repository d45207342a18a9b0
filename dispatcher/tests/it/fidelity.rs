//! To the last byte, to the newest partition, and what is no due record.

use crate::rig::{Rig, due, due_with, header, now_ms, task_ids};
use protocol::slot::wire_bytes;
use runtime::kafka::OutRecord;
use schemas::due::{Deliver, DueKind, DueRecord};
use schemas::journal::EntryKind;
use schemas::record::Header;

/// The record with a value that makes it `bytes` long on the wire.
fn filled(id: u64, topic: &str, bytes: usize, change: impl Fn(&mut Deliver)) -> DueRecord {
    let with = |len: usize| {
        due_with(id, topic, now_ms() + 500, |deliver| {
            change(deliver);
            deliver.value = Some(vec![b'x'; len]);
        })
    };
    let size = |record: &DueRecord| match &record.kind {
        DueKind::Deliver(deliver) => wire_bytes(record, deliver),
        DueKind::Withdraw => unreachable!("made as deliver"),
    };
    let near = bytes - size(&with(0));
    (near.saturating_sub(8)..=near).map(with).find(|record| size(record) == bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_fills_its_topic_is_delivered_and_one_a_byte_larger_is_dead() {
    const LIMIT: usize = 3_000;
    let rig = Rig::new(1).await;
    let topic = rig.name("small");
    rig.topic(&topic, 1, &[("max.message.bytes", &LIMIT.to_string())]).await;
    let running = rig.start().await;
    let shapes: [fn(&mut Deliver); 5] = [
        |_| {},
        |deliver| deliver.key = None,
        |deliver| (deliver.key, deliver.shard_key) = (Some(vec![]), None),
        |deliver| deliver.key = Some(vec![7; 1_000]),
        |deliver| {
            let header =
                |n: usize| Header { name: "n".repeat(n), value: (!n.is_multiple_of(3)).then(|| vec![1; n]) };
            deliver.headers = (1..70).step_by(9).map(header).collect();
            deliver.progress = Some(b"page 3".to_vec());
        },
    ];
    let records: Vec<DueRecord> = (0..)
        .zip(shapes)
        .flat_map(|(n, shape)| {
            [filled(2 * n, &topic, LIMIT, shape), filled(2 * n + 1, &topic, LIMIT + 1, shape)]
        })
        .collect();
    rig.emit(0, &records).await;
    let mut fates = rig.fates_when(10).await;
    fates.sort_by_key(|(id, ..)| *id);
    for (id, kind, reason) in fates {
        let expected = if id % 2 == 0 {
            (EntryKind::Delivered, None)
        } else {
            (EntryKind::Buried, Some("too_large".to_owned()))
        };
        assert_eq!((kind, reason), expected, "record {id}");
    }
    assert_eq!(rig.barriers().await, 1, "no transaction was spoilt");
    for record in rig.visible(&topic).await {
        assert_eq!(header(&record, "duestream-delivered-at"), Some(record.at.to_string()));
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_was_just_added_takes_records_without_spoiling_a_transaction() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("grows").await;
    let running = rig.start().await;
    rig.emit(0, &[due(1, &topic, now_ms())]).await;
    rig.fates_when(1).await;
    rig.add_partitions(&topic, 6).await;
    let asked = due_with(2, &topic, now_ms(), |deliver| deliver.partition = Some(5));
    rig.emit(0, &[asked, due(3, &topic, now_ms())]).await;
    let fates = rig.fates_when(3).await;
    assert!(fates.iter().all(|(_, kind, _)| *kind == EntryKind::Delivered), "{fates:?}");
    let seen = rig.visible(&topic).await;
    assert!(
        seen.iter()
            .any(|record| record.partition == 5 && task_ids(std::slice::from_ref(record)) == ["task-2"])
    );
    assert_eq!(rig.barriers().await, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_waits_for_a_rejected_that_is_missing_and_delays_no_delivery() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    let stray = OutRecord::to(rig.names.due()).partition(0).key("k").value("garbage").header("h", "1");
    rig.write(&stray).await;
    let base = now_ms() + 200;
    let records: Vec<_> = (0..20).map(|n| due(n, &topic, base + 100 * i64::try_from(n).unwrap())).collect();
    rig.emit(0, &records).await;
    let seen = rig.visible_when(&topic, 20).await;
    for record in &seen {
        let number = |name: &str| header(record, name).unwrap().parse::<i64>().unwrap();
        let late = number("duestream-delivered-at") - number("duestream-due-at");
        assert!((0..1_000).contains(&late), "late by {late} ms");
    }
    assert_eq!(rig.barriers().await, 1);
    rig.topic(&rig.names.rejected(), 1, &[]).await;
    let kept = rig.visible_when(&rig.names.rejected(), 1).await;
    assert_eq!((kept[0].key.as_deref(), kept[0].value.as_deref()), (Some(&b"k"[..]), Some(&b"garbage"[..])));
    assert_eq!(header(&kept[0], "h").as_deref(), Some("1"));
    assert_eq!(header(&kept[0], "duestream-rejected-reason").as_deref(), Some("foreign_record"));
    assert_eq!(header(&kept[0], "duestream-rejected-offset").as_deref(), Some("0"));
    rig.due_pos_when(21).await;
    running.stop().await;
    // Kept is passed: the next owner does not copy it again.
    let next = rig.start().await;
    rig.emit(0, &[due(100, &topic, now_ms())]).await;
    rig.visible_when(&topic, 21).await;
    next.stop().await;
    assert_eq!(rig.visible(&rig.names.rejected()).await.len(), 1);
}
