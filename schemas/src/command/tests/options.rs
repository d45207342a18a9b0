//! Options of a task, and what it is where it does not say.

use super::*;
use crate::due::Completion;
use crate::options::TaskOptions;

fn on_ack() -> Record {
    by_headers().header("duestream-completion", "on_ack")
}

fn with_defaults(defaults: TaskOptions) -> Rules {
    let elsewhere = TaskOptions { window: "1h".parse().ok(), ..TaskOptions::default() };
    let pattern = |text| TopicPattern::parse(text).unwrap();
    let defaults = vec![(pattern("callbacks"), defaults), (pattern("*"), elsewhere)];
    Rules { defaults, ..Rules::new("duestream.") }
}

#[test]
fn every_option_is_read_in_every_form() {
    let headers = on_ack()
        .header("duestream-max-attempts", "5")
        .header("duestream-backoff", "exponential:1s,cap=1h,jitter=5s")
        .header("duestream-ack-timeout", "10m")
        .header("duestream-max-stalls", "0")
        .header("duestream-spread", "10x10s+5s")
        .header("duestream-window", "1m")
        .parse()
        .unwrap();
    let options = &headers.options;
    assert_eq!(
        (options.completion, options.max_attempts, options.max_stalls),
        (Completion::OnAck, Some(5), Some(0))
    );
    assert_eq!(options.backoff.unwrap().to_string(), "exponential:1s,cap=1h,jitter=5s");
    assert_eq!(options.ack_timeout_ms, Some(600_000));
    assert_eq!((headers.spread, headers.window), ("10x10s+5s".parse().ok(), "1m".parse().ok()));
    let json = by_json(
        r#", "completion": "on_ack", "max_attempts": 5, "backoff": "exponential:1s,cap=60m,jitter=5s",
            "ack_timeout": "PT10M", "max_stalls": "0", "spread": "10x10s+5s", "window": "60s""#,
    );
    assert_eq!(json.parse().unwrap(), headers);
    let text = |text: &str| Some(text.to_owned());
    let avro = TaskCommand {
        completion: text("on_ack"),
        max_attempts: Some(5),
        backoff: text("exponential:1000ms,cap=1h,jitter=5s"),
        ack_timeout: text("10m"),
        max_stalls: Some(0),
        spread: text("10x10s+5s"),
        window: text("1m"),
        ..task_command()
    };
    assert_eq!(by_avro(&avro).parse().unwrap(), headers);
}

#[test]
fn an_option_of_acks_on_a_task_that_waits_for_none_is_refused() {
    for (name, text) in
        [("max-attempts", "3"), ("backoff", "standard"), ("ack-timeout", "1m"), ("max-stalls", "3")]
    {
        let header = format!("duestream-{name}");
        for record in [by_headers(), by_headers().header("duestream-completion", "on_delivery")] {
            let refusal = record.header(&header, text).refusal();
            assert_eq!(
                (refusal.code, refusal.field.as_deref()),
                (ReasonCode::NotOnAck, Some(header.as_str()))
            );
        }
        assert!(on_ack().header(&header, text).parse().is_ok());
        // Where the topic's tasks wait for acks anyway, the word is not needed.
        let rules =
            with_defaults(TaskOptions { completion: Some(Completion::OnAck), ..TaskOptions::default() });
        assert!(by_headers().header(&header, text).parse_with(&rules).is_ok());
        let said = by_headers().header("duestream-completion", "on_delivery").header(&header, text);
        assert_eq!(said.parse_with(&rules).unwrap_err().code, ReasonCode::NotOnAck);
    }
}

#[test]
fn what_a_task_does_not_say_is_as_its_topic_has_it() {
    let rules = with_defaults(TaskOptions {
        completion: Some(Completion::OnAck),
        max_attempts: Some(3),
        ack_timeout_ms: Some(60_000),
        spread: "10x10s+5s".parse().ok(),
        ..TaskOptions::default()
    });
    let plain = by_headers().parse_with(&rules).unwrap();
    assert_eq!((plain.options.completion, plain.options.max_attempts), (Completion::OnAck, Some(3)));
    assert_eq!(
        (plain.spread, plain.window),
        ("10x10s+5s".parse().ok(), None),
        "the first that matches, alone"
    );
    let own = by_headers()
        .header("duestream-max-attempts", "9")
        .header("duestream-window", "0s")
        .parse_with(&rules)
        .unwrap();
    assert_eq!((own.options.max_attempts, own.options.ack_timeout_ms), (Some(9), Some(60_000)));
    assert_eq!((own.spread, own.window), (None, "0s".parse().ok()));
    // Options of acks are not kept for a task that waits for none.
    let delivered = by_headers().header("duestream-completion", "on_delivery").parse_with(&rules).unwrap();
    assert_eq!(
        (delivered.options.completion, delivered.options.max_attempts),
        (Completion::OnDelivery, None)
    );
    let other = Record::default().header("duestream-delay", "90s").header("duestream-topic", "elsewhere");
    assert_eq!(other.parse_with(&rules).unwrap().window, "1h".parse().ok());
}
