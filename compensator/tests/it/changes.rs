//! Changes that nobody answered: withdrawn again, answered from the row, told again.

use crate::world::{deps, heartbeat, move_cursors, numbers, sql};
use compensator::Resender;
use runtime::kafka::{JournalReader, TopicSpec};
use runtime::store::source;
use runtime::testing::{PATIENCE, TestPipeline, row, until};
use schemas::due::DueKind;
use schemas::ids::Slot;
use std::collections::BTreeMap;
use std::time::Instant;

const SLOT: Slot = Slot(0);

async fn one_shard() -> (TestPipeline, i64) {
    let pipeline = TestPipeline::fresh(1, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    move_cursors(&pipeline, now + 10_000).await;
    heartbeat(&pipeline, 0, now + 30_000, 0, None).await;
    (pipeline, now)
}

fn change(command: u64, id: u64, generation: u32, kind: u8, resend_at: i64) -> String {
    format!(
        "INSERT INTO `change` (command, id, gen, kind, op, received_at, resend_at, answer, reply, task_id, shard_key, correlation) \
         VALUES ({command}, {id}, {generation}, {kind}, 1, 0, {resend_at}, IF({kind} = 4, 4, NULL), 1, 't', 't', 'nr {command}');"
    )
}

#[tokio::test]
async fn an_old_intent_is_withdrawn_again_with_a_fresh_fence_while_the_gate_is_open() {
    let (pipeline, now) = one_shard().await;
    pipeline.insert(&[row(0, now - 1_000, 1), row(0, now + 60_000, 2), row(0, now - 1_000, 3)]).await;
    // 2 lies beyond the cursor, 3 is not old yet.
    sql(
        &pipeline,
        change(11, 1, 1, 1, now - 1) + &change(12, 2, 1, 1, now - 1) + &change(13, 3, 1, 1, now + 90_000),
    )
    .await;
    heartbeat(&pipeline, 0, now + 30_000, 1_000_000, None).await;
    let mut resender =
        Resender::new(deps(&pipeline, "[changes]\npause = \"1ms\"\npause_max = \"1ms\"\n"), SLOT);
    assert_eq!(resender.pass().await.unwrap(), 2);
    assert!(pipeline.due_records(SLOT).await.is_empty(), "the slot is drowning");
    heartbeat(&pipeline, 0, now + 30_000, 0, None).await;
    until("they are looked at again", async || match resender.pass().await.unwrap() {
        2 => Ok(()),
        n => Err(n),
    })
    .await;
    let due = pipeline.due_records_from(SLOT, 1).await;
    assert_eq!(
        due.iter().map(|due| (due.id.0, due.kind == DueKind::Withdraw)).collect::<Vec<_>>(),
        [(1, true)]
    );
    assert_eq!(
        numbers(&pipeline, "SELECT command FROM `change` ORDER BY command".into()).await,
        [11, 12, 13]
    );
}

#[tokio::test]
async fn what_waits_for_ever_is_answered_from_its_row_and_told() {
    let (pipeline, now) = one_shard().await;
    let replies = pipeline.names.replies();
    let spec = TopicSpec { name: replies.clone(), partitions: 1, replication: 1, config: BTreeMap::new() };
    for (_, created) in pipeline.admin.create_topics(&[spec]).await.unwrap() {
        created.unwrap();
    }
    until("a leader of replies", async || {
        let topic = pipeline.admin.topic(&replies).await.unwrap();
        topic.filter(|topic| topic.has_leaders()).map(drop).ok_or("none yet")
    })
    .await;
    let mut session = pipeline.db.db.session().await.unwrap();
    // The commands below have the number 0: the journal's, which is as good as any.
    assert_eq!(source::all(&mut session).await.unwrap()[0].id.0, 0);
    pipeline.insert(&[row(0, now - 1_000, 1), row(0, now - 1_000, 2)]).await;
    // 1 has gone on to the next generation without its intent, 2 is over, 3 was never there; 14 was not told.
    sql(
        &pipeline,
        "UPDATE pending SET gen = 2 WHERE id = 1; UPDATE task SET gen = 2 WHERE id = 1; DELETE FROM pending WHERE id = 2; \
         UPDATE task SET state = 5, finished_at = 1 WHERE id = 2;"
            .to_owned()
            + &change(11, 1, 1, 1, now - 1)
            + &change(12, 2, 1, 1, now - 1)
            + &change(13, 3, 1, 1, now - 1)
            + &change(14, 2, 1, 4, now - 1),
    )
    .await;
    let mut resender =
        Resender::new(deps(&pipeline, "[changes]\npause = \"1ms\"\npause_max = \"1ms\"\n"), SLOT);
    until("all are told", async || {
        resender.pass().await.unwrap();
        let left = numbers(&pipeline, "SELECT command FROM `change`".into()).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    let (cluster, topic) = (pipeline.cluster.clone(), replies.clone());
    let records = tokio::task::spawn_blocking(move || {
        let reader = JournalReader::new(&cluster, "tests", &topic).unwrap();
        let (start, end) = reader.stable_range(0, PATIENCE).unwrap();
        reader.read_all(0, start, end - 1, Instant::now() + PATIENCE).unwrap()
    })
    .await
    .unwrap();
    let told: BTreeMap<String, String> = records
        .iter()
        .map(|record| {
            let of = |name: &str| {
                let header = record.headers.iter().find(|header| header.name == name).unwrap();
                String::from_utf8(header.value.clone().unwrap()).unwrap()
            };
            (of("duestream-reply-correlation"), of("duestream-reply-answer"))
        })
        .collect();
    let expected =
        [("nr 11", "already_sent"), ("nr 12", "cancelled"), ("nr 13", "not_found"), ("nr 14", "cancelled")];
    assert_eq!(told, expected.map(|(n, answer)| (n.to_owned(), answer.to_owned())).into());
    pipeline.admin.delete_topics(&[&replies]).await.unwrap();
}
