//! Rows go from table to table, and nothing of them is lost on the way.

use protocol::admission::{ContentHash, Identity};
use protocol::life::{Effects, Ended, Held, Moved, Place, RowKey, Waiting, Working};
use protocol::state::TaskState;
use runtime::store::intents::Telling;
use runtime::store::testing::TestDb;
use runtime::store::{PendingRow, RunningRow, TaskRow, held, life, running, tasks};
use runtime::testing::row;
use runtime::{pending_columns, running_columns, task_columns};
use schemas::delivery::DeadReason;
use schemas::due::{Completion, Made, PastAttempt};
use schemas::ids::{Generation, RowId, Shard};
use schemas::row::{RowHistory, RowOptions};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};
use std::collections::{BTreeMap, BTreeSet, HashMap};

struct World {
    test: TestDb,
    raw: MySqlConnection,
}

impl World {
    async fn new(rows: &[PendingRow]) -> World {
        let test = TestDb::fresh().await;
        let new = |row: &PendingRow| tasks::NewTask {
            identity: Identity(u128::from(row.id.0).to_be_bytes()),
            content: ContentHash([0; 16]),
            created_at: 0,
            row: row.clone(),
        };
        let new: Vec<tasks::NewTask> = rows.iter().map(new).collect();
        let mut tx = test.db.begin("test").await.unwrap();
        tasks::insert(&mut tx, &new).await.unwrap();
        tx.commit().await.unwrap();
        let raw = MySqlConnection::connect(&test.url).await.unwrap();
        World { test, raw }
    }

    /// What one transaction finds, and where it sends the rows.
    async fn go(&mut self, ids: &[u64], change: impl Fn(Held) -> Held) -> Vec<Held> {
        let ids: BTreeSet<RowId> = ids.iter().copied().map(RowId).collect();
        let mut tx = self.test.db.begin("test").await.unwrap();
        let found = held::lock(&mut tx, &ids).await.unwrap();
        let moved: Vec<Moved> =
            found.iter().map(|from| Moved { from: from.clone(), to: change(from.clone()) }).collect();
        let noted = |held: &&Held| matches!(&held.place, Place::Pending(waiting) if waiting.noted);
        let forgotten = found.iter().filter(noted).filter_map(Held::pending_key).collect();
        let effects = Effects { moved: moved.clone(), forgotten, ..Effects::default() };
        let nobody = HashMap::new();
        let telling = Telling { received_at: 0, resend_at: 0, asked: &nobody };
        life::write(&mut tx, &effects, telling).await.unwrap();
        tx.commit().await.unwrap();
        // What is found next is what was written.
        let mut tx = self.test.db.begin("test").await.unwrap();
        let again = held::lock(&mut tx, &ids).await.unwrap();
        assert_eq!(again, moved.into_iter().map(|moved| moved.to).collect::<Vec<_>>());
        found
    }

    async fn pending(&mut self) -> BTreeMap<u64, PendingRow> {
        let text = concat!("SELECT ", pending_columns!(), " FROM pending AS p");
        let rows: Vec<PendingRow> = sqlx::query_as(text).fetch_all(&mut self.raw).await.unwrap();
        rows.into_iter().map(|row| (row.id.0, row)).collect()
    }

    async fn running(&mut self) -> BTreeMap<u64, RunningRow> {
        let text = concat!("SELECT ", running_columns!(), " FROM running AS r");
        let rows: Vec<RunningRow> = sqlx::query_as(text).fetch_all(&mut self.raw).await.unwrap();
        rows.into_iter().map(|row| (row.row.id.0, row)).collect()
    }

    async fn task(&mut self, id: u64) -> TaskRow {
        let text = concat!("SELECT ", task_columns!(), " FROM task AS t WHERE t.id = ?");
        sqlx::query_as(text).bind(id).fetch_one(&mut self.raw).await.unwrap()
    }

    async fn sql(&mut self, text: &str) {
        self.raw.execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned()))).await.unwrap();
    }
}

fn on_ack(id: u64, due_at: i64) -> PendingRow {
    let options = RowOptions { completion: Completion::OnAck, partition: Some(3), ..RowOptions::default() };
    PendingRow { options: options.encode(), ..row(1, due_at, id) }
}

/// As a delivery leaves it.
fn delivered(held: Held, deadline_at: i64) -> Held {
    let Place::Pending(waiting) = held.place else { panic!("pending") };
    let working = Working {
        key: RowKey { due_at: deadline_at, ..waiting.key },
        due_at: waiting.key.due_at,
        progress: None,
        stop: false,
        live: waiting.live,
    };
    Held { place: Place::Running(working), ..held }
}

fn attempt(n: u16) -> PastAttempt {
    PastAttempt {
        attempt: n,
        at: 60,
        outcome: "failed".into(),
        reason: Some("no disk \u{1f4be}".into()),
        made: Some(Made { generation: Generation(n.into()), due_at: 50 }),
        ack: Some(RowId(77)),
    }
}

#[tokio::test]
async fn a_row_runs_waits_again_and_ends_with_the_body_it_came_with() {
    let mut world = World::new(&[on_ack(7, 50), on_ack(8, 50), on_ack(9, 51)]).await;
    let original = world.pending().await;

    world.go(&[7, 8], |row| delivered(row, 1_000)).await;
    assert_eq!(world.pending().await.keys().collect::<Vec<_>>(), [&9]);
    let running = world.running().await;
    for id in [7, 8] {
        let RunningRow { row, deadline_at, progress, stop } = running[&id].clone();
        assert_eq!((deadline_at, progress, stop), (1_000, None, false));
        assert_eq!(row, original[&id], "all that it came with");
        let task = world.task(id).await;
        assert_eq!((task.state, task.due_at), (TaskState::Running.code(), 1_000));
    }

    // Progress moves the key; 8 is told to stop.
    let reported = |held: Held| {
        let Place::Running(mut working) = held.place else { panic!("running") };
        match held.id.0 {
            7 => (working.key.due_at, working.progress) = (2_000, Some(vec![0, 0xff, 7])),
            _ => working.stop = true,
        }
        Held { place: Place::Running(working), ..held }
    };
    world.go(&[7, 8], reported).await;
    let running = world.running().await;
    assert_eq!(running[&7].progress, Some(vec![0, 0xff, 7]));
    assert_eq!((running[&7].deadline_at, running[&8].deadline_at, running[&8].stop), (2_000, 1_000, true));

    // 7 is tried again with what it reported, 8 is to be buried, in one transaction.
    let next = |held: Held| {
        let Place::Running(working) = held.place else { panic!("running") };
        let mut live = working.live;
        live.failures += 1;
        live.options.progress = working.progress;
        live.history.attempts.push(attempt(held.attempt));
        let (due_at, bury) = if held.id.0 == 7 { (70, None) } else { (5, Some(DeadReason::Failed)) };
        let place =
            Place::Pending(Waiting { key: RowKey { due_at, ..working.key }, bury, noted: false, live });
        Held { generation: Generation(held.generation.0 + 1), attempt: held.attempt + 1, place, ..held }
    };
    world.go(&[7, 8], next).await;
    assert!(world.running().await.is_empty());
    let pending = world.pending().await;
    let (seven, before) = (&pending[&7], &original[&7]);
    assert_eq!((seven.due_at, seven.generation, seven.attempt), (70, Generation(2), 2));
    assert_eq!((seven.failures, seven.stalls, seven.bury), (1, 0, None));
    assert_eq!(
        (&seven.body, &seven.task_id, &seven.callback_topic),
        (&before.body, &before.task_id, &before.callback_topic)
    );
    let options = RowOptions::decode(&seven.options).unwrap();
    assert_eq!((options.progress, options.partition), (Some(vec![0, 0xff, 7]), Some(3)));
    assert_eq!(RowHistory::decode(&seven.history).unwrap().attempts, [attempt(1)]);
    assert_eq!(pending[&8].bury, Some(8), "the place of `failed` in the list of reasons");
    assert_eq!((pending[&8].due_at, world.task(8).await.due_at), (5, 5));

    // It ends from either table.
    world.go(&[7, 9], |row| if row.id.0 == 9 { delivered(row, 1_000) } else { row }).await;
    let over = |state| {
        move |held: Held| Held {
            place: Place::Final(Ended { state, finished_at: 99, shard: Shard(1) }),
            ..held
        }
    };
    world.go(&[7, 9], over(TaskState::Done)).await;
    world.go(&[8], over(TaskState::Cancelled)).await;
    assert!(world.pending().await.is_empty() && world.running().await.is_empty());
    let task = world.task(7).await;
    assert_eq!(
        (task.state, task.finished_at, task.generation),
        (TaskState::Done.code(), Some(99), Generation(2))
    );
}

#[tokio::test]
async fn a_row_is_moved_to_another_due_time_and_its_note_stays_behind() {
    let mut world = World::new(&[row(1, 50, 7), row(2, 60, 8), row(1, 50, 9)]).await;
    let original = world.pending().await;
    world
        .sql("INSERT INTO reemit VALUES (1, 50, 7, 1, 0, 0), (2, 60, 8, 1, 5, 1), (1, 50, 9, 1, 5, 1)")
        .await;
    // 7 and 8 exchange their due times; of 9 only the generation changes.
    let found = world
        .go(&[7, 8, 9], |held| {
            let Place::Pending(mut waiting) = held.place else { panic!("pending") };
            waiting.noted = false;
            match held.id.0 {
                7 => waiting.key.due_at = 60,
                8 => {
                    waiting.key.due_at = 50;
                    waiting.live.options.expires_at = Some(77);
                }
                _ => {}
            }
            Held { generation: Generation(held.generation.0 + 1), place: Place::Pending(waiting), ..held }
        })
        .await;
    assert!(found.iter().all(|held| matches!(&held.place, Place::Pending(waiting) if waiting.noted)));
    let pending = world.pending().await;
    for (id, due_at) in [(7, 60), (8, 50), (9, 50)] {
        assert_eq!((pending[&id].due_at, pending[&id].generation), (due_at, Generation(2)));
        assert_eq!((&pending[&id].body, pending[&id].attempt), (&original[&id].body, 1));
        let task = world.task(id).await;
        assert_eq!((task.due_at, task.generation, task.state), (due_at, Generation(2), 1));
    }
    assert_eq!(RowOptions::decode(&pending[&8].options).unwrap().expires_at, Some(77));
    let notes: (i64,) =
        sqlx::query_as("SELECT COUNT(*) FROM reemit").fetch_one(&mut world.raw).await.unwrap();
    assert_eq!(notes.0, 0, "they spoke of generations that have gone by");
}

#[tokio::test]
async fn thousands_of_rows_with_long_histories_are_moved_in_one_transaction() {
    let history = RowHistory { attempts: (0..100).map(attempt).collect() };
    let rows: Vec<PendingRow> = (1..=2_500)
        .map(|id| PendingRow { history: history.encode(), ..on_ack(id, 50 + i64::try_from(id % 7).unwrap()) })
        .collect();
    assert!(rows[0].history.len() > 1_500);
    let mut world = World::new(&rows).await;
    let ids: Vec<u64> = (1..=2_500).collect();
    world.go(&ids, |row| delivered(row, 9_000)).await;
    assert_eq!(world.running().await.len(), 2_500);
    world
        .go(&ids, |held| {
            let Place::Running(working) = held.place else { panic!("running") };
            let mut live = working.live;
            live.history.attempts.remove(0);
            live.history.attempts.push(attempt(held.attempt));
            let place = Place::Pending(Waiting {
                key: RowKey { due_at: 100, ..working.key },
                bury: None,
                noted: false,
                live,
            });
            Held { generation: Generation(2), attempt: 2, place, ..held }
        })
        .await;
    assert_eq!(world.pending().await.len(), 2_500);
}

#[tokio::test]
async fn a_row_that_is_in_no_table_or_unknown_is_told_apart() {
    let mut world = World::new(&[row(1, 50, 7), row(1, 50, 8)]).await;
    world.sql("DELETE FROM pending WHERE id = 7; UPDATE task SET state = 2 WHERE id = 8").await;
    let ids = BTreeSet::from([RowId(7), RowId(8), RowId(9)]);
    let mut tx = world.test.db.begin("test").await.unwrap();
    let found = held::lock(&mut tx, &ids).await.unwrap();
    let places: Vec<(u64, Place)> = found.into_iter().map(|held| (held.id.0, held.place)).collect();
    assert_eq!(
        places,
        [(7, Place::Bodiless(TaskState::Scheduled)), (8, Place::Bodiless(TaskState::Running))]
    );
}

#[tokio::test]
async fn stalled_rows_are_read_page_by_page_without_those_whose_ack_is_parked() {
    let mut world = World::new(&(1..=9).map(|id| on_ack(id, 50)).collect::<Vec<_>>()).await;
    let deadline = |row: Held| {
        let deadline_at = if row.id.0 < 6 { 1_000 } else { 2_000 };
        delivered(row, deadline_at)
    };
    world.go(&(1..=9).collect::<Vec<_>>(), deadline).await;
    // 2: parked ack of this generation. 3: of another one. 4: an intent.
    world
        .sql(
            "INSERT INTO `change` (command, id, gen, kind, received_at) VALUES (12, 2, 1, 3, 0), (13, 3, 9, 3, 0), (14, 4, 1, 1, 0)",
        )
        .await;
    let mut session = world.test.db.session().await.unwrap();
    let mut after = RowKey { shard: Shard(1), due_at: 0, id: RowId(0) };
    let mut pages = Vec::new();
    loop {
        let page = running::stalled(&mut session, after, 1_999, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.key;
        pages.push(page.iter().map(|row| row.key.id.0).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec![1, 3], vec![4, 5]]);
    let counts = running::count(&mut session, "callbacks").await.unwrap();
    assert_eq!(counts, BTreeMap::from([(Shard(1), 9)]));
    assert!(running::count(&mut session, "others").await.unwrap().is_empty());
}
