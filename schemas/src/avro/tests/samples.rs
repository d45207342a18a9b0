//! One sample for each way in which a record can be filled. Golden bytes depend on them: never change one, add another.

use crate::ack::{Ack, AckOutcome};
use crate::avro::ReadReply;
use crate::command::{AvroTime, Command, KnownSchemas, ReasonCode, RecordView, Refusal, Rules, TaskCommand};
use crate::delivery::{DeliveryId, Origin};
use crate::due::{Completion, Deliver, DueKind, DueRecord, PastAttempt};
use crate::ids::{Generation, RowId, Shard, SourceId};
use crate::journal::{EntryKind, JournalEntry, JournalKind, JournalRecord, OwnerToken};
use crate::options::{Backoff, Growth};
use crate::record::Header;
use crate::reply::{Answer, Reply};
use crate::row::{RowBody, RowHistory, RowOptions};

fn id() -> RowId {
    RowId::pack(SourceId(1000), 7, 1 << 41).unwrap()
}

fn headers() -> Vec<Header> {
    let header = |name: &str, value: Option<&[u8]>| Header { name: name.into(), value: value.map(Vec::from) };
    vec![
        header("traceparent", Some(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
        header("repeated", Some(b"one")),
        header("repeated", Some(b"")),
        header("repeated", None),
        header("bytes", Some(&[0, 0xff, 0xc3, 0x01])),
    ]
}

fn history() -> Vec<PastAttempt> {
    vec![
        PastAttempt { attempt: 1, at: 1_769_850_000_123, outcome: "stalled".into(), reason: None },
        PastAttempt {
            attempt: 2,
            at: 1_769_850_120_456,
            outcome: "failed".into(),
            reason: Some("räum auf".into()),
        },
    ]
}

/// A due record of a plain task.
pub(super) fn due_deliver_least() -> DueRecord {
    DueRecord {
        id: RowId(1),
        generation: Generation(1),
        shard: Shard(0),
        due_at: 1_769_850_000_000,
        fence: 0,
        callback_topic: "callbacks".into(),
        kind: DueKind::Deliver(Box::new(Deliver {
            attempt: 1,
            task_id: "1".into(),
            shard_key: None,
            partition: None,
            key: None,
            headers: Vec::new(),
            value: None,
            expires_at: None,
            asked_at: None,
            completion: Completion::OnDelivery,
            progress: None,
            history: Vec::new(),
            bury: None,
        })),
    }
}

/// A due record with every field set.
pub(super) fn due_deliver_most() -> DueRecord {
    DueRecord {
        id: id(),
        generation: Generation(u32::MAX),
        shard: Shard(u16::MAX),
        due_at: -1,
        fence: i64::MAX,
        callback_topic: "orders.reminder".into(),
        kind: DueKind::Deliver(Box::new(Deliver {
            attempt: u16::MAX,
            task_id: "bestellung-4711-ä".into(),
            shard_key: Some("kunde-12".into()),
            partition: Some(5),
            key: Some(b"4711".to_vec()),
            headers: headers(),
            value: Some(vec![0, 1, 2, 0xfe, 0xff]),
            expires_at: Some(1_769_853_600_000),
            asked_at: Some(1_769_849_999_000),
            completion: Completion::OnAck,
            progress: Some(b"{\"page\":3}".to_vec()),
            history: history(),
            bury: Some("attempts_exhausted".into()),
        })),
    }
}

/// A withdraw.
pub(super) fn due_withdraw() -> DueRecord {
    DueRecord { id: id(), kind: DueKind::Withdraw, fence: 12_345, ..due_deliver_least() }
}

/// The first record of an owner.
pub(super) fn journal_barrier() -> JournalRecord {
    JournalRecord {
        token: OwnerToken(0x0123_4567_89ab_cdef_0011_2233_4455_6677),
        kind: JournalKind::Barrier,
        cold: true,
        backlog: 0,
        credit: 100_000,
        local_at: 1_769_850_000_000,
        redis_at: 1_769_850_000_003,
        entries: Vec::new(),
    }
}

/// A batch with an entry of each kind.
pub(super) fn journal_batch() -> JournalRecord {
    let entry = |kind, reason: Option<&str>| JournalEntry {
        kind,
        shard: Shard(63),
        due_at: 1_769_850_000_000,
        id: id(),
        generation: Generation(3),
        at: 1_769_850_000_009,
        reason: reason.map(str::to_owned),
    };
    JournalRecord {
        kind: JournalKind::Batch,
        cold: false,
        backlog: 17,
        entries: vec![
            entry(EntryKind::Delivered, None),
            entry(EntryKind::Withdrawn, None),
            entry(EntryKind::Buried, Some("expired")),
            entry(EntryKind::Stale, None),
        ],
        ..journal_barrier()
    }
}

/// Nothing at all: a tombstone.
pub(super) fn body_least() -> RowBody {
    RowBody::default()
}

/// Key, headers and value.
pub(super) fn body_most() -> RowBody {
    RowBody { key: Some(Vec::new()), headers: headers(), value: Some(b"hello".to_vec()) }
}

/// Defaults.
pub(super) fn options_least() -> RowOptions {
    RowOptions {
        partition: None,
        expires_at: None,
        asked_at: None,
        completion: Completion::OnDelivery,
        ..RowOptions::default()
    }
}

/// Every option set.
pub(super) fn options_most() -> RowOptions {
    RowOptions {
        partition: Some(i32::MAX),
        expires_at: Some(i64::MAX),
        asked_at: Some(i64::MIN),
        completion: Completion::OnAck,
        progress: Some(vec![0xff]),
        ..RowOptions::default()
    }
}

/// Every option of version 2 set.
pub(super) fn options_retried() -> RowOptions {
    RowOptions {
        max_attempts: Some(u16::MAX),
        backoff: Some(Backoff {
            growth: Growth::Exponential,
            step_ms: 1_500,
            cap_ms: Some(3_600_000),
            jitter_ms: 1,
        }),
        ack_timeout_ms: Some(i64::MAX),
        max_stalls: Some(0),
        ..options_most()
    }
}

/// Two attempts.
pub(super) fn history_two() -> RowHistory {
    RowHistory { attempts: history() }
}

fn delivery_id() -> DeliveryId {
    DeliveryId {
        shard: Shard(63),
        due_at: 1_769_850_000_000,
        id: id(),
        generation: Generation(3),
        attempt: 2,
    }
}

/// A consumer that is at work and says how far.
pub(super) fn ack_progress() -> Ack {
    Ack { delivery_id: delivery_id(), outcome: AckOutcome::Progress, progress: Some(vec![0, 0xff]) }
}

/// The least ack.
pub(super) fn ack_succeeded() -> Ack {
    Ack { delivery_id: delivery_id(), outcome: AckOutcome::Succeeded, progress: None }
}

/// An ack with all there is.
pub(super) fn ack_failed() -> Ack {
    let outcome = AckOutcome::Failed { reason: Some("räum auf".into()), permanent: true };
    Ack { delivery_id: delivery_id(), outcome, progress: Some(Vec::new()) }
}

/// A reply to a command that was accepted.
pub(super) fn reply_accepted() -> ReadReply {
    ReadReply {
        answer: "accepted".into(),
        correlation: Some(vec![0, 0xff]),
        task_id: Some("bestellung-4711".into()),
        shard_key: Some("kunde-12".into()),
        due_at: Some(1_769_850_000_000),
        ..reply_least()
    }
}

/// A reply to a command that was refused.
pub(super) fn reply_refused() -> ReadReply {
    let refusal = refusal();
    ReadReply {
        correlation: Some(b"c-1".to_vec()),
        task_id: Some("t".into()),
        shard_key: Some("t".into()),
        reason: Some("invalid_time".into()),
        field: refusal.field,
        message: Some(refusal.message),
        ..reply_least()
    }
}

/// A reply to a command that could not be read.
pub(super) fn reply_least() -> ReadReply {
    ReadReply {
        answer: "rejected".into(),
        correlation: None,
        task_id: None,
        shard_key: None,
        due_at: None,
        reason: None,
        field: None,
        message: None,
        topic: "duestream.tasks".into(),
        partition: 7,
        offset: 1 << 41,
    }
}

fn refusal() -> Refusal {
    // Not by `Refusal::of_value`: remedies may be worded better one day, golden bytes never change.
    let message = "due_at \"morgen früh\" is no time; write it otherwise".to_owned();
    Refusal { code: ReasonCode::InvalidTime, field: Some("due_at".into()), message }
}

/// Writes a reply that says what a sample says.
pub(super) fn encode_reply(sample: &ReadReply) -> Vec<u8> {
    let refusal = sample.reason.as_ref().map(|_| refusal());
    let reply = Reply {
        answer: Answer::from_code(&sample.answer).unwrap(),
        task_id: sample.task_id.as_deref(),
        shard_key: sample.shard_key.as_deref(),
        due_at: sample.due_at,
        refusal: refusal.as_ref(),
        correlation: sample.correlation.as_deref(),
        origin: Origin {
            topic: &sample.topic,
            partition: sample.partition,
            offset: sample.offset,
            timestamp_at: 0,
        },
    };
    reply.value(true)
}

/// A command with nothing but what it needs.
pub(super) fn command_least() -> TaskCommand {
    TaskCommand { delay: Some("90s".into()), topic: Some("callbacks".into()), ..TaskCommand::default() }
}

/// A command with every field that a schedule may have.
pub(super) fn command_most() -> TaskCommand {
    TaskCommand {
        op: Some("schedule".into()),
        due_at: Some(AvroTime::Ms(1_769_850_000_000)),
        topic: Some("callbacks".into()),
        task_id: Some("bestellung-4711".into()),
        shard_key: Some("kunde-12".into()),
        key: Some(vec![0, 0xff]),
        no_key: Some(false),
        value: Some(b"\xc3\x01{\"a\": 1}".to_vec()),
        headers: headers(),
        partition: Some(i32::MAX),
        expires_at: Some(AvroTime::Text("2027-01-01T00:00:00+01:00".into())),
        completion: Some("on_delivery".into()),
        reply: Some(true),
        correlation: Some(vec![0, 0xff]),
        ..TaskCommand::default()
    }
}

/// What the parser makes of a value.
pub(super) fn parsed(value: &[u8]) -> Command {
    let record =
        RecordView { key: Some(b"k"), value: Some(value), headers: &[], timestamp_at: 1_769_000_000_000 };
    Command::parse(&record, &Rules::new("duestream."), &KnownSchemas::shipped()).unwrap()
}
