//! Rates of the slot scripts beside a floor: the same writes as a raw pipeline, without any of the protocol.
//! `REDIS_URL=redis://… cargo run --release -p runtime --example slots_bench [tasks] [payload bytes] [topics]`
//! Uses keys of a prefix of its own and unlinks them.

use anyhow::Context;
use protocol::slot_store::{Body, Entry, MAX_BYTES, Positions, PreloadRecord, Quota};
use redis::aio::MultiplexedConnection;
use runtime::config::{HumanDuration, Redis, Secret};
use runtime::slots::{SlotClient, SlotStore};
use schemas::ids::{Generation, RowGen, RowId, Slot};
use schemas::journal::OwnerToken;
use std::time::{Duration, Instant};

const PREFIX: &str = "duestream-bench";
/// As many records as a poll of `due` hands to the dispatcher.
const BATCH: usize = 500;

fn main() -> anyhow::Result<()> {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|text| text.parse())
        .collect::<Result<_, _>>()
        .context("numbers, please")?;
    let number = |n: usize, default| numbers.get(n).copied().unwrap_or(default);
    let (tasks, payload, topics) = (number(0, 100_000), number(1, 300), number(2, 10).max(1));
    let url = std::env::var("REDIS_URL").context("REDIS_URL names the Redis to measure")?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run(&url, tasks, payload, topics))
}

async fn run(url: &str, tasks: usize, payload: usize, topics: usize) -> anyhow::Result<()> {
    let records: Vec<_> = (0..tasks).map(|n| record(n, payload, topics)).collect();
    let mut raw = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    println!("{tasks} tasks, {payload} B, {topics} topics, {BATCH} per call");

    let (start, cpu) = (Instant::now(), server_cpu(&mut raw).await?);
    for some in records.chunks(BATCH) {
        let mut pipe = redis::pipe();
        for r in some {
            let member = r.member.member();
            pipe.zadd(format!("{PREFIX}:floor:{}", r.topic), &member[..], r.due_at).ignore();
            pipe.hset(format!("{PREFIX}:floor"), &member[..], r.body.as_bytes()).ignore();
        }
        pipe.exec_async(&mut raw).await?;
    }
    report("floor: ZADD + HSET, pipelined", tasks, start.elapsed(), server_cpu(&mut raw).await? - cpu);
    for topic in 0..topics {
        redis::cmd("DEL").arg(format!("{PREFIX}:floor:topic-{topic}")).exec_async(&mut raw).await?;
    }
    redis::cmd("DEL").arg(format!("{PREFIX}:floor")).exec_async(&mut raw).await?;

    let mut store = owner(url).await?;
    let before = info(&mut raw, "used_memory").await?;
    let (start, cpu) = (Instant::now(), server_cpu(&mut raw).await?);
    for (n, some) in records.chunks(BATCH).enumerate() {
        store.preload(some, n as i64).await?;
    }
    report("preload", tasks, start.elapsed(), server_cpu(&mut raw).await? - cpu);
    let memory = (info(&mut raw, "used_memory").await? - before) / tasks as f64;

    let quotas: Vec<_> = (0..topics)
        .map(|n| Quota { topic: format!("topic-{n}").into(), limit: (BATCH / topics).max(1) as u32 })
        .collect();
    let (start, cpu, mut slowest) = (Instant::now(), server_cpu(&mut raw).await?, Duration::ZERO);
    let mut entries: Vec<Entry> = Vec::with_capacity(tasks);
    while entries.len() < tasks {
        let call = Instant::now();
        let claims = store.claim(i64::MAX, &quotas, MAX_BYTES).await?;
        slowest = slowest.max(call.elapsed());
        anyhow::ensure!(!claims.claimed.is_empty(), "tasks are missing");
        entries.extend(claims.claimed.into_iter().map(|c| Entry { topic: c.topic, member: c.member }));
    }
    report("claim", tasks, start.elapsed(), server_cpu(&mut raw).await? - cpu);
    let (start, cpu) = (Instant::now(), server_cpu(&mut raw).await?);
    for (n, some) in entries.chunks(BATCH).enumerate() {
        store.settle(some, n as i64, None).await?;
    }
    report("settle", tasks, start.elapsed(), server_cpu(&mut raw).await? - cpu);
    println!("slowest claim {:.1} ms, memory per task {memory:.0} B", slowest.as_secs_f64() * 1e3);

    store.take_over(OwnerToken(2)).await?;
    store.start_cold(Positions::default()).await?;
    store.forget().await?;
    Ok(())
}

fn record(n: usize, payload: usize, topics: usize) -> PreloadRecord {
    PreloadRecord {
        topic: format!("topic-{}", n % topics).into(),
        member: RowGen { id: RowId(1 << 54 | n as u64), generation: Generation(1) },
        due_at: 1_700_000_000_000 + n as i64 / 10,
        fence: 0,
        body: Body::deliver(&vec![b'x'; payload]),
    }
}

async fn owner(url: &str) -> anyhow::Result<SlotStore> {
    let config = Redis {
        url: Secret::new(url),
        prefix: PREFIX.into(),
        connect_timeout: HumanDuration(Duration::from_secs(5)),
        response_timeout: HumanDuration(Duration::from_secs(10)),
        retries: 3,
        retry_min: HumanDuration(Duration::from_millis(100)),
        retry_max: HumanDuration(Duration::from_secs(1)),
    };
    let mut store = SlotStore::new(SlotClient::connect(&config).await?, PREFIX, Slot(0));
    // Whatever an earlier run left is swept.
    store.take_over(OwnerToken(1)).await?;
    store.start_cold(Positions::default()).await?;
    Ok(store)
}

async fn info(raw: &mut MultiplexedConnection, field: &str) -> anyhow::Result<f64> {
    let info: String = redis::cmd("INFO").query_async(raw).await?;
    let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(value.with_context(|| format!("INFO has no {field}"))?.trim_end().parse()?)
}

/// Seconds the server has computed: what a rate costs, also on a busy machine.
async fn server_cpu(raw: &mut MultiplexedConnection) -> anyhow::Result<f64> {
    Ok(info(raw, "used_cpu_user").await? + info(raw, "used_cpu_sys").await?)
}

fn report(what: &str, tasks: usize, took: Duration, cpu: f64) {
    let (tasks, seconds) = (tasks as f64, took.as_secs_f64());
    println!("{what:<32} {:>9.0}/s  {:>6.2} us of the server per task", tasks / seconds, 1e6 * cpu / tasks);
}
