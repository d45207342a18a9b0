use super::world::{cluster, deadline, fill, number, topic, unique};
use runtime::kafka::{JournalReader, KafkaFault, LaneSettings, OutRecord, Outcome, Report, TxnProducer};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

fn reader(topic: &str) -> JournalReader {
    JournalReader::new(&cluster(), "it-journal", topic).unwrap()
}

fn lane() -> TxnProducer {
    let lane = TxnProducer::exactly_once(&cluster(), &unique("journal"), LaneSettings::default()).unwrap();
    lane.init(deadline(), &|| false).unwrap();
    lane
}

fn write(lane: &mut TxnProducer, topic: &str, values: std::ops::Range<i64>) -> i64 {
    lane.begin().unwrap();
    let mut last = 0;
    for value in values {
        last = lane.send(&OutRecord::to(topic).partition(0).value(value.to_string()));
    }
    assert!(lane.wait_reports(deadline()));
    let Report::Acked(placed) = lane.reports()[last] else { panic!("{:?}", lane.reports()) };
    placed.offset
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_stops_at_the_barrier_and_passes_over_gaps() {
    let topic = topic("journal-barrier", 1, &[]).await;
    let mut lane = lane();
    write(&mut lane, &topic, 0..10);
    assert_eq!(lane.commit(super::world::PATIENCE), Outcome::Committed);
    write(&mut lane, &topic, 10..20);
    assert_eq!(lane.abort(super::world::PATIENCE), Outcome::Aborted);
    let barrier = write(&mut lane, &topic, 20..21);
    assert_eq!(lane.commit(super::world::PATIENCE), Outcome::Committed);
    write(&mut lane, &topic, 21..30);
    assert_eq!(lane.commit(super::world::PATIENCE), Outcome::Committed);

    assert_eq!(barrier, 22, "ten records, a marker, ten aborted, a marker");
    let reader = reader(&topic);
    let read = reader.read_all(0, 5, barrier, deadline()).unwrap();
    assert_eq!(read.iter().map(number).collect::<Vec<_>>(), [5, 6, 7, 8, 9, 20]);
    assert_eq!(read.last().unwrap().offset, barrier);

    // The stretch ends in a gap: it is over when what lies beyond it shows.
    let read = reader.read_all(0, 8, 15, deadline()).unwrap();
    assert_eq!(read.iter().map(number).collect::<Vec<_>>(), [8, 9]);
    assert_eq!(reader.read_all(0, 9, 8, deadline()).unwrap(), []);

    let mut seen = 0;
    let broken_off = reader.read(0, 0, barrier, deadline(), &mut |_| {
        seen += 1;
        if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(broken_off.is_ok() && seen == 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stretch_that_ends_in_the_last_marker_is_read_to_its_end() {
    let topic = topic("journal-tail", 1, &[]).await;
    let mut lane = lane();
    let last = write(&mut lane, &topic, 0..4);
    assert_eq!(lane.commit(super::world::PATIENCE), Outcome::Committed);
    let read = reader(&topic).read_all(0, 0, last + 1, deadline()).unwrap();
    assert_eq!(read.len(), 4, "the marker at {} holds nothing up", last + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_is_waited_for_until_the_deadline() {
    let topic = topic("journal-open", 1, &[]).await;
    let mut open = lane();
    let last = write(&mut open, &topic, 0..4);
    let fault =
        reader(&topic).read_all(0, 0, last, Instant::now() + Duration::from_millis(1500)).unwrap_err();
    assert!(matches!(fault, KafkaFault::Deadline { .. }), "{fault}");
    assert_eq!(open.commit(super::world::PATIENCE), Outcome::Committed);
    assert_eq!(reader(&topic).read_all(0, 0, last, deadline()).unwrap().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_outside_the_log_is_named_and_not_guessed() {
    let topic = topic("journal-outside", 1, &[]).await;
    fill(&topic, 0, 0..10).await;
    delete_before(&topic, 4).await;
    for (from, through) in [(2, 9), (11, 12)] {
        match reader(&topic).read_all(0, from, through, deadline()) {
            Err(KafkaFault::OutsideLog { position, start, end, .. }) => {
                assert_eq!((position, start, end), (from, 4, 10));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(reader(&topic).read_all(0, 4, 9, deadline()).unwrap().len(), 6);
}

pub(super) async fn delete_before(topic: &str, offset: i64) {
    use rdkafka::admin::{AdminClient, AdminOptions};
    let admin: AdminClient<_> = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", std::env::var("KAFKA_BOOTSTRAP").unwrap())
        .create()
        .unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(topic, 0, rdkafka::Offset::Offset(offset)).unwrap();
    admin.delete_records(&list, &AdminOptions::new()).await.unwrap();
}
