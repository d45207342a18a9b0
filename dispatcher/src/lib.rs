//! dispatcher
