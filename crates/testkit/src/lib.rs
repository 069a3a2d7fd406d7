//! What tests stand on: a real server as a child process, fresh databases of both engines, a
//! network that misbehaves on purpose, and the crash harness.
//!
//! Must hold:
//! - Nothing here is linked into the product; nothing here imitates it. A [`Sandbox`] is the
//!   binary a user runs, a [`database`] is a real SQLite file or a real PostgreSQL server.
//! - What is started is stopped by its own id, and what is written lies in a temporary folder.
//! - Randomness comes from a printed seed, so that a failure can be run again.
//!
//! Not here: fixtures of a single domain; those live beside its tests.

pub mod client;
pub mod crash;
pub mod database;
pub mod faulty;
pub mod random;
pub mod sandbox;

pub use client::{Answer, Client};
pub use random::Random;
pub use sandbox::{Sandbox, Setup};
