//! Registered models on their way in from another store, and what is here of them.
//!
//! Must hold:
//! - A model is the same as one that is here if both have the same name and were created at the
//!   same millisecond; another model of that name is refused, never mixed.
//! - Everything can be sent again: the second time changes nothing.
//! - An alias or a stage that an import moves stands in the history like any other move.
//!
//! Not here: what other stores look like (`moving`), runs and logged models (`tracking`).

mod digest;
pub(crate) mod http;
mod service;
mod store;
mod wire;
