//! Uploaded policies: parsed, measured and validated, within a limit and without falling over.
#![no_main]

use std::sync::LazyLock;

use falaj_governance::authz::engine::Engine;
use falaj_governance::{authz, tenancy};
use libfuzzer_sys::fuzz_target;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let actions: Vec<_> = tenancy::ACTIONS.iter().chain(authz::ACTIONS).copied().collect();
    Engine::new(&actions).expect("a sound schema")
});

fuzz_target!(|text: &str| {
    let _ = authz::upload::check(&ENGINE, text, 64 << 10);
});
