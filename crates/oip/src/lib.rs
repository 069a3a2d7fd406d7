//! The Open Inference Protocol, version 2, as bytes: requests into tensors, tensors into replies.
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | a request and a response, whatever carried them; the limits |
//! | [`http`] | JSON with the binary tensor extension |
//! | [`grpc`] | the same through [`proto`], the messages of `inference.*` |
//! | [`classes`] | the classification extension |
//! | [`client`] | the other half: requests written, answers read |
//! | [`describe`] | what a server says about itself and its models, as JSON and as protobuf |
//! | [`scoring`] | the shapes of MLflow's `/invocations` |
//! | [`error`] | `{"error": "..."}` |
//!
//! What must hold: nothing a client sends costs more memory than a small multiple of its bytes (a
//! shape makes no room before its data is there), and every refusal names the field, the value and
//! what is allowed.
//!
//! Not here: sockets, models, names of endpoints. Whether inputs fit a model is
//! [`falaj_inference::Metadata::check`].
//!
//! # Numbers that JSON has no form for
//!
//! NaN is written as `null`: every client reads that, and numpy makes NaN of it again. Infinities
//! are written as the bare words `Infinity` and `-Infinity`, which Python's `json` and the JSON
//! library of `tritonclient` read; strict readers must ask for raw bytes. All of these are read, and
//! the bare word `NaN` too. FP16 and BF16 travel as raw bytes only.

pub mod classes;
pub mod client;
pub mod describe;
pub mod error;
pub mod grpc;
pub mod http;
mod json;
pub mod message;
mod parameters;
pub mod proto;
pub mod scoring;

pub use classes::classify;
pub use grpc::{read_grpc, write_grpc};
pub use http::{HEADER_LENGTH, Written, header_length, read_http, write_http};
pub use message::{Asked, Limits, Parameters, Request, Response, Value, Wanted};
