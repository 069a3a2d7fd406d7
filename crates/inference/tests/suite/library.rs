//! The library of ONNX Runtime that tests use.

use falaj_inference::runtime::{OnnxRuntime, Search};

#[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
/// The library, which must be there where `make test` runs; none, and said so, elsewhere.
pub(crate) fn runtime() -> Option<OnnxRuntime> {
    let search = Search::of_tests();
    let wanted = !search.environments.is_empty();
    let found = OnnxRuntime::find(&search).unwrap();
    assert!(found.is_some() || !wanted, "scripts/setup test installs ONNX Runtime");
    if found.is_none() {
        println!("skipped: no ONNX Runtime by FALAJ_TEST_ONNXRUNTIME or FALAJ_TEST_PYTHON");
    }
    found
}
