//! Which server this is and whether its settings keep the promises.

use super::error::StoreError;
use super::session::Session;
use super::sql::Sql;
use std::collections::BTreeMap;
use std::fmt;

/// The two families whose SQL Duestream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// MariaDB, 10.11 or newer.
    MariaDb,
    /// MySQL, 8.4 or newer.
    MySql,
}

/// What `SELECT VERSION()` says. (The name of the binary proves nothing: on Debian `mysqld` is MariaDB.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// MariaDB or MySQL.
    pub family: Family,
    /// First two numbers.
    pub number: (u32, u32),
    /// As the server says it.
    pub text: String,
}

impl Version {
    /// Reads such as `10.11.19-MariaDB-0+deb12u1` or `9.7.4-2`.
    pub fn parse(text: &str) -> Version {
        let family =
            if text.to_ascii_lowercase().contains("mariadb") { Family::MariaDb } else { Family::MySql };
        // Behind a replication-compatible prefix some MariaDB servers say 5.5.5-10.x.
        let numbers = text.strip_prefix("5.5.5-").unwrap_or(text);
        let mut parts = numbers.split(['.', '-']).map_while(|part| part.parse().ok());
        let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        Version { family, number, text: text.to_owned() }
    }

    /// Whether the `JSON_TABLE` joins and the plans of this release were tested on something this old.
    pub fn is_supported(&self) -> bool {
        match self.family {
            Family::MariaDb => self.number >= (10, 11),
            Family::MySql => self.number >= (8, 4),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::MariaDb => "MariaDB",
            Family::MySql => "MySQL",
        };
        write!(f, "{family} {}", self.text)
    }
}

static VERSION: Sql = Sql::cold("server_version", "SELECT VERSION()", "once per pool");

/// Names that exist on both families. `IN` and not one SELECT per name: a name that a server does not know is left out.
static VARIABLES: Sql = Sql::cold(
    "server_variables",
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', \
     'binlog_format', 'max_allowed_packet', 'innodb_buffer_pool_size', 'read_only', 'innodb_doublewrite', \
     'max_prepared_stmt_count', 'max_connections')",
    "once per start",
);

pub(super) async fn version(session: &mut Session) -> Result<Version, StoreError> {
    Ok(Version::parse(&session.one::<(String,)>(VERSION.call()).await?.0))
}

/// Settings of the server that weaken a promise, each with what it costs and what to set. Log them, do not stop.
pub async fn check(session: &mut Session) -> Result<Vec<String>, StoreError> {
    let version = version(session).await?;
    let variables = session.all::<(String, String)>(VARIABLES.call()).await?.into_iter().collect();
    Ok(warnings(&version, &variables))
}

fn warnings(version: &Version, variables: &BTreeMap<String, String>) -> Vec<String> {
    let is = |name: &str| variables.get(name).map_or("", String::as_str);
    let number = |name: &str| is(name).parse::<u64>().unwrap_or(u64::MAX);
    let mut out = Vec::new();
    let mut warn = |bad: bool, text: String| {
        if bad {
            out.push(text);
        }
    };
    warn(
        !version.is_supported(),
        format!("{version} is older than MariaDB 10.11 or MySQL 8.4: not tested; upgrade it"),
    );
    warn(
        is("innodb_flush_log_at_trx_commit") != "1",
        "innodb_flush_log_at_trx_commit is not 1: a power loss forgets accepted tasks; set it to 1".into(),
    );
    let binlog = is("log_bin") == "ON";
    warn(
        binlog && is("sync_binlog") != "1",
        "sync_binlog is not 1: a power loss parts the replicas from the primary; set it to 1".into(),
    );
    // MySQL 9 has no other format and no variable any more.
    warn(
        binlog && variables.contains_key("binlog_format") && is("binlog_format") != "ROW",
        "binlog_format is not ROW: READ COMMITTED needs row events; set it to ROW".into(),
    );
    warn(
        number("max_allowed_packet") < 16 << 20,
        "max_allowed_packet is below 16 MiB: a batch of large tasks is refused; set it to 16M or more".into(),
    );
    warn(
        number("innodb_buffer_pool_size") < 128 << 20,
        "innodb_buffer_pool_size is below 128 MiB: inserts read a page per row; set it to hold the tasks of the hot hours".into(),
    );
    warn(is("read_only").starts_with("ON"), "the server is read_only: point mysql.url at the primary".into());
    warn(
        number("max_prepared_stmt_count") < 4_096,
        "max_prepared_stmt_count is below 4096: connections × statements may exceed it; set it to 16382 or more".into(),
    );
    out
}

pub(super) const QUERIES: &[&Sql] = &[&VERSION, &VARIABLES];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_families_are_read() {
        for (text, family, number, supported) in [
            ("10.11.19-MariaDB-0+deb12u1", Family::MariaDb, (10, 11), true),
            ("5.5.5-10.6.4-MariaDB", Family::MariaDb, (10, 6), false),
            ("11.8.2-MariaDB", Family::MariaDb, (11, 8), true),
            ("9.7.4-2", Family::MySql, (9, 7), true),
            ("8.0.36", Family::MySql, (8, 0), false),
        ] {
            let version = Version::parse(text);
            assert_eq!(
                (version.family, version.number, version.is_supported()),
                (family, number, supported),
                "{text}"
            );
        }
    }

    #[test]
    fn a_setting_that_breaks_durability_is_named_with_its_remedy() {
        let mut variables: BTreeMap<String, String> = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("sync_binlog", "1"),
            ("log_bin", "ON"),
            ("binlog_format", "ROW"),
            ("max_allowed_packet", "16777216"),
            ("innodb_buffer_pool_size", "134217728"),
            ("read_only", "OFF"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        let version = Version::parse("9.7.4");
        assert_eq!(warnings(&version, &variables), Vec::<String>::new());
        variables.insert("innodb_flush_log_at_trx_commit".into(), "2".into());
        variables.insert("sync_binlog".into(), "0".into());
        variables.insert("read_only".into(), "ON".into());
        let found = warnings(&version, &variables);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("set it to 1"));
    }
}
