//! Servers that are full, evict, hang, die, or are a cluster.

use super::cases::{entry, owner, quota, record};
use super::server::Server;
use super::world::token;
use protocol::slot_store::{MAX_BYTES, TakenOver};
use redis::cmd;
use runtime::config::HumanDuration;
use runtime::slots::{CheckError, SlotClient, SlotDisposition, SlotError, Warning};
use std::time::Duration;

#[tokio::test]
async fn at_maxmemory_preload_stops_and_the_rest_drains() {
    let server = Server::start(&["--maxmemory", "6mb", "--maxmemory-policy", "noeviction"]).await;
    let world = server.world().await;
    let mut store = owner(&world, 1).await;
    let mut kept = Vec::new();
    let refused = loop {
        let n = kept.len() as u64;
        let records: Vec<_> = (n..n + 100).map(|n| record("a", n, 1_000, 1_000)).collect();
        match store.preload(&records, n as i64).await {
            Ok(_) => kept.extend(records),
            Err(error) => break error,
        }
        assert!(n < 100_000, "maxmemory was never reached");
    };
    assert!(matches!(refused, SlotError::OutOfMemory), "{refused}");
    assert_eq!(refused.disposition(), SlotDisposition::PauseIntake);
    assert!(store.is_owner());

    let mut drained = 0;
    loop {
        let claims = store.claim(2_000, &[quota("a", 500)], MAX_BYTES).await.unwrap();
        if claims.claimed.is_empty() {
            break;
        }
        drained += claims.claimed.len();
        let (settled, back) = claims.claimed.split_at(claims.claimed.len() - claims.claimed.len() / 2);
        let entries = |of: &[protocol::slot_store::Claimed]| -> Vec<_> {
            of.iter()
                .map(|c| protocol::slot_store::Entry { topic: c.topic.clone(), member: c.member })
                .collect()
        };
        store.release(&entries(back), Duration::ZERO).await.unwrap();
        drained -= back.len();
        store.settle(&entries(settled), 9, None).await.unwrap();
    }
    assert_eq!(drained, kept.len());
    store.preload(&kept[..100], 10).await.unwrap();
    store.settle(&[entry(&kept[0])], 10, None).await.unwrap();
    assert_eq!(store.state().members, 99);
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_at_each_take_over() {
    let server = Server::start(&[]).await;
    let mut world = server.world().await;
    let mut store = owner(&world, 1).await;
    assert_eq!(store.report().unwrap().warnings, [Warning::NoAppendOnly, Warning::NoMaxMemory]);
    let set = cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg("allkeys-lru").clone();
    () = set.query_async(&mut world.raw).await.unwrap();
    let result = store.take_over(token(2)).await;
    let found = "allkeys-lru".to_owned();
    assert!(matches!(&result, Err(SlotError::Policy(e)) if *e == CheckError::Evicts { found }), "{result:?}");
}

#[tokio::test]
async fn a_call_without_answer_leaves_no_owner_and_does_no_harm_when_it_is_carried_out_late() {
    let server = Server::start(&[]).await;
    let mut world = server.world().await;
    let mut store = owner(&world, 1).await;
    let records = [record("a", 1, 1_000, 10), record("a", 2, 1_000, 10)];
    store.preload(&records, 8).await.unwrap();

    world.config.response_timeout = HumanDuration(Duration::from_secs(3));
    let mut hasty = world.store().await;
    assert!(matches!(hasty.take_over(token(2)).await.unwrap(), TakenOver::Warm(_)));
    // What was sent is carried out when the server goes on.
    server.signal("STOP");
    let error = hasty.claim(2_000, &[quota("a", 1)], MAX_BYTES).await.unwrap_err();
    server.signal("CONT");
    assert!(matches!(error, SlotError::Timeout { .. }), "{error}");
    assert_eq!(error.disposition(), SlotDisposition::TakeOver);
    assert!(matches!(hasty.settle(&[], 9, None).await, Err(SlotError::NotOwner)));

    let mut last = world.store().await;
    assert!(matches!(last.take_over(token(3)).await.unwrap(), TakenOver::Warm(_)));
    assert_eq!(last.return_prepared().await.unwrap().returned, 1, "carried out before the take-over");
    assert_eq!(last.claim(2_000, &[quota("a", 9)], MAX_BYTES).await.unwrap().claimed.len(), 2);
}

#[tokio::test]
async fn after_a_crash_of_redis_the_slot_is_cold_without_and_warm_with_appendonly() {
    for (arguments, warm) in [(&["--appendonly", "no"], false), (&["--appendonly", "yes"], true)] {
        let mut server = Server::start(arguments).await;
        let world = server.world().await;
        let mut store = owner(&world, 1).await;
        store.preload(&[record("a", 1, 1_000, 10)], 8).await.unwrap();
        server.restart(arguments).await;
        let error = store.claim(2_000, &[quota("a", 1)], MAX_BYTES).await.map(|claims| claims.claimed.len());
        match error {
            // Which of them depends on whether the client saw the connection break first.
            Err(SlotError::Unavailable { .. } | SlotError::Lost) => {}
            Ok(claimed) => assert!(warm && claimed == 1),
            other => panic!("{other:?}"),
        }
        let taken = store.take_over(token(2)).await.unwrap();
        assert_eq!(matches!(taken, TakenOver::Warm(_)), warm, "{taken:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let server = Server::start(&[]).await;
    let world = server.world().await;
    let mut store = owner(&world, 1).await;
    let config = world.config.clone();
    drop(server);
    let error = store.claim(2_000, &[quota("a", 1)], MAX_BYTES).await.unwrap_err();
    assert!(matches!(error, SlotError::Unavailable { .. } | SlotError::Timeout { .. }), "{error}");
    let error = SlotClient::connect(&config).await.err().unwrap();
    assert!(matches!(error, SlotError::Unavailable { .. } | SlotError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn a_node_of_a_cluster_serves_a_slot_like_a_single_server() {
    let server = Server::start(&["--cluster-enabled", "yes"]).await;
    let mut world = server.world().await;
    let mut raw = world.raw.clone();
    () = cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383).query_async(&mut raw).await.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !cmd("CLUSTER")
        .arg("INFO")
        .query_async::<String>(&mut raw)
        .await
        .unwrap()
        .contains("cluster_state:ok")
    {
        assert!(std::time::Instant::now() < deadline, "the cluster does not come up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut store = owner(&world, 1).await;
    store.preload(&[record("a", 1, 1_000, 10), record("b:{9}", 2, 1_000, 10)], 8).await.unwrap();
    let claims = store.claim(2_000, &[quota("a", 1), quota("b:{9}", 1)], MAX_BYTES).await.unwrap();
    assert_eq!(claims.claimed.len(), 2);
    () = redis::cmd("DEL").arg(world.keys.meta()).query_async(&mut world.raw).await.unwrap();
    assert!(matches!(store.take_over(token(2)).await.unwrap(), TakenOver::Cold(_)));
    assert_eq!(store.start_cold(super::cases::START).await.unwrap(), 3, "body and two prepares were left");
    assert_eq!(world.all_keys().await, [world.keys.meta()]);
}
