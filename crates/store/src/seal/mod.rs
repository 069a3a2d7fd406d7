//! Authenticated encryption of everything at rest: streams of any length, and little values.
//!
//! A stream is sealed in the published Tink *AES256-GCM-HKDF streaming* layout with 64 KiB
//! segments, so any Tink library with the key reads it without us: a 40-byte header (its length,
//! a 32-byte salt, a 7-byte nonce prefix), then segments of AES-256-GCM, each under the nonce
//! `prefix ‖ u32 counter ‖ last`. The key of one stream is HKDF-SHA-256 over the data key, the
//! salt and the caller's *associated data*, which therefore names what the bytes are: the same
//! bytes presented as anything else do not open.
//!
//! Must hold:
//! - Plaintext is handed out only after the segment it lies in was authenticated.
//! - A flipped bit, a cut, a swapped or repeated segment, a foreign key or other associated data
//!   is [`INTEGRITY`](falaj_base::code::INTEGRITY), never other plaintext.
//! - A key is wiped when dropped and is absent from `Debug`.
//! - Both formats outlive the process: the files in `tests/sealed/` must open for ever.
//!
//! Not here: which key seals what (`keys`), where the bytes lie (`objects`).

mod buffer;
mod key;
mod layout;
mod opener;
mod sealer;
mod small;
#[cfg(test)]
mod tests;

use falaj_base::{Error, code};

pub use buffer::Buffer;
pub use key::DataKey;
pub use layout::{HEADER_LEN, Layout, SEGMENT_LEN, TAG_LEN};
pub use opener::{Opener, SegmentOpener};
pub use sealer::Sealer;
pub use small::{SMALL_OVERHEAD, open_small, seal_small};

/// The one answer to bytes that are not what was sealed. It says nothing about where they differ:
/// to an attacker that would be an oracle, to everyone else it makes no difference.
fn tampered() -> Error {
    Error::new(&code::INTEGRITY, "the stored bytes are not the ones that were sealed")
}
