//! Kafka: every client that the programs use, with the traps of librdkafka closed once for all.
//!
//! | what | for |
//! |---|---|
//! | [`Cluster`] | where the brokers are; every client is made from it |
//! | [`Admin`] | topics, settings, topic ids, ends of logs, what exactly-once needs of the brokers |
//! | [`Member`], [`PartitionStream`] | a group member whose positions are the program's own |
//! | [`BatchProducer`] | batches sent and acked as one |
//! | [`TxnProducer`] | one lane of a slot: transactions whose outcome is never guessed |
//! | [`JournalReader`] | a stretch of one partition, outside any group |
//! | [`Tail`] | topics followed live, outside any group |
//! | [`KafkaFault`], [`Disposition`] | what went wrong, and what the caller must do |

mod admin;
mod batch;
mod client;
mod error;
mod guarantees;
mod journal_reader;
mod member;
pub mod metrics;
mod native;
mod record;
mod tail;
mod topic_id;
mod transactional;

pub use admin::{Admin, Created, PartitionInfo, TopicInfo, TopicSpec};
pub use batch::{BatchProducer, BatchResult, BatchSettings, MAX_BATCH_RECORDS, Placed};
pub use client::{Cluster, MAX_LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES};
pub use error::{Disposition, KafkaFault, Refusal};
pub use guarantees::{BrokenGuarantee, BrokerFacts};
pub use journal_reader::JournalReader;
pub use member::{BatchLimits, Member, MemberEvent, MemberSettings, PartitionKey, PartitionStream};
pub use rdkafka::error::{KafkaError, RDKafkaErrorCode};
pub use record::{Cut, OutRecord, Record};
pub use tail::{Tail, TailFrom};
pub use topic_id::TopicId;
pub use transactional::{LaneSettings, Outcome, Report, SendFault, TxnProducer};
