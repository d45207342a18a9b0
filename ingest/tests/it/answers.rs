//! The journal decides intents, and whoever asked is told: once more where nobody knows whether he was.

use crate::life::{settle, states, waiting_for_acks};
use crate::pipeline::{Pipeline, header, until};
use runtime::store::PendingRow;
use schemas::ids::Generation;
use schemas::journal::EntryKind;
use std::collections::BTreeMap;

/// What the tasks' side writes for a change of a row at or below its cursor. Commands have offsets from 100 on.
async fn intend(pipeline: &Pipeline, row: &PendingRow, n: u64, op: u8, due_at: Option<i64>) {
    let command = (row.id.0 & !0xffff_ffff) + 100 + n;
    let due_at = due_at.map_or("NULL".to_owned(), |due_at| due_at.to_string());
    pipeline
        .sql(&format!(
            "INSERT INTO `change` (command, id, gen, kind, op, new_due_at, received_at, resend_at, reply, task_id, shard_key, \
             correlation) VALUES ({command}, {}, {}, 1, {op}, {due_at}, 5, 5, 1, '{}', 'key 4', 'nr {n}')",
            row.id, row.generation.0, row.task_id
        ))
        .await;
}

/// `answer due-at` by correlation.
async fn told(pipeline: &Pipeline, count: usize) -> BTreeMap<String, (String, Option<String>)> {
    until("the answers are told", || async {
        let replies = pipeline.read(&pipeline.names.replies()).await;
        let of = |record: &_, name: &str| header(record, &format!("duestream-reply-{name}"));
        let told: BTreeMap<_, _> = replies
            .iter()
            .map(|r| (of(r, "correlation").unwrap(), (of(r, "answer").unwrap(), of(r, "due-at"))))
            .collect();
        if told.len() >= count { Ok(told) } else { Err(told) }
    })
    .await
}

const CANCEL: u8 = 1;
const RESCHEDULE: u8 = 2;

#[tokio::test(flavor = "multi_thread")]
async fn intents_are_folded_in_command_order_and_answered() {
    let (pipeline, ingest, rows) = waiting_for_acks(&["moved", "cancelled", "sent", "buried"], "").await;
    let later = rows["moved"].due_at + 5_000;
    intend(&pipeline, &rows["moved"], 1, RESCHEDULE, Some(later + 1)).await;
    intend(&pipeline, &rows["moved"], 2, RESCHEDULE, Some(later)).await;
    intend(&pipeline, &rows["cancelled"], 3, RESCHEDULE, Some(later)).await;
    intend(&pipeline, &rows["cancelled"], 4, CANCEL, None).await;
    intend(&pipeline, &rows["cancelled"], 5, RESCHEDULE, Some(later)).await;
    intend(&pipeline, &rows["sent"], 6, CANCEL, None).await;
    intend(&pipeline, &rows["buried"], 7, CANCEL, None).await;
    settle(
        &pipeline,
        &[
            (&rows["moved"], EntryKind::Withdrawn),
            (&rows["cancelled"], EntryKind::Withdrawn),
            (&rows["sent"], EntryKind::Delivered),
            (&rows["buried"], EntryKind::Buried),
        ],
    )
    .await;
    let told = told(&pipeline, 7).await;
    let answer = |n: u32| (told[&format!("nr {n}")].0.as_str(), told[&format!("nr {n}")].1.clone());
    assert_eq!(answer(1), ("accepted", Some((later + 1).to_string())));
    assert_eq!(answer(2), ("accepted", Some(later.to_string())));
    assert_eq!(answer(3).0, "accepted");
    assert_eq!(answer(4), ("cancelled", None));
    assert_eq!(answer(5), ("cancelled", None), "what follows a cancel is answered by it");
    assert_eq!(answer(6), ("already_sent", None));
    assert_eq!(answer(7), ("rejected", None));

    let states = states(&pipeline).await;
    assert_eq!(
        [states["moved"].0, states["cancelled"].0, states["sent"].0, states["buried"].0],
        [1, 5, 2, 4]
    );
    let moved = &pipeline.pending().await["moved"];
    assert_eq!((moved.due_at, moved.generation, &moved.body), (later, Generation(2), &rows["moved"].body));
    assert_eq!(pipeline.number("SELECT stop FROM running WHERE task_id = 'sent'").await, 1);
    until("answers are forgotten", || async {
        let left = pipeline.number("SELECT COUNT(*) FROM `change`").await;
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    // The new due time lies below the cursor.
    until("the moved row is emitted", || async {
        let due = pipeline.due().await;
        let found = due.iter().any(|(_, due)| due.due_at == later && due.generation == Generation(2));
        found.then_some(()).ok_or(due.len())
    })
    .await;
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_applying_and_answering_loses_no_answer() {
    let (pipeline, first, rows) = waiting_for_acks(&["cancelled"], "").await;
    intend(&pipeline, &rows["cancelled"], 1, CANCEL, None).await;
    let replies = pipeline.names.replies();
    pipeline.delete_topic(&replies).await;
    settle(&pipeline, &[(&rows["cancelled"], EntryKind::Withdrawn)]).await;
    assert_eq!(states(&pipeline).await["cancelled"].0, 5);
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change` WHERE kind = 4").await, 1, "owed");
    first.kill();
    pipeline.create_topic(&replies, 2).await;
    let second = pipeline.ingest("");
    let told = told(&pipeline, 1).await;
    assert_eq!(told["nr 1"].0, "cancelled");
    pipeline.confirmed(&pipeline.names.journal(), 1).await;
    assert_eq!(pipeline.number("SELECT COUNT(*) FROM `change`").await, 0);
    second.stop().await;
    pipeline.finish().await;
}
