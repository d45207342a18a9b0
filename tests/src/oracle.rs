//! What must hold at the end of every run, read from the outside: callback topics and MySQL.

use crate::world::World;
use anyhow::{Result, ensure};
use devstack::topics::Record;
use protocol::state::TaskState;
use std::collections::BTreeMap;

/// The tasks that a test expects to be delivered.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Task ids.
    pub task_ids: Vec<String>,
    /// All callback topics they may be on.
    pub topics: Vec<String>,
}

impl World {
    /// Waits until every task of the pipeline is final, then checks I-1, I-2 and I-3 against `expected`.
    ///
    /// # Errors
    /// With the first few tasks that are lost, doubled, early or unexpected.
    pub async fn check(&self, expected: &Expected) -> Result<Vec<Record>> {
        let topics: Vec<&str> = expected.topics.iter().map(String::as_str).collect();
        self.delivered(&topics, expected.task_ids.len()).await?;
        self.await_count(
            "every task to be final",
            &format!(
                "SELECT COUNT(*) FROM task WHERE state IN ({}, {})",
                TaskState::Scheduled.code(),
                TaskState::Running.code()
            ),
            0,
        )
        .await?;
        // Read once more after MySQL has settled: a duplicate may come after the last first delivery.
        let records = self.visible(&topics).await?;
        each_once_and_none_early(&expected.task_ids, &records)?;
        ensure!(self.count("SELECT COUNT(*) FROM pending").await? == 0, "rows are left in pending");
        Ok(records)
    }
}

/// I-1, I-2, I-3 on the records of the callback topics.
pub fn each_once_and_none_early(task_ids: &[String], records: &[Record]) -> Result<()> {
    let mut times: BTreeMap<&str, usize> = task_ids.iter().map(|id| (id.as_str(), 0)).collect();
    let mut unexpected = Vec::new();
    let mut early = Vec::new();
    for record in records {
        let id = record.header("duestream-task-id").unwrap_or("(no task id)");
        match times.get_mut(id) {
            Some(count) => *count += 1,
            None => unexpected.push(id),
        }
        let due_at = record.number("duestream-due-at");
        let delivered_at = record.number("duestream-delivered-at");
        if due_at.is_none() || delivered_at < due_at || Some(record.timestamp_at) < due_at {
            early.push(format!(
                "{id}: due {due_at:?}, delivered {delivered_at:?}, written {}",
                record.timestamp_at
            ));
        }
    }
    let lost: Vec<&&str> = times.iter().filter(|(_, count)| **count == 0).map(|(id, _)| id).collect();
    let doubled: Vec<_> = times.iter().filter(|(_, count)| **count > 1).collect();
    ensure!(lost.is_empty(), "{} lost: {:?}", lost.len(), &lost[..lost.len().min(5)]);
    ensure!(doubled.is_empty(), "{} doubled: {:?}", doubled.len(), &doubled[..doubled.len().min(5)]);
    ensure!(early.is_empty(), "{} early: {:?}", early.len(), &early[..early.len().min(5)]);
    ensure!(
        unexpected.is_empty(),
        "{} unexpected: {:?}",
        unexpected.len(),
        &unexpected[..unexpected.len().min(5)]
    );
    Ok(())
}
