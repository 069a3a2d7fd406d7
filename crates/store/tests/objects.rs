//! Keys and objects: one suite, run on every engine, every key manager and every kind of root,
//! and the object format held against an outside implementation.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a helper that cannot go on fails its test, and what was skipped is said aloud"
)]

#[path = "objects/blobs.rs"]
mod blobs;
#[path = "objects/faults.rs"]
mod faults;
#[path = "objects/keys.rs"]
mod keys;
#[path = "objects/limits.rs"]
mod limits;
#[path = "objects/tink.rs"]
mod tink;
#[path = "objects/vault.rs"]
mod vault;
#[path = "objects/world.rs"]
mod world;
