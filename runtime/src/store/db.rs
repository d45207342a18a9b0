//! The pool and what every session of it is set to.

use super::error::StoreError;
use super::session::{Session, Tx};
use super::sql::Sql;
use super::{migrate, server};
use crate::config::{self, Secret};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions, MySqlSslMode};
use sqlx::{AssertSqlSafe, Connection, Executor};
use std::str::FromStr;
use std::time::Duration;

/// How to reach the database and how long to wait for it.
#[derive(Clone, Debug)]
pub struct Options {
    /// `mysql://user:password@host:port/database`, with `?socket=/path` for a unix socket and `ssl-mode=…`.
    pub url: Secret,
    /// Most connections; 2 to 4 serve two cores, more only add latency.
    pub pool_max: u32,
    /// Longest wait for a free connection, connecting included.
    pub acquire_timeout: Duration,
    /// Connections that lay still for this long are closed. The pool looks once in as long, so one may lie for twice the
    /// time: below half of `wait_timeout`.
    pub idle_timeout: Duration,
    /// Prepared statements per connection: more than there are texts, for an evicted one costs 43 ms.
    pub statement_cache: usize,
    /// Longest statement: enforced by the server where it can, and by the client two seconds later.
    pub statement_timeout: Duration,
    /// Longest wait for a row lock (whole seconds).
    pub lock_wait_timeout: Duration,
    /// After this long without a statement the server ends a session and frees its locks, so that a stopped program
    /// does not hold them. At most 10 s; it counts inside transactions too.
    pub wait_timeout: Duration,
}

impl Options {
    /// Defaults for a URL.
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            url: Secret::new(url),
            pool_max: 4,
            acquire_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(4),
            statement_cache: 1024,
            statement_timeout: Duration::from_secs(15),
            lock_wait_timeout: Duration::from_secs(4),
            wait_timeout: Duration::from_secs(10),
        }
    }
}

impl From<&config::Mysql> for Options {
    fn from(config: &config::Mysql) -> Options {
        Options {
            url: config.url.clone(),
            pool_max: config.pool_max,
            acquire_timeout: config.acquire_timeout.get(),
            idle_timeout: config.idle_timeout.get(),
            statement_cache: config.statement_cache as usize,
            statement_timeout: config.statement_timeout.get(),
            lock_wait_timeout: config.lock_wait_timeout.get(),
            wait_timeout: config.wait_timeout.get(),
        }
    }
}

/// A pool of sessions with one database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Db {
    pool: MySqlPool,
    limit: Duration,
    version: server::Version,
}

/// UTC, epoch ms, of the statement's start. `UNIX_TIMESTAMP` of a DATETIME(3) is an exact decimal.
pub(super) static NOW: Sql = Sql::hot("db_now", "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)", &[]);

impl Db {
    /// Opens the pool and waits for a first connection (at most `acquire_timeout`). Checks neither schema nor settings:
    /// see [`migrate::check`] and [`server::check`].
    pub async fn connect(options: &Options) -> Result<Db, StoreError> {
        let connect =
            connect_options(options.url.expose())?.statement_cache_capacity(options.statement_cache);
        let settings = options.clone();
        let pool = MySqlPoolOptions::new()
            .max_connections(options.pool_max)
            .acquire_timeout(options.acquire_timeout)
            .idle_timeout(options.idle_timeout)
            .max_lifetime(Duration::from_secs(30 * 60))
            // A ping before each use would double the round trips of short statements; one that lay still is pinged.
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for < Duration::from_secs(1) {
                        return Ok(true);
                    }
                    // Of a server that is gone without a word, a ping never returns: close it hard.
                    let ping = tokio::time::timeout(Duration::from_secs(1), connection.ping()).await;
                    ping.unwrap_or_else(|e| Err(sqlx::Error::Io(e.into()))).map(|()| true)
                })
            })
            .after_connect(move |connection, _| {
                let settings = settings.clone();
                Box::pin(async move { set_session(connection, &settings).await })
            })
            .connect_with(connect)
            .await
            .map_err(|e| StoreError::from_sqlx("connect", e))?;
        let limit = options.statement_timeout + Duration::from_secs(2);
        let session = pool.acquire().await.map_err(|e| StoreError::from_sqlx("acquire", e))?;
        let version = server::version(&mut Session::new(session, limit)).await?;
        Ok(Db { pool, limit, version })
    }

    /// A session for single statements (each its own transaction). Hold it over a few statements: the pool pings the
    /// server at each return.
    pub async fn session(&self) -> Result<Session, StoreError> {
        let connection = self.pool.acquire().await.map_err(|e| StoreError::from_sqlx("acquire", e))?;
        Ok(Session::new(connection, self.limit))
    }

    /// Begins a transaction; `op` names it in errors of its COMMIT.
    pub async fn begin(&self, op: &'static str) -> Result<Tx, StoreError> {
        Tx::begin(self.session().await?, op).await
    }

    /// The database's clock, epoch ms.
    pub async fn now(&self) -> Result<i64, StoreError> {
        now(&mut self.session().await?).await
    }

    /// Which server this is.
    pub fn version(&self) -> &server::Version {
        &self.version
    }

    /// Runs what is pending of the migrations. See [`migrate::run`].
    pub async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        let mut session = self.session().await?.unlimited();
        if self.version.family == server::Family::MariaDb {
            session.plain("no_time_limit", "SET SESSION max_statement_time = 0").await?;
        }
        migrate::run(&mut session).await
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// The database's clock as this session sees it, epoch ms.
pub async fn now(session: &mut Session) -> Result<i64, StoreError> {
    Ok(session.one::<(i64,)>(NOW.call()).await?.0)
}

/// What a URL says, with what every connection of Duestream needs.
pub(super) fn connect_options(url: &str) -> Result<MySqlConnectOptions, StoreError> {
    let options = MySqlConnectOptions::from_str(url).map_err(|e| StoreError::World {
        what: format!("mysql.url does not parse: {e}; expected mysql://user:password@host:port/database"),
    })?;
    let local = options.get_socket().is_some();
    let options = options.charset("utf8mb4").pipes_as_concat(false);
    // TLS over a unix socket only burns cycles, and some servers refuse it.
    Ok(if local { options.ssl_mode(MySqlSslMode::Disabled) } else { options })
}

async fn set_session(connection: &mut MySqlConnection, options: &Options) -> Result<(), sqlx::Error> {
    connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
    // sql_mode is set as a whole: strict, whatever the server's default, so that nothing is ever cut or made 0 silently.
    let seconds = |d: Duration| d.as_secs().max(1);
    let text = format!(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', wait_timeout = {}, \
         innodb_lock_wait_timeout = {}, lock_wait_timeout = {}",
        seconds(options.wait_timeout),
        seconds(options.lock_wait_timeout),
        seconds(options.wait_timeout),
    );
    connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
    // MariaDB limits every statement (seconds), MySQL only SELECT (milliseconds); each knows one of the two names.
    let mariadb = format!("SET SESSION max_statement_time = {}", options.statement_timeout.as_secs_f64());
    let mysql = format!("SET SESSION max_execution_time = {}", options.statement_timeout.as_millis());
    if connection.execute(sqlx::raw_sql(AssertSqlSafe(mariadb))).await.is_err() {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(mysql))).await?;
    }
    Ok(())
}

pub(super) const QUERIES: &[&Sql] = &[&NOW];
