//! Whether a callback record can be written at all, and to which partition. What is sure to fail never enters a
//! transaction, where it would take its neighbours down with it.

use schemas::delivery::DeadReason;
use schemas::due::Deliver;
use schemas::record::Header;

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
pub(super) fn check(deliver: &Deliver, lookup: &Lookup, sticky: usize) -> Check {
    let facts = match lookup {
        Lookup::Known(facts) if facts.partitions > 0 => facts,
        Lookup::Unknown => return Check::Never(DeadReason::UnknownTopic),
        Lookup::Denied => return Check::Never(DeadReason::NotAuthorized),
        Lookup::Known(_) | Lookup::Unavailable => return Check::NotNow,
    };
    if facts.compacted && deliver.key.is_none() {
        return Check::Never(DeadReason::KeyRequired);
    }
    if wire_bytes(deliver) > facts.max_message_bytes {
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

/// Bytes of the record batch that holds nothing but this record, from below: what is estimated too small is refused by the
/// broker and buried then, what were estimated too large would be buried without need.
pub fn wire_bytes(deliver: &Deliver) -> usize {
    const BATCH_HEADER: usize = 61;
    /// Our own headers without the texts: names, times, delivery id.
    const OWN_HEADERS: usize = 160;
    let header = |header: &Header| header.name.len() + header.value.as_ref().map_or(0, Vec::len) + 2;
    BATCH_HEADER
        + OWN_HEADERS
        + deliver.key.as_ref().map_or(0, Vec::len)
        + deliver.value.as_ref().map_or(0, Vec::len)
        + deliver.headers.iter().map(header).sum::<usize>()
        + deliver.task_id.len()
        + deliver.shard_key.as_ref().map_or(0, String::len)
        + deliver.progress.as_ref().map_or(0, Vec::len)
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

    fn facts() -> Facts {
        Facts { partitions: 3, leaderless: vec![], max_message_bytes: 1_000, compacted: false }
    }

    fn verdict(change: impl FnOnce(&mut Deliver), lookup: &Lookup) -> Check {
        let mut record = deliver_record(1, "a", 0, 0);
        let DueKind::Deliver(deliver) = &mut record.kind else { unreachable!("made as deliver") };
        change(deliver);
        let deliver = deliver.clone();
        check(&deliver, lookup, 1)
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
