//! Signed checkpoints: the text by which a log commits to its size and root (C2SP `tlog-checkpoint`
//! in a C2SP `signed-note`).
//!
//! ```text
//! falaj/0190b4c2a5f07c3e9d3f6f1b2a4c5d6e      origin: which log
//! 4096                                        how many entries
//! CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=  the root over them
//!
//! — falaj/0190b4c2a5f07c3e9d3f6f1b2a4c5d6e Az3grl…  Ed25519 over the lines above
//! ```
//!
//! Must hold: a note has one spelling, and anything else is refused; a signature by another key
//! (a witness that signed the same text) is passed over, never trusted.
//!
//! Not here: when a checkpoint is made (`seal`) and where its copies go (`outside`).

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::merkle::Hash;

/// The algorithm byte of Ed25519 in a signed note.
const ED25519_NOTE: u8 = 1;
/// The longest note that is read, and the most signatures on one: room for many witnesses.
pub const MAX_NOTE: usize = 16 * 1024;
const MAX_SIGNATURES: usize = 64;

/// What a checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub origin: String,
    pub size: u64,
    pub root: Hash,
}

/// Why a note or a key was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("the checkpoint is not a signed note: {0}")]
    Malformed(&'static str),
    #[error("the checkpoint carries no signature by this key")]
    Unsigned,
    #[error("the checkpoint's signature does not hold")]
    BadSignature,
    #[error("the public key is not a note verifier key: {0}")]
    BadKey(&'static str),
}

impl Checkpoint {
    /// The text that is signed; ends in a newline.
    fn body(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, self.root)
    }

    fn from_body(body: &str) -> Result<Self, NoteError> {
        let bad = |reason| Err(NoteError::Malformed(reason));
        let mut lines = body.split_terminator('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next())
        else {
            return bad("it has fewer than three lines");
        };
        if lines.next().is_some() {
            return bad("it has lines after the root");
        }
        if !is_name(origin) {
            return bad("its origin is not a key name");
        }
        let decimal =
            size.bytes().all(|b| b.is_ascii_digit()) && (size == "0" || !size.starts_with('0'));
        let Some(size) = size.parse().ok().filter(|_| decimal) else {
            return bad("its size is not a plain number");
        };
        let Some(root) = Hash::from_base64(root) else {
            return bad("its root is not 32 bytes in base64");
        };
        Ok(Self { origin: origin.to_owned(), size, root })
    }
}

/// A key name: no spaces, no plus sign, nothing invisible.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 255 && text.bytes().all(|b| b.is_ascii_graphic() && b != b'+')
}

/// The four bytes by which a note's signature names its key.
fn key_hash(name: &str, public: &[u8; 32]) -> [u8; 4] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(name.as_bytes());
    context.update(&[b'\n', ED25519_NOTE]);
    context.update(public);
    let mut hash = [0; 4];
    hash.copy_from_slice(&context.finish().as_ref()[..4]);
    hash
}

/// The key that signs this log's checkpoints. Its secret half cannot be printed.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    verifier: VerifierKey,
}

impl SigningKey {
    /// The key named `origin` that grows from `seed`; none if `origin` cannot name a key.
    #[must_use]
    pub fn from_seed(origin: &str, seed: &[u8; 32]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = pair.public_key().as_ref().try_into().ok()?;
        let verifier = VerifierKey { name: origin.to_owned(), public };
        is_name(origin).then_some(Self { pair, verifier })
    }

    #[must_use]
    pub const fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// The signed note that commits this log to `root` over `size` entries.
    #[must_use]
    pub fn sign(&self, size: u64, root: Hash) -> String {
        let VerifierKey { name, public } = &self.verifier;
        let body = Checkpoint { origin: name.clone(), size, root }.body();
        let mut signature = key_hash(name, public).to_vec();
        signature.extend_from_slice(self.pair.sign(body.as_bytes()).as_ref());
        format!("{body}\n— {name} {}\n", STANDARD.encode(signature))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.verifier)
    }
}

/// The public half; as text a C2SP verifier key, `<name>+<hash>+<key>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    public: [u8; 32],
}

impl VerifierKey {
    /// The origin of the log that this key speaks for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads a note and answers what it says, if this key signed it for its own log.
    pub fn open(&self, note: &str) -> Result<Checkpoint, NoteError> {
        let bad = |reason| Err(NoteError::Malformed(reason));
        if note.len() > MAX_NOTE {
            return bad("it is too long");
        }
        if note.chars().any(|c| c.is_control() && c != '\n') {
            return bad("it contains control characters");
        }
        let Some((text, signatures)) = note.split_once("\n\n") else {
            return bad("there is no blank line before the signatures");
        };
        let body = format!("{text}\n");
        let Some(signatures) = signatures.strip_suffix('\n') else {
            return bad("it does not end with a newline");
        };
        let checkpoint = Checkpoint::from_body(&body)?;
        let mut held = false;
        for (count, line) in signatures.split('\n').enumerate() {
            let parts = line.strip_prefix("— ").and_then(|line| line.split_once(' '));
            let Some((name, encoded)) = parts.filter(|(name, _)| is_name(name)) else {
                return bad("a signature line is not `— name signature`");
            };
            let Some(signature) = STANDARD.decode(encoded).ok().filter(|bytes| bytes.len() > 4)
            else {
                return bad("a signature is not base64");
            };
            if count >= MAX_SIGNATURES {
                return bad("it has too many signatures");
            }
            let (hash, signature) = signature.split_at(4);
            if name != self.name || hash != key_hash(&self.name, &self.public) {
                continue;
            }
            if held {
                return bad("it is signed twice by the same key");
            }
            UnparsedPublicKey::new(&ED25519, &self.public)
                .verify(body.as_bytes(), signature)
                .map_err(|_| NoteError::BadSignature)?;
            held = true;
        }
        match held {
            true if checkpoint.origin == self.name => Ok(checkpoint),
            true => bad("its origin is another log than its key's"),
            false => Err(NoteError::Unsigned),
        }
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = u32::from_be_bytes(key_hash(&self.name, &self.public));
        let mut key = vec![ED25519_NOTE];
        key.extend_from_slice(&self.public);
        write!(f, "{}+{hash:08x}+{}", self.name, STANDARD.encode(key))
    }
}

impl FromStr for VerifierKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let bad = |reason| Err(NoteError::BadKey(reason));
        let text = text.strip_suffix('\n').unwrap_or(text);
        // Base64 may hold a plus sign itself, so only the first two separate.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(hash), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return bad("it is not `name+hash+key`");
        };
        if !is_name(name) {
            return bad("its name is not a key name");
        }
        let public = match STANDARD.decode(key).as_deref() {
            Ok([ED25519_NOTE, public @ ..]) => <[u8; 32]>::try_from(public).ok(),
            _ => None,
        };
        let Some(public) = public else { return bad("it is not an Ed25519 key") };
        let verifier = Self { name: name.to_owned(), public };
        let expected = format!("{:08x}", u32::from_be_bytes(key_hash(name, &public)));
        if hash == expected { Ok(verifier) } else { bad("its hash does not fit the key") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed("falaj/test", &[seed; 32]).unwrap()
    }

    #[test]
    fn a_note_says_what_was_signed() {
        let root = Hash::leaf(b"entry");
        let note = key(1).sign(42, root);
        let read = key(1).verifier().open(&note).unwrap();
        assert_eq!(read, Checkpoint { origin: "falaj/test".into(), size: 42, root });
        assert_eq!(key(2).verifier().open(&note), Err(NoteError::Unsigned));
        let other_log = SigningKey::from_seed("falaj/other", &[1; 32]).unwrap();
        assert_eq!(other_log.verifier().open(&note), Err(NoteError::Unsigned));
    }

    /// The example key of the Go module `golang.org/x/mod/sumdb/note`, an independent
    /// implementation of the same format.
    #[test]
    fn a_verifier_key_of_another_implementation_is_read() {
        let text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let verifier: VerifierKey = text.parse().unwrap();
        assert_eq!(verifier.to_string(), text);
        assert_eq!(verifier.name(), "PeterNeumann");
    }

    #[test]
    fn a_witness_beside_ours_is_passed_over() {
        let note = key(1).sign(7, Hash::leaf(b""));
        let witness = SigningKey::from_seed("witness.example", &[9; 32]).unwrap();
        let line = witness.sign(7, Hash::leaf(b"")).lines().last().unwrap().to_owned();
        let cosigned = format!("{note}{line}\n");
        assert!(key(1).verifier().open(&cosigned).is_ok());
        // The witness alone vouches for another origin than its own name: not our log's word.
        assert_eq!(key(3).verifier().open(&cosigned), Err(NoteError::Unsigned));
    }

    #[test]
    fn every_other_spelling_is_refused() {
        let good = key(1).sign(42, Hash::leaf(b"entry"));
        let verifier = key(1).verifier().clone();
        let signature = good.lines().last().unwrap();
        for bad in [
            String::new(),
            good.trim_end().to_owned(),
            good.replace("\n42\n", "\n042\n"),
            good.replace("\n42\n", "\n+42\n"),
            good.replace("\n42\n", "\n43\n"),
            good.replace("\n42\n", "\n99999999999999999999\n"),
            good.replace('\n', "\r\n"),
            good.replace("— ", "- "),
            good.replace("\n\n", "\nextension\n\n"),
            good.replace("\n\n", "\n"),
            format!("{good}{signature}\n"),
            format!("{good}\n"),
            format!("{good}{}", "— w AAAAAAAA\n".repeat(MAX_SIGNATURES)),
            format!("{good}{}", "x".repeat(MAX_NOTE)),
            format!("\n{good}"),
        ] {
            assert!(verifier.open(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_other_spelling_of_a_key_is_refused() {
        let good = key(1).verifier().to_string();
        assert_eq!(good.parse::<VerifierKey>().as_ref(), Ok(key(1).verifier()));
        for bad in [
            String::new(),
            "falaj/test".into(),
            good.replace("falaj/test", "falaj/best"),
            good.replace("falaj/test", "falaj test"),
            good.to_uppercase(),
            good[..good.len() - 4].to_owned(),
        ] {
            assert!(bad.parse::<VerifierKey>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn one_changed_byte_is_caught(at in any::<prop::sample::Index>(), byte in 1u8..=255) {
            let good = key(1).sign(42, Hash::leaf(b"entry"));
            let mut bytes = good.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
            let bad = String::from_utf8_lossy(&bytes);
            prop_assert!(key(1).verifier().open(&bad).is_err());
        }

        #[test]
        fn any_text_is_survived(text in "\\PC{0,80}(\n\\PC{0,40}){0,6}") {
            let _ = key(1).verifier().open(&text);
            let _ = text.parse::<VerifierKey>();
        }
    }
}
