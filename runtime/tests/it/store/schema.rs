//! Migrations and the check at start.

use super::{run, sql};
use runtime::store::testing::{TestDb, server_url, with_database};
use runtime::store::{Db, Options, database, migrate, server};

async fn check(db: &Db) -> Result<(), String> {
    migrate::check(&mut db.session().await.unwrap()).await.map_err(|e| e.to_string())
}

#[tokio::test]
async fn migrations_make_the_schema_once_and_then_do_nothing() {
    let test = TestDb::fresh().await;
    assert_eq!(check(&test.db).await, Ok(()));
    assert_eq!(test.db.migrate().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn an_empty_database_is_told_to_be_initialised_and_two_inits_at_once_make_one_schema() {
    let test = TestDb::fresh().await;
    let url = with_database(&server_url(), &format!("{}_b", test.name));
    assert_eq!(database::look(&url).await.unwrap(), database::Database::Missing);
    database::create(&url).await.unwrap();
    let db = Db::connect(&Options::new(&url)).await.unwrap();
    let complaint = check(&db).await.unwrap_err();
    assert!(complaint.contains("lacks migration 0001") && complaint.contains("duectl init"), "{complaint}");

    let (a, b) = tokio::join!(db.migrate(), db.migrate());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(a.is_empty() != b.is_empty(), "one of them does all: {a:?} {b:?}");
    assert_eq!(check(&db).await, Ok(()));
    db.close().await;
    drop_database(&format!("{}_b", test.name)).await;
}

async fn drop_database(name: &str) {
    use sqlx::{AssertSqlSafe, Connection, Executor};
    let mut admin = sqlx::MySqlConnection::connect(&server_url()).await.unwrap();
    admin.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE `{name}`")))).await.unwrap();
}

#[tokio::test]
async fn a_migration_that_was_cut_off_is_run_again() {
    let test = TestDb::fresh().await;
    run(&test.db, sql!("test_cut_off", "UPDATE _sqlx_migrations SET success = FALSE WHERE version = 4"))
        .await;
    run(&test.db, sql!("test_cut_off_drop", "DROP TABLE reemit")).await;
    let complaint = check(&test.db).await.unwrap_err();
    assert!(complaint.contains("0004 reemit"), "{complaint}");
    assert_eq!(test.db.migrate().await.unwrap(), ["0004 reemit"]);
    assert_eq!(check(&test.db).await, Ok(()));
    run(&test.db, sql!("test_table_is_back", "DELETE FROM reemit")).await;
}

#[tokio::test]
async fn a_newer_and_an_altered_schema_are_refused_by_start_and_by_init() {
    let test = TestDb::fresh().await;
    let newer = sql!(
        "test_newer",
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'x', TRUE, '', 0)"
    );
    run(&test.db, newer).await;
    let complaint = check(&test.db).await.unwrap_err();
    assert!(complaint.contains("newer than this program") && complaint.contains("9999"), "{complaint}");
    assert!(test.db.migrate().await.is_err());

    run(&test.db, sql!("test_altered", "DELETE FROM _sqlx_migrations WHERE version = 9999")).await;
    run(&test.db, sql!("test_altered_2", "UPDATE _sqlx_migrations SET checksum = 'x' WHERE version = 2"))
        .await;
    let complaint = check(&test.db).await.unwrap_err();
    assert!(complaint.contains("0002 pending was run with another text"), "{complaint}");
}

#[tokio::test]
async fn the_check_of_the_server_answers_on_both_families() {
    let test = TestDb::fresh().await;
    let warnings = server::check(&mut test.db.session().await.unwrap()).await.unwrap();
    assert!(test.db.version().is_supported(), "{}", test.db.version());
    assert!(warnings.iter().all(|w| !w.contains("not tested")), "{warnings:?}");
}
