//! One connection, in or out of a transaction, with a time limit on every statement.

use super::bulk::Bulk;
use super::error::StoreError;
use super::metrics;
use super::sql::Call;
use futures::TryStreamExt;
use sqlx::mysql::{MySql, MySqlConnection, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::{Executor, FromRow, SqlSafeStr};
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// A connection out of the pool. Goes back when dropped, unless an error spoilt it: then it is closed.
#[derive(Debug)]
pub struct Session {
    /// `None` only once it was taken out to be closed.
    connection: Option<PoolConnection<MySql>>,
    limit: Duration,
    /// An answer is still under way, or an error said that this connection is of no use any more.
    spoilt: bool,
    /// A transaction is open: locks would go back into the pool.
    in_transaction: bool,
}

impl Session {
    pub(super) fn new(connection: PoolConnection<MySql>, limit: Duration) -> Session {
        Session { connection: Some(connection), limit, spoilt: false, in_transaction: false }
    }

    /// For what may take longer than any statement of normal work. The session is closed afterwards.
    pub(super) fn unlimited(mut self) -> Session {
        self.limit = Duration::from_secs(24 * 3600);
        self.spoilt = true;
        self
    }

    /// All rows of a query.
    pub async fn all<O>(&mut self, call: Call) -> Result<Vec<O>, StoreError>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        let (name, text, arguments) = call.into_parts()?;
        self.timed(name, async |c| sqlx::query_as_with(text, arguments).fetch_all(c).await).await
    }

    /// Rows of a query up to and including the one that `full` says yes to, and whether there were more. What the server
    /// sends beyond it is thrown away row by row: memory is bounded by what is kept.
    pub async fn some<O>(
        &mut self,
        call: Call,
        mut full: impl FnMut(&O) -> bool,
    ) -> Result<(Vec<O>, bool), StoreError>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        let (name, text, arguments) = call.into_parts()?;
        let statement = async |c: &mut MySqlConnection| {
            let mut stream = sqlx::query_with(text, arguments).fetch(c);
            let (mut kept, mut is_full, mut more) = (Vec::new(), false, false);
            while let Some(row) = stream.try_next().await? {
                if is_full {
                    more = true;
                    continue;
                }
                let row = O::from_row(&row)?;
                is_full = full(&row);
                kept.push(row);
            }
            Ok((kept, more))
        };
        self.timed(name, statement).await
    }

    /// The one row of a query, or none.
    pub async fn maybe<O>(&mut self, call: Call) -> Result<Option<O>, StoreError>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        let (name, text, arguments) = call.into_parts()?;
        self.timed(name, async |c| sqlx::query_as_with(text, arguments).fetch_optional(c).await).await
    }

    /// The one row of a query; none is an error.
    pub async fn one<O>(&mut self, call: Call) -> Result<O, StoreError>
    where
        O: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        let (name, text, arguments) = call.into_parts()?;
        self.timed(name, async |c| sqlx::query_as_with(text, arguments).fetch_one(c).await).await
    }

    /// Runs a statement. Answers the rows that its WHERE *matched* (sqlx asks for `FOUND_ROWS`): right for a
    /// compare-and-set, useless for telling whether an upsert inserted.
    pub async fn run(&mut self, call: Call) -> Result<u64, StoreError> {
        let (name, text, arguments) = call.into_parts()?;
        let done = self.timed(name, async |c| sqlx::query_with(text, arguments).execute(c).await).await?;
        Ok(done.rows_affected())
    }

    /// Inserts all rows, in statements of fixed sizes. `bytes` is about what a row weighs, `bind` adds its values.
    pub async fn insert<T>(
        &mut self,
        bulk: &'static Bulk,
        rows: &[T],
        bytes: impl Fn(&T) -> usize,
        bind: impl Fn(Call, &T) -> Call,
    ) -> Result<(), StoreError> {
        let mut rest = rows;
        while !rest.is_empty() {
            let (call, taken) = bulk.next(rest, &bytes, &bind);
            self.run(call).await?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Runs text without values, unprepared: for what cannot be prepared (BEGIN, DDL, EXPLAIN in tests).
    pub(super) async fn plain(&mut self, op: &'static str, text: impl SqlSafeStr) -> Result<(), StoreError> {
        let text = text.into_sql_str();
        self.timed(op, async |c| c.execute(sqlx::raw_sql(text)).await).await?;
        Ok(())
    }

    async fn timed<T>(
        &mut self,
        op: &'static str,
        statement: impl AsyncFnOnce(&mut MySqlConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let connection =
            self.connection.as_deref_mut().expect("a session has its connection until it is dropped");
        let limit = self.limit;
        // Should this future be dropped half way, the answer is still under way: the connection must not be used again.
        let spoilt_before = std::mem::replace(&mut self.spoilt, true);
        let outcome = match tokio::time::timeout(limit, statement(connection)).await {
            Ok(outcome) => outcome.map_err(|e| StoreError::from_sqlx(op, e)),
            Err(_) => Err(StoreError::TimedOut { op, limit }),
        };
        metrics::STATEMENTS.with(&[op]).record(began.elapsed());
        self.spoilt = spoilt_before;
        if let Err(error) = &outcome {
            self.spoilt |= error.spoils_connection();
            metrics::ERRORS.with(&[error.kind()]).increment(1);
        }
        outcome
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if (self.spoilt || self.in_transaction)
            && let Some(connection) = self.connection.take()
        {
            // Closing the socket frees the pool's place at once and makes the server roll back; handing it back would
            // make the pool wait for an answer that may never come.
            drop(connection.detach());
        }
    }
}

/// A transaction. Dropped without [`Tx::commit`], it is rolled back by closing its connection.
#[derive(Debug)]
pub struct Tx {
    session: Session,
    op: &'static str,
}

impl Tx {
    pub(super) async fn begin(mut session: Session, op: &'static str) -> Result<Tx, StoreError> {
        session.plain("begin", "START TRANSACTION").await?;
        // From here on, until COMMIT or ROLLBACK is answered, the connection must not go back into the pool: not when
        // an error returns early, not when the future is dropped in the middle.
        session.in_transaction = true;
        Ok(Tx { session, op })
    }

    /// Commits. After an error the outcome is unknown: begin again, and let a compare-and-set tell.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        self.end("COMMIT").await
    }

    /// Rolls back and keeps the connection. (Dropping is as right, but costs a new connection.)
    pub async fn rollback(mut self) -> Result<(), StoreError> {
        self.end("ROLLBACK").await
    }

    async fn end(&mut self, text: &'static str) -> Result<(), StoreError> {
        self.session.plain(self.op, text).await?;
        self.session.in_transaction = false;
        Ok(())
    }
}

impl Deref for Tx {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}
