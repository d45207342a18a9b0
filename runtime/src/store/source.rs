//! Numbers of the topics that ingest reads.

use super::error::StoreError;
use super::session::Session;
use super::sql::{Bind, Sql};
use schemas::ids::{RowId, SourceId};

static FIND: Sql = Sql::hot(
    "source_find",
    "SELECT source FROM source WHERE topic = ? AND topic_uuid = ?",
    &[Bind::B(b"duestream.tasks"), Bind::B(&[7; 16])],
);
static ALL: Sql = Sql::cold(
    "source_all",
    "SELECT source, topic, topic_uuid FROM source ORDER BY source",
    "a few rows, at start",
);
static NEXT: Sql = Sql::cold(
    "source_next",
    "SELECT CAST(COALESCE(MAX(source) + 1, 0) AS SIGNED) FROM source",
    "a few rows, at start",
);
static INSERT: Sql =
    Sql::cold("source_insert", "INSERT INTO source (source, topic, topic_uuid) VALUES (?, ?, ?)", "at start");

/// A topic under its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its number.
    pub id: SourceId,
    /// Name of the topic.
    pub topic: String,
    /// Kafka's id of it: another one after it was deleted and created again.
    pub topic_uuid: [u8; 16],
}

/// The number of a topic, given now if it has none. A re-created topic (same name, another id) gets a new number, so
/// that row ids never collide; numbers are never given again.
pub async fn register(
    session: &mut Session,
    topic: &str,
    topic_uuid: [u8; 16],
) -> Result<SourceId, StoreError> {
    loop {
        if let Some(found) = find(session, topic, topic_uuid).await? {
            return Ok(found);
        }
        let (next,) = session.one::<(i64,)>(NEXT.call()).await?;
        let number = u16::try_from(next).ok().filter(|n| *n <= RowId::MAX_SOURCE).ok_or_else(|| {
            StoreError::World {
                what: format!(
                    "all {} source numbers are given away: table source is full",
                    RowId::MAX_SOURCE + 1
                ),
            }
        })?;
        let inserted = session.run(INSERT.bind(number).bind(topic.as_bytes()).bind(&topic_uuid[..])).await;
        match inserted {
            Ok(_) => return Ok(SourceId(number)),
            // Another program took the number, or registered this very topic: look again.
            Err(StoreError::Duplicate { .. }) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The number of a topic, if it has one.
pub async fn find(
    session: &mut Session,
    topic: &str,
    topic_uuid: [u8; 16],
) -> Result<Option<SourceId>, StoreError> {
    let row = session.maybe::<(u16,)>(FIND.bind(topic.as_bytes()).bind(&topic_uuid[..])).await?;
    Ok(row.map(|(number,)| SourceId(number)))
}

/// All registered topics, oldest first.
pub async fn all(session: &mut Session) -> Result<Vec<Source>, StoreError> {
    let rows = session.all::<(u16, Vec<u8>, Vec<u8>)>(ALL.call()).await?;
    rows.into_iter()
        .map(|(number, topic, uuid)| {
            Ok(Source {
                id: SourceId(number),
                topic: String::from_utf8_lossy(&topic).into_owned(),
                topic_uuid: uuid.try_into().map_err(|_| StoreError::Invariant {
                    op: ALL.name,
                    what: format!("source {number} has a topic id that is not 16 bytes"),
                })?,
            })
        })
        .collect()
}

pub(super) const QUERIES: &[&Sql] = &[&FIND, &ALL, &NEXT, &INSERT];
