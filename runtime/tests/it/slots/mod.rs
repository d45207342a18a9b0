//! The slots' data in Redis. Every test has its own key prefix, or its own server where it must kill, fill or pause it.

mod cases;
mod faults;
mod property;
mod server;
mod world;
