//! Identity from elsewhere: OIDC providers, for people in a browser and for machines with a
//! bearer token.
//!
//! Must hold: a principal is its issuer and subject, compared byte for byte. An e-mail address, a
//! name or a group that equals a local one gives nothing.
//!
//! Not here: refresh tokens (a session ends after hours; the provider is asked again), and
//! signing out at the provider.

pub mod algorithm;
pub mod claims;
pub mod fetch;
pub mod flow;
pub mod jwks;
mod verify;

pub use algorithm::SigningAlgorithm;
pub use claims::Subject;
pub use verify::{Provider, Providers};
