//! Signatures over a model's files, in the `OpenSSF` Model Signing format, version 1.0.
//!
//! A signature is a Sigstore bundle: a DSSE envelope around an in-toto statement that lists every
//! file with its SHA-256. Anyone can check it with the stock `model-signing` tool and the public
//! key; [`verify`] accepts what that tool signs with a P-256 key.
//!
//! What must hold: nothing inside an envelope is believed before its signature is checked, and a
//! file that no signature covers is never passed over in silence: [`verify`] refuses it, or names
//! it among [`Verified::unsigned`] where the signer excluded it.
//!
//! Deliberately absent: signing by shards (digests are kept per file), other hashes and curves,
//! certificates and keyless signing (they need services of other parties), and the envelopes of
//! releases before 1.0, which were signed over differently escaped bytes.

mod bundle;
mod key;
mod manifest;
mod refusal;
mod statement;

pub use bundle::{Bundle, MAX_BUNDLE_BYTES, Verified, sign, verify};
pub use key::{Pkcs8, PublicKey, SigningKey};
pub use manifest::{MAX_FILES, Manifest, ManifestFile, Sha256};
pub use refusal::Refusal;

#[cfg(test)]
mod tests;
