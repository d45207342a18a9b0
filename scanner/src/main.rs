//! Placeholder for the first build of the dependencies.
fn main() {}
