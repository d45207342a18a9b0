//! What stands on `control`: limits and pauses of callback topics, how many of their deliveries are in flight, and which
//! share of a limit each slot holds. The topic is compacted; the key tells what a record is. No topic name has a slash.

use crate::command::is_topic_name;
use crate::ids::Slot;
use crate::journal::OwnerToken;
use std::fmt;
use std::str::FromStr;

/// Key of a record of `control`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ControlKey {
    /// `TOPIC`: a [`TopicLimit`].
    Limit(String),
    /// `TOPIC/SLOT/running`: a [`TopicRunning`].
    Running(String, Slot),
    /// `TOPIC/SLOT/share`: a [`TopicShare`].
    Share(String, Slot),
}

impl ControlKey {
    /// Reads a key. `None` where it is none of ours.
    pub fn read(bytes: &[u8]) -> Option<ControlKey> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut parts = text.split('/');
        let topic = parts.next().filter(|topic| is_topic_name(topic))?.to_owned();
        let Some(slot) = parts.next() else { return Some(ControlKey::Limit(topic)) };
        let number: u16 = slot.parse().ok().filter(|number: &u16| number.to_string() == slot)?;
        let key = match parts.next()? {
            "running" => ControlKey::Running(topic, Slot(number)),
            "share" => ControlKey::Share(topic, Slot(number)),
            _ => return None,
        };
        parts.next().is_none().then_some(key)
    }

    /// The callback topic it is about.
    pub fn topic(&self) -> &str {
        match self {
            ControlKey::Limit(topic) | ControlKey::Running(topic, _) | ControlKey::Share(topic, _) => topic,
        }
    }
}

impl fmt::Display for ControlKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlKey::Limit(topic) => f.write_str(topic),
            ControlKey::Running(topic, slot) => write!(f, "{topic}/{slot}/running"),
            ControlKey::Share(topic, slot) => write!(f, "{topic}/{slot}/share"),
        }
    }
}

/// What an operator allows a callback topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicLimit {
    /// Most deliveries in a time; `None`: as many as come.
    pub rate: Option<Rate>,
    /// Most deliveries of `on_ack` tasks that wait for their consumer at a time; `None`: any number. At least 1.
    pub in_flight: Option<u32>,
    /// Nothing is delivered.
    pub paused: bool,
    /// When it was written, epoch ms.
    pub at: i64,
}

/// How many deliveries of one slot to one callback topic wait for their consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRunning {
    /// How many.
    pub running: i64,
    /// Every delivery below this offset of the slot's journal was applied before they were counted.
    pub journal_next: i64,
    /// When they were counted, epoch ms.
    pub at: i64,
}

/// What one slot holds and wants of a limit. Rates are in millionths of a delivery per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicShare {
    /// Owner token of the writer.
    pub token: OwnerToken,
    /// Offset of the record of the limit that this speaks of.
    pub limit_offset: i64,
    /// Rate in use.
    pub rate_held: i64,
    /// Rate wanted in all.
    pub rate_want: i64,
    /// Deliveries that wait for their consumer.
    pub in_flight_held: i64,
    /// How many the slot wants to have waiting in all.
    pub in_flight_want: i64,
    /// Tasks that are due.
    pub waiting: i64,
    /// Which offset of the journal a count must have reached before the slot knows how many are in flight.
    pub journal_wanted: i64,
    /// When it was written, epoch ms.
    pub at: i64,
}

/// So many in a time: `100/s`, `30/m`, `5/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: Per,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Per {
    Second,
    Minute,
    Hour,
}

impl Rate {
    /// Most deliveries in one time unit: beyond, nothing is limited that Kafka does not limit before.
    pub const MOST: u32 = 1_000_000;

    /// In millionths of a delivery per second.
    pub fn micro_per_second(self) -> i64 {
        let seconds = match self.per {
            Per::Second => 1,
            Per::Minute => 60,
            Per::Hour => 3_600,
        };
        i64::from(self.count) * 1_000_000 / seconds
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per {
            Per::Second => "s",
            Per::Minute => "m",
            Per::Hour => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// Why a text is no rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no rate: it must be a number from 1 to 1000000 and a unit, such as 100/s, 30/m or 5/h")]
pub struct NotARate {
    text: String,
}

impl FromStr for Rate {
    type Err = NotARate;

    fn from_str(text: &str) -> Result<Rate, NotARate> {
        let rate = || {
            let (count, unit) = text.split_once('/')?;
            let digits = count.bytes().all(|byte| byte.is_ascii_digit());
            let count = count.parse().ok().filter(|count| digits && (1..=Rate::MOST).contains(count))?;
            let per = match unit {
                "s" => Per::Second,
                "m" => Per::Minute,
                "h" => Per::Hour,
                _ => return None,
            };
            Some(Rate { count, per })
        };
        rate().ok_or_else(|| NotARate { text: text.chars().take(40).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_its_record_is() {
        for (text, key) in [
            ("orders.a", ControlKey::Limit("orders.a".into())),
            ("orders/3/running", ControlKey::Running("orders".into(), Slot(3))),
            ("orders/65535/share", ControlKey::Share("orders".into(), Slot(65_535))),
        ] {
            assert_eq!(ControlKey::read(text.as_bytes()), Some(key.clone()));
            assert_eq!(key.to_string(), text);
        }
        for text in [
            "",
            "/",
            "a/",
            "a/1",
            "a/01/share",
            "a/-1/share",
            "a/65536/share",
            "a/1/limit",
            "a/1/share/x",
            "a b",
        ] {
            assert_eq!(ControlKey::read(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(ControlKey::read(&[0xff]), None);
    }

    #[test]
    fn rates_are_read_and_written_alike() {
        for (text, micro) in
            [("1/s", 1_000_000), ("90/m", 1_500_000), ("1/h", 277), ("1000000/s", 1_000_000_000_000)]
        {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.to_string().as_str(), rate.micro_per_second()), (text, micro));
        }
        for text in ["", "5", "0/s", "-1/s", "+1/s", "1.5/s", "5/d", "5/ s", "1000001/s", "/s"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.to_string().contains("such as 100/s"), "{error}");
        }
    }
}
