//! Chance, where nobody is hurt if it can be guessed: which requests are kept, who answers.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::traffic::random::Source;

pub(crate) fn bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A number between 0 and 1.
pub(crate) fn unit() -> f64 {
    let mut source = bits;
    source.unit()
}
