//! The prediction log on both engines, with real blobs.

#![allow(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod keeping;
mod outcomes;
mod reading;
mod world;
