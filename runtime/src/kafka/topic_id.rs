//! The identity of a topic, which its name is not: a topic made again under the same name has another id.

use std::fmt;

/// Id that Kafka gave a topic when it was created (a UUID).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId([u8; 16]);

impl TopicId {
    pub(super) fn from_halves(most: i64, least: i64) -> TopicId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&most.to_be_bytes());
        bytes[8..].copy_from_slice(&least.to_be_bytes());
        TopicId(bytes)
    }

    /// An id from its 16 bytes, as MySQL keeps it. `None` for any other length.
    pub fn from_slice(bytes: &[u8]) -> Option<TopicId> {
        bytes.try_into().ok().map(TopicId)
    }

    /// The 16 bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// As Kafka's own tools print it: 22 characters of URL-safe base64 without padding.
impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits = u128::from_be_bytes(self.0);
        for i in 0..22 {
            // 128 bits are 21 whole sextets and two bits, which fill the last sextet from above.
            let sextet = if i < 21 { bits >> (122 - 6 * i) & 63 } else { (bits & 3) << 4 };
            write!(f, "{}", char::from(ALPHABET[sextet as usize]))?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_as_kafka_prints_it() {
        assert_eq!(TopicId::from_halves(0, 1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(TopicId::from_halves(-1, -1).to_string(), "_____________________w");
    }

    #[test]
    fn an_id_survives_its_bytes() {
        let id = TopicId::from_halves(0x0123_4567_89ab_cdef, -2);
        assert_eq!(TopicId::from_slice(id.as_bytes()), Some(id));
        assert_eq!(TopicId::from_slice(&[1, 2, 3]), None);
    }
}
