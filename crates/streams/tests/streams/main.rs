//! Both kinds of servers through one seam: the same suite on NATS and on Kafka's protocol.
//!
//! NATS is the real server. Kafka is the cluster inside librdkafka (`tests/kafka_mock.py`): the real
//! protocol over TCP, and no real broker.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod kafka;
mod login;
mod nats;
mod servers;
mod suite;
