//! Members come and go while records flow; positions live outside Kafka, as they do in MySQL.

use super::world::{cluster, fill, number, topic, unique};
use runtime::kafka::{Member, MemberEvent, MemberSettings, PartitionStream};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PARTITIONS: i32 = 4;
const RECORDS: i64 = 2_000;

/// The positions, moved by compare-and-set, and what was applied under them.
#[derive(Default)]
struct Store {
    next: [AtomicI64; PARTITIONS as usize],
    applied: [Mutex<Vec<i64>>; PARTITIONS as usize],
}

impl Store {
    fn done(&self) -> bool {
        self.next.iter().all(|next| next.load(Ordering::SeqCst) == RECORDS)
    }
}

/// Applies a partition's records until it is revoked or somebody else has moved its position.
async fn apply(store: Arc<Store>, mut stream: PartitionStream) {
    let partition = usize::try_from(stream.partition()).unwrap();
    let mut next = store.next[partition].load(Ordering::SeqCst);
    if stream.start(next).await.is_err() {
        return;
    }
    while let Ok(Some(record)) = stream.recv().await {
        assert_eq!(
            record.offset, next,
            "partition {partition}: neither a gap nor a record twice within a stream"
        );
        let moved =
            store.next[partition].compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst);
        if moved.is_err() {
            return;
        }
        store.applied[partition].lock().unwrap().push(number(&record));
        next += 1;
        if next % 20 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn work(store: Arc<Store>, group: String, topic: String, stop: Arc<AtomicBool>) {
    let mut member = Member::join(&cluster(), &MemberSettings::new(group, [topic])).unwrap();
    while !stop.load(Ordering::SeqCst) {
        match tokio::time::timeout(Duration::from_millis(20), member.event()).await {
            Ok(Some(MemberEvent::Assigned(streams))) => {
                for stream in streams {
                    tokio::spawn(apply(store.clone(), stream));
                }
            }
            Ok(Some(MemberEvent::Trouble(fault))) => panic!("{fault}"),
            Ok(Some(MemberEvent::Revoked(_) | MemberEvent::Lost(_))) | Err(_) => {}
            Ok(None) => return,
        }
    }
    member.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_come_and_go_apply_every_record_once_and_in_order() {
    let topic = topic("storm", PARTITIONS, &[]).await;
    for partition in 0..PARTITIONS {
        fill(&topic, partition, 0..RECORDS).await;
    }
    let store = Arc::new(Store::default());
    let group = unique("storm");
    let mut workers = Vec::new();
    let deadline = super::world::deadline();
    let mut rounds = 0;
    while !store.done() {
        assert!(std::time::Instant::now() < deadline, "positions {:?} after {rounds} rounds", store.next);
        if workers.len() < 3 {
            let stop = Arc::new(AtomicBool::new(false));
            let worker = work(store.clone(), group.clone(), topic.clone(), stop.clone());
            workers.push((stop, tokio::spawn(worker)));
        } else {
            // The oldest leaves: it holds the most.
            let (stop, worker) = workers.remove(0);
            stop.store(true, Ordering::SeqCst);
            worker.await.unwrap();
        }
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    for (stop, worker) in workers {
        stop.store(true, Ordering::SeqCst);
        worker.await.unwrap();
    }
    for applied in &store.applied {
        assert_eq!(*applied.lock().unwrap(), (0..RECORDS).collect::<Vec<_>>());
    }
    assert!(rounds > 3, "only {rounds} rounds: no storm");
}
