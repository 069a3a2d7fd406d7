//! The Merkle tree of RFC 9162: what a leaf and a node hash to, and the two shapes a growing tree
//! is kept in.
//!
//! Must hold: a leaf and an inner node can never hash alike (the first byte tells them apart), and
//! the root of a tree is the same whichever way it was computed.
//!
//! Not here: where leaves are kept (`store`), what signs a root (`checkpoint`).

use std::fmt;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use frontier::{Frontier, root_of};
pub use proof::{consistency_proof, inclusion_proof, verify_consistency, verify_inclusion};
pub use span::Span;

mod frontier;
mod proof;
mod span;

/// A SHA-256 hash of the tree; as text, standard base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The root of the tree without leaves: the hash of nothing.
    #[must_use]
    pub fn of_nothing() -> Self {
        sha256(&[])
    }

    /// The hash of one entry.
    #[must_use]
    pub fn leaf(entry: &[u8]) -> Self {
        sha256(&[&[0], entry])
    }

    /// The hash over two neighbouring subtrees.
    #[must_use]
    pub fn node(left: &Self, right: &Self) -> Self {
        sha256(&[&[1], &left.0, &right.0])
    }

    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Reads the one text a hash has: other spellings of the same bytes are refused.
    #[must_use]
    pub fn from_base64(text: &str) -> Option<Self> {
        Self::from_slice(&STANDARD.decode(text).ok()?)
    }
}

fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    Hash(hash)
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::from_base64(&text)
            .ok_or_else(|| serde::de::Error::custom("a hash is 32 bytes in base64"))
    }
}

/// Where a tree of `size` leaves (at least 2) splits: the largest power of two below `size`.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
pub(crate) mod naive {
    //! The definition of RFC 9162, section 2.1.1, word for word: the oracle of the tests.

    use super::{Hash, split};

    pub(crate) fn root(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Hash::of_nothing(),
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
                Hash::node(&root(left), &root(right))
            }
        }
    }

    pub(crate) fn leaves(count: u64) -> Vec<Hash> {
        (0..count).map(|n| Hash::leaf(&n.to_be_bytes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use falaj_base::hex;

    use super::*;

    /// The eight entries, and the roots over the first n of them, that Certificate Transparency
    /// implementations share as test vectors.
    #[test]
    fn the_known_roots() {
        let entries: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut tree = Frontier::default();
        assert_eq!(hex(&tree.root().0), roots[0]);
        for (entry, root) in entries.iter().zip(&roots[1..]) {
            tree.append(Hash::leaf(entry));
            assert_eq!(hex(&tree.root().0), *root, "after {} entries", tree.size());
        }
    }

    #[test]
    fn a_hash_has_one_text() {
        let hash = Hash::leaf(b"x");
        let text = hash.to_string();
        assert_eq!(Hash::from_base64(&text), Some(hash));
        let unpadded = text.trim_end_matches('=');
        let trailing_bits =
            format!("{}{}", &text[..42], if &text[42..] == "B=" { "C=" } else { "B=" });
        for bad in ["", unpadded, &trailing_bits, &format!("{text}\n"), &STANDARD.encode([0; 31])] {
            assert_eq!(Hash::from_base64(bad), None, "{bad:?}");
        }
    }
}
