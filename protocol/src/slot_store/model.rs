//! The scripts as pure Rust.
