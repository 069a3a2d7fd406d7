//! Crash.
fn main() {}
