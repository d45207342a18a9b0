//! Limits on `control` as dispatchers keep them; ingest's part is played by the test.

use crate::rig::{Rig, due, due_with, header, now_ms};
use runtime::kafka::{OutRecord, Record};
use schemas::control::{ControlKey, TopicLimit, TopicRunning};
use schemas::due::Completion;
use schemas::ids::Slot;
use std::time::Duration;

impl Rig {
    async fn say(&self, key: &[u8], value: Option<Vec<u8>>) {
        let mut record = OutRecord::to(self.names.control()).partition(0).key(key.to_vec());
        record.value = value.map(Into::into);
        self.write(&record).await;
    }

    async fn limit(&self, topic: &str, limit: Option<TopicLimit>) {
        self.say(topic.as_bytes(), limit.map(|limit| limit.encode())).await;
    }

    /// Ingest has applied the journal of slot 0 so far, and counts.
    async fn count(&self, topic: &str, running: i64) {
        let (_, journal_next) = self.admin.watermarks(&self.names.journal(), 0).await.unwrap();
        let key = ControlKey::Running(topic.to_owned(), Slot(0)).to_string();
        self.say(key.as_bytes(), Some(TopicRunning { running, journal_next, at: 0 }.encode())).await;
    }
}

fn delivered_at(record: &Record) -> i64 {
    header(record, "duestream-delivered-at").unwrap().parse().unwrap()
}

/// The most in any stretch of this length.
fn densest(records: &[Record], window_ms: i64) -> usize {
    let mut times: Vec<i64> = records.iter().map(delivered_at).collect();
    times.sort_unstable();
    let within = |from: &i64| times.iter().filter(|at| (*from..*from + window_ms).contains(*at)).count();
    times.iter().map(within).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds_over_two_slots_and_delays_no_other_topic() {
    let rig = Rig::new(2).await;
    let (slow, free) = (rig.callback_topic("slow").await, rig.callback_topic("free").await);
    let limit = TopicLimit { rate: Some("40/s".parse().unwrap()), ..TopicLimit::default() };
    rig.limit(&slow, Some(limit)).await;
    let running = rig.start().await;
    let now = now_ms();
    // Most of it in one slot: it gets most of the rate.
    let herd: Vec<_> = (0..180).map(|id| due(id, &slow, now)).collect();
    rig.emit(0, &herd[..150]).await;
    rig.emit(1, &herd[150..]).await;
    let others: Vec<_> = (1_000..1_040).map(|id| due(id, &free, now + 500)).collect();
    rig.emit(0, &others).await;
    let seen = rig.visible_when(&free, 40).await;
    let late = seen.iter().map(|record| delivered_at(record) - (now + 500)).max().unwrap();
    assert!(late < 2_000, "the other topic is late by {late} ms");

    let seen = rig.visible_when(&slow, 180).await;
    assert_eq!(seen.len(), 180);
    for window_ms in [500, 1_000, 2_000] {
        let (most, rate) = (densest(&seen, window_ms), 40 * usize::try_from(window_ms).unwrap() / 1_000);
        assert!(most <= rate + 40 + 2, "{most} within {window_ms} ms");
    }
    let times = seen.iter().map(delivered_at);
    let took = times.clone().max().unwrap() - times.min().unwrap();
    assert!(took < 12_000, "most of the rate is used: it took {took} ms");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_topic_rests_across_a_restart_and_goes_on_when_it_is_resumed() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    rig.limit(&topic, Some(TopicLimit { paused: true, ..TopicLimit::default() })).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let now = now_ms();
    rig.emit(0, &(0..50).map(|id| due(id, &topic, now)).collect::<Vec<_>>()).await;
    rig.due_pos_when(50).await;
    running.stop().await;
    let running = rig.start().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.visible(&topic).await.len(), 0);
    rig.limit(&topic, None).await;
    assert_eq!(rig.visible_when(&topic, 50).await.len(), 50);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_in_flight_stay_within_their_limit_whoever_owns_the_slot() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    rig.limit(&topic, Some(TopicLimit { in_flight: Some(5), ..TopicLimit::default() })).await;
    let running = rig.start().await;
    rig.count(&topic, 0).await;
    let now = now_ms();
    let acked = |id| due_with(id, &topic, now, |deliver| deliver.completion = Completion::OnAck);
    rig.emit(0, &(0..12).map(acked).collect::<Vec<_>>()).await;
    assert_eq!(rig.visible_when(&topic, 5).await.len(), 5);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.visible(&topic).await.len(), 5, "all of them are in flight");

    running.stop().await;
    let running = rig.start().await;
    rig.count(&topic, 5).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.visible(&topic).await.len(), 5);
    rig.count(&topic, 2).await;
    rig.visible_when(&topic, 8).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_control_is_copied_to_rejected_and_the_limits_hold_on() {
    let rig = Rig::new(1).await;
    rig.topic(&rig.names.rejected(), 1, &[]).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    rig.limit(&topic, Some(TopicLimit { paused: true, ..TopicLimit::default() })).await;
    rig.say(topic.as_bytes(), Some(b"garbage".to_vec())).await;
    rig.say(b"no key of ours", Some(b"x".to_vec())).await;
    let mut kept = rig.visible_when(&rig.names.rejected(), 2).await;
    // Each is copied by itself.
    kept.sort_by_key(|record| record.value.clone());
    assert_eq!(kept[0].value.as_deref(), Some(&b"garbage"[..]));
    assert_eq!(header(&kept[0], "duestream-rejected-reason").as_deref(), Some("foreign_record"));
    rig.emit(0, &[due(1, &topic, now_ms())]).await;
    rig.due_pos_when(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.visible(&topic).await.len(), 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_retries_delays_no_fresh_task_and_can_be_withdrawn() {
    let rig = Rig::new(1).await;
    let topic = rig.callback_topic("calls").await;
    let running = rig.start().await;
    // The topic proves itself first.
    rig.emit(0, &[due(90_000, &topic, now_ms())]).await;
    rig.visible_when(&topic, 1).await;
    let at = now_ms() + 4_000;
    let retries: Vec<_> =
        (0..2_000).map(|id| due_with(id, &topic, at, |deliver| deliver.attempt = 2)).collect();
    let fresh: Vec<_> = (10_000..10_050).map(|id| due(id, &topic, at + 20)).collect();
    rig.emit(0, &retries).await;
    rig.emit(0, &fresh).await;
    rig.emit(0, &retries[..10].iter().map(crate::rig::withdraw).collect::<Vec<_>>()).await;
    let seen = rig.visible_when(&topic, 1 + 1_990 + 50).await;
    assert_eq!(seen.len(), 2_041);
    let (mut of_fresh, mut of_retries) = (Vec::new(), Vec::new());
    for record in &seen {
        let attempt = header(record, "duestream-attempt").unwrap();
        if attempt == "2" {
            of_retries.push(delivered_at(record))
        } else {
            of_fresh.push(delivered_at(record))
        }
    }
    let (last_fresh, last_retry) = (of_fresh.iter().max().unwrap(), of_retries.iter().max().unwrap());
    assert!(
        last_fresh <= last_retry,
        "the storm was over {} ms before the fresh tasks were",
        last_fresh - last_retry
    );
    running.stop().await;
}
