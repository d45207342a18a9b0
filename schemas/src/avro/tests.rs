use super::wire_due;
use crate::due::*;
use crate::ids::*;
use crate::journal::*;
use crate::record::Header;
use crate::row::*;

#[test]
fn smoke() {
    let d = DueRecord {
        id: RowId(u64::MAX - 5),
        generation: Generation(u32::MAX),
        shard: Shard(63),
        due_at: 1,
        fence: 2,
        callback_topic: "t".into(),
        kind: DueKind::Deliver(Box::new(Deliver {
            attempt: 1,
            task_id: "x".into(),
            shard_key: None,
            partition: Some(3),
            key: Some(vec![]),
            headers: vec![
                Header { name: "a".into(), value: None },
                Header { name: "a".into(), value: Some(vec![0, 1, 255]) },
            ],
            value: Some(vec![1, 2, 3]),
            expires_at: None,
            asked_at: Some(-1),
            completion: Completion::OnAck,
            progress: None,
            history: vec![PastAttempt { attempt: 1, at: 5, outcome: "failed".into(), reason: None }],
            bury: None,
        })),
    };
    assert_eq!(DueRecord::decode(&d.encode()).unwrap(), d);
    let j = JournalRecord {
        token: OwnerToken(u128::MAX - 7),
        kind: JournalKind::Batch,
        cold: true,
        backlog: 1,
        credit: 2,
        local_at: 3,
        redis_at: 4,
        entries: vec![JournalEntry {
            kind: EntryKind::Stale,
            shard: Shard(1),
            due_at: 2,
            id: RowId(9),
            generation: Generation(1),
            at: 5,
            reason: Some("r".into()),
        }],
    };
    assert_eq!(JournalRecord::decode(&j.encode()).unwrap(), j);
    let o = RowOptions {
        partition: None,
        expires_at: Some(1),
        asked_at: None,
        completion: Completion::OnDelivery,
        progress: Some(vec![]),
    };
    assert_eq!(RowOptions::decode(&o.encode()).unwrap(), o);
    assert_eq!(RowBody::decode(&RowBody::default().encode()).unwrap(), RowBody::default());
    let _ = wire_due::VERSIONS;
}
