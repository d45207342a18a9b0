use super::*;
use crate::ask::check;
use crate::dead::list::tests::found;
use protocol::retry::remember;
use runtime::kafka::MAX_MESSAGE_BYTES;
use schemas::command::{DEFAULT_MAX_BODY_BYTES, MAX_ID_BYTES, Rules};
use schemas::delivery::{Letter, dead_headers};
use schemas::due::{Completion, Deliver, DueKind, DueRecord, Made, PastAttempt, RetryOptions};
use schemas::ids::{Generation, RowId, Shard};
use schemas::options::{Backoff, MAX_PROGRESS_BYTES};
use schemas::record::Header;
use schemas::row::RowHistory;

#[test]
fn a_command_is_the_letter_keyed_as_the_other_commands_of_its_task() {
    let mut letter = found("t", 5);
    letter.record.headers.push(Header { name: "own".into(), value: None });
    let record = command(&letter, &"duestream.tasks".into(), "c-1");
    assert_eq!((&*record.topic, record.key.as_deref()), ("duestream.tasks", Some(&b"t"[..])));
    assert_eq!(record.value, letter.record.value);
    assert_eq!((record.headers.len(), record.headers[0].name.as_str()), (4, "own"));
    letter.letter.key = Some(vec![0xff]);
    assert_eq!(command(&letter, &"t".into(), "c").key.as_deref(), Some(&[0xff][..]));
}

#[test]
fn the_largest_letter_is_a_command_that_its_topic_takes() {
    // As long as times get: before the year 2200.
    const LATE_AT: i64 = 7_000_000_000_000;
    let id = || "x".repeat(MAX_ID_BYTES);
    let reason = |n| PastAttempt {
        attempt: n,
        at: LATE_AT,
        outcome: "failed".into(),
        reason: Some("r".repeat(255)),
        made: Some(Made { generation: Generation(u32::MAX), due_at: LATE_AT }),
        ack: Some(RowId(u64::MAX)),
    };
    let mut history = RowHistory::default();
    (1..100).for_each(|n| remember(&mut history, reason(n)));
    let deliver = Deliver {
        attempt: u16::MAX,
        task_id: id(),
        shard_key: Some(id()),
        partition: Some(i32::MAX),
        key: None,
        headers: Vec::new(),
        value: Some(vec![0; DEFAULT_MAX_BODY_BYTES]),
        expires_at: Some(LATE_AT),
        asked_at: Some(LATE_AT),
        completion: Completion::OnAck,
        progress: Some(vec![0; MAX_PROGRESS_BYTES]),
        history: history.attempts,
        bury: None,
        retry: RetryOptions {
            max_attempts: Some(u16::MAX),
            backoff: Some(Backoff::STANDARD),
            ack_timeout_ms: Some(31_536_000_001),
            max_stalls: Some(u16::MAX),
        },
    };
    let due = DueRecord {
        id: RowId(u64::MAX),
        generation: Generation(u32::MAX),
        shard: Shard(u16::MAX),
        due_at: LATE_AT,
        fence: 0,
        callback_topic: "t".repeat(249),
        kind: DueKind::Withdraw,
    };
    let added = dead_headers(&due, &deliver, "attempts_exhausted", "It failed.", LATE_AT);
    let added = added.into_iter().map(|added| Header { name: added.name.into(), value: added.value });
    let mut letter = found("t", 5);
    letter.record.headers = added.collect();
    letter.record.value = deliver.value.clone().map(Into::into);
    letter.letter = Letter::read(&letter.record.headers).unwrap();
    let record = command(&letter, &"duestream.tasks".into(), &"c".repeat(255));
    assert!(record.weight_bytes() < MAX_MESSAGE_BYTES as usize, "{} bytes", record.weight_bytes());
    let read = check(&record, &Rules::new("duestream."), 0);
    assert!(read.is_ok(), "and ingest reads it: {:?}", read.err());
    let due = DueRecord { kind: DueKind::Deliver(Box::new(deliver)), ..due };
    assert!(due.encode().len() < MAX_MESSAGE_BYTES as usize, "so does `due`");
}

fn tally(accepted: u64, not_dead: u64, refused: u64) -> Tally {
    let answers =
        [("accepted", accepted), ("rejected (not_dead)", not_dead), ("rejected (too_large)", refused)];
    let answers = answers.into_iter().filter(|(_, n)| *n > 0).map(|(code, n)| (code.to_owned(), n)).collect();
    Tally { sent: accepted + not_dead + refused, accepted, not_dead, answers, ..Tally::default() }
}

#[test]
fn that_some_were_replayed_before_is_no_failure_and_that_all_were_is() {
    assert!(!tally(0, 0, 0).is_bad());
    assert!(!tally(3, 0, 0).is_bad());
    assert!(!tally(3, 1, 0).is_bad());
    assert!(tally(0, 1, 0).is_bad());
    assert!(tally(3, 0, 1).is_bad());
    assert!(Tally { not_sent: 1, ..tally(3, 0, 0) }.is_bad());
}
