//! A fresh database for each test, on the server that `MYSQL_URL` names.
//!
//! Compiled always, not behind a feature: tests and programs share one build of this crate, and the linker drops what
//! a program does not call.

use super::db::connect_options;
use super::{Db, Options, StoreError};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

/// Name of the environment variable that names the server.
pub const SERVER: &str = "MYSQL_URL";

/// All databases made here start with it. Those whose process does not live any more are swept.
const PREFIX: &str = "dstest_";

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// What this process has set up on each server.
static RUNS: Mutex<BTreeMap<String, Run>> = Mutex::new(BTreeMap::new());

/// `name` is also the name of a lock that this process holds as long as it lives.
#[derive(Clone)]
struct Run {
    name: String,
    /// Statements that fill an empty database, with `{}` for its name.
    copy: String,
}

/// A migrated, empty database of its own. Dropped (the database too) at the end, also when the test fails; with
/// `DUESTREAM_TEST_KEEP` set it stays for a look.
#[derive(Debug)]
pub struct TestDb {
    /// Pool with production's session settings.
    pub db: Db,
    /// URL of the database, for programs.
    pub url: String,
    /// Its name.
    pub name: String,
    server: MySqlConnectOptions,
}

/// Which server a test runs on.
///
/// # Panics
/// Where `MYSQL_URL` is not set: a test without its server has failed.
pub fn server_url() -> String {
    std::env::var(SERVER).unwrap_or_else(|_| {
        panic!(
            "{SERVER} is not set: this test needs a MySQL or MariaDB server on which it may create databases. \
             `./dev test` starts one; or name one, such as {SERVER}=mysql://root@127.0.0.1:3306"
        )
    })
}

impl TestDb {
    /// A fresh database on the server of `MYSQL_URL`.
    pub async fn fresh() -> TestDb {
        TestDb::on(&server_url()).await
    }

    /// A fresh database on a given server.
    ///
    /// # Panics
    /// Where the server cannot be used.
    pub async fn on(server_url: &str) -> TestDb {
        TestDb::open(server_url).await.unwrap_or_else(|e| panic!("test database on {server_url}: {e}"))
    }

    async fn open(server_url: &str) -> Result<TestDb, StoreError> {
        let run = run_on(server_url)?;
        let name = format!("{}_{}", run.name, COUNTER.fetch_add(1, Ordering::Relaxed));
        let server = connect_options(server_url)?;
        let mut admin = server.connect().await.map_err(failed)?;
        execute(&mut admin, run.copy.replace("{}", &name)).await?;
        admin.close().await.map_err(failed)?;
        let url = with_database(server_url, &name);
        let db = Db::connect(&Options::new(&url)).await?;
        Ok(TestDb { db, url, name, server })
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if std::env::var_os("DUESTREAM_TEST_KEEP").is_some() {
            eprintln!("kept: {}", self.url);
            return;
        }
        let server = self.server.clone();
        // What a failed test still holds in a transaction must not hold this up for long: the next run sweeps.
        let text = format!("SET SESSION lock_wait_timeout = 12; DROP DATABASE IF EXISTS `{}`", self.name);
        // This may be dropped inside a runtime, where nothing can be awaited: another thread does.
        let dropped = std::thread::spawn(move || {
            block_on(async {
                let mut admin = server.connect().await.map_err(failed)?;
                execute(&mut admin, text).await
            })
        });
        match dropped.join() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => eprintln!("{} stays until the next run sweeps it: {e}", self.name),
            Err(_) => eprintln!("{} stays until the next run sweeps it", self.name),
        }
    }
}

/// The first test on a server starts a thread that takes the process's lock, sweeps what dead processes left, migrates
/// a template, and then holds the lock until the process ends.
fn run_on(server_url: &str) -> Result<Run, StoreError> {
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(run) = runs.get(server_url) {
        return Ok(run.clone());
    }
    let started_at = crate::clock::now_ms();
    let name = format!("{PREFIX}{}_{started_at}", std::process::id());
    let (tx, rx) = mpsc::channel();
    let url = server_url.to_owned();
    std::thread::spawn(move || {
        block_on(async {
            let set_up = async {
                let mut admin = connect_options(&url)?.connect().await.map_err(failed)?;
                execute(&mut admin, format!("SET SESSION wait_timeout = 86400; DO GET_LOCK('{name}', 0)"))
                    .await?;
                sweep(&mut admin).await?;
                let copy = template(&mut admin, &url, &name).await?;
                Ok((admin, Run { name, copy }))
            };
            match set_up.await {
                Ok((_lock, run)) => {
                    if tx.send(Ok(run)).is_ok() {
                        std::future::pending::<()>().await;
                    }
                }
                // Nobody listens any more: then nobody misses it.
                Err(e) => drop(tx.send(Err(e))),
            }
        });
    });
    let gone = || StoreError::World { what: "the thread that sets test databases up died".into() };
    let run = rx.recv().map_err(|_| gone())??;
    runs.insert(server_url.to_owned(), run.clone());
    Ok(run)
}

/// Drops the databases of processes that do not live any more, which is to say: whose lock is free.
async fn sweep(admin: &mut MySqlConnection) -> Result<(), StoreError> {
    let names = "SELECT CAST(schema_name AS BINARY) FROM information_schema.schemata WHERE schema_name LIKE 'dstest\\_%'";
    let names: Vec<(Vec<u8>,)> = sqlx::query_as(names).fetch_all(&mut *admin).await.map_err(failed)?;
    for (name,) in names {
        let name = String::from_utf8_lossy(&name).into_owned();
        let Some((run, _)) = name.rsplit_once('_') else { continue };
        let free: (i64,) = sqlx::query_as("SELECT CAST(IS_FREE_LOCK(?) AS SIGNED)")
            .bind(run)
            .fetch_one(&mut *admin)
            .await
            .map_err(failed)?;
        if free.0 == 1
            && let Err(e) = execute(admin, format!("DROP DATABASE IF EXISTS `{name}`")).await
        {
            // Another run sweeps too, or it is in use by hand.
            eprintln!("{name} stays: {e}");
        }
    }
    Ok(())
}

/// Migrates a database once and answers the statements that copy it: 10 ms, where migrating takes ten times as long.
async fn template(admin: &mut MySqlConnection, url: &str, run: &str) -> Result<String, StoreError> {
    let name = format!("{run}_template");
    execute(admin, format!("CREATE DATABASE `{name}` CHARACTER SET utf8mb4")).await?;
    let db = Db::connect(&Options::new(with_database(url, &name))).await?;
    db.migrate().await?;
    db.close().await;
    let tables = "SELECT CAST(table_name AS BINARY) FROM information_schema.tables WHERE table_schema = ?";
    let tables: Vec<(Vec<u8>,)> =
        sqlx::query_as(tables).bind(&name).fetch_all(&mut *admin).await.map_err(failed)?;
    let mut copy = "CREATE DATABASE `{}` CHARACTER SET utf8mb4;".to_owned();
    for (table,) in tables {
        let table = String::from_utf8_lossy(&table);
        copy += &format!("CREATE TABLE `{{}}`.`{table}` LIKE `{name}`.`{table}`;");
    }
    copy += &format!("INSERT INTO `{{}}`._sqlx_migrations SELECT * FROM `{name}`._sqlx_migrations");
    Ok(copy)
}

async fn execute(connection: &mut MySqlConnection, text: String) -> Result<(), StoreError> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.map(drop).map_err(failed)
}

fn failed(e: sqlx::Error) -> StoreError {
    StoreError::from_sqlx("test_database", e)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a thread can have a runtime").block_on(work)
}

/// The same server, another database.
pub fn with_database(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, ""), |(base, query)| (base, query));
    let authority = base.find("://").map_or(0, |at| at + 3);
    let base = base[authority..].find('/').map_or(base, |path| &base[..authority + path]);
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    format!("{base}/{name}{query}")
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn a_database_replaces_the_one_in_the_url() {
        assert_eq!(with_database("mysql://u:p@h:1", "x"), "mysql://u:p@h:1/x");
        assert_eq!(with_database("mysql://u:p@h:1/old?socket=/s", "x"), "mysql://u:p@h:1/x?socket=/s");
    }
}
