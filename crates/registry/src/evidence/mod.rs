//! The proof of what a version is: its files with their digests, a signature over them, and what
//! the scan found.
//!
//! ```text
//! registered → pending ─┬→ signed     the files that were there when it was registered
//!                       ├→ empty      no files (yet)
//!                       ├→ changed    a file was replaced before it could be signed
//!                       └→ refused    it cannot be signed, and why
//! ```
//!
//! Must hold:
//! - Registering a version pins its files in the same transaction; what is signed later is what was
//!   registered, or nothing.
//! - Making the evidence is idempotent: a worker does it right after registration, and whoever
//!   needs it sooner does it at once. The first result stays.
//! - The files of a version are read by one at a time, and by few at a time in all; whoever asks
//!   meanwhile waits for the result, or is told to ask again.
//! - A signature is checked against the files as they lie now, before a version is promoted or
//!   loaded. A file that changed, vanished or came is a refusal with its name.
//! - The private key leaves the database only sealed by the tenant's key.
//!
//! Not here: the formats (`signing`, `scan`, `bom`).

mod bom;
mod files;
pub(crate) mod http;
mod key;
mod make;
mod record;
mod service;
pub(crate) mod store;
mod turn;
mod verify;
mod worker;

pub use record::{Evidence, SignedFile, State};
pub(crate) use turn::Turns;
pub use verify::Checked;
pub(crate) use worker::worker;
