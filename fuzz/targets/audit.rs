//! `falaj audit verify` reads what somebody hands it: an export, a checkpoint, a key.
#![no_main]

use std::sync::LazyLock;

use falaj_governance::audit::checkpoint::SigningKey;
use falaj_governance::audit::merkle::Hash;
use falaj_governance::audit::verify_bytes;
use libfuzzer_sys::fuzz_target;

static SIGNED: LazyLock<(String, String)> = LazyLock::new(|| {
    let signer = SigningKey::from_seed("fuzz", &[7; 32]).expect("a signer");
    (signer.sign(3, Hash::of_nothing()), signer.verifier().to_string())
});

fuzz_target!(|data: (&[u8], &[u8], &[u8])| {
    let (export, checkpoint, key) = data;
    assert!(verify_bytes(export, checkpoint, key).is_err(), "nobody signed this");
    // Past the signature, to the lines of the export.
    let (note, key) = &*SIGNED;
    assert!(verify_bytes(export, note.as_bytes(), key.as_bytes()).is_err(), "nobody wrote this log");
});
