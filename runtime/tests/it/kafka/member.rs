use super::journal_reader::delete_before;
use super::world::{cluster, fill, number, soon, topic, unique};
use runtime::kafka::{
    BatchLimits, KafkaFault, Member, MemberEvent, MemberSettings, PartitionKey, PartitionStream,
};
use std::collections::BTreeMap;
use std::time::Duration;

fn join(group: &str, topic: &str) -> Member {
    Member::join(&cluster(), &MemberSettings::new(group, [topic])).unwrap()
}

/// A member and what it holds, told by its events.
struct Holder {
    member: Member,
    held: BTreeMap<i32, PartitionStream>,
    revoked: Vec<PartitionKey>,
}

impl Holder {
    fn join(group: &str, topic: &str) -> Holder {
        Holder { member: join(group, topic), held: BTreeMap::new(), revoked: Vec::new() }
    }

    async fn step(&mut self) {
        match self.member.event().await.expect("has not left") {
            MemberEvent::Assigned(streams) => {
                for stream in streams {
                    let before = self.held.insert(stream.partition(), stream);
                    assert!(before.is_none(), "assigned twice: {before:?}");
                }
            }
            MemberEvent::Revoked(keys) | MemberEvent::Lost(keys) => {
                for key in keys {
                    assert!(
                        self.held.remove(&key.partition).is_some(),
                        "revoked without being held: {key:?}"
                    );
                    self.revoked.push(key);
                }
            }
            MemberEvent::Trouble(fault) => panic!("{fault}"),
        }
    }

    async fn until(&mut self, partitions: usize) {
        soon("assignment", async {
            while self.held.len() != partitions {
                self.step().await;
            }
        })
        .await;
    }
}

async fn take(stream: &mut PartitionStream, count: usize) -> Vec<i64> {
    let mut out = Vec::new();
    while out.len() < count {
        let record = soon("a record", stream.recv()).await.unwrap().expect("still assigned");
        assert_eq!(record.epoch, stream.epoch());
        out.push(number(&record));
    }
    out
}

#[tokio::test]
async fn nothing_flows_before_the_position_is_given_and_then_it_flows_from_there() {
    let topic = topic("member-start", 1, &[]).await;
    fill(&topic, 0, 0..10).await;
    let mut holder = Holder::join(&unique("member-start"), &topic);
    holder.until(1).await;
    fill(&topic, 0, 10..12).await;
    let stream = holder.held.get_mut(&0).unwrap();
    assert!(stream.recv_now().is_none());
    stream.start(4).await.unwrap();
    assert_eq!(take(stream, 8).await, (4..12).collect::<Vec<_>>());
    stream.start(9).await.unwrap();
    assert_eq!(take(stream, 3).await, [9, 10, 11], "back to an earlier position");
    fill(&topic, 0, 12..14).await;
    assert_eq!(take(stream, 2).await, [12, 13]);
    stream.start(0).await.unwrap();
    assert_eq!(take(stream, 3).await, [0, 1, 2]);
    stream.pause().unwrap();
    assert!(stream.recv_now().is_none(), "what was fetched ahead is gone while paused");
    stream.resume().unwrap();
    assert_eq!(take(stream, 11).await, (3..14).collect::<Vec<_>>(), "and comes again");
    stream.commit_for_lag_tools(14).unwrap();
    holder.member.leave().await;
    assert!(holder.held.get_mut(&0).unwrap().recv().await.unwrap().is_none(), "leaving ends the stream");
}

#[tokio::test]
async fn two_members_share_and_hand_over_with_explicit_positions() {
    let topic = topic("member-share", 4, &[]).await;
    for partition in 0..4 {
        fill(&topic, partition, 0..10).await;
    }
    let group = unique("member-share");
    let mut first = Holder::join(&group, &topic);
    first.until(4).await;
    for stream in first.held.values_mut() {
        stream.start(0).await.unwrap();
        assert_eq!(take(stream, 5).await, [0, 1, 2, 3, 4]);
    }
    let epoch_before = first.held[&0].epoch();

    let mut second = Holder::join(&group, &topic);
    soon("both have two", async {
        while first.held.len() != 2 || second.held.len() != 2 {
            tokio::select! { () = first.step() => {}, () = second.step() => {} }
        }
    })
    .await;
    assert_eq!(first.revoked.len(), 2, "only what moves is revoked");
    for stream in second.held.values_mut() {
        assert!(!first.held.contains_key(&stream.partition()));
        stream.start(5).await.unwrap();
        assert_eq!(take(stream, 5).await, [5, 6, 7, 8, 9]);
    }
    for stream in first.held.values_mut() {
        assert_eq!(take(stream, 5).await, [5, 6, 7, 8, 9], "what stayed was not disturbed");
    }

    let moved: Vec<i32> = second.held.keys().copied().collect();
    second.member.leave().await;
    first.until(4).await;
    for partition in moved {
        let stream = first.held.get_mut(&partition).unwrap();
        assert!(stream.epoch() > epoch_before, "a partition that came back is a new assignment");
        stream.start(8).await.unwrap();
        assert_eq!(take(stream, 2).await, [8, 9]);
    }
    first.member.leave().await;
}

#[tokio::test]
async fn the_stream_of_a_revoked_partition_ends() {
    let topic = topic("member-revoke", 2, &[]).await;
    let group = unique("member-revoke");
    let mut first = Holder::join(&group, &topic);
    first.until(2).await;
    let mut streams = std::mem::take(&mut first.held);
    for stream in streams.values_mut() {
        stream.start(0).await.unwrap();
    }
    let mut second = Holder::join(&group, &topic);
    second.until(1).await;
    let moved = *second.held.keys().next().unwrap();
    let ended = streams.get_mut(&moved).unwrap();
    assert!(soon("the end", ended.recv()).await.unwrap().is_none());
    assert!(!ended.is_assigned());
    assert!(matches!(ended.start(0).await, Err(KafkaFault::NotAssigned { .. })));
    assert!(matches!(ended.pause(), Err(KafkaFault::NotAssigned { .. })));
    assert!(streams[&(1 - moved)].is_assigned());
}

#[tokio::test]
async fn a_position_below_or_above_the_log_is_an_event_and_never_a_guess() {
    for (position, what) in [(2, "below"), (11, "above")] {
        let topic = topic(&format!("member-{what}"), 1, &[]).await;
        fill(&topic, 0, 0..10).await;
        delete_before(&topic, 4).await;
        let mut holder = Holder::join(&unique("member-outside"), &topic);
        holder.until(1).await;
        let stream = holder.held.get_mut(&0).unwrap();
        stream.start(position).await.unwrap();
        match soon("the fault", stream.recv()).await {
            Err(KafkaFault::OutsideLog { position: told, start, end, .. }) => {
                assert_eq!((told, start, end), (position, 4, 10));
            }
            other => panic!("{other:?}"),
        }
        assert!(
            tokio::time::timeout(Duration::from_millis(300), stream.recv()).await.is_err(),
            "stands still"
        );
    }
}

#[tokio::test]
async fn a_partition_that_nobody_reads_holds_up_no_other_and_loses_nothing() {
    let topic = topic("member-pressure", 2, &[]).await;
    let big = vec![b'1'; 20_000];
    let producer = super::world::producer();
    for partition in 0..2 {
        let batch: Vec<_> = (0..200)
            .map(|_| runtime::kafka::OutRecord::to(topic.as_str()).partition(partition).value(big.clone()))
            .collect();
        assert!(producer.send_batch(&batch).await.iter().all(Result::is_ok));
    }
    let mut settings = MemberSettings::new(unique("member-pressure"), [&topic]);
    settings.fetch_buffer_kib = 128;
    let mut holder = Holder {
        member: Member::join(&cluster(), &settings).unwrap(),
        held: BTreeMap::new(),
        revoked: Vec::new(),
    };
    holder.until(2).await;
    for stream in holder.held.values_mut() {
        stream.start(0).await.unwrap();
    }
    for partition in [1, 0] {
        let stream = holder.held.get_mut(&partition).unwrap();
        for offset in 0..200 {
            let what = format!("record {partition}/{offset}");
            let record = soon(&what, stream.recv()).await.unwrap().unwrap();
            assert_eq!((record.partition, record.offset), (partition, offset));
        }
    }
}

#[tokio::test]
async fn a_batch_is_cut_at_its_limits_and_at_its_linger() {
    let topic = topic("member-batch", 1, &[]).await;
    fill(&topic, 0, 0..25).await;
    let mut holder = Holder::join(&unique("member-batch"), &topic);
    holder.until(1).await;
    let stream = holder.held.get_mut(&0).unwrap();
    stream.start(0).await.unwrap();
    let limits = BatchLimits { max_records: 10, max_bytes: 1 << 20, linger: Duration::from_millis(200) };
    let mut sizes = Vec::new();
    let mut all = Vec::new();
    while all.len() < 25 {
        let mut batch = Vec::new();
        assert!(soon("a batch", stream.recv_batch(&mut batch, limits)).await.unwrap());
        sizes.push(batch.len());
        all.extend(batch.iter().map(number));
    }
    assert_eq!(all, (0..25).collect::<Vec<_>>());
    assert_eq!(sizes, [10, 10, 5]);
}

#[tokio::test]
async fn slots_of_an_empty_topic_are_handed_out() {
    let topic = topic("member-slots", 8, &[]).await;
    let group = unique("member-slots");
    let (mut first, mut second) = (Holder::join(&group, &topic), Holder::join(&group, &topic));
    soon("four each", async {
        while first.held.len() != 4 || second.held.len() != 4 {
            tokio::select! { () = first.step() => {}, () = second.step() => {} }
        }
    })
    .await;
    drop(second);
    first.until(8).await;
}

#[tokio::test]
async fn a_missing_topic_is_told() {
    let mut member = join(&unique("member-missing"), &unique("member-nowhere"));
    let event = soon("trouble", member.event()).await;
    assert!(matches!(event, Some(MemberEvent::Trouble(KafkaFault::Refused { .. }))), "{event:?}");
}
