//! Delivered exactly as submitted, whatever the task and whatever its callback topic.

mod bytes;
mod changes;
mod garbage;
mod topics;

use anyhow::{Context, Result};
use devstack::topics::Record;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use std::time::Duration;
use tests::World;

/// The partition that Java producers choose for a key, written down from Utils.murmur2 line by line, apart from ours.
fn java_partition(key: &[u8], partitions: i32) -> i32 {
    let m = 0x5bd1_e995_u32.cast_signed();
    let length = key.len();
    let unsigned_shift = |value: i32, by: u32| (value.cast_unsigned() >> by).cast_signed();
    let byte = |at: usize| i32::from(key[at]);
    let mut h = 0x9747_b28c_u32.cast_signed() ^ i32::try_from(length).expect("a small key");
    for i in 0..length / 4 {
        let i4 = i * 4;
        let mut k = byte(i4) + (byte(i4 + 1) << 8) + (byte(i4 + 2) << 16) + (byte(i4 + 3) << 24);
        k = k.wrapping_mul(m);
        k ^= unsigned_shift(k, 24);
        k = k.wrapping_mul(m);
        h = h.wrapping_mul(m);
        h ^= k;
    }
    let tail = length & !3;
    if length % 4 == 3 {
        h ^= byte(tail + 2) << 16;
    }
    if length % 4 >= 2 {
        h ^= byte(tail + 1) << 8;
    }
    if length % 4 >= 1 {
        h ^= byte(tail);
        h = h.wrapping_mul(m);
    }
    h ^= unsigned_shift(h, 13);
    h = h.wrapping_mul(m);
    h ^= unsigned_shift(h, 15);
    (h & 0x7fff_ffff) % partitions
}

#[test]
fn the_tests_own_partition_choice_is_that_of_java() {
    for row in
        include_str!("../../protocol/golden/java_partitions.txt").lines().filter(|row| !row.starts_with('#'))
    {
        let fields: Vec<&str> = row.split(' ').collect();
        let hex = if fields[0] == "-" { "" } else { fields[0] };
        let key: Vec<u8> = (0..hex.len() / 2)
            .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).expect("hex"))
            .collect();
        for (partitions, expected) in [1, 3, 7, 100].into_iter().zip(&fields[2..]) {
            assert_eq!(java_partition(&key, partitions).to_string(), *expected, "{row}");
        }
    }
}

/// The record of a task.
fn by_id<'r>(records: &'r [Record], id: &str) -> Result<&'r Record> {
    records
        .iter()
        .find(|record| record.header("duestream-task-id") == Some(id))
        .with_context(|| format!("no record of task {id}"))
}

/// Headers without ours.
fn own(headers: &[(String, Option<Vec<u8>>)]) -> Vec<(String, Option<Vec<u8>>)> {
    headers.iter().filter(|(name, _)| !name.starts_with("duestream-")).cloned().collect()
}

/// `task id: reason` of the dead letters, in order, once there are so many.
async fn dead(world: &World, count: usize) -> Result<Vec<String>> {
    let letters = world.delivered(&[&world.pipeline.names().dead()], count).await?;
    let mut dead: Vec<String> = letters
        .iter()
        .map(|letter| {
            let text = |name| letter.header(name).unwrap_or("none");
            format!("{}: {}", text("duestream-task-id"), text("duestream-dead-reason"))
        })
        .collect();
    dead.sort();
    Ok(dead)
}

fn admin(world: &World) -> Result<AdminClient<DefaultClientContext>> {
    Ok(ClientConfig::new().set("bootstrap.servers", &world.pipeline.addresses().kafka).create()?)
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)))
}

async fn add_partitions(world: &World, topic: &str, count: usize) -> Result<()> {
    let answers = admin(world)?.create_partitions(&[NewPartitions::new(topic, count)], &options()).await?;
    answers.into_iter().try_for_each(|answer| answer.map(drop).map_err(|(_, code)| code))?;
    Ok(())
}

async fn alter(world: &World, topic: &str, key: &str, value: &str) -> Result<()> {
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(key, value);
    let answers = admin(world)?.alter_configs(&[change], &options()).await?;
    answers.into_iter().try_for_each(|answer| answer.map(drop).map_err(|(_, code)| code))?;
    Ok(())
}

async fn delete(world: &World, topic: &str) -> Result<()> {
    let answers = admin(world)?.delete_topics(&[topic], &options()).await?;
    answers.into_iter().try_for_each(|answer| answer.map(drop).map_err(|(_, code)| code))?;
    Ok(())
}
