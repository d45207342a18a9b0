//! Sources, positions, shards, routes, settings, and what a set of keys costs in exactness: nothing.

use super::{run, sql};
use runtime::store::position::Heartbeat;
use runtime::store::testing::TestDb;
use runtime::store::{Bulk, Disposition, JsonRows, StoreError, position, route, setting, shard, source};
use schemas::ids::{RowId, Shard, Slot, SourceId};
use std::collections::BTreeSet;
use std::time::Duration;

const SOURCE: SourceId = SourceId(3);

fn shards(numbers: impl IntoIterator<Item = u16>) -> BTreeSet<Shard> {
    numbers.into_iter().map(Shard).collect()
}

#[tokio::test]
async fn a_topic_keeps_its_number_and_a_created_again_topic_gets_a_new_one() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    let first = source::register(&mut session, "tasks", [1; 16]).await.unwrap();
    let journal = source::register(&mut session, "journal", [1; 16]).await.unwrap();
    let again = source::register(&mut session, "tasks", [2; 16]).await.unwrap();
    assert_eq!((first, journal, again), (SourceId(0), SourceId(1), SourceId(2)));
    assert_eq!(source::register(&mut session, "tasks", [1; 16]).await.unwrap(), first);
    assert_eq!(source::find(&mut session, "tasks", [3; 16]).await.unwrap(), None);
    let all = source::all(&mut session).await.unwrap();
    assert_eq!(
        all.iter().map(|s| (s.id.0, s.topic.as_str(), s.topic_uuid[0])).collect::<Vec<_>>(),
        [(0, "tasks", 1), (1, "journal", 1), (2, "tasks", 2)]
    );
}

#[tokio::test]
async fn topics_registered_by_many_programs_at_once_get_one_number_each() {
    let test = TestDb::fresh().await;
    let register = |name: u8| {
        let db = test.db.clone();
        tokio::spawn(async move {
            source::register(&mut db.session().await.unwrap(), "t", [name; 16]).await.unwrap()
        })
    };
    let given: Vec<_> = [1, 1, 2, 2, 3, 3].map(register).into();
    let mut numbers = Vec::new();
    for task in given {
        numbers.push(task.await.unwrap());
    }
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(numbers[2], numbers[3]);
    assert_eq!(numbers[4], numbers[5]);
    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>().len(), 3);
}

#[tokio::test]
async fn the_last_source_number_is_1023() {
    let test = TestDb::fresh().await;
    run(&test.db, sql!("test_source_full", "INSERT INTO source VALUES (1022, 'x', REPEAT('x', 16))")).await;
    let mut session = test.db.session().await.unwrap();
    assert_eq!(source::register(&mut session, "a", [1; 16]).await.unwrap(), SourceId(1023));
    let e = source::register(&mut session, "b", [1; 16]).await.unwrap_err();
    assert!(e.to_string().contains("given away"), "{e}");
}

#[tokio::test]
async fn next_moves_only_from_where_its_owner_left_it() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    position::create(&mut session, SOURCE, 2, 10).await.unwrap();
    position::create(&mut session, SOURCE, 2, 99).await.unwrap();

    let mut tx = test.db.begin("test").await.unwrap();
    position::advance(&mut tx, SOURCE, 2, 10, 15).await.unwrap();
    tx.commit().await.unwrap();
    // Another owner that still believes in 10, also one that would write the very same value.
    let mut tx = test.db.begin("test").await.unwrap();
    for to in [15, 12] {
        let e = position::advance(&mut tx, SOURCE, 2, 10, to).await.unwrap_err();
        assert_eq!(e.disposition(), Disposition::Fenced, "{e}");
        assert!(e.to_string().contains("Some(15)"), "{e}");
    }
    let e = position::advance(&mut tx, SOURCE, 2, 15, 14).await.unwrap_err();
    assert_eq!(e.disposition(), Disposition::Fatal, "{e}");
    // Standing still (a batch of nothing but markers) is a hit.
    position::advance(&mut tx, SOURCE, 2, 15, 15).await.unwrap();
    tx.rollback().await.unwrap();
    let now = position::read(&mut session, SOURCE, 2).await.unwrap().unwrap();
    assert_eq!((now.next, now.confirmed), (15, 10));
    assert_eq!(position::read(&mut session, SOURCE, 3).await.unwrap(), None);
}

#[tokio::test]
async fn confirmed_never_falls_and_never_passes_next() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    position::create(&mut session, SOURCE, 0, 10).await.unwrap();
    let mut tx = test.db.begin("test").await.unwrap();
    position::advance(&mut tx, SOURCE, 0, 10, 20).await.unwrap();
    tx.commit().await.unwrap();
    for (to, stands_at) in [(15, 15), (12, 15), (20, 20), (20, 20)] {
        position::confirm(&mut session, SOURCE, 0, to).await.unwrap();
        assert_eq!(position::read(&mut session, SOURCE, 0).await.unwrap().unwrap().confirmed, stands_at);
    }
    let e = position::confirm(&mut session, SOURCE, 0, 21).await.unwrap_err();
    assert!(matches!(e, StoreError::Invariant { .. }), "{e}");
}

#[tokio::test]
async fn heartbeats_are_kept_beside_the_fences_and_their_time_only_grows() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    for (partition, start) in [(1, 7), (0, 5)] {
        position::create(&mut session, SOURCE, partition, start).await.unwrap();
    }
    let fences = position::fences(&mut session, SOURCE).await.unwrap();
    assert_eq!(fences.iter().collect::<Vec<_>>(), [(Slot(0), 5), (Slot(1), 7)]);
    assert_eq!((fences.of(Slot(1)), fences.of(Slot(2))), (Some(7), None));

    let beat = Heartbeat { hb_at: 100, backlog: Some(3), credit: Some(9), cold_upto: None };
    let barrier = Heartbeat { hb_at: 90, backlog: None, credit: None, cold_upto: Some(500) };
    let mut tx = test.db.begin("test").await.unwrap();
    position::heartbeat(&mut tx, SOURCE, Slot(1), &beat).await.unwrap();
    position::heartbeat(&mut tx, SOURCE, Slot(1), &barrier).await.unwrap();
    position::tick(&mut tx, SOURCE, 0, 70).await.unwrap();
    let e = position::heartbeat(&mut tx, SOURCE, Slot(9), &beat).await.unwrap_err();
    assert!(matches!(e, StoreError::Invariant { .. }), "{e}");
    tx.commit().await.unwrap();

    let rows = position::read_all(&mut session, SOURCE).await.unwrap();
    let told = |p: &position::StreamPosition| (p.partition, p.hb_at, p.backlog, p.credit, p.cold_upto);
    assert_eq!(
        rows.iter().map(told).collect::<Vec<_>>(),
        [(0, Some(70), None, None, None), (1, Some(100), Some(3), Some(9), Some(500))]
    );
    // A later cold take-over moved it on: what was emitted up to 400 says nothing of it.
    position::warmed(&mut session, SOURCE, Slot(1), 400).await.unwrap();
    assert_eq!(position::read(&mut session, SOURCE, 1).await.unwrap().unwrap().cold_upto, Some(500));
    position::warmed(&mut session, SOURCE, Slot(1), 500).await.unwrap();
    assert_eq!(position::read(&mut session, SOURCE, 1).await.unwrap().unwrap().cold_upto, None);
}

#[tokio::test]
async fn shards_are_made_once_and_their_epochs_fence() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    shard::create(&mut session, 4).await.unwrap();
    let mut tx = test.db.begin("test").await.unwrap();
    let owned = shard::bump_epochs(&mut tx, &shards([3, 1])).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(owned.iter().map(|row| (row.shard.0, row.epoch)).collect::<Vec<_>>(), [(1, 1), (3, 1)]);
    shard::create(&mut session, 8).await.unwrap();
    let all = shard::read_all(&mut session).await.unwrap();
    assert_eq!(all.iter().map(|row| row.epoch).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 0, 0, 0]);
    let e = shard::read(&mut session, &shards([1, 9])).await.unwrap_err();
    assert!(e.to_string().contains("1 of 2 shards"), "{e}");
}

/// PROTOCOL §1 (J3): while a cancel holds the shared lock of a shard, its cursor stands; other cancels go on.
#[tokio::test]
async fn a_shared_lock_of_a_shard_stops_its_cursor_and_no_other_reader() {
    let test = TestDb::fresh().await;
    shard::create(&mut test.db.session().await.unwrap(), 2).await.unwrap();
    let mut one = test.db.begin("test").await.unwrap();
    shard::lock_shared(&mut one, &shards([0])).await.unwrap();
    let mut two = test.db.begin("test").await.unwrap();
    shard::lock_shared(&mut two, &shards([0, 1])).await.unwrap();
    two.commit().await.unwrap();

    let scanner = {
        let db = test.db.clone();
        tokio::spawn(async move {
            let mut tx = db.begin("test").await.unwrap();
            shard::bump_epochs(&mut tx, &shards([0])).await.unwrap();
            tx.commit().await.unwrap();
        })
    };
    // The scanner waits: what it would change can still be read and still is as it was.
    until_a_lock_is_waited_for(&test).await;
    assert_eq!(shard::read(&mut one, &shards([0])).await.unwrap()[0].epoch, 0);
    one.commit().await.unwrap();
    scanner.await.unwrap();
    assert_eq!(shard::read_all(&mut test.db.session().await.unwrap()).await.unwrap()[0].epoch, 1);
}

async fn until_a_lock_is_waited_for(test: &TestDb) {
    let waiting = sql!(
        "test_waiting",
        "SELECT COUNT(*) FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p \
         ON p.id = t.trx_mysql_thread_id WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()"
    );
    let mut session = test.db.session().await.unwrap();
    let found = tokio::time::timeout(Duration::from_secs(3), async {
        // InnoDB renews this table only when nobody has read it for 100 ms.
        let mut every = tokio::time::interval(Duration::from_millis(150));
        while session.one::<(i64,)>(waiting.call()).await.unwrap().0 == 0 {
            every.tick().await;
        }
    });
    found.await.expect("nobody waits for a lock");
}

#[tokio::test]
async fn routes_and_settings_are_written_once() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    route::create(&mut session, 2, |shard| Slot(shard.0)).await.unwrap();
    route::create(&mut session, 4, |_| Slot(7)).await.unwrap();
    let rows = route::all(&mut session).await.unwrap();
    assert!(rows.iter().all(|row| row.from_due_at == i64::MIN));
    assert_eq!(
        rows.iter().map(|row| (row.shard.0, row.slot.0)).collect::<Vec<_>>(),
        [(0, 0), (1, 1), (2, 7), (3, 7)]
    );

    setting::put_if_absent(&mut session, setting::SHARDS, "64").await.unwrap();
    setting::put_if_absent(&mut session, setting::SHARDS, "128").await.unwrap();
    setting::set(&mut session, setting::SCHEMA, "10").await.unwrap();
    setting::set(&mut session, setting::SCHEMA, "11").await.unwrap();
    let settings = setting::all(&mut session).await.unwrap();
    assert_eq!(settings.number(setting::SHARDS).unwrap(), 64);
    assert_eq!(settings.number(setting::SCHEMA).unwrap(), 11);
    let e = settings.number(setting::SLOTS).unwrap_err();
    assert!(e.to_string().contains("duectl init"), "{e}");
}

/// Row ids use all 64 bits, due times are signed: neither may pass through a double on its way through JSON.
#[tokio::test]
async fn numbers_and_bytes_come_through_json_table_exactly() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    let largest = RowId::pack(SourceId(1023), RowId::MAX_PARTITION, RowId::MAX_OFFSET).unwrap();
    let given = [
        (largest.0, i64::MIN, vec![0, 0xff, 0x27, 0x5c]),
        (largest.0 - 1, i64::MAX, vec![]),
        ((1 << 53) + 1, -1, vec![7; 16]),
        (0, 0, "ß".into()),
    ];
    let json = JsonRows::of(&given, |row, (id, at, bytes)| {
        row.uint(*id).int(*at).hex(bytes).null();
    });
    let read = sql!(
        "test_json",
        "SELECT k.id, k.at, UNHEX(k.h), k.nothing FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', \
         at BIGINT PATH '$[1]', h VARCHAR(64) PATH '$[2]', nothing BIGINT PATH '$[3]')) AS k"
    );
    let rows: Vec<(u64, i64, Vec<u8>, Option<i64>)> = session.all(read.bind(json.into_text())).await.unwrap();
    assert_eq!(rows, given.map(|(id, at, bytes)| (id, at, bytes, None)));
}

static BULK: Bulk = Bulk::insert(
    "test_bulk",
    "pending",
    &[
        "shard",
        "due_at",
        "id",
        "gen",
        "attempt",
        "failures",
        "stalls",
        "task_id",
        "callback_topic",
        "options",
        "history",
        "body",
    ],
);

#[tokio::test]
async fn bulk_inserts_store_every_row_whatever_their_number_and_size() {
    let test = TestDb::fresh().await;
    let mut tx = test.db.begin("test").await.unwrap();
    let rows: Vec<(u64, usize)> =
        (0..611).map(|n| (n, 10)).chain([(1000, 900 << 10), (1001, 900 << 10)]).collect();
    let bind = |call: runtime::store::Call, (id, size): &(u64, usize)| {
        call.bind(1u16)
            .bind(5i64)
            .bind(*id)
            .bind(1u32)
            .bind(1u16)
            .bind(0u16)
            .bind(0u16)
            .bind("t")
            .bind("c")
            .bind("")
            .bind("")
            .bind(vec![b'b'; *size])
    };
    tx.insert(&BULK, &rows, |(_, size)| *size, bind).await.unwrap();
    tx.commit().await.unwrap();
    let count = sql!("test_bulk_count", "SELECT COUNT(*), CAST(SUM(LENGTH(body)) AS SIGNED) FROM pending");
    let found: (i64, i64) = test.db.session().await.unwrap().one(count.call()).await.unwrap();
    assert_eq!(found, (613, 6110 + 2 * (900 << 10)));
}
