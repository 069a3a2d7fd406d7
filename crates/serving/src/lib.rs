//! Serving: registered models answer requests.

pub mod predictions;
pub mod runtime;
pub mod traffic;
