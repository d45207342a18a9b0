//! Each program killed and stopped in the middle of a run: nothing lost, doubled or early.

use anyhow::Result;
use std::time::Duration;
use tests::{Expected, Task, World, now_ms};

const TASKS: usize = 1_500;

/// Spreads tasks over 12 s on three topics, kills `program` with −9 when the first third is delivered, stops it in
/// order when the second third is, and starts it again each time.
async fn survives_a_kill_and_a_stop(program: &'static str) -> Result<()> {
    let mut world = World::new(program).await?;
    world.pipeline.set("scanner", "SCAN__HORIZON", "4s");
    world.pipeline.set("scanner", "SCAN__HORIZON_MIN", "2s");
    world.pipeline.set("scanner", "SCAN__BUCKET_MAX", "1s");
    world.start_all().await?;
    let topics = [world.topic("a", 3).await?, world.topic("b", 1).await?, world.topic("c", 2).await?];
    let all: Vec<&str> = topics.iter().map(String::as_str).collect();
    let start = now_ms() + 1_500;
    let tasks: Vec<Task> = (0..TASKS)
        .map(|n| Task::new(&format!("t{n}"), &topics[n % 3], start + 8 * i64::try_from(n).expect("small")))
        .collect();
    let (first, rest) = tasks.split_at(TASKS / 2);
    world.submit(first).await?;

    world.delivered(&all, TASKS / 4).await?;
    for victim in world.take(program) {
        victim.process.kill9();
    }
    world.submit(rest).await?;
    world.start(program).await?;

    world.delivered(&all, TASKS * 2 / 3).await?;
    for victim in world.take(program) {
        victim.process.end(Duration::from_secs(20));
        let status = victim.process.exit_status();
        assert!(status.is_some_and(|status| status.success()), "a stop in order ends with 0, not {status:?}");
    }
    world.start(program).await?;

    let task_ids = (0..TASKS).map(|n| format!("t{n}")).collect();
    world.check(&Expected { task_ids, topics: topics.to_vec() }).await?;
    Ok(())
}

#[tokio::test]
async fn ingest_killed_and_stopped_mid_run_loses_and_doubles_nothing() -> Result<()> {
    survives_a_kill_and_a_stop("ingest").await
}

#[tokio::test]
async fn the_scanner_killed_and_stopped_mid_run_loses_and_doubles_nothing() -> Result<()> {
    survives_a_kill_and_a_stop("scanner").await
}

#[tokio::test]
async fn the_dispatcher_killed_and_stopped_mid_run_loses_and_doubles_nothing() -> Result<()> {
    survives_a_kill_and_a_stop("dispatcher").await
}

#[tokio::test]
async fn the_compensator_killed_and_stopped_mid_run_loses_and_doubles_nothing() -> Result<()> {
    survives_a_kill_and_a_stop("compensator").await
}

#[tokio::test]
async fn two_instances_of_each_program_share_the_work_and_one_of_each_may_die() -> Result<()> {
    let mut world = World::new("two").await?;
    world.pipeline.set("scanner", "SCAN__HORIZON", "4s");
    world.pipeline.set("scanner", "SCAN__HORIZON_MIN", "2s");
    world.start_all().await?;
    world.start_all().await?;
    let topic = world.topic("out", 4).await?;
    let start = now_ms() + 1_500;
    let tasks: Vec<Task> = (0..TASKS)
        .map(|n| Task::new(&format!("t{n}"), &topic, start + 6 * i64::try_from(n).expect("small")))
        .collect();
    world.submit(&tasks).await?;

    world.delivered(&[&topic], TASKS / 3).await?;
    for name in ["dispatcher", "ingest", "scanner", "compensator"] {
        let mut both = world.take(name);
        let victim = both.pop().expect("two were started");
        victim.process.kill9();
        world.programs.insert(name, both);
    }

    let task_ids = (0..TASKS).map(|n| format!("t{n}")).collect();
    world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    Ok(())
}
