//! Streams of records, read from where the reader says.
//!
//! One seam, two kinds of servers behind it: Kafka (its protocol, spoken here) and NATS `JetStream`.
//! A [`Reader`] gives the records of one partition from an offset on, in order, no more than it is
//! told to. Which records were taken is not known here: offsets live with the data.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | where streams are, and who may read them |
//! | [`record`] | records, and how many are asked for at a time |
//! | [`failure`] | why there are none |
//! | `broker` | the seam |
//! | `kafka`, `nats` | both kinds of servers |
//!
//! Must hold:
//! - Records come in the order of their offsets, each once for an offset that is asked for; what was
//!   removed before it was read is told, not passed over.
//! - Nothing a server says makes more memory than the bounds allow, or a call without an end.
//! - Connections go to the servers that the configuration names and nowhere else.
//!
//! Not here: consumer groups, producing, what records mean.

mod broker;
pub mod config;
pub mod failure;
mod kafka;
mod nats;
pub mod record;
mod tls;

pub use broker::{Broker, Reader, Topic};
pub use config::{Mechanism, StreamConfig, StreamKind};
pub use failure::Failure;
pub use record::{Body, Bounds, Chunk, Record, Start};
