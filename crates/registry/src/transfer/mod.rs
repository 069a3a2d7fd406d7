//! Registered models on their way in from another store, and what is here of them.
//!
//! Must hold:
//! - A model is the same as one that is here if both have the same name and were created at the
//!   same millisecond; another model of that name is refused, never mixed.
//! - A version gets what a registration gives: its caller may read the files that it names, they
//!   stay from then on, they are signed and scanned, and everybody is told.
//! - An alias or a stage moves by the same rules as any other move, and is on record like it. One
//!   that the rules refuse is told as left out; the rest comes.
//! - Everything can be sent again: the second time changes nothing.
//!
//! Not here: what other stores look like (`moving`), runs and logged models (`tracking`).

mod batch;
mod digest;
pub(crate) mod http;
mod promote;
mod service;
mod store;
mod wire;
