//! What other people's tools say about our proofs: signatures and bills of materials.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a helper that cannot go on fails its test, and what was skipped is said aloud"
)]

#[path = "oracles/bom.rs"]
mod bom;
#[path = "oracles/signing.rs"]
mod signing;

use std::path::PathBuf;

/// The Python that has the tools; without it there is nobody to ask.
fn python(oracle: &str) -> Option<String> {
    let python = std::env::var("FALAJ_TEST_PYTHON").ok();
    if python.is_none() {
        eprintln!("--- oracle: {oracle} SKIPPED: FALAJ_TEST_PYTHON is not set (make test)");
    }
    python
}

/// An empty folder of this test's own.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
