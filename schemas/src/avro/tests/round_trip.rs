//! Whatever a struct holds comes back.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::due::{Completion, Deliver, DueKind, DueRecord, PastAttempt};
use crate::ids::{Generation, RowId, Shard};
use crate::journal::{EntryKind, JournalEntry, JournalKind, JournalRecord, OwnerToken};
use crate::options::tests::any_backoff;
use crate::record::Header;
use crate::row::{RowBody, RowHistory, RowOptions};

fn blob() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(vec(any::<u8>(), 0..40))
}

fn headers() -> impl Strategy<Value = Vec<Header>> {
    vec((".{0,10}", blob()).prop_map(|(name, value)| Header { name, value }), 0..4)
}

fn completion() -> impl Strategy<Value = Completion> {
    prop_oneof![Just(Completion::OnDelivery), Just(Completion::OnAck)]
}

fn history() -> impl Strategy<Value = Vec<PastAttempt>> {
    let past = (any::<u16>(), any::<i64>(), ".{0,10}", option::of(".{0,10}"));
    vec(past.prop_map(|(attempt, at, outcome, reason)| PastAttempt { attempt, at, outcome, reason }), 0..4)
}

fn options() -> impl Strategy<Value = RowOptions> {
    let times = (any::<Option<i32>>(), any::<Option<i64>>(), any::<Option<i64>>());
    let retries =
        (any::<Option<u16>>(), option::of(any_backoff()), any::<Option<i64>>(), any::<Option<u16>>());
    (times, completion(), blob(), retries).prop_map(
        |(
            (partition, expires_at, asked_at),
            completion,
            progress,
            (max_attempts, backoff, ack_timeout_ms, max_stalls),
        )| {
            RowOptions {
                partition,
                expires_at,
                asked_at,
                completion,
                progress,
                max_attempts,
                backoff,
                ack_timeout_ms,
                max_stalls,
            }
        },
    )
}

fn body() -> impl Strategy<Value = RowBody> {
    (blob(), headers(), blob()).prop_map(|(key, headers, value)| RowBody { key, headers, value })
}

fn deliver() -> impl Strategy<Value = DueKind> {
    let names = (any::<u16>(), ".{0,20}", option::of(".{0,20}"), option::of(".{0,10}"));
    (names, body(), options(), history()).prop_map(
        |((attempt, task_id, shard_key, bury), body, options, history)| {
            DueKind::Deliver(Box::new(Deliver {
                attempt,
                task_id,
                shard_key,
                partition: options.partition,
                key: body.key,
                headers: body.headers,
                value: body.value,
                expires_at: options.expires_at,
                asked_at: options.asked_at,
                completion: options.completion,
                progress: options.progress,
                history,
                bury,
            }))
        },
    )
}

fn due() -> impl Strategy<Value = DueRecord> {
    let kind = prop_oneof![4 => deliver(), 1 => Just(DueKind::Withdraw)];
    (any::<u64>(), any::<u32>(), any::<u16>(), any::<i64>(), any::<i64>(), ".{0,20}", kind).prop_map(
        |(id, generation, shard, due_at, fence, callback_topic, kind)| DueRecord {
            id: RowId(id),
            generation: Generation(generation),
            shard: Shard(shard),
            due_at,
            fence,
            callback_topic,
            kind,
        },
    )
}

fn entry() -> impl Strategy<Value = JournalEntry> {
    let kind = prop_oneof![
        Just(EntryKind::Delivered),
        Just(EntryKind::Withdrawn),
        Just(EntryKind::Buried),
        Just(EntryKind::Stale)
    ];
    (kind, any::<u16>(), any::<i64>(), any::<u64>(), any::<u32>(), any::<i64>(), option::of(".{0,10}"))
        .prop_map(|(kind, shard, due_at, id, generation, at, reason)| JournalEntry {
            kind,
            shard: Shard(shard),
            due_at,
            id: RowId(id),
            generation: Generation(generation),
            at,
            reason,
        })
}

fn journal() -> impl Strategy<Value = JournalRecord> {
    let kind = prop_oneof![Just(JournalKind::Barrier), Just(JournalKind::Batch)];
    let numbers = (any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>());
    (any::<u128>(), kind, any::<bool>(), numbers, vec(entry(), 0..5)).prop_map(
        |(token, kind, cold, (backlog, credit, local_at, redis_at), entries)| JournalRecord {
            token: OwnerToken(token),
            kind,
            cold,
            backlog,
            credit,
            local_at,
            redis_at,
            entries,
        },
    )
}

proptest! {
    #[test]
    fn a_due_record_comes_back(record in due()) {
        prop_assert_eq!(DueRecord::decode(&record.encode()).unwrap(), record);
    }

    #[test]
    fn a_journal_record_comes_back(record in journal()) {
        prop_assert_eq!(JournalRecord::decode(&record.encode()).unwrap(), record);
    }

    #[test]
    fn the_blobs_of_a_row_come_back(body in body(), options in options(), attempts in history()) {
        prop_assert_eq!(RowBody::decode(&body.encode()).unwrap(), body);
        prop_assert_eq!(RowOptions::decode(&options.encode()).unwrap(), options);
        let history = RowHistory { attempts };
        prop_assert_eq!(RowHistory::decode(&history.encode()).unwrap(), history);
    }
}
