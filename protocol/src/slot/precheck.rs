//! Whether a callback record can be written at all, and to which partition. What is sure to fail never enters a
//! transaction, where it would take its neighbours down with it.

use schemas::delivery::{DeadReason, delivered_headers};
use schemas::due::{Deliver, DueRecord};

/// What is known of a callback topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Number of partitions.
    pub partitions: i32,
    /// Partitions without a leader.
    pub leaderless: Vec<i32>,
    /// Its `max.message.bytes`, or what the client itself takes at most if that is less.
    pub max_message_bytes: usize,
    /// Compacted: refuses records without a key.
    pub compacted: bool,
}

/// Answer about a callback topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is there.
    Known(Facts),
    /// It is not there, says fresh metadata.
    Unknown,
    /// We may not even look.
    Denied,
    /// Nobody could say.
    Unavailable,
}

/// Verdict on one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Write it there: partition, and bytes that one batch may hold.
    Write(i32, usize),
    /// It can never be written.
    Never(DeadReason),
    /// Try again a little later.
    NotNow,
}

/// `sticky`: any number; records without a key and a partition go where it points.
pub(super) fn check(record: &DueRecord, deliver: &Deliver, lookup: &Lookup, sticky: usize) -> Check {
    let facts = match lookup {
        Lookup::Known(facts) if facts.partitions > 0 => facts,
        Lookup::Unknown => return Check::Never(DeadReason::UnknownTopic),
        Lookup::Denied => return Check::Never(DeadReason::NotAuthorized),
        Lookup::Known(_) | Lookup::Unavailable => return Check::NotNow,
    };
    if facts.compacted && deliver.key.is_none() {
        return Check::Never(DeadReason::KeyRequired);
    }
    if !fits(record, deliver, facts.max_message_bytes) {
        return Check::Never(DeadReason::TooLarge);
    }
    let partition = match (deliver.partition, &deliver.key) {
        (Some(asked), _) if (0..facts.partitions).contains(&asked) => asked,
        (Some(_), _) => return Check::Never(DeadReason::UnknownPartition),
        (None, Some(key)) => ((murmur2(key) & 0x7fff_ffff) % facts.partitions.unsigned_abs()).cast_signed(),
        (None, None) => return any_partition(facts, sticky),
    };
    if facts.leaderless.contains(&partition) {
        Check::NotNow
    } else {
        Check::Write(partition, facts.max_message_bytes)
    }
}

fn any_partition(facts: &Facts, sticky: usize) -> Check {
    let led: Vec<i32> = (0..facts.partitions).filter(|p| !facts.leaderless.contains(p)).collect();
    if led.is_empty() {
        Check::NotNow
    } else {
        Check::Write(led[sticky % led.len()], facts.max_message_bytes)
    }
}

/// Whether a topic with this limit takes the record. Most are far from it: those are not measured to the byte.
fn fits(record: &DueRecord, deliver: &Deliver, limit: usize) -> bool {
    /// More than the batch's header, lengths, and our own headers without the texts below.
    const REST: usize = 800;
    let len = |bytes: Option<&Vec<u8>>| bytes.map_or(0, Vec::len);
    let header = |header: &schemas::record::Header| header.name.len() + len(header.value.as_ref()) + 10;
    let at_most = REST
        + len(deliver.key.as_ref())
        + len(deliver.value.as_ref())
        + len(deliver.progress.as_ref())
        + deliver.headers.iter().map(header).sum::<usize>()
        + 2 * deliver.task_id.len()
        + deliver.shard_key.as_ref().map_or(0, String::len);
    at_most <= limit || wire_bytes(record, deliver) <= limit
}

/// Bytes of the record batch that holds nothing but this record, uncompressed: what a topic's `max.message.bytes` is held
/// against. Exact, so that nothing is buried that would have fitted, and nothing sent that does not fit.
pub fn wire_bytes(record: &DueRecord, deliver: &Deliver) -> usize {
    const BATCH_HEADER: usize = 61;
    /// Attributes, and the differences of timestamp and offset to the batch's first record: 0 and 0.
    const FIXED: usize = 3;
    // From 2001-09-09 on every time has thirteen digits: any of them stands for the time of the delivery.
    const ANY_TIME: i64 = 1_000_000_000_000;
    let added = delivered_headers(record, deliver, ANY_TIME);
    let sized = |len: usize| varint_bytes(len) + len;
    let field = |bytes: Option<&Vec<u8>>| bytes.map_or(1, |bytes| sized(bytes.len()));
    let own = deliver.headers.iter().map(|header| sized(header.name.len()) + field(header.value.as_ref()));
    let added_bytes = added.iter().map(|header| sized(header.name.len()) + field(header.value.as_ref()));
    let body = FIXED
        + field(deliver.key.as_ref())
        + field(deliver.value.as_ref())
        + varint_bytes(deliver.headers.len() + added.len())
        + own.chain(added_bytes).sum::<usize>();
    BATCH_HEADER + sized(body)
}

/// Bytes of a length that Kafka writes as a zigzag varint.
fn varint_bytes(len: usize) -> usize {
    let bits = usize::BITS - (len << 1).leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

/// The hash by which Java producers choose a partition (murmur2 with their seed).
pub fn murmur2(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mut hash = SEED ^ (key.len() as u32);
    let mut words = key.chunks_exact(4);
    for word in words.by_ref() {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::super::tests::world::deliver_record;
    use super::*;
    use schemas::due::DueKind;

    #[test]
    fn partitions_of_keys_are_those_of_the_java_client() {
        let rows =
            include_str!("../../golden/java_partitions.txt").lines().filter(|line| !line.starts_with('#'));
        for row in rows {
            let fields: Vec<&str> = row.split(' ').collect();
            let hex = if fields[0] == "-" { "" } else { fields[0] };
            let key: Vec<u8> =
                (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
            assert_eq!(murmur2(&key).cast_signed().to_string(), fields[1], "hash of {row}");
            for (partitions, expected) in [1, 3, 7, 100].into_iter().zip(&fields[2..]) {
                let lookup = Lookup::Known(Facts { partitions, ..facts() });
                let verdict = verdict(|d| d.key = Some(key.clone()), &lookup);
                assert_eq!(verdict, Check::Write(expected.parse().unwrap(), 1_000), "{row}");
            }
        }
    }

    #[test]
    fn the_quick_look_at_a_size_never_says_less_than_there_is() {
        for (task_id, shard_key, key) in [(1, None, 0), (255, None, 10), (255, Some(255), 300_000)] {
            let mut record = deliver_record(1, "a", i64::MAX, 0);
            let DueKind::Deliver(deliver) = &mut record.kind else { unreachable!("made as deliver") };
            deliver.task_id = "t".repeat(task_id);
            deliver.shard_key = shard_key.map(|len| "s".repeat(len));
            deliver.key = Some(vec![0; key]);
            deliver.asked_at = Some(i64::MIN);
            deliver.attempt = u16::MAX;
            deliver.progress = Some(vec![0; 20_000]);
            let deliver = deliver.clone();
            let exact = wire_bytes(&record, &deliver);
            assert!(fits(&record, &deliver, exact) && !fits(&record, &deliver, exact - 1));
        }
    }

    #[test]
    fn lengths_take_as_many_bytes_as_kafka_writes_for_them() {
        for (len, bytes) in [(0, 1), (63, 1), (64, 2), (8_191, 2), (8_192, 3), (1_048_575, 3), (1_048_576, 4)]
        {
            assert_eq!(varint_bytes(len), bytes, "{len}");
        }
    }

    fn facts() -> Facts {
        Facts { partitions: 3, leaderless: vec![], max_message_bytes: 1_000, compacted: false }
    }

    fn verdict(change: impl FnOnce(&mut Deliver), lookup: &Lookup) -> Check {
        let mut record = deliver_record(1, "a", 0, 0);
        let DueKind::Deliver(deliver) = &mut record.kind else { unreachable!("made as deliver") };
        change(deliver);
        let deliver = deliver.clone();
        check(&record, &deliver, lookup, 1)
    }

    #[test]
    fn murmur2_agrees_with_the_java_client() {
        // Values of the tests of Apache Kafka's Utils.murmur2.
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }

    #[test]
    fn what_is_sure_to_fail_is_told_before_it_is_sent() {
        let known = Lookup::Known(facts());
        assert_eq!(verdict(|_| {}, &Lookup::Unknown), Check::Never(DeadReason::UnknownTopic));
        assert_eq!(verdict(|_| {}, &Lookup::Denied), Check::Never(DeadReason::NotAuthorized));
        assert_eq!(verdict(|d| d.partition = Some(3), &known), Check::Never(DeadReason::UnknownPartition));
        assert_eq!(verdict(|d| d.value = Some(vec![0; 1_000]), &known), Check::Never(DeadReason::TooLarge));
        let compacted = Lookup::Known(Facts { compacted: true, ..facts() });
        assert_eq!(verdict(|d| d.key = None, &compacted), Check::Never(DeadReason::KeyRequired));
    }

    #[test]
    fn the_partition_is_as_asked_else_by_key_else_any_that_has_a_leader() {
        let known = Lookup::Known(facts());
        assert_eq!(verdict(|d| d.partition = Some(2), &known), Check::Write(2, 1_000));
        let by_key = ((murmur2(b"k") & 0x7fff_ffff) % 3).cast_signed();
        assert_eq!(verdict(|d| d.key = Some(b"k".to_vec()), &known), Check::Write(by_key, 1_000));
        let only_two = Lookup::Known(Facts { leaderless: vec![0, 1], ..facts() });
        assert_eq!(verdict(|d| d.key = None, &only_two), Check::Write(2, 1_000));
        assert_eq!(verdict(|d| d.partition = Some(1), &only_two), Check::NotNow);
        assert_eq!(verdict(|d| d.key = None, &Lookup::Unavailable), Check::NotNow);
    }
}
