//! Names of the topics, groups and transactional ids that belong to one pipeline.

use crate::ids::Slot;

/// Names derived from the pipeline's prefix (default `duestream.`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// Names under a prefix such as `duestream.`.
    pub fn new(prefix: impl Into<String>) -> Names {
        Names { prefix: prefix.into() }
    }

    /// The prefix itself: callback topics may not start with it.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Commands of producers (the default source).
    pub fn tasks(&self) -> String {
        self.topic("tasks")
    }
    /// Due records, partition = slot.
    pub fn due(&self) -> String {
        self.topic("due")
    }
    /// Empty; the group protocol hands out slots over it.
    pub fn slots(&self) -> String {
        self.topic("slots")
    }
    /// Fates and heartbeats, partition = slot.
    pub fn journal(&self) -> String {
        self.topic("journal")
    }
    /// Progress and outcome reported by consumers.
    pub fn acks(&self) -> String {
        self.topic("acks")
    }
    /// Limits and pauses, compacted.
    pub fn control(&self) -> String {
        self.topic("control")
    }
    /// Answers to commands.
    pub fn replies(&self) -> String {
        self.topic("replies")
    }
    /// Bytes that could not be accepted.
    pub fn rejected(&self) -> String {
        self.topic("rejected")
    }
    /// Tasks that will not be tried again.
    pub fn dead(&self) -> String {
        self.topic("dead")
    }

    /// Whether commands may be read from a topic of this name. Behind the pipeline's prefix names are kept for the
    /// pipeline, but for those that begin as [`Names::tasks`] does.
    pub fn may_be_source(&self, topic: &str) -> bool {
        let internal =
            topic.starts_with("__") || topic.starts_with(&self.prefix) && !topic.starts_with(&self.tasks());
        !internal && crate::command::is_topic_name(topic)
    }

    fn dashed(&self) -> String {
        self.prefix.trim_end_matches(['.', '-', '_']).replace('.', "-")
    }

    /// Consumer group of a program, such as `duestream-scanner`.
    pub fn group(&self, program: &str) -> String {
        format!("{}-{program}", self.dashed())
    }

    /// Transactional id of a slot's main lane, such as `duestream-dispatch-3`.
    pub fn main_lane(&self, slot: Slot) -> String {
        format!("{}-dispatch-{slot}", self.dashed())
    }

    /// Transactional id of a slot's quarantine lane, such as `duestream-dispatch-3-q`.
    pub fn quarantine_lane(&self, slot: Slot) -> String {
        format!("{}-dispatch-{slot}-q", self.dashed())
    }
}
