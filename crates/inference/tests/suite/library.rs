//! The library of ONNX Runtime that tests use.

use std::path::PathBuf;

use falaj_inference::runtime::{OnnxRuntime, Search};

/// The library that `FALAJ_ONNXRUNTIME` names, or that lies in the environment of
/// `FALAJ_TEST_PYTHON`, where it must be; none, and said so, if neither is set.
pub(crate) fn runtime() -> Option<OnnxRuntime> {
    let python = std::env::var_os("FALAJ_TEST_PYTHON").map(PathBuf::from);
    let wanted = python.is_some();
    let environment = python.and_then(|python| Some(python.parent()?.parent()?.to_owned()));
    let search = Search {
        named: std::env::var_os("FALAJ_ONNXRUNTIME").map(PathBuf::from),
        folders: Vec::new(),
        environments: environment.into_iter().collect(),
    };
    let found = OnnxRuntime::find(&search).unwrap();
    assert!(found.is_some() || !wanted, "scripts/setup test installs ONNX Runtime");
    if found.is_none() {
        println!("skipped: no ONNX Runtime by FALAJ_ONNXRUNTIME or FALAJ_TEST_PYTHON");
    }
    found
}
