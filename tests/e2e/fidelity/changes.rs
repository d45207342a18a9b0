//! Callback topics that change while tasks wait for them.

use super::{add_partitions, alter, by_id, dead, delete, java_partition};
use anyhow::Result;
use devstack::{topics, wait};
use tests::world::PATIENCE;
use tests::{Expected, Task, World, now_ms};

#[tokio::test]
async fn partitions_that_are_added_under_way_are_used_at_once_where_asked_for_and_soon_for_keys() -> Result<()>
{
    let mut world = World::new("grown").await?;
    world.pipeline.set("dispatcher", "DELIVERY__TOPIC_REFRESH", "1s");
    world.start_all().await?;
    let topic = world.topic("out", 2).await?;
    world.submit(&[Task::new("before", &topic, now_ms())]).await?;
    world.delivered(&[&topic], 1).await?;
    // Known to everybody with two partitions by now.
    add_partitions(&world, &topic, 8).await?;
    let due_at = now_ms() + 300;
    world
        .submit(&[
            Task::new("asked", &topic, due_at).with("duestream-partition", "7"),
            Task::new("beyond", &topic, due_at).with("duestream-partition", "8"),
        ])
        .await?;
    world.delivered(&[&topic], 2).await?;

    let due_at = now_ms() + 2_500;
    let keys: Vec<String> = (0..40).map(|n| format!("key{n}")).collect();
    let keyed: Vec<Task> = keys.iter().map(|key| Task::new(key, &topic, due_at)).collect();
    world.submit(&keyed).await?;
    let task_ids =
        ["before", "asked"].iter().map(|id| (*id).to_owned()).chain(keys.iter().cloned()).collect();
    let records = world.check(&Expected { task_ids, topics: vec![topic] }).await?;
    assert_eq!(by_id(&records, "asked")?.partition, 7);
    for key in &keys {
        assert_eq!(by_id(&records, key)?.partition, java_partition(key.as_bytes(), 8), "{key}");
    }
    let rejected = world.delivered(&[&world.pipeline.names().rejected()], 1).await?;
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].header("duestream-rejected-reason"), Some("unknown_partition"));
    assert_eq!(rejected[0].header("duestream-task-id"), Some("beyond"));
    Ok(())
}

#[tokio::test]
async fn a_topic_deleted_before_the_due_time_makes_dead_letters_and_one_made_again_is_delivered_to()
-> Result<()> {
    let world = World::started("deleted").await?;
    let kafka = world.pipeline.addresses().kafka.clone();
    let (gone, again, good) =
        (world.topic("gone", 2).await?, world.topic("again", 3).await?, world.topic("good", 1).await?);
    // All are in use, so that they are known.
    let first = now_ms();
    world
        .submit(&[&gone, &again, &good].map(|topic| Task::new(&format!("first-{topic}"), topic, first)))
        .await?;
    world.delivered(&[&gone, &again, &good], 3).await?;

    let due_at = now_ms() + 6_000;
    let mut tasks = vec![
        Task::new("to-gone", &gone, due_at),
        Task::new("to-again", &again, due_at).value(None),
        Task::new("to-again-placed", &again, due_at).with("duestream-partition", "2"),
    ];
    tasks.extend((0..30).map(|n| Task::new(&format!("good{n}"), &good, due_at - 1_500 + 100 * n)));
    world.submit(&tasks).await?;
    world.await_accepted(3 + tasks.len()).await?;
    delete(&world, &gone).await?;
    delete(&world, &again).await?;
    // Deletion takes a moment; with fewer partitions than before.
    wait::until("the topic to be made again", PATIENCE, async || {
        match topics::create_with(&kafka, &[&again], 2, &[("message.timestamp.type", "LogAppendTime")]).await
        {
            Ok(()) => {}
            Err(error) => return Ok(Err(format!("{error:#}"))),
        }
        Ok(match topics::Reader::from_beginning(&kafka, &[&again]) {
            Ok(reader) if reader.read_to_end(PATIENCE)?.is_empty() => Ok(()),
            Ok(_) => Err("the old topic is still there".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        })
    })
    .await?;
    assert!(now_ms() < due_at, "the machine was too slow for this test to say anything");

    let mut task_ids: Vec<String> = (0..30).map(|n| format!("good{n}")).collect();
    task_ids.extend([format!("first-{good}"), "to-again".into()]);
    let records = world.check(&Expected { task_ids, topics: vec![again, good] }).await?;
    let delivered = by_id(&records, "to-again")?;
    assert_eq!(delivered.value, None);
    assert_eq!(dead(&world, 2).await?, ["to-again-placed: unknown_partition", "to-gone: unknown_topic"]);
    Ok(())
}

#[tokio::test]
async fn settings_of_a_topic_that_change_under_way_count_and_harm_no_neighbour() -> Result<()> {
    let world = World::started("altered").await?;
    let grows = world.topic_with("grows", 1, &[("max.message.bytes", "2000")]).await?;
    let shrinks = world.topic("shrinks", 1).await?;
    let compacted = world.topic("compacted", 1).await?;
    let topics = vec![grows.clone(), shrinks.clone(), compacted.clone()];
    let first = now_ms();
    world
        .submit(
            &[&grows, &shrinks, &compacted].map(|topic| Task::new(&format!("first-{topic}"), topic, first)),
        )
        .await?;
    world.delivered(&[&grows, &shrinks, &compacted], 3).await?;

    // The dispatcher remembers what they were.
    alter(&world, &grows, "max.message.bytes", "100000").await?;
    alter(&world, &shrinks, "max.message.bytes", "2000").await?;
    alter(&world, &compacted, "cleanup.policy", "compact").await?;
    let due_at = now_ms() + 700;
    let large = vec![b'x'; 10_000];
    let mut tasks = vec![
        Task::new("grown", &grows, due_at).value(Some(&large)),
        Task::new("shrunk", &shrinks, due_at).value(Some(&large)),
        Task::new("keyless", &compacted, due_at).key(None),
        Task::new("tombstone", &compacted, due_at).value(None),
    ];
    let neighbours = |name: &str, topic: &str| -> Vec<Task> {
        (0..10).map(|n| Task::new(&format!("{name}{n}"), topic, due_at)).collect()
    };
    tasks.extend([neighbours("s", &shrinks), neighbours("c", &compacted)].concat());
    world.submit(&tasks).await?;

    let mut task_ids: Vec<String> = topics.iter().map(|topic| format!("first-{topic}")).collect();
    task_ids.extend((0..10).flat_map(|n| [format!("s{n}"), format!("c{n}")]));
    task_ids.extend(["grown".into(), "tombstone".into()]);
    let records = world.check(&Expected { task_ids, topics }).await?;
    assert_eq!(by_id(&records, "grown")?.value, Some(large));
    let tombstone = by_id(&records, "tombstone")?;
    assert_eq!((tombstone.value.as_deref(), tombstone.key.as_deref()), (None, Some(&b"tombstone"[..])));
    assert_eq!(dead(&world, 2).await?, ["keyless: key_required", "shrunk: too_large"]);
    Ok(())
}
