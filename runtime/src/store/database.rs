//! The database itself: whether it is there, and making it. For `duectl init`, before there is a pool.

use super::db::connect_options;
use super::error::StoreError;
use super::testing::with_database;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use std::time::Duration;

/// What became of the database that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// It is there.
    Present,
    /// It is not.
    Missing,
}

/// Longest wait for a server that does not answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Whether the database of `url` exists.
pub async fn look(url: &str) -> Result<Database, StoreError> {
    let options = connect_options(url)?;
    let Some(name) = options.get_database().map(str::to_owned) else {
        return Err(StoreError::World {
            what: "the URL names no database: mysql://user:password@host:port/database".into(),
        });
    };
    match timed(options.connect()).await {
        Ok(connection) => {
            close(connection).await;
            Ok(Database::Present)
        }
        Err(sqlx::Error::Database(e))
            if e.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
                .is_some_and(|e| e.number() == 1049) =>
        {
            tracing::debug!("database {name} is missing");
            Ok(Database::Missing)
        }
        Err(e) => Err(StoreError::from_sqlx("connect", e)),
    }
}

/// Makes the database of `url`.
pub async fn create(url: &str) -> Result<(), StoreError> {
    let name = connect_options(url)?.get_database().unwrap_or_default().replace('`', "``");
    let mut connection = timed(connect_options(&with_database(url, ""))?.connect()).await.map_err(failed)?;
    let text = format!("CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin");
    timed(connection.execute(sqlx::raw_sql(AssertSqlSafe(text)))).await.map_err(failed)?;
    close(connection).await;
    Ok(())
}

async fn timed<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    tokio::time::timeout(LIMIT, work).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}

/// The server notices by itself when saying good-bye fails.
async fn close(connection: MySqlConnection) {
    drop(timed(connection.close()).await);
}

fn failed(e: sqlx::Error) -> StoreError {
    StoreError::from_sqlx("create database", e)
}
