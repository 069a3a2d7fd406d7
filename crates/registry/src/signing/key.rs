//! P-256 keys: a private one that is never shown, a public one as PEM.
//!
//! The only way to a private key's bytes is [`SigningKey::to_pkcs8`]; they are wiped when dropped.
//! Keeping them (sealed) is the caller's part.

use std::fmt;

use aws_lc_rs::pkcs8::Document;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
    ParsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use falaj_base::{Error, error::Result, secret::HIDDEN};

use super::manifest::Sha256;

/// What precedes the point in the `SubjectPublicKeyInfo` of every P-256 key: `id-ecPublicKey`,
/// `prime256v1`, and the header of a bit string of 65 bytes and one.
const SPKI_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const POINT: usize = 65;
const PEM_BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_END: &str = "-----END PUBLIC KEY-----";
const PEM_LINE: usize = 64;

/// A private key in its portable form, on its way to being sealed.
pub struct Pkcs8(Document);

impl Pkcs8 {
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl fmt::Debug for Pkcs8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// The key that signs models.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    public: PublicKey,
}

impl SigningKey {
    pub fn generate() -> Result<Self> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)
            .map_err(|_| Error::internal("a P-256 key could not be generated"))?;
        Self::of(pair)
    }

    /// Reads what [`SigningKey::to_pkcs8`] wrote, or any P-256 key in PKCS#8 (DER).
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8)
            .map_err(|_| Error::invalid("signing_key", HIDDEN, "a P-256 private key, PKCS#8"))?;
        Self::of(pair)
    }

    pub fn to_pkcs8(&self) -> Result<Pkcs8> {
        self.pair
            .to_pkcs8v1()
            .map(Pkcs8)
            .map_err(|_| Error::internal("the signing key could not be encoded"))
    }

    #[must_use]
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        self.pair
            .sign(&SystemRandom::new(), message)
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|_| Error::internal("the signing key could not sign"))
    }

    fn of(pair: EcdsaKeyPair) -> Result<Self> {
        let public = PublicKey::from_point(pair.public_key().as_ref())
            .ok_or_else(|| Error::internal("the signing key has no uncompressed public point"))?;
        Ok(Self { pair, public })
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The key that checks signatures.
#[derive(Clone)]
pub struct PublicKey {
    key: ParsedPublicKey,
    pem: String,
    id: Sha256,
}

impl PublicKey {
    /// Reads a `SubjectPublicKeyInfo` in PEM; any line width, whitespace around it allowed.
    pub fn from_pem(pem: &str) -> Result<Self> {
        Self::parse_pem(pem).ok_or_else(|| {
            Error::invalid("public_key", pem, "a P-256 public key, PEM (BEGIN PUBLIC KEY)")
        })
    }

    /// The key as PEM, byte for byte as OpenSSL and the stock tool write it.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The SHA-256 of the PEM text: how a bundle names its key.
    #[must_use]
    pub fn id(&self) -> &Sha256 {
        &self.id
    }

    pub(super) fn is_valid(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(message, signature).is_ok()
    }

    fn parse_pem(pem: &str) -> Option<Self> {
        let body = pem.trim().strip_prefix(PEM_BEGIN)?.strip_suffix(PEM_END)?;
        let text: String = body.split_ascii_whitespace().collect();
        let der = STANDARD.decode(text).ok()?;
        Self::from_point(der.strip_prefix(SPKI_PREFIX.as_slice())?)
    }

    fn from_point(point: &[u8]) -> Option<Self> {
        if point.len() != POINT {
            return None;
        }
        // Parsing checks that the point is on the curve.
        let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).ok()?;
        let pem = to_pem(&[SPKI_PREFIX.as_slice(), point].concat());
        let id = Sha256::of(pem.as_bytes());
        Some(Self { key, pem, id })
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id)
    }
}

fn to_pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut pem = format!("{PEM_BEGIN}\n");
    for (i, c) in body.chars().enumerate() {
        if i > 0 && i % PEM_LINE == 0 {
            pem.push('\n');
        }
        pem.push(c);
    }
    pem + "\n" + PEM_END + "\n"
}
