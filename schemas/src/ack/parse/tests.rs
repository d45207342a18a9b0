use super::*;
use crate::command::HeaderView;
use crate::ids::{Generation, RowId, Shard};
use proptest::prelude::*;

const ID: &str = "3.1700000000000.77.2.1";

fn delivery_id() -> DeliveryId {
    DeliveryId {
        shard: Shard(3),
        due_at: 1_700_000_000_000,
        id: RowId(77),
        generation: Generation(2),
        attempt: 1,
    }
}

fn parse(headers: &[(&str, Option<&str>)], value: Option<&[u8]>) -> Result<AckRecord, Refusal> {
    let headers: Vec<HeaderView<'_>> = headers
        .iter()
        .map(|(name, value)| HeaderView { name: name.as_bytes(), value: value.map(str::as_bytes) })
        .collect();
    AckRecord::parse(&RecordView { key: None, value, headers: &headers, timestamp_at: 0 })
}

fn refused(headers: &[(&str, Option<&str>)], value: Option<&[u8]>) -> (ReasonCode, Option<String>) {
    let refusal = parse(headers, value).unwrap_err();
    (refusal.code, refusal.field)
}

fn failed(progress: Option<&[u8]>) -> Ack {
    Ack {
        delivery_id: delivery_id(),
        outcome: AckOutcome::Failed { reason: Some("disk full".into()), permanent: true },
        progress: progress.map(<[u8]>::to_vec),
    }
}

#[test]
fn the_same_ack_is_read_in_three_forms() {
    let ack = failed(Some(b"page 7"));
    let headers = [
        ("duestream-delivery-id", Some(ID)),
        ("duestream-ack", Some("failed")),
        ("duestream-reason", Some("disk full")),
        ("duestream-permanent", Some("true")),
        ("traceparent", Some("00-1-2-3")),
        ("duestream-task-id", Some("copied from the delivery")),
    ];
    let json = format!(
        r#"{{"delivery_id":"{ID}","outcome":"failed","reason":"disk full","permanent":true,"progress":"page 7"}}"#
    );
    let base64 = json.replace(r#""progress":"page 7""#, r#""progress_base64":"cGFnZSA3""#);
    for read in [
        parse(&headers, Some(b"page 7")),
        parse(&[], Some(&ack.encode())),
        parse(&[], Some(json.as_bytes())),
        parse(&[], Some(base64.as_bytes())),
    ] {
        assert_eq!(read, Ok(AckRecord::Ack(ack.clone())));
    }
}

#[test]
fn without_progress_nothing_is_said_of_it() {
    let said = [("duestream-delivery-id", Some(ID)), ("duestream-ack", Some("succeeded"))];
    for value in [None, Some(&b""[..])] {
        let Ok(AckRecord::Ack(ack)) = parse(&said, value) else { panic!("an ack") };
        assert_eq!((ack.outcome, ack.progress), (AckOutcome::Succeeded, None));
    }
}

#[test]
fn a_tick_is_no_ack() {
    assert_eq!(parse(&[(TICK, None)], None), Ok(AckRecord::Tick));
}

#[test]
fn what_is_wrong_is_named() {
    let id = ("duestream-delivery-id", Some(ID));
    let done = ("duestream-ack", Some("succeeded"));
    let of = |headers: &[(&str, Option<&str>)]| refused(headers, None);
    let field = |name: &str| (ReasonCode::InvalidField, Some(name.to_owned()));
    assert_eq!(of(&[done]), field("duestream-delivery-id"));
    assert_eq!(of(&[id]), field("duestream-ack"));
    assert_eq!(of(&[("duestream-delivery-id", Some("7")), done]), field("duestream-delivery-id"));
    assert_eq!(of(&[id, ("duestream-ack", Some("finished"))]), field("duestream-ack"));
    assert_eq!(of(&[id, ("duestream-ack", None)]), field("duestream-ack"));
    assert_eq!(of(&[id, done, ("duestream-reason", Some("none"))]), field("duestream-reason"));
    assert_eq!(of(&[id, done, ("duestream-permanent", Some("true"))]), field("duestream-permanent"));
    assert_eq!(of(&[id, done, ("duestream-permanent", Some("yes"))]), field("duestream-permanent"));
    assert_eq!(of(&[id, done, done]).0, ReasonCode::RepeatedField);
    assert_eq!(of(&[id, done, ("duestream-outcome", Some("x"))]).0, ReasonCode::UnknownField);
    assert_eq!(refused(&[id, done], Some(&[7; 1025])), field("progress"));
    assert!(parse(&[id, done], Some(&[7; 1024])).is_ok());
    assert_eq!(refused(&[], Some(b"hello")).0, ReasonCode::NotACommand);
    assert_eq!(refused(&[], None).0, ReasonCode::NotACommand);
    assert_eq!(refused(&[], Some(&[0, 0, 0, 0, 7, 1])).0, ReasonCode::UnknownSchema);
    assert_eq!(refused(&[], Some(&[0xc3, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9])).0, ReasonCode::UnknownSchema);
    assert_eq!(refused(&[], Some(&failed(None).encode()[..20])).0, ReasonCode::InvalidAvro);
    assert_eq!(refused(&[], Some(b"{\"delivery_id\":1}")).0, ReasonCode::InvalidJson);
    assert_eq!(refused(&[], Some(b"{\"outcomes\":\"x\"}")).0, ReasonCode::InvalidJson);
    let both =
        format!(r#"{{"delivery_id":"{ID}","outcome":"progress","progress":"a","progress_base64":"YQ=="}}"#);
    assert_eq!(refused(&[], Some(both.as_bytes())).0, ReasonCode::RepeatedField);
    let long = Ack { progress: Some(vec![1; 2_000]), ..failed(None) };
    assert_eq!(refused(&[], Some(&long.encode())), field("progress"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(value in proptest::collection::vec(any::<u8>(), 0..64), mark in 0usize..4) {
        let start: &[u8] = [&b""[..], &[0xc3, 1], &[0], b"{"][mark];
        let value = [start, &value].concat();
        drop(parse(&[], Some(&value)));
        drop(parse(&[("duestream-delivery-id", Some(ID)), ("duestream-ack", Some("progress"))], Some(&value)));
    }
}
