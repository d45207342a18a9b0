use crate::world::{RULE, Scanner, deps_at};
use runtime::testing::{TestPipeline, row, until};
use schemas::ids::Slot;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A way to the database that can be blocked: connections are cut, and new ones closed at once.
struct Road {
    blocked: watch::Sender<bool>,
    url: String,
}

impl Road {
    async fn to(url: &str) -> Road {
        let (before, rest) = url.split_once('@').unwrap();
        let (target, database) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{before}@{}/{database}", listener.local_addr().unwrap());
        let (blocked, seen) = watch::channel(false);
        let target = target.to_owned();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (target, mut seen) = (target.clone(), seen.clone());
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        _ = seen.wait_for(|blocked| *blocked) => {}
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    }
                });
            }
        });
        Road { blocked, url }
    }
}

#[tokio::test]
async fn a_scanner_waits_an_outage_of_the_database_out_and_goes_on_by_itself() {
    let pipeline = TestPipeline::fresh(2, 1).await;
    let now = pipeline.db.db.now().await.unwrap();
    pipeline.insert(&[row(0, now, 1), row(1, now, 2)]).await;
    let road = Road::to(&pipeline.db.url).await;
    let deps = deps_at(&pipeline, RULE, &road.url).await;
    let scanner = Scanner::with(deps, 0);
    pipeline.due_records_from(Slot(0), 2).await;

    road.blocked.send_replace(true);
    // What the cursors do not reach can only come after the outage.
    let cursors = pipeline.shard_rows().await.iter().map(|row| row.cursor_at).max().unwrap();
    pipeline.insert(&[row(0, cursors + 200, 3), row(1, cursors + 400, 4)]).await;
    until("the next scan is overdue", async || {
        let now = pipeline.db.db.now().await.unwrap();
        if now > cursors - RULE.horizon_ms + 1_000 { Ok(()) } else { Err(now) }
    })
    .await;
    assert_eq!(pipeline.due_records(Slot(0)).await.len(), 2);

    road.blocked.send_replace(false);
    let mut ids: Vec<u64> = pipeline.due_records_from(Slot(0), 4).await.iter().map(|record| record.id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4]);
    scanner.stop().await;
}
