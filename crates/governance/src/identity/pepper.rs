//! The one secret behind everything identity keeps: keys for token MACs, cache fingerprints and
//! sealed cookies are all derived from it, each under a label of its own.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{constant_time, digest, hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use falaj_base::{Error, Result};
use zeroize::Zeroizing;

/// Keys derived from the platform's token pepper. Losing it makes every token and every half-done
/// sign-in worthless, and harms nothing else.
pub struct Pepper {
    token: hmac::Key,
    cache: hmac::Key,
    cookie: RandomizedNonceKey,
}

impl Pepper {
    pub fn new(secret: &Zeroizing<[u8; 32]>) -> Result<Self> {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret.as_slice());
        let derive = |label: &str| hmac::sign(&root, label.as_bytes());
        let mac = |label| hmac::Key::new(hmac::HMAC_SHA256, derive(label).as_ref());
        let cookie =
            RandomizedNonceKey::new(&AES_256_GCM, derive("falaj login cookie v1").as_ref());
        Ok(Self {
            token: mac("falaj token mac v1"),
            cache: mac("falaj credential cache v1"),
            cookie: cookie.map_err(|_| Error::internal("the cookie key has a wrong length"))?,
        })
    }

    /// What is stored of a token's secret half.
    #[must_use]
    pub fn token_mac(&self, secret: &[u8]) -> Vec<u8> {
        hmac::sign(&self.token, secret).as_ref().to_vec()
    }

    /// Compares in constant time.
    #[must_use]
    pub fn token_matches(&self, secret: &[u8], stored: &[u8]) -> bool {
        hmac::verify(&self.token, secret, stored).is_ok()
    }

    /// A name for a credential in memory that cannot be turned back into it, nor guessed at by
    /// measuring how long a lookup takes.
    #[must_use]
    pub fn fingerprint(&self, kind: &str, parts: [&[u8]; 2]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.cache);
        context.update(kind.as_bytes());
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut out = [0; 32];
        out.copy_from_slice(context.sign().as_ref());
        out
    }

    /// Seals a short text for a cookie: the browser carries it and can neither read nor change it.
    pub fn seal(&self, purpose: &str, plaintext: &[u8]) -> Result<String> {
        let mut sealed = plaintext.to_vec();
        let nonce = self
            .cookie
            .seal_in_place_append_tag(Aad::from(purpose.as_bytes()), &mut sealed)
            .map_err(|_| Error::internal("a cookie could not be sealed"))?;
        let mut whole = nonce.as_ref().to_vec();
        whole.append(&mut sealed);
        Ok(URL_SAFE_NO_PAD.encode(whole))
    }

    /// Opens what [`Pepper::seal`] made for the same purpose; anything else is none.
    #[must_use]
    pub fn open(&self, purpose: &str, text: &str) -> Option<Vec<u8>> {
        let whole = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = whole.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(purpose.as_bytes());
        let plain = self.cookie.open_in_place(nonce, aad, &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

impl fmt::Debug for Pepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pepper(hidden)")
    }
}

/// Fresh random bytes.
pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    rand::fill(bytes.as_mut_slice()).map_err(|_| Error::internal("no randomness"))?;
    Ok(bytes)
}

/// Fresh random bytes as URL-safe text: 43 characters for 32 bytes.
pub(super) fn random_text() -> Result<Zeroizing<String>> {
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(random::<32>()?.as_slice())))
}

pub(super) fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA256, bytes).as_ref().to_vec()
}

/// Compares two texts without telling by time where they differ.
pub(super) fn same(a: &str, b: &str) -> bool {
    constant_time::verify_slices_are_equal(a.as_bytes(), b.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_opens_only_whole_for_its_purpose_and_under_its_key() {
        let pepper = Pepper::new(&Zeroizing::new([7; 32])).unwrap();
        let sealed = pepper.seal("login", b"state").unwrap();
        assert_eq!(pepper.open("login", &sealed).unwrap(), b"state");
        assert_eq!(pepper.open("other", &sealed), None);
        assert_eq!(pepper.open("login", &sealed[..sealed.len() - 2]), None);
        assert_eq!(pepper.open("login", ""), None);
        let other = Pepper::new(&Zeroizing::new([8; 32])).unwrap();
        assert_eq!(other.open("login", &sealed), None);
    }

    #[test]
    fn a_mac_holds_for_one_secret_and_one_pepper() {
        let pepper = Pepper::new(&Zeroizing::new([7; 32])).unwrap();
        let mac = pepper.token_mac(b"secret");
        assert!(pepper.token_matches(b"secret", &mac));
        assert!(!pepper.token_matches(b"secres", &mac));
        assert!(!pepper.token_matches(b"secret", &mac[..31]));
        let other = Pepper::new(&Zeroizing::new([8; 32])).unwrap();
        assert!(!other.token_matches(b"secret", &mac));
    }

    #[test]
    fn the_parts_of_a_fingerprint_cannot_run_into_each_other() {
        let pepper = Pepper::new(&Zeroizing::new([7; 32])).unwrap();
        let of = |a: &str, b: &str| pepper.fingerprint("password", [a.as_bytes(), b.as_bytes()]);
        assert_ne!(of("ab", "c"), of("a", "bc"));
        assert_eq!(of("ab", "c"), of("ab", "c"));
    }
}
