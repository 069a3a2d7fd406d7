//! Which variant answers: pure decisions about splits, tests, canaries and bandits.
//!
//! | module | answers |
//! |---|---|
//! | [`split`] | which variant is this request's, and stays this key's? |
//! | [`sequential`] | is B better than A? Valid at every look |
//! | [`excess`] | is a rate above what is allowed? Valid at every look |
//! | [`canary`] | does a rollout wait, go on, end, or go back? |
//! | [`bandit`] | how is traffic shared while learning which variant earns most? |
//! | [`shadow`] | how far are a shadow's answers from those that were given? |
//! | [`sketch`], [`moments`] | what is kept of many numbers, mergeable |
//!
//! Nothing here reads a clock, draws a random number or waits: times and random sources are passed
//! in. What is stored carries its version, and reading it back checks it.

#![allow(clippy::cast_precision_loss, reason = "counts become rates; 53 bits of them are plenty")]

pub mod bandit;
pub mod canary;
pub mod excess;
pub(crate) mod hash;
pub mod moments;
pub mod random;
pub mod sequential;
pub mod shadow;
pub mod sketch;
mod special;
pub mod split;
pub mod version;
