//! duectl
