//! Cancel and reschedule, up to the last millisecond.

use anyhow::Result;
use devstack::topics::Record;
use protocol::state::TaskState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tests::{Expected, Task, World, now_ms};
use tokio::task::JoinSet;

/// Deliveries by task id.
fn by_id(records: &[Record]) -> BTreeMap<&str, Vec<&Record>> {
    let mut by_id: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        by_id.entry(record.header("duestream-task-id").unwrap_or_default()).or_default().push(record);
    }
    by_id
}

fn in_state(state: TaskState) -> String {
    format!("SELECT COUNT(*) FROM task WHERE state = {}", state.code())
}

#[tokio::test]
async fn a_task_cancelled_before_it_is_due_is_never_delivered_wherever_it_waits() -> Result<()> {
    let world = World::started("cancelled").await?;
    let topic = world.topic("out", 2).await?;
    let (soon, far) = (now_ms() + 10_000, now_ms() + 3_600_000);
    // In Redis, and beyond the cursors; one of each kind stays.
    let tasks = [
        Task::new("soon", &topic, soon),
        Task::new("soon-kept", &topic, soon),
        Task::new("far", &topic, far),
        Task::new("far-kept", &topic, far),
    ];
    world.submit(&tasks).await?;
    world.await_accepted(4).await?;
    let json = r#"{"op": "cancel", "task_id": "soon", "reply": true, "correlation": "soon"}"#;
    world
        .submit(&[
            Task::bare(json.as_bytes()).key(Some(b"soon")),
            Task::change("cancel", "far", "far"),
            Task::change("cancel", "far", "again"),
            Task::change("cancel", "nobody", "nobody"),
        ])
        .await?;
    let answers = world.answers(4).await?;
    let told: Vec<(&str, &str)> = answers.iter().map(|(to, answer)| (to.as_str(), answer.as_str())).collect();
    assert_eq!(
        told,
        [("again", "cancelled"), ("far", "cancelled"), ("nobody", "not_found"), ("soon", "cancelled")]
    );
    assert!(now_ms() < soon, "the machine was too slow for this test to say anything");
    world.await_count("two to be cancelled", &in_state(TaskState::Cancelled), 2).await?;
    let records = world.delivered(&[&topic], 1).await?;
    assert_eq!(records[0].header("duestream-task-id"), Some("soon-kept"));
    // Nothing comes behind it: the other was due at the same time.
    world.await_count("the kept one to be done", &in_state(TaskState::Done), 1).await?;
    assert_eq!(world.visible(&[&topic]).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn cancels_that_race_with_their_deliveries_are_all_answered_and_the_answers_are_true() -> Result<()> {
    const TASKS: usize = 300;
    /// When a cancel is sent, against the due time. On its way it takes some tens of milliseconds.
    const BEFORE_MS: [i64; 10] = [-1, 0, 1, -600, -300, -150, -100, -70, -50, -30];
    let world = World::started("race").await?;
    let topic = world.topic("out", 4).await?;
    let first_at = now_ms() + 8_000;
    let due_at = |n: usize| first_at + 10 * i64::try_from(n).expect("small");
    let id = |n: usize| format!("t{n}");
    let tasks: Vec<Task> = (0..TASKS).map(|n| Task::new(&id(n), &topic, due_at(n))).collect();
    world.submit(&tasks).await?;
    world.await_accepted(TASKS).await?;
    assert!(now_ms() < first_at - 600, "the machine was too slow for this test to say anything");

    let mut plan: Vec<(i64, usize)> =
        (0..TASKS).map(|n| (due_at(n) + BEFORE_MS[n % BEFORE_MS.len()], n)).collect();
    plan.sort_unstable();
    let world = Arc::new(world);
    let mut sending = JoinSet::new();
    for (at, n) in plan {
        let world = world.clone();
        sending.spawn(async move {
            let wait = u64::try_from(at - now_ms()).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            world.submit(&[Task::change("cancel", &id(n), &id(n))]).await
        });
    }
    for sent in sending.join_all().await {
        sent?;
    }

    let answers = world.answers(TASKS).await?;
    assert_eq!(answers.len(), TASKS, "every cancel is answered");
    let count = |wanted: &str| answers.values().filter(|answer| *answer == wanted).count();
    let (cancelled, sent) = (count("cancelled"), count("already_sent"));
    eprintln!("{cancelled} cancelled, {sent} already sent");
    assert_eq!(cancelled + sent, TASKS, "{answers:?}");
    let task_ids = answers.iter().filter(|(_, answer)| *answer == "already_sent").map(|(id, _)| id.clone());
    // Each that was sent once, and no other.
    world.check(&Expected { task_ids: task_ids.collect(), topics: vec![topic] }).await?;
    let in_mysql = world.count(&in_state(TaskState::Cancelled)).await?;
    assert_eq!(in_mysql, i64::try_from(cancelled)?);
    assert_eq!(world.count("SELECT COUNT(*) FROM `change`").await?, 0, "nothing is owed");
    Ok(())
}

#[tokio::test]
async fn a_task_is_moved_earlier_later_and_repeatedly_and_delivered_at_its_last_time_only() -> Result<()> {
    let world = World::started("moved").await?;
    let topic = world.topic("out", 2).await?;
    let (now, hour) = (now_ms(), 3_600_000);
    let (near, far) = (now + 10_000, now + hour);
    let from = [
        ("earlier", far),
        ("later", near),
        ("in redis, earlier", near + 20_000),
        ("often", near),
        ("fired", far),
        ("fired in redis", near + 20_000),
        ("away", near),
    ];
    let tasks: Vec<Task> = from.iter().map(|(id, at)| Task::new(id, &topic, *at)).collect();
    world.submit(&tasks).await?;
    world.await_accepted(from.len()).await?;
    let to = [
        ("earlier", now + 12_000),
        ("later", now + 12_500),
        ("in redis, earlier", now + 12_250),
        ("often", far),
        ("often", now + 11_500),
        ("often", now + 12_750),
        ("fired", now - 1),
        ("fired in redis", now - 1),
        ("away", far),
    ];
    let moves: Vec<Task> = to
        .iter()
        .zip(0..)
        .map(|((id, at), n)| {
            let moved = Task::change("reschedule", id, &format!("{n}"));
            moved.with("duestream-due-at", &at.to_string()).on_partition(0)
        })
        .collect();
    world.submit(&moves).await?;
    let answers = world.answers(to.len()).await?;
    assert!(answers.values().all(|answer| answer == "accepted"), "{answers:?}");
    assert!(now_ms() < near, "the machine was too slow for this test to say anything");

    let last: BTreeMap<&str, i64> = to.into_iter().filter(|(id, _)| *id != "away").collect();
    let records = world.delivered(&[&topic], last.len()).await?;
    world
        .await_count("all but one to be done", &in_state(TaskState::Done), i64::try_from(last.len())?)
        .await?;
    let records_now = world.visible(&[&topic]).await?;
    assert_eq!(records_now.len(), records.len(), "each once");
    for (id, records) in by_id(&records_now) {
        assert_eq!(records.len(), 1, "{id}");
        let due_at = records[0].number("duestream-due-at");
        assert_eq!(due_at, last.get(id).copied(), "{id}");
        assert!(records[0].number("duestream-delivered-at") >= due_at, "{id} is early");
        assert_eq!(records[0].number("duestream-attempt"), Some(1), "{id}");
    }
    Ok(())
}
