//! A herd of equal due times leaves evenly, each at the instant that its identity names.

use anyhow::{Context, Result};
use tests::{Expected, Task, World, now_ms};

/// Tasks by tenths of the window.
fn deciles(shifts: &[i64], window_ms: i64) -> [usize; 10] {
    let mut counts = [0; 10];
    for shift in shifts {
        let decile = usize::try_from(shift * 10 / (window_ms + 1)).expect("not early");
        counts[decile] += 1;
    }
    counts
}

#[tokio::test]
async fn a_hundred_tasks_of_one_instant_leave_evenly_over_their_window() -> Result<()> {
    const WINDOW_MS: i64 = 10_000;
    let mut world = World::new("spread").await?;
    let topic = world.topic("out", 2).await?;
    let by_default = world.topic("default", 1).await?;
    world.pipeline.set("ingest", "CALLBACK__DEFAULTS__0__TOPIC", &by_default);
    world.pipeline.set("ingest", "CALLBACK__DEFAULTS__0__SPREAD", "10x300ms+100ms");
    world.start_all().await?;
    let eight = now_ms() + 4_000;
    let reminder = |n: usize| {
        Task::new(&format!("reminder-{n}"), &topic, eight)
            .with("duestream-window", "10s")
            .with("duestream-reply", "true")
            .with("duestream-correlation", &format!("{n}"))
    };
    let mut tasks: Vec<Task> = (0..100).map(reminder).collect();
    tasks.extend((0..20).map(|n| Task::new(&format!("default-{n}"), &by_default, eight)));
    tasks.push(Task::new("exact", &by_default, eight).with("duestream-window", "0s"));
    world.submit(&tasks).await?;
    // Again, with another delivery of the same command: the same instant, so a duplicate and nothing else.
    world.submit(&(0..100).map(reminder).collect::<Vec<_>>()).await?;

    let mut task_ids: Vec<String> = (0..100).map(|n| format!("reminder-{n}")).collect();
    task_ids.extend((0..20).map(|n| format!("default-{n}")));
    task_ids.push("exact".to_owned());
    let records =
        world.check(&Expected { task_ids, topics: vec![topic.clone(), by_default.clone()] }).await?;
    let mut shifts = Vec::new();
    for record in &records {
        let id = record.header("duestream-task-id").unwrap_or_default();
        let due_at = record.number("duestream-due-at").context("a due time")?;
        let most = if record.topic == topic { WINDOW_MS } else { 9 * 300 + 100 };
        let shift = due_at - eight;
        assert!((0..=most).contains(&shift), "{id} is due {shift} ms behind what was asked");
        let asked_at = record.number("duestream-asked-at");
        assert_eq!(asked_at, (shift > 0).then_some(eight), "{id}");
        if record.topic == topic {
            shifts.push(shift);
        } else if id == "exact" {
            assert_eq!(shift, 0, "a task that says so is not shifted");
        } else {
            assert!(shift % 300 <= 100, "{id}: {shift}");
        }
    }
    let counts = deciles(&shifts, WINDOW_MS);
    eprintln!("{counts:?}");
    // The identities are fixed, so these are always the same hundred instants.
    assert!(counts.iter().all(|count| (3..=20).contains(count)), "{counts:?}");

    let replies = world.delivered(&[&world.pipeline.names().replies()], 200).await?;
    let accepted = replies.iter().filter(|reply| reply.header("duestream-reply-answer") == Some("accepted"));
    let mut told: Vec<i64> =
        accepted.filter_map(|reply| reply.number("duestream-reply-due-at")).map(|at| at - eight).collect();
    told.sort_unstable();
    shifts.sort_unstable();
    assert_eq!(told, shifts, "the reply says when it will be delivered");
    let duplicates =
        replies.iter().filter(|reply| reply.header("duestream-reply-answer") == Some("duplicate")).count();
    assert_eq!(duplicates, 100);
    Ok(())
}
