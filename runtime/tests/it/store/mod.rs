//! The MySQL layer against a real server: any of both families that `MYSQL_URL` names.

mod data;
mod schema;
mod sessions;

use runtime::store::Sql;

/// A statement of a test's own. (Those of the store are private to it.)
macro_rules! sql {
    ($name:literal, $text:expr) => {{
        static SQL: runtime::store::Sql = runtime::store::Sql::cold($name, $text, "a test");
        &SQL
    }};
}
pub(crate) use sql;

/// Runs a statement without values on a fresh session.
async fn run(db: &runtime::store::Db, sql: &'static Sql) -> u64 {
    db.session().await.unwrap().run(sql.call()).await.unwrap()
}
