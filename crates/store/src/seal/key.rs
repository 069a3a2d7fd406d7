//! The key type, and the derivations from it.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::{hkdf, rand};
use falaj_base::{Error, Result};
use zeroize::Zeroizing;

/// The length of every key here.
pub(super) const KEY_LEN: usize = 32;

/// A 256-bit secret that others are derived from. Wiped when dropped, hidden from `Debug`.
#[derive(Clone)]
pub struct DataKey(Zeroizing<[u8; KEY_LEN]>);

impl DataKey {
    /// A fresh key from the operating system's random source.
    pub fn generate() -> Result<Self> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        rand::fill(bytes.as_mut()).map_err(|_| Error::internal("no randomness available"))?;
        Ok(Self(bytes))
    }

    #[must_use]
    pub fn from_bytes(bytes: Zeroizing<[u8; KEY_LEN]>) -> Self {
        Self(bytes)
    }

    /// The key itself, for wrapping it. Every use can be found by this name.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// An independent secret for `purpose`: knowing it tells nothing about the key or about any
    /// other purpose.
    pub fn derive(&self, salt: &[u8], purpose: &[u8]) -> Result<Zeroizing<[u8; KEY_LEN]>> {
        let mut bytes = Zeroizing::new([0; KEY_LEN]);
        hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
            .extract(self.0.as_ref())
            .expand(&[purpose], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(bytes.as_mut()))
            .map_err(|_| Error::internal("HKDF failed"))?;
        Ok(bytes)
    }

    pub(super) fn cipher(&self, salt: &[u8], purpose: &[u8]) -> Result<LessSafeKey> {
        let bytes = self.derive(salt, purpose)?;
        UnboundKey::new(&AES_256_GCM, bytes.as_ref())
            .map(LessSafeKey::new)
            .map_err(|_| Error::internal("AES-256-GCM refused a key of its own length"))
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(hidden)")
    }
}
