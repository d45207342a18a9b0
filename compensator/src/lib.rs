//! compensator
