//! Dead letters read back, and the command that replays one. What [`dead_headers`](super::dead_headers) writes is what is
//! read here; the user's own headers stand before it, and none of them begins with `duestream-`.

use super::{
    ASKED_AT, ATTEMPT, BadDeliveryId, DELIVERY_ID, DUE_AT, DeliveryId, PROGRESS, SHARD_KEY, TASK_ID, dead,
};
use crate::avro::DecodeError;
use crate::command::{HEADER_PREFIX, record_key};
use crate::due::PastAttempt;
use crate::record::Header;
use crate::row::RowHistory;

/// What a command must carry to be a replay.
pub const OP: &str = "duestream-op";
/// Value of [`OP`].
pub const REPLAY: &str = "replay";
/// Asks for the answer.
pub const REPLY: &str = "duestream-reply";
/// Comes back with the answer.
pub const CORRELATION: &str = "duestream-correlation";

/// What a dead letter says of its task, all but the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Task id, or the row id in decimal.
    pub task_id: String,
    /// Shard key, or the task id.
    pub shard_key: String,
    /// The attempt that was to be made, or was the last.
    pub attempt: u16,
    /// When it was due, epoch ms.
    pub due_at: i64,
    /// Due time that was asked for, where a spread moved it.
    pub asked_at: Option<i64>,
    /// The delivery that did not take place: it names row and generation.
    pub delivery_id: DeliveryId,
    /// Callback topic.
    pub topic: String,
    /// Callback key.
    pub key: Option<Vec<u8>>,
    /// Callback partition, if one was asked for.
    pub partition: Option<i32>,
    /// When it expired, if it could, epoch ms.
    pub expires_at: Option<i64>,
    /// What was said of completion and further attempts: header and text, only what was said.
    pub options: Vec<(&'static str, String)>,
    /// Last progress that an attempt reported.
    pub progress: Option<Vec<u8>>,
    /// Past attempts, oldest first.
    pub history: Vec<PastAttempt>,
    /// Reason code of the burial.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// When it was buried, epoch ms.
    pub dead_at: i64,
}

/// Why a record is no dead letter that this version can read.
#[derive(Debug, thiserror::Error)]
pub enum NoLetter {
    /// A header that every dead letter has.
    #[error("header {0} is missing")]
    Missing(&'static str),
    /// A header that holds something else.
    #[error("header {0} is not what a dead letter has there")]
    Broken(&'static str),
    /// The delivery id.
    #[error(transparent)]
    DeliveryId(#[from] BadDeliveryId),
    /// The history.
    #[error("header duestream-history: {0}")]
    History(#[from] DecodeError),
}

impl Letter {
    /// Reads the headers of a record of `dead`.
    pub fn read(headers: &[Header]) -> Result<Letter, NoLetter> {
        let read = Headers(headers);
        let history = match read.bytes(dead::HISTORY) {
            None => Vec::new(),
            Some(bytes) => RowHistory::decode(bytes)?.attempts,
        };
        let options =
            [dead::COMPLETION, dead::MAX_ATTEMPTS, dead::BACKOFF, dead::ACK_TIMEOUT, dead::MAX_STALLS];
        let options = options.into_iter().filter_map(|name| Some((name, read.text(name).transpose()?)));
        let options = options.map(|(name, text)| text.map(|text| (name, text.to_owned())));
        Ok(Letter {
            task_id: read.needed(TASK_ID)?.to_owned(),
            shard_key: read.needed(SHARD_KEY)?.to_owned(),
            attempt: read.number(ATTEMPT)?.ok_or(NoLetter::Missing(ATTEMPT))?,
            due_at: read.number(DUE_AT)?.ok_or(NoLetter::Missing(DUE_AT))?,
            asked_at: read.number(ASKED_AT)?,
            delivery_id: read.needed(DELIVERY_ID)?.parse()?,
            topic: read.needed(dead::TOPIC)?.to_owned(),
            key: read.bytes(dead::KEY).map(<[u8]>::to_vec),
            partition: read.number(dead::PARTITION)?,
            expires_at: read.number(dead::EXPIRES_AT)?,
            options: options.collect::<Result<_, _>>()?,
            progress: read.bytes(PROGRESS).map(<[u8]>::to_vec),
            history,
            reason: read.needed(dead::DEAD_REASON)?.to_owned(),
            message: read.text(dead::DEAD_MESSAGE)?.unwrap_or_default().to_owned(),
            dead_at: read.number(dead::DEAD_AT)?.ok_or(NoLetter::Missing(dead::DEAD_AT))?,
        })
    }

    /// Kafka key of the command that replays it: that of the task's other commands.
    pub fn command_key(&self) -> Option<&[u8]> {
        record_key(self.key.as_deref(), Some(&self.shard_key), Some(&self.task_id))
    }
}

/// Headers of the command that replays a letter: its own, untouched, and what is asked for. The value of the command is
/// that of the letter.
pub fn replay_headers(letter: &[Header], correlation: &str) -> Vec<Header> {
    let asked = [(OP, REPLAY), (REPLY, "true"), (CORRELATION, correlation)];
    let asked =
        asked.map(|(name, value)| Header { name: name.into(), value: Some(value.as_bytes().to_vec()) });
    letter.iter().cloned().chain(asked).collect()
}

/// Headers that the user put on the task.
pub fn user_headers(headers: &[Header]) -> impl Iterator<Item = &Header> {
    headers.iter().filter(|header| !header.name.starts_with(HEADER_PREFIX))
}

struct Headers<'a>(&'a [Header]);

impl<'a> Headers<'a> {
    fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().rev().find(|header| header.name == name)?.value.as_deref()
    }

    fn text(&self, name: &'static str) -> Result<Option<&'a str>, NoLetter> {
        let text = self.bytes(name).map(std::str::from_utf8).transpose();
        text.map_err(|_| NoLetter::Broken(name))
    }

    fn needed(&self, name: &'static str) -> Result<&'a str, NoLetter> {
        self.text(name)?.ok_or(NoLetter::Missing(name))
    }

    fn number<N: std::str::FromStr>(&self, name: &'static str) -> Result<Option<N>, NoLetter> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| NoLetter::Broken(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::{AddedHeader, dead_headers, tests as samples};
    use crate::due::{Completion, Deliver, RetryOptions};

    fn headers(deliver: &Deliver) -> Vec<Header> {
        let user = Header { name: "colour".into(), value: Some(b"red".to_vec()) };
        let added = dead_headers(&samples::due(), deliver, "attempts_exhausted", "It failed.", 7);
        let added = added.into_iter().map(|AddedHeader { name, value }| Header { name: name.into(), value });
        [user].into_iter().chain(added).collect()
    }

    fn most() -> Deliver {
        let attempt = PastAttempt { attempt: 1, at: 5, outcome: "failed".into(), ..PastAttempt::default() };
        Deliver {
            shard_key: Some("s".into()),
            partition: Some(3),
            key: Some(vec![0xff]),
            expires_at: Some(9),
            asked_at: Some(8),
            completion: Completion::OnAck,
            progress: Some(vec![0]),
            history: vec![attempt],
            retry: RetryOptions {
                max_attempts: Some(4),
                backoff: "linear:2m,cap=20m".parse().ok(),
                ack_timeout_ms: Some(90_000),
                max_stalls: Some(0),
            },
            ..samples::deliver()
        }
    }

    #[test]
    fn a_letter_is_read_as_it_was_written() {
        let deliver = most();
        let letter = Letter::read(&headers(&deliver)).unwrap();
        assert_eq!((letter.task_id.as_str(), letter.shard_key.as_str(), letter.attempt), ("t", "s", 2));
        assert_eq!((letter.due_at, letter.asked_at), (samples::due().due_at, Some(8)));
        assert_eq!((letter.delivery_id.id, letter.topic.as_str()), (samples::due().id, "callbacks"));
        assert_eq!((&letter.key, letter.partition, letter.expires_at), (&deliver.key, Some(3), Some(9)));
        assert_eq!((&letter.progress, &letter.history), (&deliver.progress, &deliver.history));
        assert_eq!((letter.reason.as_str(), letter.message.as_str()), ("attempts_exhausted", "It failed."));
        let said = |name: &str| letter.options.iter().find(|(of, _)| *of == name).unwrap().1.clone();
        assert_eq!(
            [dead::COMPLETION, dead::MAX_ATTEMPTS, dead::BACKOFF, dead::ACK_TIMEOUT, dead::MAX_STALLS]
                .map(said),
            ["on_ack", "4", "linear:2m,cap=20m", "90s", "0"]
        );
        assert_eq!(letter.command_key(), Some(&[0xff][..]), "the callback key is that of the commands");
    }

    #[test]
    fn what_is_not_there_is_not_made_up() {
        let letter = Letter::read(&headers(&samples::deliver())).unwrap();
        assert_eq!((letter.key.as_deref(), letter.partition, letter.expires_at), (None, None, None));
        assert!(letter.options.is_empty() && letter.history.is_empty() && letter.progress.is_none());
        assert_eq!(letter.command_key(), Some(&b"t"[..]), "without a key, shard key or task id");
    }

    #[test]
    fn a_record_that_is_no_letter_says_what_it_lacks() {
        assert_eq!(Letter::read(&[]).unwrap_err().to_string(), "header duestream-task-id is missing");
        let mut broken = headers(&most());
        for header in &mut broken {
            if header.name == dead::DEAD_AT {
                header.value = Some(b"soon".to_vec());
            }
        }
        assert!(Letter::read(&broken).unwrap_err().to_string().contains("duestream-dead-at"));
        broken.retain(|header| header.name != DELIVERY_ID);
        broken.push(Header { name: DELIVERY_ID.into(), value: Some(b"1.2".to_vec()) });
        assert!(matches!(Letter::read(&broken), Err(NoLetter::DeliveryId(_))));
    }

    #[test]
    fn a_replay_is_the_letter_with_what_is_asked_for() {
        let letter = headers(&most());
        let replay = replay_headers(&letter, "c-1");
        assert_eq!(replay[..letter.len()], letter[..]);
        let asked: Vec<String> = replay[letter.len()..]
            .iter()
            .map(|header| {
                format!("{}={}", header.name, String::from_utf8_lossy(header.value.as_ref().unwrap()))
            })
            .collect();
        assert_eq!(asked, ["duestream-op=replay", "duestream-reply=true", "duestream-correlation=c-1"]);
        let user: Vec<&str> = user_headers(&replay).map(|header| header.name.as_str()).collect();
        assert_eq!(user, ["colour"]);
    }
}
