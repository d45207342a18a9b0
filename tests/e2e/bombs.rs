//! Compressed bombs: what is small on the wire and large unpacked stops nothing, and takes a bounded amount of memory.

use anyhow::{Context, Result};
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use std::collections::BTreeMap;
use tests::{Task, World, now_ms};

/// More than unpacked batches, their copies and the rest of ingest may take here; without a bound it would be far more.
const MOST_MIB: u64 = 700;
const SMALL: usize = 100_000;

fn producer(world: &World, codec: &str) -> Result<FutureProducer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", &world.pipeline.addresses().kafka)
        .set("compression.codec", codec)
        .set("message.max.bytes", "400000000")
        .set("queue.buffering.max.kbytes", "1000000")
        .set("queue.buffering.max.messages", "1000000")
        .set("batch.size", "400000000")
        .set("batch.num.messages", "1000000")
        .set("linger.ms", "1000")
        .create()?)
}

/// Sends records to partition 0 of `tasks`, all in one batch.
async fn send(world: &World, codec: &str, value: &[u8], count: usize) -> Result<Vec<i64>> {
    let (producer, topic) = (producer(world, codec)?, world.pipeline.names().tasks());
    let mut waiting = Vec::with_capacity(count);
    for _ in 0..count {
        let record = FutureRecord::<[u8], [u8]>::to(&topic).partition(0).payload(value);
        waiting.push(producer.send_result(record).map_err(|(error, _)| error)?);
    }
    let mut offsets = Vec::with_capacity(count);
    for delivery in waiting {
        let placed = delivery.await?.map_err(|(error, _)| error).with_context(|| codec.to_owned())?;
        offsets.push(placed.offset);
    }
    Ok(offsets)
}

fn most_memory_mib(pid: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? >> 10)
}

#[tokio::test]
async fn compressed_bombs_are_refused_one_by_one_in_bounded_memory_and_what_stands_beside_them_is_accepted()
-> Result<()> {
    let mut world = World::new("bombs").await?;
    let topic = world.topic("out", 1).await?;
    let good = |n: usize| Task::new(&format!("good {n}"), &topic, now_ms() + 3_600_000).on_partition(0);
    let mib = |n: usize| vec![0; n << 20];
    // What each method makes of zeros just fits into a batch of 1 MiB, but for gzip and zstd, which could hold far more.
    let bombs = [("gzip", mib(300)), ("zstd", mib(300)), ("lz4", mib(200)), ("snappy", mib(18))];
    let mut at = BTreeMap::new();
    world.submit(&[good(0)]).await?;
    for (n, (codec, value)) in (1..).zip(&bombs) {
        at.insert(send(&world, codec, value, 1).await?[0], (*codec, value.len()));
        world.submit(&[good(n)]).await?;
    }
    send(&world, "zstd", b"small", SMALL).await?;
    world.submit(&[good(5)]).await?;

    world.start("ingest").await?;
    world.await_accepted(6).await?;
    let rejected = world.delivered(&[&world.pipeline.names().rejected()], bombs.len() + SMALL).await?;
    assert_eq!(rejected.len(), bombs.len() + SMALL, "each once");
    for record in &rejected {
        let offset = record.number("duestream-rejected-offset").context("no offset")?;
        let reason = record.header("duestream-rejected-reason").unwrap_or_default();
        let Some((codec, bytes)) = at.remove(&offset) else {
            assert_eq!((reason, record.value.as_deref()), ("not_a_command", Some(&b"small"[..])));
            continue;
        };
        if codec == "zstd" {
            assert_eq!((reason, &record.value), ("undecodable", &None));
            continue;
        }
        assert_eq!(reason, "too_large", "{codec}");
        assert_eq!(record.value.as_deref(), Some(&vec![0; 256 << 10][..]), "{codec}: as much as fits");
        assert_eq!(record.header("duestream-rejected-value-bytes"), Some(bytes.to_string().as_str()));
        assert!(record.header("duestream-rejected-value-sha256").is_some_and(|hash| hash.len() == 64));
    }
    assert!(at.is_empty(), "not refused: {at:?}");
    let most = most_memory_mib(world.only("ingest").process.identity().pid)?;
    eprintln!("ingest took at most {most} MiB");
    assert!(most < MOST_MIB, "{most} MiB");
    Ok(())
}
