//! A broker, topics of our own, and waiting with a deadline.

use runtime::kafka::{Admin, BatchProducer, BatchSettings, Cluster, OutRecord, Placed, TopicSpec};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// Longest time anything may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

pub(super) fn cluster() -> Cluster {
    let bootstrap =
        std::env::var("KAFKA_BOOTSTRAP").expect("KAFKA_BOOTSTRAP is not set: run the tests by ./dev test");
    Cluster::new(bootstrap, BTreeMap::new(), "runtime-tests")
}

pub(super) fn admin() -> Admin {
    Admin::new(&cluster()).unwrap().within(PATIENCE)
}

/// A name that no other test and no other run has.
pub(super) fn unique(what: &str) -> String {
    format!("it-{what}-{:016x}", RandomState::new().build_hasher().finish())
}

pub(super) fn spec(name: &str, partitions: i32, config: &[(&str, &str)]) -> TopicSpec {
    let config = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    TopicSpec { name: name.to_owned(), partitions, replication: 1, config }
}

/// A new topic whose partitions all have leaders.
pub(super) async fn topic(what: &str, partitions: i32, config: &[(&str, &str)]) -> String {
    let name = unique(what);
    for (_, created) in admin().create_topics(&[spec(&name, partitions, config)]).await.unwrap() {
        created.unwrap();
    }
    let led = async {
        loop {
            let info = admin().topic(&name).await.unwrap();
            if info.is_some_and(|t| t.partition_count() == partitions && t.has_leaders()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("leaders of a new topic", led).await;
    name
}

/// The value, or a failure that says what was waited for.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

pub(super) fn producer() -> BatchProducer {
    BatchProducer::new(&cluster(), &BatchSettings::new("test")).unwrap()
}

/// Writes values `from..to` as text to one partition.
pub(super) async fn fill(topic: &str, partition: i32, values: std::ops::Range<i64>) -> Vec<Placed> {
    let records: Vec<_> =
        values.map(|i| OutRecord::to(topic).partition(partition).value(i.to_string())).collect();
    producer().send_batch(&records).await.into_iter().map(|r| r.unwrap()).collect()
}

/// The number that `fill` wrote.
pub(super) fn number(record: &runtime::kafka::Record) -> i64 {
    std::str::from_utf8(record.value.as_ref().unwrap()).unwrap().parse().unwrap()
}
