//! Sessions: what they are set to, and what becomes of them when something breaks.

use super::{run, sql};
use runtime::store::testing::{TestDb, server_url};
use runtime::store::{Backoff, Db, Disposition, Options, StoreError, retry};
use sqlx::{AssertSqlSafe, Connection, Executor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

fn lock_setting() -> &'static runtime::store::Sql {
    sql!("test_lock_setting", "SELECT name FROM setting WHERE name = ? FOR UPDATE")
}

async fn with_settings(names: &[&str]) -> TestDb {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    for name in names {
        runtime::store::setting::set(&mut session, name, "1").await.unwrap();
    }
    test
}

#[tokio::test]
async fn sessions_are_strict_read_committed_utc_and_let_locks_go() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    let settings = sql!(
        "test_settings",
        "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation', 'sql_mode', 'time_zone', \
         'wait_timeout', 'innodb_lock_wait_timeout')"
    );
    let found: Vec<(String, String)> = session.all(settings.call()).await.unwrap();
    let is = |name: &str| found.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    assert_eq!(is("tx_isolation").or(is("transaction_isolation")), Some("READ-COMMITTED"));
    assert!(is("sql_mode").unwrap().contains("STRICT_ALL_TABLES"), "{found:?}");
    assert_eq!((is("time_zone"), is("wait_timeout")), (Some("+00:00"), Some("10")));
    assert_eq!(is("innodb_lock_wait_timeout"), Some("4"));
}

#[tokio::test]
async fn the_clock_of_the_database_is_in_epoch_milliseconds() {
    let test = TestDb::fresh().await;
    let (a, b) = (test.db.now().await.unwrap(), test.db.now().await.unwrap());
    assert!(a <= b && a > 1_700_000_000_000 && b < 5_000_000_000_000, "{a} {b}");
}

#[tokio::test]
async fn values_that_do_not_fit_are_poison_and_never_cut() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    let e = runtime::store::setting::set(&mut session, &"x".repeat(65), "1").await.unwrap_err();
    assert_eq!(e.disposition(), Disposition::Poison, "{e}");
    for text in [
        sql!("test_null", "INSERT INTO setting (name, value) VALUES ('a', NULL)"),
        sql!("test_range", "INSERT INTO route (shard, from_due_at, slot) VALUES (99999, 0, 0)"),
        sql!("test_default", "INSERT INTO route (shard, slot) VALUES (1, 0)"),
    ] {
        let e = session.run(text.call()).await.unwrap_err();
        assert_eq!(e.disposition(), Disposition::Poison, "{e}");
    }
    assert_eq!(runtime::store::setting::all(&mut session).await.unwrap(), Default::default());
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_and_its_locks_are_free_at_once() {
    let test = with_settings(&["a"]).await;
    let mut tx = test.db.begin("test").await.unwrap();
    tx.run(sql!("test_change", "UPDATE setting SET value = '2' WHERE name = 'a'").call()).await.unwrap();
    drop(tx);
    let began = Instant::now();
    let mut other = test.db.begin("test").await.unwrap();
    let rows: Vec<(Vec<u8>,)> =
        other.all(sql!("test_read", "SELECT value FROM setting FOR UPDATE").call()).await.unwrap();
    assert_eq!(rows, [(b"1".to_vec(),)]);
    assert!(began.elapsed() < Duration::from_secs(3));
    other.commit().await.unwrap();
}

#[tokio::test]
async fn the_loser_of_a_deadlock_is_told_to_try_again_and_then_succeeds() {
    let test = with_settings(&["a", "b"]).await;
    let met = Arc::new(tokio::sync::Barrier::new(2));
    let worker = |first: &'static str, second: &'static str| {
        let (db, met) = (test.db.clone(), met.clone());
        tokio::spawn(async move {
            let tries = AtomicU32::new(0);
            let patient = Backoff { give_up_after: Some(Duration::from_secs(30)), ..Backoff::default() };
            let done = retry(&patient, || async {
                let this_try = tries.fetch_add(1, Ordering::Relaxed);
                let mut tx = db.begin("test").await?;
                tx.all::<(Vec<u8>,)>(lock_setting().bind(first)).await?;
                if this_try == 0 {
                    met.wait().await;
                }
                tx.all::<(Vec<u8>,)>(lock_setting().bind(second)).await?;
                tx.commit().await
            });
            done.await.unwrap();
            tries.into_inner()
        })
    };
    let (ab, ba) = (worker("a", "b"), worker("b", "a"));
    let tries = (ab.await.unwrap(), ba.await.unwrap());
    assert!(tries.0 + tries.1 >= 3, "one of them lost and tried again: {tries:?}");
}

#[tokio::test]
async fn a_row_lock_is_waited_for_only_so_long() {
    let test = with_settings(&["a"]).await;
    let mut options = Options::new(&test.url);
    options.lock_wait_timeout = Duration::from_secs(1);
    let hasty = Db::connect(&options).await.unwrap();
    let mut holder = test.db.begin("test").await.unwrap();
    holder.all::<(Vec<u8>,)>(lock_setting().bind("a")).await.unwrap();
    let mut waiter = hasty.begin("test").await.unwrap();
    let e = waiter.all::<(Vec<u8>,)>(lock_setting().bind("a")).await.unwrap_err();
    assert!(matches!(e, StoreError::Contended { .. }), "{e}");
    holder.commit().await.unwrap();
}

/// PROTOCOL §1 (H7): a program that is stopped inside a transaction does not hold its locks for long.
#[tokio::test]
async fn a_transaction_that_falls_silent_loses_its_locks() {
    let test = with_settings(&["a"]).await;
    let mut options = Options::new(&test.url);
    (options.wait_timeout, options.idle_timeout) = (Duration::from_secs(1), Duration::from_millis(400));
    let stopped = Db::connect(&options).await.unwrap();
    let mut silent = stopped.begin("test").await.unwrap();
    silent.all::<(Vec<u8>,)>(lock_setting().bind("a")).await.unwrap();
    // Waits for the lock until the server ends the silent session, well within the lock time-out of 4 s.
    let mut other = test.db.begin("test").await.unwrap();
    other.all::<(Vec<u8>,)>(lock_setting().bind("a")).await.unwrap();
    other.commit().await.unwrap();
    let e = silent.commit().await.unwrap_err();
    assert!(matches!(e.disposition(), Disposition::Retry { .. }), "{e}");
    run(&stopped, sql!("test_again", "DELETE FROM setting")).await;
}

#[tokio::test]
async fn a_session_that_the_server_killed_is_replaced() {
    let test = TestDb::fresh().await;
    let mut victim = test.db.session().await.unwrap();
    let (id,): (u64,) = victim.one(sql!("test_id", "SELECT CONNECTION_ID()").call()).await.unwrap();
    // Unprepared: MySQL prepares no KILL.
    let mut killer = sqlx::MySqlConnection::connect(&test.url).await.unwrap();
    killer.execute(sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}")))).await.unwrap();
    let e = victim.one::<(i64,)>(sql!("test_after_kill", "SELECT 1").call()).await.unwrap_err();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    drop(victim);
    for _ in 0..8 {
        test.db.now().await.unwrap();
    }
}

#[tokio::test]
async fn a_wrong_statement_and_a_wrong_password_are_fatal() {
    let test = TestDb::fresh().await;
    let mut session = test.db.session().await.unwrap();
    let e = session.run(sql!("test_syntax", "SELEKT 1").call()).await.unwrap_err();
    assert_eq!(e.disposition(), Disposition::Fatal, "{e}");
    // The session is still good.
    session.one::<(i64,)>(sql!("test_good", "SELECT 1").call()).await.unwrap();
    let (scheme, rest) = server_url().split_once("://").map(|(s, r)| (s.to_owned(), r.to_owned())).unwrap();
    let host = rest.rsplit_once('@').map_or(rest.as_str(), |(_, host)| host);
    let url = format!("{scheme}://nobody-{}:wrong@{host}", std::process::id());
    let e = Db::connect(&Options::new(url)).await.unwrap_err();
    assert_eq!(e.disposition(), Disposition::Fatal, "{e}");
}

#[tokio::test]
async fn a_duplicate_key_is_told_apart_and_leaves_the_transaction_usable() {
    let test = with_settings(&["a"]).await;
    let mut tx = test.db.begin("test").await.unwrap();
    let insert = sql!("test_insert", "INSERT INTO setting (name, value) VALUES ('a', 'x')");
    let e = tx.run(insert.call()).await.unwrap_err();
    assert!(matches!(e, StoreError::Duplicate { .. }), "{e}");
    tx.run(sql!("test_insert_b", "INSERT INTO setting (name, value) VALUES ('b', 'x')").call())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let settings = runtime::store::setting::all(&mut test.db.session().await.unwrap()).await.unwrap();
    assert_eq!((settings.text("a"), settings.text("b")), (Some("1"), Some("x")));
}

/// A way to the server that can be stopped without closing anything.
struct Gate {
    port: u16,
    open: watch::Sender<bool>,
}

impl Gate {
    async fn before(host: String) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (open, gate) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&host).await.unwrap();
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                tokio::spawn(pass(near_in, far_out, gate.clone()));
                tokio::spawn(pass(far_in, near_out, gate.clone()));
            }
        });
        Gate { port, open }
    }
}

async fn pass(
    from: tokio::net::tcp::OwnedReadHalf,
    to: tokio::net::tcp::OwnedWriteHalf,
    mut gate: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        from.readable().await?;
        if gate.wait_for(|open| *open).await.is_err() {
            return Ok(());
        }
        match from.try_read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                let mut rest = &buffer[..read];
                while !rest.is_empty() {
                    to.writable().await?;
                    match to.try_write(rest) {
                        Ok(written) => rest = &rest[written..],
                        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(e) => return Err(e),
                    }
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
}

fn host_of(url: &str) -> (String, String) {
    let rest = url.split_once("://").unwrap().1;
    let authority = rest.split(['/', '?']).next().unwrap();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("root", authority));
    (user.to_owned(), host.to_owned())
}

#[tokio::test]
async fn a_server_that_stops_answering_costs_the_time_limit_and_its_connection_and_no_place_in_the_pool() {
    let test = TestDb::fresh().await;
    if test.url.contains("socket=") {
        eprintln!("skipped: needs a server that is reached over TCP");
        return;
    }
    let (user, host) = host_of(&test.url);
    let gate = Gate::before(host).await;
    let mut options = Options::new(format!("mysql://{user}@127.0.0.1:{}/{}", gate.port, test.name));
    options.pool_max = 1;
    options.acquire_timeout = Duration::from_secs(1);
    options.statement_timeout = Duration::from_secs(1);
    let db = Db::connect(&options).await.unwrap();
    let mut tx = db.begin("test").await.unwrap();
    gate.open.send(false).unwrap();
    let e = tx.run(sql!("test_unanswered", "DELETE FROM setting").call()).await.unwrap_err();
    assert!(matches!(e, StoreError::TimedOut { .. }), "{e}");
    drop(tx);
    // Now not even a new connection comes about, within its own limit.
    let e = db.session().await.unwrap_err();
    assert!(matches!(e.disposition(), Disposition::Retry { .. }), "{e}");
    gate.open.send(true).unwrap();
    db.now().await.unwrap();
}

#[tokio::test]
async fn a_statement_whose_caller_gave_up_does_not_answer_the_next_one() {
    let test = TestDb::fresh().await;
    let mut options = Options::new(&test.url);
    options.pool_max = 1;
    let db = Db::connect(&options).await.unwrap();
    let mut session = db.session().await.unwrap();
    tokio::select! {
        biased;
        found = session.one::<(i64,)>(sql!("test_slow", "SELECT CAST(SLEEP(3) AS SIGNED)").call()) => panic!("{found:?}"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    drop(session);
    let began = Instant::now();
    let (answer,): (i64,) =
        db.session().await.unwrap().one(sql!("test_next", "SELECT 42").call()).await.unwrap();
    assert_eq!(answer, 42);
    assert!(began.elapsed() < Duration::from_secs(2), "it did not wait for the other to end");
}
