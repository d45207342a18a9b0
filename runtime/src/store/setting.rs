//! What every program of a pipeline must agree on.

use super::error::StoreError;
use super::session::Session;
use super::sql::Sql;
use std::collections::BTreeMap;

static ALL: Sql =
    Sql::cold("setting_all", "SELECT name, value FROM setting ORDER BY name", "a few rows, at start");
static PUT: Sql = Sql::cold(
    "setting_put",
    "INSERT INTO setting (name, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE name = name",
    "init only",
);
static SET: Sql = Sql::cold(
    "setting_set",
    "INSERT INTO setting (name, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)",
    "init only",
);

/// Number of shards, a power of two.
pub const SHARDS: &str = "shards";
/// Number of slots, a power of two.
pub const SLOTS: &str = "slots";
/// Newest migration, for people; what counts is [`super::migrate::check`].
pub const SCHEMA: &str = "schema";

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// A setting as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A setting that must be a number; missing or otherwise: an error with its remedy.
    pub fn number(&self, name: &'static str) -> Result<u16, StoreError> {
        let found = self.text(name);
        found.and_then(|text| text.parse().ok()).ok_or_else(|| StoreError::World {
            what: format!("setting {name} is {found:?}, not a number: run `duectl init`"),
        })
    }
}

/// Reads all settings.
pub async fn all(session: &mut Session) -> Result<Settings, StoreError> {
    let rows = session.all::<(Vec<u8>, Vec<u8>)>(ALL.call()).await?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Settings(rows.into_iter().map(|(name, value)| (text(name), text(value))).collect()))
}

/// Writes a setting unless it is there already: shards and slots never change after the first `init`.
pub async fn put_if_absent(session: &mut Session, name: &str, value: &str) -> Result<(), StoreError> {
    session.run(PUT.bind(name.as_bytes()).bind(value.as_bytes())).await?;
    Ok(())
}

/// Writes a setting, new or not.
pub async fn set(session: &mut Session, name: &str, value: &str) -> Result<(), StoreError> {
    session.run(SET.bind(name.as_bytes()).bind(value.as_bytes())).await?;
    Ok(())
}

pub(super) const QUERIES: &[&Sql] = &[&ALL, &PUT, &SET];
