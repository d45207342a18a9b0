//! Queues of a callback topic: first attempts, and retries beside them, so that a storm of retries delays no fresh task.

use super::Topic;
use schemas::due::{DueKind, DueRecord};

/// What follows the topic in the name of the queue of its retries. No topic name has a slash.
const RETRIES: &str = "/retry";

/// The queue of a topic's retries.
pub fn retry_queue(topic: &str) -> Topic {
    format!("{topic}{RETRIES}").into()
}

/// Whether it is the queue of a topic's retries.
pub fn is_retry_queue(queue: &str) -> bool {
    queue.ends_with(RETRIES)
}

/// The callback topic of a queue.
pub fn topic_of(queue: &Topic) -> Topic {
    queue.strip_suffix(RETRIES).map_or_else(|| Topic::clone(queue), Topic::from)
}

/// The queue in which the member of a due record waits. A withdraw does not know: its intent stands in the first one.
pub fn queue_of(record: &DueRecord) -> Topic {
    match &record.kind {
        DueKind::Deliver(deliver) if deliver.attempt > 1 => retry_queue(&record.callback_topic),
        DueKind::Deliver(_) | DueKind::Withdraw => Topic::from(record.callback_topic.as_str()),
    }
}

/// The queues in which the member may stand by its body: an older version kept retries among the others.
pub fn queues_of(record: &DueRecord) -> Vec<Topic> {
    let first = Topic::from(record.callback_topic.as_str());
    let own = queue_of(record);
    if own == first { vec![own] } else { vec![own, first] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_tells_its_topic() {
        let (fresh, retries): (Topic, Topic) = ("orders.a".into(), retry_queue("orders.a"));
        assert_eq!((&*topic_of(&fresh), &*topic_of(&retries)), ("orders.a", "orders.a"));
        assert!(is_retry_queue(&retries) && !is_retry_queue(&fresh));
        assert!(!schemas::command::is_topic_name(&retries), "it is nobody's topic");
    }
}
