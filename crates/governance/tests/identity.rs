//! Identity from the outside: real databases, the real gate, the routes as a client meets them,
//! and (where `FALAJ_TEST_OIDC_ISSUER` names one) a real OIDC provider.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test that cannot go on says why and stops"
)]

#[path = "identity/world.rs"]
mod world;

#[path = "identity/accounts.rs"]
mod accounts;
#[path = "identity/browser.rs"]
mod browser;
#[path = "identity/oidc.rs"]
mod oidc;
#[path = "identity/sign_in.rs"]
mod sign_in;
#[path = "identity/tokens.rs"]
mod tokens;
