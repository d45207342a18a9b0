//! devstack
