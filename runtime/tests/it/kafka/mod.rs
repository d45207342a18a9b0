//! Kafka: each trap that `runtime::kafka` closes, seen on a real broker.

mod admin;
mod batch;
mod journal_reader;
mod member;
mod storm;
mod transactional;
mod world;
