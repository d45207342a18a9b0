//! The plan of every hot statement, on both families: reads by key, no sort, no scan of a stored table; and rows read
//! while running, because two forms of the page with the same EXPLAIN read 500 or 290,499 rows (docs/MYSQL.md).

use runtime::store::server::Family;
use runtime::store::testing::{TestDb, server_url};
use runtime::store::{Bind, Plan, Sql, queries};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A server of the other family, for a second leg.
const REAL_MYSQL: &str = "MYSQL_REAL_URL";

/// Plans are worded, and sometimes made, differently from release to release: snapshots hold for these, on any other
/// release only the rules are checked.
const RECORDED: [(Family, (u32, u32), &str); 2] =
    [(Family::MariaDb, (10, 11), "mariadb-10.11"), (Family::MySql, (9, 7), "mysql-9.7")];

const HERD: u64 = 50_000;
const HERD_AT: i64 = 1_000_000;
const PAGE_ROWS: u64 = 500;

#[tokio::test]
async fn hot_statements_read_by_key_sort_nothing_and_read_no_more_than_they_answer() {
    let mut world = World::on(&server_url()).await;
    check_plans(&world).await;
    check_reads(&mut world).await;
}

#[tokio::test]
async fn the_same_holds_on_a_real_mysql() {
    let Ok(url) = std::env::var(REAL_MYSQL) else {
        eprintln!(
            "skipped: {REAL_MYSQL} names no server whose SELECT VERSION() is MySQL (docs/MYSQL.md says how to get one)"
        );
        return;
    };
    let mut world = World::on(&url).await;
    assert_eq!(world.test.db.version().family, Family::MySql, "{REAL_MYSQL} is {}", world.test.db.version());
    check_plans(&world).await;
    check_reads(&mut world).await;
}

struct World {
    test: TestDb,
    raw: MySqlConnection,
}

impl World {
    /// 8 shards of 5,000 rows, a herd of 50,000 equal due times in the middle of shard 1, few notes and changes, and the rows
    /// of which the example values speak.
    async fn on(url: &str) -> World {
        let test = TestDb::on(url).await;
        let mut raw = MySqlConnection::connect(&test.url).await.unwrap();
        let digits = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 \
                      UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
        let numbers = format!(
            "(SELECT a.d + 10*b.d + 100*c.d + 1000*e.d + 10000*f.d AS n FROM {digits} a, {digits} b, {digits} c, \
             {digits} e, {digits} f)"
        );
        let text = format!(
            "CREATE TABLE numbers (n INT PRIMARY KEY);
             INSERT INTO numbers SELECT n FROM {numbers} AS x;
             INSERT INTO task (id, identity, state, shard, due_at, task_id, callback_topic, content_hash, gen, attempt, created_at)
               SELECT n, UNHEX(LPAD(HEX(n * 7919 % 100003), 32, '0')), 1, n % 8, 900000 + n * 3, n, 'callbacks', REPEAT('h', 16), 1, 1, n
               FROM numbers WHERE n < 40000;
             INSERT INTO pending (shard, due_at, id, gen, attempt, failures, stalls, task_id, callback_topic, options, history, body)
               SELECT n % 8, 900000 + n * 3, n, 1, 1, 0, 0, n, 'callbacks', '', '', REPEAT('b', 200) FROM numbers WHERE n < 40000;
             INSERT INTO pending (shard, due_at, id, gen, attempt, failures, stalls, task_id, callback_topic, options, history, body)
               SELECT 1, {HERD_AT}, 100000 + n, 1, 1, 0, 0, n, 'callbacks', '', '', REPEAT('b', 200) FROM numbers WHERE n < {HERD};
             INSERT INTO running (shard, deadline_at, id, due_at, gen, attempt, failures, stalls, task_id, callback_topic, options, history, body, stop)
               SELECT n % 8, 900000 + n, 200000 + n, n, 1, 1, 0, 0, n, 'callbacks', '', '', '', 0 FROM numbers WHERE n < 5000;
             INSERT INTO reemit (shard, due_at, id, gen, at, n) SELECT n % 8, 900000 + n * 3, n, 1, 0, 0 FROM numbers WHERE n < 2000;
             INSERT INTO `change` (command, id, gen, kind, received_at, resend_at) SELECT 300000 + n, n * 10, 1, 1, n, n FROM numbers WHERE n < 2000;
             INSERT INTO shard SELECT n, 1, 1000000, 0, 0 FROM numbers WHERE n < 64;
             INSERT INTO route SELECT n, -9223372036854775808, n % 8 FROM numbers WHERE n < 64;
             INSERT INTO source SELECT n, CONCAT('topic-', n), REPEAT(CHAR(65 + n), 16) FROM numbers WHERE n < 20;
             INSERT INTO stream_position (source, `partition`, next, confirmed) SELECT n DIV 64, n % 64, 5, 5 FROM numbers WHERE n < 1280;
             INSERT INTO task (id, identity, state, shard, due_at, task_id, callback_topic, content_hash, gen, attempt, created_at)
               VALUES (400000, REPEAT(CHAR(7), 16), 1, 1, 5, 'x', 'c', '', 1, 1, 1),
               (400001, X'000102030405060708090A0B0C0D0E0F', 1, 3, 5, 'y', 'c', '', 1, 1, 1);
             INSERT INTO pending (shard, due_at, id, gen, attempt, failures, stalls, task_id, callback_topic, options, history, body)
               VALUES (1, 5, 7, 1, 1, 0, 0, 'x', 'c', '', '', ''), (3, 5, 8, 1, 1, 0, 0, 'y', 'c', '', '', '');
             INSERT INTO running (shard, deadline_at, id, due_at, gen, attempt, failures, stalls, task_id, callback_topic, options, history, body, stop)
               VALUES (1, 5, 7, 4, 1, 1, 0, 0, 'x', 'c', '', '', '', 0);
             INSERT INTO reemit (shard, due_at, id, gen, at, n) VALUES (1, 5, 7, 1, 0, 0);
             INSERT INTO source VALUES (100, 'duestream.tasks', REPEAT(CHAR(7), 16));
             DROP TABLE numbers"
        );
        raw.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
        let analyze =
            "ANALYZE TABLE task, pending, running, reemit, `change`, shard, route, source, stream_position";
        sqlx::raw_sql(analyze).fetch_all(&mut raw).await.unwrap();
        if test.db.version().family == Family::MySql {
            raw.execute("SET explain_format = 'TRADITIONAL'").await.unwrap();
        }
        World { test, raw }
    }
}

/// One line of EXPLAIN: what does not depend on how many rows there are.
struct Step {
    select_type: String,
    table: String,
    access: String,
    key: String,
    joined_by: String,
    extra: String,
}

impl Step {
    fn of(row: &MySqlRow) -> Step {
        let text = |name: &str| {
            let bytes = row.try_get_unchecked::<Option<Vec<u8>>, _>(name).unwrap();
            bytes.map_or_else(|| "-".to_owned(), |b| String::from_utf8(b).unwrap())
        };
        Step {
            select_type: text("select_type"),
            table: text("table"),
            access: text("type"),
            key: text("key"),
            joined_by: text("ref"),
            extra: text("Extra"),
        }
    }

    /// Of the set of keys that the statement brings along, or made on the way: no stored table.
    fn is_stored(&self) -> bool {
        let brought = self.extra.contains("Table function") || self.table == "k";
        !brought && self.table != "-" && !self.table.starts_with('<') && self.select_type != "INSERT"
    }

    /// What breaks the rules of `plan`.
    fn faults(&self, plan: Plan, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.extra.contains("filesort") {
            faults.push("sorts".to_owned());
        }
        if self.is_stored() {
            // A change of one row by its whole key is a range of one row in both servers' words.
            let by_range = plan == Plan::Range || !text.starts_with("SELECT");
            let allowed: &[&str] =
                if by_range { &["range", "eq_ref", "const", "ref"] } else { &["eq_ref", "const", "ref"] };
            // A subquery that looks a key up per row.
            let by_subquery = ["index_subquery", "unique_subquery"].contains(&self.access.as_str());
            if !by_subquery && !allowed.contains(&self.access.as_str()) {
                faults.push(format!("reads {} by {}", self.table, self.access));
            }
            if self.extra.contains("temporary") {
                faults.push(format!("copies {} into a temporary table", self.table));
            }
            if text.contains("JSON_TABLE")
                && ["task", "t", "pending", "p", "s"].contains(&self.table.as_str())
                && self.access != "eq_ref"
            {
                faults.push(format!("joins {} by {}, not eq_ref", self.table, self.access));
            }
        }
        faults
    }
}

async fn check_plans(world: &World) {
    let mut raw = MySqlConnection::connect(&world.test.url).await.unwrap();
    let version = world.test.db.version();
    if version.family == Family::MySql {
        raw.execute("SET explain_format = 'TRADITIONAL'").await.unwrap();
    }
    let (mut plans, mut faults) = (String::new(), Vec::new());
    let mut hot: Vec<&Sql> = queries::all().filter(|sql| !matches!(sql.plan, Plan::Cold(_))).collect();
    hot.sort_by_key(|sql| sql.name);
    for sql in hot {
        let text = format!("EXPLAIN {}", literal(sql.text, sql.example));
        let rows = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(&mut raw).await;
        let rows = rows.unwrap_or_else(|e| panic!("{}: {e}", sql.name));
        writeln!(plans, "{}", sql.name).unwrap();
        for step in rows.iter().map(Step::of) {
            let Step { select_type, table, access, key, joined_by, extra } = &step;
            let joined_by = joined_by.replace(&format!("{}.", world.test.name), "");
            let line = format!("  {select_type} {table}: {access} {key} ({joined_by}) {extra}");
            writeln!(plans, "{}", line.trim_end()).unwrap();
            faults.extend(
                step.faults(sql.plan, sql.text).into_iter().map(|fault| format!("{} {fault}", sql.name)),
            );
        }
    }
    assert!(faults.is_empty(), "on {version}:\n{}\n\n{plans}", faults.join("\n"));
    match RECORDED.iter().find(|(family, number, _)| (*family, *number) == (version.family, version.number)) {
        Some((_, _, name)) => {
            let mut settings = insta::Settings::clone_current();
            settings.set_prepend_module_to_snapshot(false);
            settings.set_omit_expression(true);
            settings.bind(|| insta::assert_snapshot!(*name, plans));
        }
        None => eprintln!("the plans keep the rules on {version}; no snapshot of this release is kept"),
    }
}

async fn check_reads(world: &mut World) {
    // Each statement with its example values, of which there are at most three keys or one page.
    for sql in queries::all().filter(|sql| !matches!(sql.plan, Plan::Cold(_))) {
        let most = if sql.plan == Plan::Range { 4 * PAGE_ROWS } else { 30 };
        let read = rows_read(&mut world.raw, sql, sql.example).await;
        assert!(read.total() <= most, "{} read {read:?} rows, more than {most}", sql.name);
    }
    // Pages at the start, in the middle and at the end of a herd that is due in one instant.
    for (name, pages_read) in [("scan_page", PAGE_ROWS), ("reemit_stalled", PAGE_ROWS)] {
        let sql =
            queries::all().find(|sql| sql.name == name).unwrap_or_else(|| panic!("no statement {name}"));
        for after in [0, 100_000, 100_000 + HERD / 2, 100_000 + HERD - 100] {
            let (at, upto) = (Bind::I(HERD_AT), Bind::I(HERD_AT + 10_000));
            let binds = [Bind::U(1), at, Bind::U(after), at, upto, Bind::U(PAGE_ROWS)];
            let read = rows_read(&mut world.raw, sql, &binds).await;
            // The rows of the page, and the one behind it at most.
            assert!(read.next <= pages_read, "{name} behind {after} read {read:?}");
            assert!(read.scanned <= 2, "{name} behind {after} read {read:?}");
        }
    }
}

#[derive(Debug)]
struct Reads {
    /// Rows read on along an index.
    next: u64,
    /// Rows read in the order in which they lie; the set of keys that a statement brings along counts too.
    scanned: u64,
}

impl Reads {
    fn total(&self) -> u64 {
        self.next + self.scanned
    }
}

/// Runs a statement, takes it back, and asks the server how many rows it has read.
async fn rows_read(raw: &mut MySqlConnection, sql: &Sql, binds: &[Bind]) -> Reads {
    let text = literal(sql.text, binds);
    // In this order: FLUSH commits.
    raw.execute("FLUSH STATUS").await.unwrap();
    raw.execute("START TRANSACTION").await.unwrap();
    let ran = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(&mut *raw).await;
    ran.unwrap_or_else(|e| panic!("{}: {e}", sql.name));
    let status =
        sqlx::raw_sql("SHOW SESSION STATUS LIKE 'Handler_read_%'").fetch_all(&mut *raw).await.unwrap();
    raw.execute("ROLLBACK").await.unwrap();
    let status: BTreeMap<String, u64> = status
        .iter()
        .map(|row| (row.get::<String, _>(0), row.get::<String, _>(1).parse().unwrap()))
        .collect();
    Reads {
        next: status["Handler_read_next"] + status["Handler_read_prev"],
        scanned: status["Handler_read_rnd_next"] + status["Handler_read_rnd"],
    }
}

/// The text with its values written in: EXPLAIN and status counters then need no prepared statement.
fn literal(text: &str, binds: &[Bind]) -> String {
    let mut parts = text.split('?');
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut binds = binds.iter();
    for part in parts {
        match binds.next().expect("a value for each `?`") {
            Bind::U(value) => write!(out, "{value}").unwrap(),
            Bind::I(value) => write!(out, "{value}").unwrap(),
            Bind::B(bytes) => {
                out.push_str("X'");
                bytes.iter().for_each(|byte| write!(out, "{byte:02x}").unwrap());
                out.push('\'');
            }
            Bind::S(value) => write!(out, "'{}'", value.replace('\\', "\\\\").replace('\'', "''")).unwrap(),
            Bind::Null => out.push_str("NULL"),
        }
        out.push_str(part);
    }
    out
}
