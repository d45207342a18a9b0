//! A member of a consumer group whose positions are the program's own.
//!
//! ```text
//! poll thread: rebalance ─▶ Assigned(stream), nothing is fetched yet
//! program:     looks up its position ─▶ stream.start(offset) ─▶ stream.recv() …  until None (revoked)
//! ```
//!
//! - One thread per member polls for as long as the member lives, so a busy program is never thrown out of the group.
//! - Each partition has its own queue inside librdkafka. A program that does not read lets it fill up to
//!   `fetch_buffer_kib`, then fetching stops by itself: that is the backpressure (I-7), one partition's queue
//!   never fills another's (I-8), and nothing prefetched is thrown away as `pause` would.
//! - A revoked partition is given up at once; what the program still does with it must be harmless (compare-and-set,
//!   fencing). To stop in good order, finish the work first and then [`Member::leave`].
//! - Nothing is committed but by [`PartitionStream::commit_for_lag_tools`], and no commit is ever read.

mod context;
mod poll;
mod skip;
mod stream;

pub use stream::{BatchLimits, PartitionStream};

use super::client::Cluster;
use super::error::KafkaFault;
use context::MemberContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How a member joins.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// Consumer group.
    pub group: String,
    /// Topics; all members of the group should name the same.
    pub topics: Vec<String>,
    /// A member that says nothing for this long is dead. The broker's `group.min.session.timeout.ms` is 6 s unless set.
    pub session_timeout: Duration,
    /// Hide records of open and aborted transactions. Off only where nobody writes transactions.
    pub read_committed: bool,
    /// Memory for records fetched ahead, per partition, in KiB. One fetch answer (1 MiB) may go beyond it.
    pub fetch_buffer_kib: u32,
    /// `group.instance.id`. Off by default: librdkafka's static members send no `LeaveGroup`, so a stop costs a session.
    pub instance_id: Option<String>,
}

impl MemberSettings {
    /// Defaults: session 10 s, committed records only, 8 MiB per partition.
    pub fn new(
        group: impl Into<String>,
        topics: impl IntoIterator<Item = impl Into<String>>,
    ) -> MemberSettings {
        MemberSettings {
            group: group.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            session_timeout: Duration::from_secs(10),
            read_committed: true,
            fetch_buffer_kib: 8 * 1024,
            instance_id: None,
        }
    }
}

/// A partition by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
}

/// What happens to a member, in order.
#[derive(Debug)]
pub enum MemberEvent {
    /// These came in addition to what is there. Each waits until its stream is started.
    Assigned(Vec<PartitionStream>),
    /// These went to others in good order; their streams have ended.
    Revoked(Vec<PartitionKey>),
    /// These were taken because the group believed this member dead: others may have them already.
    Lost(Vec<PartitionKey>),
    /// Something that does not heal by itself: not authorised, topic missing, the client is unusable.
    Trouble(KafkaFault),
}

/// Membership in a group. Leaves when dropped, without waiting for it.
#[derive(Debug)]
pub struct Member {
    events: mpsc::UnboundedReceiver<MemberEvent>,
    stop: Arc<AtomicBool>,
    left: Option<oneshot::Receiver<()>>,
}

impl Member {
    /// Joins the group. Returns at once: the first `Assigned` comes as an event.
    pub fn join(cluster: &Cluster, settings: &MemberSettings) -> Result<Member, KafkaFault> {
        const OP: &str = "join group";
        let heartbeat_ms = (settings.session_timeout.as_millis() / 4).clamp(100, 3_000);
        let mut config = cluster.consumer_config(
            &settings.group,
            &[
                // After an error the default waits half a second, after a full buffer one second.
                ("fetch.error.backoff.ms", "100"),
                ("fetch.queue.backoff.ms", "20"),
                ("queued.min.messages", "10000"),
                ("heartbeat.interval.ms", &heartbeat_ms.to_string()),
            ],
        );
        config
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", settings.session_timeout.as_millis().to_string())
            .set(
                "isolation.level",
                if settings.read_committed { "read_committed" } else { "read_uncommitted" },
            )
            .set("queued.max.messages.kbytes", settings.fetch_buffer_kib.to_string());
        if let Some(id) = &settings.instance_id {
            config.set("group.instance.id", id);
        }
        let context = MemberContext::new(settings.group.clone(), cluster.clone());
        let consumer: BaseConsumer<MemberContext> =
            config.create_with_context(context).map_err(KafkaFault::at(OP))?;
        let topics: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(KafkaFault::at(OP))?;

        let (tell, events) = mpsc::unbounded_channel();
        let (done, left) = oneshot::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let thread_stop = stop.clone();
        let thread = std::thread::Builder::new().name(format!("group {}", settings.group));
        thread
            .spawn(move || {
                poll::run(consumer, &tell, &thread_stop);
                drop(tell);
                // Nobody may be waiting: a dropped member leaves without being asked.
                done.send(()).ok();
            })
            .map_err(|e| KafkaFault::of(OP, rdkafka::error::KafkaError::ClientCreation(e.to_string())))?;
        Ok(Member { events, stop, left: Some(left) })
    }

    /// The next event; `None` once the member has left. May be dropped and called again without losing an event.
    pub async fn event(&mut self) -> Option<MemberEvent> {
        self.events.recv().await
    }

    /// Leaves the group and waits until the others may have the partitions. All streams end.
    pub async fn leave(mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(left) = self.left.take() {
            // An error means that the thread is gone, and with it the membership.
            drop(left.await);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}
