//! Callback topics that take less than others.

use super::{by_id, dead};
use anyhow::Result;
use tests::{Expected, Task, World, now_ms};

#[tokio::test]
async fn what_is_too_large_for_its_topic_is_dead_and_its_neighbours_are_delivered_to_the_last_byte()
-> Result<()> {
    let world = World::started("small").await?;
    let small = world.topic_with("small", 1, &[("max.message.bytes", "5000")]).await?;
    let other = world.topic("other", 1).await?;
    let due_at = now_ms() + 1_500;
    // Sizes around the limit: the batch header, our headers and the value's own come on top of the value.
    let sizes: Vec<usize> = (4_500..5_020).step_by(4).chain([20_000]).collect();
    let task = |n: usize| Task::new(&format!("size{n:05}"), &small, due_at).value(Some(&vec![b'x'; n]));
    let mut tasks: Vec<Task> = sizes.iter().map(|n| task(*n)).collect();
    tasks.extend((0..20).map(|n| Task::new(&format!("other{n}"), &other, due_at)));
    world.submit(&tasks).await?;

    let letters = world.delivered(&[&world.pipeline.names().dead()], 1).await?;
    let smallest = letters.iter().filter_map(|letter| letter.value.as_ref().map(Vec::len)).min().unwrap_or(0);
    let (fits, large): (Vec<usize>, Vec<usize>) = sizes.iter().partition(|n| **n < smallest);
    let mut task_ids: Vec<String> = fits.iter().map(|n| format!("size{n:05}")).collect();
    task_ids.extend((0..20).map(|n| format!("other{n}")));
    let records = world.check(&Expected { task_ids, topics: vec![small, other] }).await?;
    let expected: Vec<String> = large.iter().map(|n| format!("size{n:05}: too_large")).collect();
    assert_eq!(dead(&world, large.len()).await?, expected);
    assert!(
        letters
            .iter()
            .all(|letter| letter.value.as_ref().is_some_and(|value| value.iter().all(|b| *b == b'x')))
    );
    // The largest that was delivered fills the topic's limit to within one step.
    let largest = by_id(&records, &format!("size{:05}", fits.last().copied().unwrap_or(0)))?;
    let varint = |len: usize| if len < 64 { 1 } else { 2 };
    let headers: usize = largest
        .headers
        .iter()
        .map(|(name, value)| {
            let value = value.as_ref().map_or(0, Vec::len);
            varint(name.len()) + name.len() + varint(value) + value
        })
        .sum();
    let key = largest.key.as_ref().map_or(0, Vec::len);
    let bytes = 61 + 2 + 3 + 1 + key + 2 + fits.last().copied().unwrap_or(0) + 1 + headers;
    assert!((4_997..=5_000).contains(&bytes), "a record of {bytes} bytes was the largest that was delivered");
    Ok(())
}
