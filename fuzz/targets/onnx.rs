//! Models from strangers: read within limits, and planned by our own kernels.
#![no_main]

use falaj_inference::kernels::Kernels;
use falaj_inference::{Engine, Limits, ModelFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let limits = Limits { run_bytes: 1 << 20, ..Limits::default() };
    match ModelFile::read(data.to_vec(), &limits) {
        Ok(model) => drop(Kernels.load(&model)),
        Err(error) => assert!(error.message().len() < 4096, "{}", error.message().len()),
    }
});
