//! Texts as numbers that mean the same on every machine.

use aws_lc_rs::digest;

/// Texts as one number. Each goes in behind its length, so that no two lists read alike.
pub(crate) fn hashed(texts: &[&str]) -> u64 {
    let mut hash = digest::Context::new(&digest::SHA256);
    for text in texts {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    let mut first = [0_u8; 8];
    first.copy_from_slice(&hash.finish().as_ref()[..8]);
    u64::from_le_bytes(first)
}
