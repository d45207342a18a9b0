//! MySQL, the truth: every SQL text of Duestream lives here.
//!
//! ```text
//! Db ── session() ──▶ Session ── all / maybe / one / run ──▶ a named, fixed Sql
//!  └─── begin() ────▶ Tx (derefs to Session) ── commit()
//! ```
//!
//! - Statements are `static` values of type [`Sql`], or [`Bulk`] for inserts of many rows: a fixed set of texts, because
//!   an evicted prepared statement costs 43 ms with this sqlx (no `TCP_NODELAY`). Each has a name, which labels errors
//!   and metrics, and example values, with which the plan tests EXPLAIN it (see [`queries`]).
//! - A set of keys travels as one JSON parameter, joined by `JSON_TABLE` ([`JsonRows`]).
//! - Errors say what the caller must do: [`StoreError::disposition`].
//! - A transaction makes no network call but to MySQL, and is retried as a whole ([`retry`]).

pub mod apply;
mod bulk;
pub mod change;
pub mod database;
mod db;
mod emission;
mod error;
mod json;
pub mod lookup;
pub mod metrics;
pub mod migrate;
pub mod position;
pub mod purge;
pub mod queries;
pub mod reemit;
mod retry;
pub mod route;
mod rows;
pub mod scan;
pub mod server;
mod session;
pub mod setting;
pub mod shard;
pub mod source;
mod sql;
pub mod tasks;
pub mod testing;

pub use bulk::Bulk;
pub use db::{Db, Options, now};
pub use error::{Disposition, StoreError};
pub use json::JsonRows;
pub use retry::{Backoff, retry};
pub use rows::{PendingRow, RunningRow, TaskRow};
pub use session::{Session, Tx};
pub use sql::{Bind, Call, Plan, Sql};
