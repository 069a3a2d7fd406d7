//! What is known about serving a version: whether it can be, by which engine, what goes in and out,
//! how it answered when it was registered, and whether it answers alike in any batch.
//!
//! ```text
//! registered → (looked at) ─┬→ servable   an ONNX model that an engine runs
//!                           ├→ refused    an ONNX model that none runs, and why
//!                           └→ absent     no ONNX model among its files
//! ```
//!
//! Must hold:
//! - A profile is of the files that were signed: the digest stands in it, and a version whose files
//!   changed has none.
//! - The golden pair was computed when the profile was made. Whoever loads the model later, on
//!   whatever engine, must reproduce it or refuse to serve.
//! - Making one is idempotent: a worker does it after registration, and a deployment that comes
//!   sooner does it at once.
//!
//! Not here: running models for callers (`runtime`), where they are deployed (`endpoint`).

mod codec;
mod example;
mod files;
pub(crate) mod http;
mod make;
mod record;
mod service;
pub(crate) mod store;
mod worker;

pub(crate) use codec::decode as decode_golden;
pub(crate) use example::{FILE as EXAMPLE, MAX_BYTES as MAX_EXAMPLE};
pub(crate) use files::Files;
pub(crate) use make::measure;
pub use record::{Invariance, Port, Profile, State};
pub(crate) use worker::worker;
