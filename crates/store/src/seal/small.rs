//! Little values: one version byte, a random salt and nonce, the sealed bytes.
//!
//! The salt gives every value its own key, so random nonces stay safe however many values one
//! data key seals; with the 96-bit nonce alone the limit would be some 2^32 values.

use aws_lc_rs::aead::{Aad, NONCE_LEN, Nonce};
use aws_lc_rs::rand;
use falaj_base::{Error, Result};

use super::key::DataKey;
use super::layout::TAG_LEN;
use super::tampered;

const VERSION: u8 = 1;
const SALT_LEN: usize = 12;
const FRONT: usize = 1 + SALT_LEN + NONCE_LEN;
const PURPOSE: &[u8] = b"falaj small value 1";

/// How much longer a sealed value is than its plaintext.
pub const SMALL_OVERHEAD: usize = FRONT + TAG_LEN;

/// Seals `plaintext` so that it opens only under the same key and associated data.
pub fn seal_small(key: &DataKey, associated_data: &[u8], plaintext: &[u8]) -> Result<Vec<u8>> {
    let mut random = [0; SALT_LEN + NONCE_LEN];
    rand::fill(&mut random).map_err(|_| Error::internal("no randomness available"))?;
    seal_with(key, associated_data, plaintext, &random)
}

fn seal_with(
    key: &DataKey,
    associated_data: &[u8],
    plaintext: &[u8],
    random: &[u8; SALT_LEN + NONCE_LEN],
) -> Result<Vec<u8>> {
    let (salt, nonce) = random.split_at(SALT_LEN);
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| tampered())?;
    let mut sealed = Vec::with_capacity(plaintext.len() + SMALL_OVERHEAD);
    sealed.push(VERSION);
    sealed.extend_from_slice(random);
    sealed.extend_from_slice(plaintext);
    let tag = key
        .cipher(salt, PURPOSE)?
        .seal_in_place_separate_tag(nonce, Aad::from(associated_data), &mut sealed[FRONT..])
        .map_err(|_| Error::internal("AES-256-GCM failed to seal"))?;
    sealed.extend_from_slice(tag.as_ref());
    Ok(sealed)
}

/// Opens what [`seal_small`] sealed.
pub fn open_small(key: &DataKey, associated_data: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
    if sealed.len() < SMALL_OVERHEAD || sealed[0] != VERSION {
        return Err(tampered());
    }
    let (front, body) = sealed.split_at(FRONT);
    let nonce = Nonce::try_assume_unique_for_key(&front[1 + SALT_LEN..]).map_err(|_| tampered())?;
    let mut plaintext = body.to_vec();
    key.cipher(&front[1..=SALT_LEN], PURPOSE)?
        .open_in_place(nonce, Aad::from(associated_data), &mut plaintext)
        .map_err(|_| tampered())?;
    plaintext.truncate(body.len() - TAG_LEN);
    Ok(plaintext)
}

#[cfg(test)]
pub(super) fn seal_small_with(
    key: &DataKey,
    associated_data: &[u8],
    plaintext: &[u8],
    random: &[u8; SALT_LEN + NONCE_LEN],
) -> Result<Vec<u8>> {
    seal_with(key, associated_data, plaintext, random)
}
