//! Which variant answers: pure decisions about splits, tests, canaries and bandits.
