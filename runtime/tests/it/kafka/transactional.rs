use super::world::{PATIENCE, cluster, deadline, topic, unique};
use runtime::kafka::{
    Cluster, JournalReader, KafkaFault, LaneSettings, OutRecord, Outcome, Refusal, Report, SendFault,
    TxnProducer,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn lane(id: &str) -> TxnProducer {
    TxnProducer::exactly_once(&cluster(), id, LaneSettings::default()).unwrap()
}

fn initialised(id: &str) -> TxnProducer {
    let lane = lane(id);
    lane.init(deadline(), &|| false).unwrap();
    lane
}

fn record(topic: &str, value: &str) -> OutRecord {
    OutRecord::to(topic).partition(0).value(value.to_owned())
}

/// Until decided, as the outcome rule has it.
fn settled(mut call: impl FnMut() -> Outcome) -> Outcome {
    let deadline = deadline();
    loop {
        match call() {
            Outcome::Retriable(_) if Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

fn visible(topic: &str, through: i64) -> Vec<String> {
    let reader = JournalReader::new(&cluster(), "it-visible", topic).unwrap();
    let records = reader.read_all(0, 0, through, deadline()).unwrap();
    records.iter().map(|r| String::from_utf8(r.value.as_ref().unwrap().to_vec()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_record_is_invisible_to_who_reads_committed() {
    let topic = topic("txn-abort", 1, &[]).await;
    let mut lane = initialised(&unique("txn-abort"));
    for (value, commit) in [("first", true), ("never", false), ("last", true)] {
        lane.begin().unwrap();
        let index = lane.send(&record(&topic, value));
        assert!(lane.wait_reports(deadline()));
        assert!(matches!(lane.reports()[index], Report::Acked(_)), "{:?}", lane.reports());
        if commit {
            assert_eq!(settled(|| lane.commit(PATIENCE)), Outcome::Committed);
        } else {
            assert_eq!(settled(|| lane.abort(PATIENCE)), Outcome::Aborted);
        }
    }
    // Each transaction is a record and a marker.
    assert_eq!(visible(&topic, 4), ["first", "last"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_owner_fences_the_first_and_its_open_transaction_is_aborted() {
    let topic = topic("txn-fence", 1, &[]).await;
    let id = unique("txn-fence");
    let mut first = initialised(&id);
    first.begin().unwrap();
    first.send(&record(&topic, "zombie"));
    assert!(first.wait_reports(deadline()));

    let mut second = initialised(&id);
    second.begin().unwrap();
    second.send(&record(&topic, "owner"));
    assert_eq!(settled(|| second.commit(PATIENCE)), Outcome::Committed);

    let outcome = settled(|| first.commit(PATIENCE));
    assert!(matches!(outcome, Outcome::Fenced(_)), "{outcome:?}");
    assert!(matches!(first.begin(), Err(KafkaFault::Fenced { .. } | KafkaFault::Fatal { .. })));
    // 0 the zombie's record, 1 its abort marker, 2 the owner's.
    assert_eq!(visible(&topic, 2), ["owner"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_owners_records_fail_as_fenced() {
    let topic = topic("txn-fence-send", 1, &[]).await;
    let id = unique("txn-fence-send");
    let mut first = initialised(&id);
    first.begin().unwrap();
    first.send(&record(&topic, "before"));
    assert!(first.wait_reports(deadline()));
    let _second = initialised(&id);
    let index = first.send(&record(&topic, "after"));
    assert!(first.wait_reports(deadline()));
    let report = first.reports()[index].clone();
    assert!(matches!(report, Report::Failed(SendFault::Fenced(_) | SendFault::Fatal(_))), "{report:?}");
    let outcome = settled(|| first.commit(PATIENCE));
    assert!(matches!(outcome, Outcome::Fenced(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_is_the_culprit_and_the_abort_is_certain() {
    let topic = topic("txn-missing", 1, &[]).await;
    let mut lane = initialised(&unique("txn-missing"));
    lane.begin().unwrap();
    let healthy = lane.send(&record(&topic, "healthy"));
    let missing = lane.send(&record(&unique("txn-nowhere"), "lost"));
    let partition = lane.send(&record(&topic, "x").partition(7));
    assert!(lane.wait_reports(deadline()));
    let reports = lane.reports();
    assert_eq!(reports[missing], Report::Failed(SendFault::Permanent(Refusal::UnknownTopic)));
    assert_eq!(reports[partition], Report::Failed(SendFault::Permanent(Refusal::UnknownPartition)));
    assert!(
        matches!(reports[healthy], Report::Acked(_) | Report::Failed(SendFault::Purged)),
        "the healthy one is no culprit: {:?}",
        reports[healthy]
    );
    assert_eq!(settled(|| lane.abort(PATIENCE)), Outcome::Aborted);

    lane.begin().unwrap();
    lane.send(&record(&topic, "healthy again"));
    assert_eq!(settled(|| lane.commit(PATIENCE)), Outcome::Committed);
    let end = super::world::admin().watermarks(&topic, 0).await.unwrap().1;
    assert_eq!(visible(&topic, end - 1), ["healthy again"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_too_large_is_permanent() {
    let topic = topic("txn-large", 1, &[("max.message.bytes", "20000")]).await;
    let mut lane = initialised(&unique("txn-large"));
    lane.begin().unwrap();
    lane.send(&OutRecord::to(topic.as_str()).partition(0).value(vec![1; 30_000]));
    assert!(lane.wait_reports(deadline()));
    assert_eq!(lane.reports(), [Report::Failed(SendFault::Permanent(Refusal::TooLarge))]);
    assert!(!lane.all_acked());
    assert_eq!(settled(|| lane.abort(PATIENCE)), Outcome::Aborted);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_transaction_commits() {
    let mut lane = initialised(&unique("txn-empty"));
    lane.begin().unwrap();
    assert!(lane.wait_reports(deadline()));
    assert_eq!(settled(|| lane.commit(PATIENCE)), Outcome::Committed);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_absent_brokers_ends_when_told_to() {
    let nowhere = Cluster::new("127.0.0.1:1", BTreeMap::new(), "runtime-tests");
    let lane = TxnProducer::exactly_once(&nowhere, &unique("txn-nowhere"), LaneSettings::default()).unwrap();
    let cancelled = lane.init(deadline(), &|| true);
    assert!(matches!(cancelled, Err(KafkaFault::Cancelled { .. })), "{cancelled:?}");
    let late = lane.init(Instant::now() + Duration::from_millis(100), &|| false);
    assert!(matches!(late, Err(KafkaFault::Deadline { .. })), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_calls_work_without_transactions() {
    let topic = topic("txn-plain", 1, &[]).await;
    let mut lane = TxnProducer::at_least_once(&cluster(), LaneSettings::default()).unwrap();
    lane.init(deadline(), &|| false).unwrap();
    lane.begin().unwrap();
    lane.send(&record(&topic, "a"));
    assert_eq!(settled(|| lane.commit(PATIENCE)), Outcome::Committed);
    lane.begin().unwrap();
    lane.send(&record(&unique("txn-nowhere"), "b"));
    let outcome = settled(|| lane.commit(PATIENCE));
    assert!(matches!(outcome, Outcome::Abortable(_)), "{outcome:?}");
    assert_eq!(settled(|| lane.abort(PATIENCE)), Outcome::Aborted);
    assert_eq!(visible(&topic, 0), ["a"]);
}
