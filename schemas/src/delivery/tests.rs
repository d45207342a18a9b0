use super::*;
use crate::command::{ReasonCode, Refusal};
use crate::due::{Completion, DueKind, PastAttempt};
use crate::ids::{Generation, RowId, Shard};
use crate::row::RowHistory;
use proptest::prelude::*;

fn deliver() -> Deliver {
    Deliver {
        attempt: 2,
        task_id: "t".into(),
        shard_key: None,
        partition: None,
        key: None,
        headers: vec![],
        value: None,
        expires_at: None,
        asked_at: None,
        completion: Completion::OnDelivery,
        progress: None,
        history: vec![],
        bury: None,
    }
}

fn due() -> DueRecord {
    DueRecord {
        id: RowId(18_014_398_509_481_985),
        generation: Generation(3),
        shard: Shard(17),
        due_at: 1_769_850_000_000,
        fence: 0,
        callback_topic: "callbacks".into(),
        kind: DueKind::Withdraw,
    }
}

/// `name=value` of each header.
fn text(headers: &[AddedHeader]) -> Vec<String> {
    let value = |header: &AddedHeader| {
        header.value.as_deref().map_or("null".into(), String::from_utf8_lossy).into_owned()
    };
    headers.iter().map(|header| format!("{}={}", header.name, value(header))).collect()
}

#[test]
fn a_callback_record_says_which_delivery_it_is() {
    let expected = [
        "duestream-task-id=t",
        "duestream-shard-key=t",
        "duestream-attempt=2",
        "duestream-due-at=1769850000000",
        "duestream-delivery-id=17.1769850000000.18014398509481985.3.2",
        "duestream-delivered-at=1769850000007",
    ];
    assert_eq!(text(&delivered_headers(&due(), &deliver(), 1_769_850_000_007)), expected);
}

#[test]
fn what_is_not_always_there_is_added_where_it_is() {
    let spread = Deliver {
        shard_key: Some("s".into()),
        asked_at: Some(1_769_849_999_000),
        progress: Some(b"page 3".to_vec()),
        ..deliver()
    };
    let headers = text(&delivered_headers(&due(), &spread, 0));
    for expected in ["duestream-shard-key=s", "duestream-asked-at=1769849999000", "duestream-progress=page 3"]
    {
        assert!(headers.iter().any(|header| header == expected), "{expected} in {headers:?}");
    }
}

#[test]
fn a_dead_letter_says_all_that_a_replay_needs() {
    let attempts = vec![PastAttempt { attempt: 1, at: 5, outcome: "failed".into(), reason: None }];
    let dead = Deliver { partition: Some(3), expires_at: Some(9), history: attempts.clone(), ..deliver() };
    let headers = dead_headers(&due(), &dead, DeadReason::Expired.as_str(), "it expired", 7);
    let (history, rest): (Vec<_>, Vec<_>) =
        headers.into_iter().partition(|header| header.name == dead::HISTORY);
    assert_eq!(RowHistory::decode(history[0].value.as_ref().unwrap()).unwrap(), RowHistory { attempts });
    let expected = [
        "duestream-task-id=t",
        "duestream-shard-key=t",
        "duestream-attempt=2",
        "duestream-due-at=1769850000000",
        "duestream-delivery-id=17.1769850000000.18014398509481985.3.2",
        "duestream-topic=callbacks",
        "duestream-key=null",
        "duestream-partition=3",
        "duestream-expires-at=9",
        "duestream-dead-reason=expired",
        "duestream-dead-message=it expired",
        "duestream-dead-at=7",
    ];
    assert_eq!(text(&rest), expected);
}

#[test]
fn a_rejected_command_says_why_and_where_it_stood() {
    let refusal = Refusal::of_value(ReasonCode::InvalidTime, "duestream-due-at", b"soon", "is no time");
    let origin = Origin { topic: "tasks", partition: 1, offset: 2, timestamp_at: 3 };
    let headers = text(&rejected_headers(&refusal, &origin));
    let expected = [
        "duestream-rejected-reason=invalid_time".to_owned(),
        "duestream-rejected-field=duestream-due-at".into(),
        format!("duestream-rejected-message={}", refusal.message),
        "duestream-rejected-topic=tasks".into(),
        "duestream-rejected-partition=1".into(),
        "duestream-rejected-offset=2".into(),
        "duestream-rejected-timestamp=3".into(),
    ];
    assert_eq!(headers, expected);
}

#[test]
fn what_is_no_delivery_id_is_refused() {
    for text in [
        "",
        "1",
        "1.2.3.4",
        "1.2.3.4.5.6",
        "1.2.3.4.x",
        "01.2.3.4.5",
        "+1.2.3.4.5",
        "1.2.3.4.65536",
        "1.2.-3.4.5",
        " 1.2.3.4.5",
        "1.2.3.4.5\n",
        "1..3.4.5",
    ] {
        assert!(text.parse::<DeliveryId>().is_err(), "{text:?}");
    }
}

#[test]
fn codes_of_burials_are_distinct_and_read_back() {
    for (place, reason) in DeadReason::ALL.iter().enumerate() {
        assert_eq!(DeadReason::from_code(reason.as_str()), Some(*reason));
        assert_eq!(DeadReason::ALL.iter().position(|other| other.as_str() == reason.as_str()), Some(place));
    }
    // MySQL keeps the place: this list may only grow at its end.
    let places: Vec<_> = DeadReason::ALL.iter().map(|reason| reason.as_str()).collect();
    let shipped = [
        "expired",
        "unknown_topic",
        "unknown_partition",
        "not_authorized",
        "too_large",
        "key_required",
        "invalid_record",
        "attempts_exhausted",
        "failed",
    ];
    assert_eq!(places[..shipped.len()], shipped);
}

proptest! {
    #[test]
    fn a_delivery_id_comes_back(shard: u16, due_at: i64, id: u64, generation: u32, attempt: u16) {
        let (shard, id, generation) = (Shard(shard), RowId(id), Generation(generation));
        let delivery_id = DeliveryId { shard, due_at, id, generation, attempt };
        prop_assert_eq!(delivery_id.to_string().parse(), Ok(delivery_id));
    }

    #[test]
    fn any_text_as_a_delivery_id_never_panics(text in ".{0,60}") {
        if let Ok(id) = text.parse::<DeliveryId>() {
            prop_assert_eq!(id.to_string(), text);
        }
    }
}
