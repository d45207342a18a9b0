//! The two ways to the dispatcher: near (ingest emits at once) and far (the scanner emits when the time has come).

use anyhow::Result;
use tests::{Expected, Task, World, now_ms};

#[tokio::test]
async fn a_task_due_within_the_horizon_goes_the_near_way_and_one_beyond_it_the_far_way() -> Result<()> {
    let mut world = World::new("way").await?;
    world.pipeline.set("scanner", "SCAN__HORIZON", "4s");
    world.pipeline.set("scanner", "SCAN__HORIZON_MIN", "2s");
    world.pipeline.set("scanner", "SCAN__BUCKET_MIN", "1s");
    world.pipeline.set("scanner", "SCAN__BUCKET_MAX", "1s");
    world.start_all().await?;
    let topic = world.topic("out", 2).await?;
    // Cursors must have reached the horizon, else the first task, too, would lie beyond them.
    world.await_count("cursors to move", "SELECT COUNT(*) FROM shard WHERE cursor_at = 0", 0).await?;

    let now = now_ms();
    world
        .submit(&[
            Task::new("past", &topic, now - 60_000),
            Task::new("at-once", &topic, now + 100),
            Task::new("near", &topic, now + 2_000),
            Task::new("far", &topic, now + 12_000),
        ])
        .await?;

    let task_ids = ["past", "at-once", "near", "far"].map(str::to_owned).to_vec();
    world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    let by_scanner = world.only("scanner").metric("duestream_scan_rows_emitted_total").await?;
    assert!(
        (by_scanner - 1.0).abs() < 0.5,
        "the scanner emitted {by_scanner} rows instead of the far one alone"
    );
    Ok(())
}

#[tokio::test]
async fn tasks_due_while_nothing_ran_are_delivered_after_the_start_without_new_traffic() -> Result<()> {
    let mut world = World::new("idle_restart").await?;
    world.start("ingest").await?;
    let topic = world.topic("out", 2).await?;
    let now = now_ms();
    let tasks: Vec<Task> = (0..50).map(|n| Task::new(&format!("t{n}"), &topic, now + 50 * n)).collect();
    world.submit(&tasks).await?;
    world.await_accepted(50).await?;
    for program in world.take("ingest") {
        program.process.kill9();
    }

    world.start_all().await?;

    let task_ids = (0..50).map(|n| format!("t{n}")).collect();
    world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    Ok(())
}
