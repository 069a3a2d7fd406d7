//! Signed checkpoints and verifier keys.
#![no_main]

use std::sync::LazyLock;

use falaj_governance::audit::checkpoint::{SigningKey, VerifierKey};
use falaj_governance::audit::merkle::Hash;
use libfuzzer_sys::fuzz_target;

static SIGNER: LazyLock<SigningKey> =
    LazyLock::new(|| SigningKey::from_seed("fuzz", &[7; 32]).expect("a signer"));

fuzz_target!(|data: (&str, u64)| {
    let (text, size) = data;
    let verifier: VerifierKey = SIGNER.verifier().to_string().parse().expect("our own key");
    assert!(verifier.open(text).is_err(), "nobody signed this");
    let note = SIGNER.sign(size, Hash::of_nothing());
    assert_eq!(verifier.open(&note).expect("signed by us").size, size);
    if let Ok(other) = text.parse::<VerifierKey>() {
        assert!(other.open(&note).is_err() || other.name() == "fuzz");
    }
});
