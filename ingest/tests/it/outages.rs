//! Servers go and come back; nobody has to restart ingest.

use crate::pipeline::{Pipeline, now_ms};
use runtime::kafka::OutRecord;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const HOUR_MS: i64 = 3_600_000;

/// A road to MySQL that can be cut.
struct Road {
    address: SocketAddr,
    target: String,
    cut: std::sync::Mutex<Option<CancellationToken>>,
    tasks: TaskTracker,
}

impl Road {
    async fn to(target: String) -> Arc<Road> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let road =
            Arc::new(Road { address, target, cut: std::sync::Mutex::new(None), tasks: TaskTracker::new() });
        road.open(listener);
        road
    }

    fn open(self: &Arc<Road>, listener: TcpListener) {
        let cut = CancellationToken::new();
        *self.cut.lock().unwrap() = Some(cut.clone());
        let (target, tasks) = (self.target.clone(), self.tasks.clone());
        self.tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = cut.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let (mut near, _) = accepted.unwrap();
                let (target, cut) = (target.clone(), cut.clone());
                tasks.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        () = cut.cancelled() => {}
                        copied = tokio::io::copy_bidirectional(&mut near, &mut far) => drop(copied),
                    }
                });
            }
        });
    }

    /// Every connection breaks, and none can be made.
    fn cut(&self) {
        self.cut.lock().unwrap().take().unwrap().cancel();
    }

    async fn mend(self: &Arc<Road>) {
        let listener =
            crate::pipeline::until("the port is free again", || TcpListener::bind(self.address)).await;
        self.open(listener);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_goes_and_comes_back_and_everything_is_applied() {
    let pipeline = Pipeline::new().await;
    let server = pipeline.test.url.split_once('@').unwrap().1.split_once('/').unwrap().0.to_owned();
    let road = Road::to(server.clone()).await;
    let url = pipeline.test.url.replace(&server, &road.address.to_string());
    let ingest = pipeline.ingest_on(&url, "");
    ingest.ready().await;
    let due_at = now_ms() + HOUR_MS;
    pipeline.submit((0..50).map(|n| pipeline.task(&format!("before {n}"), due_at)).collect()).await;
    pipeline.confirmed(&pipeline.names.tasks(), 50).await;

    road.cut();
    pipeline.submit((0..50).map(|n| pipeline.task(&format!("meanwhile {n}"), due_at)).collect()).await;
    ingest.unready("mysql").await;
    assert!(!ingest.token().is_cancelled(), "an outage is waited out");
    road.mend().await;
    pipeline.confirmed(&pipeline.names.tasks(), 100).await;
    ingest.ready().await;
    assert_eq!(pipeline.tasks().await.len(), 100);

    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tasks_topic_that_was_created_again_gets_a_new_number() {
    let pipeline = Pipeline::new().await;
    let ingest = pipeline.ingest("[confirm]\ntopic_check = \"100ms\"\n");
    let due_at = now_ms() + HOUR_MS;
    pipeline.submit(vec![pipeline.task("of the first", due_at)]).await;
    let tasks = pipeline.names.tasks();
    pipeline.confirmed(&tasks, 1).await;
    pipeline.delete_topic(&tasks).await;
    pipeline.create_source(&tasks, 2).await;
    pipeline.submit(vec![pipeline.task("of the second", due_at)]).await;
    crate::pipeline::until("the new topic is read", || async {
        let stored = pipeline.tasks().await;
        if stored.len() == 2 { Ok(()) } else { Err(stored) }
    })
    .await;
    let stored = pipeline.tasks().await;
    let (first, second) = (stored["of the first"].id, stored["of the second"].id);
    assert_eq!((first.offset(), second.offset()), (0, 0), "the same coordinates …");
    assert_ne!(first.source(), second.source(), "… of another source");
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_created_again_and_filled_is_not_read_under_its_old_number() {
    let pipeline = Pipeline::new().await;
    // The partition stands still and looks again twice before the topic's id is compared.
    let ingest = pipeline.ingest("[confirm]\ntopic_check = \"25s\"\n");
    let unnamed = |n: usize| {
        OutRecord::to("")
            .value(n.to_string())
            .header("duestream-topic", pipeline.callback.as_str())
            .header("duestream-due-at", (now_ms() + HOUR_MS).to_string())
    };
    let tasks = pipeline.names.tasks();
    pipeline.submit((0..3).map(unnamed).collect()).await;
    pipeline.confirmed(&tasks, 3).await;
    pipeline.delete_topic(&tasks).await;
    pipeline.create_source(&tasks, 1).await;
    pipeline.submit((0..10).map(unnamed).collect()).await;
    crate::pipeline::until("the new topic is read", || async {
        let stored = pipeline.tasks().await;
        if stored.len() >= 13 { Ok(()) } else { Err(stored.len()) }
    })
    .await;
    assert_eq!(pipeline.tasks().await.len(), 13, "3 of the first and 10 of the second, each once");
    ingest.stop().await;
    pipeline.finish().await;
}
