//! Intents wait for their fate, become answers, and are gone once told; parked acks come back as they were.

use protocol::ack::{Ack, Report};
use protocol::change::{Answer, Intent, Refused, Reschedule};
use protocol::life::{Closed, Open, What};
use runtime::store::change::Owed;
use runtime::store::intents::{self, Telling};
use runtime::store::testing::TestDb;
use schemas::command::Asked;
use schemas::ids::{Generation, RowId};
use schemas::reply;
use std::collections::{BTreeMap, BTreeSet, HashMap};

fn intent(command: u64, id: u64, intent: Intent) -> Open {
    Open { command: RowId(command), id: RowId(id), generation: Generation(1), what: What::Intent(intent) }
}

fn parked(command: u64, id: u64, report: Report, progress: Option<&[u8]>) -> Open {
    let progress = progress.map(<[u8]>::to_vec);
    let ack =
        Ack { command: RowId(command), at: 77, id: RowId(id), generation: Generation(2), report, progress };
    Open { command: RowId(command), id: RowId(id), generation: Generation(2), what: What::Parked(ack) }
}

fn asked(task_id: &str, as_avro: bool) -> Asked {
    Asked {
        correlation: Some(vec![0, 0xff]),
        task_id: Some(task_id.into()),
        shard_key: Some("key".into()),
        as_avro,
    }
}

async fn write(test: &TestDb, opened: &[Open], closed: &[Closed], asked: &HashMap<RowId, Asked>) {
    let mut tx = test.db.begin("test").await.unwrap();
    let telling = Telling { received_at: 50, resend_at: 1_050, asked };
    intents::write(&mut tx, opened, closed, telling).await.unwrap();
    tx.commit().await.unwrap();
}

fn ids(ids: impl IntoIterator<Item = u64>) -> BTreeSet<RowId> {
    ids.into_iter().map(RowId).collect()
}

#[tokio::test]
async fn what_was_opened_is_read_back_as_it_was() {
    let test = TestDb::fresh().await;
    let reason = "no disk \u{1f4be}".to_owned();
    let opened = [
        intent(1, 7, Intent::Cancel),
        intent(2, 7, Intent::Reschedule(Reschedule { due_at: 99, expires_at: None })),
        intent(3, 8, Intent::Reschedule(Reschedule { due_at: -5, expires_at: Some(100) })),
        intent(4, 8, Intent::Finish),
        parked(5, 7, Report::Progress, Some(&[0, 0xff, 7])),
        parked(6, 7, Report::Failed { reason: Some(reason), permanent: true }, Some(b"page 3")),
        parked(7, 8, Report::Failed { reason: None, permanent: false }, None),
        parked(8, 8, Report::Succeeded, None),
        intent(9, 9, Intent::Cancel),
    ];
    write(&test, &opened, &[], &HashMap::new()).await;
    let mut session = test.db.session().await.unwrap();
    let mut found = intents::open(&mut session, &ids([7, 8])).await.unwrap();
    found.sort_by_key(|open| open.command);
    assert_eq!(found, opened[..8]);
    assert_eq!(intents::rows_of(&mut session, RowId(2), RowId(6)).await.unwrap(), ids([7, 8]));
    assert!(intents::owed(&mut session, &ids([7, 8, 9])).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_is_owed_to_whoever_asked_and_gone_once_it_is_told() {
    let test = TestDb::fresh().await;
    let moved = Intent::Reschedule(Reschedule { due_at: 99, expires_at: None });
    let opened = [
        intent(1, 7, moved),
        intent(2, 7, moved),
        intent(3, 7, Intent::Cancel),
        intent(4, 7, Intent::Cancel),
        intent(5, 7, moved),
        parked(6, 7, Report::Progress, None),
    ];
    let asks: HashMap<RowId, Asked> = [(1, false), (2, true), (3, false), (5, false)]
        .map(|(command, as_avro)| (RowId(command), asked(&format!("task of {command}"), as_avro)))
        .into();
    write(&test, &opened, &[], &asks).await;
    let answers = [
        Some(Answer::Accepted),
        Some(Answer::Rejected(Refused::ExpiresBeforeDue)),
        Some(Answer::Cancelled),
        Some(Answer::Cancelled),
        Some(Answer::AlreadySent),
        None,
    ];
    let closed: Vec<Closed> =
        answers.into_iter().zip(1..).map(|(answer, n)| Closed { command: RowId(n), answer }).collect();
    write(&test, &[], &closed, &HashMap::new()).await;

    let mut session = test.db.session().await.unwrap();
    assert!(intents::open(&mut session, &ids([7])).await.unwrap().is_empty());
    let owed = intents::owed(&mut session, &ids([7])).await.unwrap();
    let owed: BTreeMap<u64, Owed> = owed.into_iter().map(|owed| (owed.command.0, owed)).collect();
    assert_eq!(owed.keys().collect::<Vec<_>>(), [&1, &2, &3, &5], "nobody asked for the others");
    let reply = |n: u64| owed[&n].reply.clone().unwrap();
    assert_eq!(
        (reply(1).answer, reply(1).due_at, reply(1).as_avro),
        (reply::Answer::Accepted, Some(99), false)
    );
    assert_eq!((reply(2).answer, reply(2).due_at, reply(2).as_avro), (reply::Answer::Rejected, None, true));
    assert_eq!(owed[&2].refusal.as_ref().unwrap().code.as_str(), "expires_before_due");
    assert_eq!((reply(3).answer, reply(3).due_at), (reply::Answer::Cancelled, None));
    assert_eq!((reply(5).answer, reply(5).due_at), (reply::Answer::AlreadySent, None), "it was not moved");
    assert_eq!(reply(3).task_id.as_deref(), Some("task of 3"));
    assert_eq!((reply(3).shard_key.as_deref(), reply(3).correlation), (Some("key"), Some(vec![0, 0xff])));

    // A row of which an answer speaks is not purged; a second closing changes nothing.
    write(&test, &[], &closed, &HashMap::new()).await;
    assert_eq!(intents::owed(&mut session, &ids([7])).await.unwrap().len(), 4);
    intents::told(&mut session, [1, 3, 4].map(RowId)).await.unwrap();
    let left = intents::owed(&mut session, &ids([7])).await.unwrap();
    assert_eq!(left.iter().map(|owed| owed.command.0).collect::<BTreeSet<_>>(), BTreeSet::from([2, 5]));
}

#[tokio::test]
async fn what_waits_too_long_is_found_by_its_share_in_the_order_of_its_time() {
    let test = TestDb::fresh().await;
    let opened: Vec<Open> = (1..=8).map(|n| intent(n, 10 + n, Intent::Cancel)).collect();
    let asks: HashMap<RowId, Asked> = [(RowId(6), asked("t", false))].into();
    write(&test, &opened, &[], &asks).await;
    write(&test, &[], &[Closed { command: RowId(6), answer: Some(Answer::Cancelled) }], &HashMap::new())
        .await;
    write(&test, &[parked(20, 10, Report::Progress, None)], &[], &HashMap::new()).await;

    let mut session = test.db.session().await.unwrap();
    let waiting = async |session: &mut _, now, limit| {
        let found = intents::waiting(session, now, 2, 0, limit).await.unwrap();
        found.into_iter().map(|row| (row.command.0, row.answered)).collect::<Vec<_>>()
    };
    assert!(waiting(&mut session, 1_049, 10).await.is_empty());
    let all = waiting(&mut session, 1_050, 10).await;
    assert_eq!(all, [(2, false), (4, false), (6, true), (8, false)]);
    intents::later(&mut session, &[(RowId(2), 3_000), (RowId(4), 2_000)]).await.unwrap();
    assert_eq!(waiting(&mut session, 1_050, 10).await, [(6, true), (8, false)]);
    assert_eq!(waiting(&mut session, 9_000, 3).await, [(6, true), (8, false), (4, false)]);
}
