//! The schema: run by `duectl init`, checked by every program at its start.

use super::error::StoreError;
use super::session::Session;
use super::sql::Sql;
use sqlx::migrate::{Migration, Migrator};
use std::collections::BTreeMap;

/// `runtime/migrations`, embedded.
static MIGRATOR: Migrator = sqlx::migrate!("./migrations");

// The table is sqlx's own (`_sqlx_migrations`), so that its command line works on it too. What runs them is written
// here: sqlx waits for its lock with a negative time-out, which MariaDB answers at once without a lock.
static CREATE_TABLE: Sql = Sql::cold(
    "migrations_table",
    "CREATE TABLE IF NOT EXISTS _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, \
     installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum BLOB NOT NULL, \
     execution_time BIGINT NOT NULL)",
    "init only",
);
static HAS_TABLE: Sql = Sql::cold(
    "migrations_table_exists",
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '_sqlx_migrations'",
    "once per start",
);
static APPLIED: Sql = Sql::cold(
    "migrations_applied",
    "SELECT version, CAST(success AS SIGNED), checksum FROM _sqlx_migrations ORDER BY version",
    "once per start",
);
static STARTED: Sql = Sql::cold(
    "migration_started",
    "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (?, ?, FALSE, ?, -1) \
     ON DUPLICATE KEY UPDATE checksum = VALUES(checksum)",
    "init only",
);
static DONE: Sql = Sql::cold(
    "migration_done",
    "UPDATE _sqlx_migrations SET success = TRUE, execution_time = ? WHERE version = ?",
    "init only",
);
static LOCK: Sql = Sql::cold(
    "migration_lock",
    "SELECT CAST(GET_LOCK(CONCAT('duestream-migrate-', LEFT(DATABASE(), 40)), 10) AS SIGNED)",
    "init only",
);
static UNLOCK: Sql = Sql::cold(
    "migration_unlock",
    "SELECT CAST(RELEASE_LOCK(CONCAT('duestream-migrate-', LEFT(DATABASE(), 40))) AS SIGNED)",
    "init only",
);

/// What is wrong with the schema.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// This program has them, the database has not run them (or not to their end).
    pub pending: Vec<String>,
    /// The database has run them, this program does not know them.
    pub unknown: Vec<i64>,
    /// Run with another text than this program's.
    pub changed: Vec<String>,
}

impl Difference {
    /// Whether the schema is this program's.
    pub fn is_none(&self) -> bool {
        self.pending.is_empty() && self.unknown.is_empty() && self.changed.is_empty()
    }
}

struct Applied {
    success: bool,
    checksum: Vec<u8>,
}

/// Compares the database with the embedded migrations.
pub async fn difference(session: &mut Session) -> Result<Difference, StoreError> {
    Ok(compare(MIGRATOR.iter(), &applied(session).await?))
}

/// Fails with a remedy unless the schema is exactly this program's.
pub async fn check(session: &mut Session) -> Result<(), StoreError> {
    let found = difference(session).await?;
    let mut wrong = Vec::new();
    if !found.pending.is_empty() {
        wrong.push(format!("the schema lacks migration {}: run `duectl init`", found.pending.join(", ")));
    }
    if !found.unknown.is_empty() {
        let unknown: Vec<String> = found.unknown.iter().map(i64::to_string).collect();
        wrong.push(format!(
            "the schema is newer than this program (it has migration {}): start the newer release",
            unknown.join(", ")
        ));
    }
    if !found.changed.is_empty() {
        wrong.push(format!(
            "migration {} was run with another text than this program's: this is not Duestream's database, or its \
             release was altered",
            found.changed.join(", ")
        ));
    }
    if wrong.is_empty() { Ok(()) } else { Err(StoreError::World { what: wrong.join("; ") }) }
}

/// Runs what is pending, in order, under a lock of the database, and answers the names of what it ran. A migration that
/// was cut off is run again: each is one statement that may be run twice.
pub async fn run(session: &mut Session) -> Result<Vec<String>, StoreError> {
    if session.one::<(Option<i64>,)>(LOCK.call()).await?.0 != Some(1) {
        return Err(StoreError::World {
            what: "another `duectl init` is running the migrations: try again".into(),
        });
    }
    let outcome = run_locked(session).await;
    let unlocked = session.one::<(Option<i64>,)>(UNLOCK.call()).await;
    let ran = outcome?;
    unlocked?;
    Ok(ran)
}

async fn run_locked(session: &mut Session) -> Result<Vec<String>, StoreError> {
    session.run(CREATE_TABLE.call()).await?;
    let applied = applied(session).await?;
    let found = compare(MIGRATOR.iter(), &applied);
    if !found.unknown.is_empty() || !found.changed.is_empty() {
        return check(session).await.map(|()| Vec::new());
    }
    let mut ran = Vec::new();
    for migration in MIGRATOR.iter().filter(|m| !applied.get(&m.version).is_some_and(|a| a.success)) {
        let began = std::time::Instant::now();
        let started =
            STARTED.bind(migration.version).bind(&*migration.description).bind(&*migration.checksum);
        session.run(started).await?;
        session.plain("migration", migration.sql.clone()).await?;
        let took = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
        session.run(DONE.bind(took).bind(migration.version)).await?;
        ran.push(label(migration));
    }
    Ok(ran)
}

async fn applied(session: &mut Session) -> Result<BTreeMap<i64, Applied>, StoreError> {
    if session.one::<(i64,)>(HAS_TABLE.call()).await?.0 == 0 {
        return Ok(BTreeMap::new());
    }
    let rows = session.all::<(i64, i64, Vec<u8>)>(APPLIED.call()).await?;
    Ok(rows
        .into_iter()
        .map(|(version, success, checksum)| (version, Applied { success: success != 0, checksum }))
        .collect())
}

fn compare<'m>(known: impl Iterator<Item = &'m Migration>, applied: &BTreeMap<i64, Applied>) -> Difference {
    let mut found = Difference::default();
    let mut unknown: BTreeMap<i64, ()> = applied.keys().map(|version| (*version, ())).collect();
    for migration in known {
        unknown.remove(&migration.version);
        match applied.get(&migration.version) {
            Some(Applied { success: true, checksum }) if *checksum != *migration.checksum => {
                found.changed.push(label(migration));
            }
            Some(Applied { success: true, .. }) => {}
            Some(Applied { success: false, .. }) | None => found.pending.push(label(migration)),
        }
    }
    found.unknown = unknown.into_keys().collect();
    found
}

fn label(migration: &Migration) -> String {
    format!("{:04} {}", migration.version, migration.description)
}

/// Number of the newest migration of this program.
pub fn newest() -> i64 {
    MIGRATOR.iter().map(|m| m.version).max().unwrap_or(0)
}

pub(super) const QUERIES: &[&Sql] = &[&CREATE_TABLE, &HAS_TABLE, &APPLIED, &STARTED, &DONE, &LOCK, &UNLOCK];

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::SqlSafeStr;
    use sqlx::migrate::MigrationType;

    fn migration(version: i64, text: &'static str) -> Migration {
        Migration::new(version, "x".into(), MigrationType::Simple, text.into_sql_str(), false)
    }

    #[test]
    fn pending_unknown_and_changed_migrations_are_told_apart() {
        let known = [migration(1, "one"), migration(2, "two"), migration(3, "three"), migration(4, "four")];
        let done = |m: &Migration| Applied { success: true, checksum: m.checksum.to_vec() };
        let applied = BTreeMap::from([
            (1, done(&known[0])),
            (2, done(&known[0])),
            (3, Applied { success: false, checksum: Vec::new() }),
            (9, done(&known[3])),
        ]);
        let found = compare(known.iter(), &applied);
        assert_eq!(found.changed, ["0002 x"]);
        assert_eq!(found.pending, ["0003 x", "0004 x"]);
        assert_eq!(found.unknown, [9]);
        assert!(!found.is_none());
    }

    /// One expansion by `ALTER TABLE` has no form that may be run twice: migrations/README.md says what to do.
    #[test]
    fn every_migration_is_one_statement_that_may_be_run_twice_or_adds_one_thing() {
        for migration in MIGRATOR.iter() {
            let text: String = migration.sql.as_str().lines().filter(|l| !l.starts_with("--")).collect();
            assert!(!text.trim_end().trim_end_matches(';').contains(';'), "{}", label(migration));
            let repeatable = text.contains(" IF NOT EXISTS ") || text.contains(" IF EXISTS ");
            let expands = text.starts_with("ALTER TABLE ") && text.matches(" ADD ").count() == 1;
            assert!(repeatable || expands, "{}", label(migration));
        }
        assert!(newest() >= 10);
    }
}
