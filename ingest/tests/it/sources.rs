//! Several topics of commands: each with rules of its own, and none stops another.

use crate::pipeline::{Pipeline, header, now_ms, reason, until};
use runtime::kafka::OutRecord;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

const HOUR_MS: i64 = 3_600_000;

/// A block of `[[sources]]`.
fn source(topic: &str, more: &str) -> String {
    format!("[[sources]]\ntopic = \"{topic}\"\n{more}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_source_has_its_own_callback_topics_and_limits() {
    let pipeline = Pipeline::new().await;
    let (a, b) = (format!("{}-a", pipeline.callback), format!("{}-b", pipeline.callback));
    let (tenant_a, tenant_b) = (pipeline.own("tenant-a"), pipeline.own("tenant-b"));
    for topic in [&tenant_a, &tenant_b] {
        pipeline.create_source(topic, 1).await;
    }
    for topic in [&a, &b] {
        pipeline.create_topic(topic, 1).await;
    }
    let ingest = pipeline.ingest(
        &[
            source("", ""),
            source(&tenant_a, &format!("callback.allow = \"{a}\"\nlimits.body = 40")),
            source(&tenant_b, &format!("callback.allow = \"{b}*\"\ncallback.unknown_topic = \"accept\"")),
        ]
        .concat(),
    );
    let due_at = now_ms() + HOUR_MS;
    let task = |id: &str, callback: &str, value: &str| {
        OutRecord::to("")
            .value(value.to_owned())
            .header("duestream-task-id", id)
            .header("duestream-topic", callback)
            .header("duestream-due-at", due_at.to_string())
    };
    let small = "x".repeat(40);
    pipeline
        .send(&tenant_a, vec![task("a fits", &a, &small), task("a large", &a, &format!("{small}x"))])
        .await;
    pipeline.send(&tenant_a, vec![task("a to b", &b, ""), task("a to all", &pipeline.callback, "")]).await;
    pipeline.send(&tenant_b, vec![task("b to a", &a, ""), task("b large", &b, &format!("{small}x"))]).await;
    pipeline.send(&tenant_b, vec![task("b to none", &format!("{b}-later"), "")]).await;
    pipeline.submit(vec![task("any", &a, &format!("{small}x")), task("none", "no-such-topic", "")]).await;
    pipeline.submit(vec![task("to a source", &tenant_a, "")]).await;
    for (topic, end) in [(&tenant_a, 4), (&tenant_b, 3), (&pipeline.names.tasks(), 3)] {
        pipeline.confirmed(topic, end).await;
    }
    let tasks = pipeline.tasks().await;
    let from: BTreeMap<&str, u16> =
        tasks.iter().map(|(id, task)| (id.as_str(), task.id.source().0)).collect();
    assert_eq!(from.keys().copied().collect::<Vec<_>>(), ["a fits", "any", "b large", "b to none"]);
    assert_ne!(from["a fits"], from["b large"], "row ids come from the source's number");
    assert_eq!(from["b large"], from["b to none"]);
    let mut refused: Vec<String> = Vec::new();
    for record in pipeline.rejected().await {
        let topic = header(&record, "duestream-rejected-topic").unwrap();
        let place = if topic == tenant_a {
            "a"
        } else if topic == tenant_b {
            "b"
        } else {
            "tasks"
        };
        refused.push(format!(
            "{} from {place}: {}",
            header(&record, "duestream-task-id").unwrap(),
            reason(&record)
        ));
    }
    refused.sort();
    assert_eq!(
        refused,
        [
            "a large from a: too_large",
            "a to all from a: topic_not_allowed",
            "a to b from a: topic_not_allowed",
            "b to a from b: topic_not_allowed",
            "none from tasks: unknown_topic",
            "to a source from tasks: topic_not_allowed",
        ]
    );
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_missing_or_wrong_is_named_and_stops_no_other() {
    let pipeline = Pipeline::new().await;
    let (missing, wrong) = (pipeline.own("missing"), pipeline.own("wrong"));
    pipeline.create_topic(&wrong, 1).await;
    let toml = [source(&missing, ""), source(&wrong, ""), source("", "")].concat();
    let ingest = pipeline.ingest(&format!("{toml}[confirm]\ntopic_check = \"100ms\"\n"));
    let due_at = now_ms() + HOUR_MS;
    pipeline.send(&wrong, vec![pipeline.task("of the wrong one", due_at)]).await;
    pipeline.submit(vec![pipeline.task("good", due_at)]).await;
    pipeline.confirmed(&pipeline.names.tasks(), 1).await;
    ingest
        .unready(&format!("topic {missing} does not exist: `duectl init --source {missing}` makes it"))
        .await;
    ingest
        .unready(&format!("topic {wrong}: message.timestamp.type is CreateTime, must be LogAppendTime"))
        .await;
    assert_eq!(pipeline.tasks().await.len(), 1, "nothing is read where the timestamps are the producer's");

    pipeline.create_source(&missing, 1).await;
    pipeline.send(&missing, vec![pipeline.task("of the missing one", due_at)]).await;
    pipeline.delete_topic(&wrong).await;
    pipeline.create_source(&wrong, 1).await;
    pipeline.send(&wrong, vec![pipeline.task("of the mended one", due_at)]).await;
    ingest.ready().await;
    until("all that stand on the sources are stored", || async {
        let stored = pipeline.tasks().await;
        if stored.len() == 3 { Ok(()) } else { Err(stored.into_keys().collect::<Vec<_>>()) }
    })
    .await;
    ingest.stop().await;
    pipeline.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_herd_on_one_source_does_not_delay_another() {
    let pipeline = Pipeline::new().await;
    let tenant = pipeline.own("tenant");
    pipeline.create_source(&tenant, 1).await;
    let due_at = now_ms() + HOUR_MS;
    let ingest = pipeline.ingest(&[source(&tenant, ""), source("", "")].concat());
    let sent = AtomicI64::new(0);
    // However fast ingest is: the herd never ends.
    let herd = async {
        loop {
            let first = sent.load(Ordering::Relaxed);
            until("the herd shrinks", || async {
                let (next, _) = pipeline.positions(&tenant, 0).await;
                if first - next < 20_000 { Ok(()) } else { Err(next) }
            })
            .await;
            let more =
                (first..first + 5_000).map(|n| pipeline.task(&format!("herd {n}"), due_at).partition(0));
            pipeline.send(&tenant, more.collect()).await;
            sent.store(first + 5_000, Ordering::Relaxed);
        }
    };
    let alone = async {
        until("the herd is being read", || async {
            let (next, _) = pipeline.positions(&tenant, 0).await;
            if next > 0 { Ok(()) } else { Err(next) }
        })
        .await;
        pipeline.submit(vec![pipeline.task("alone", due_at)]).await;
        pipeline.confirmed(&pipeline.names.tasks(), 1).await;
        pipeline.positions(&tenant, 0).await
    };
    let (next, _) = tokio::select! {
        () = herd => unreachable!("it never ends"),
        positions = alone => positions,
    };
    assert!(next < sent.load(Ordering::Relaxed), "the herd was read to its end first");
    ingest.stop().await;
    pipeline.finish().await;
}
