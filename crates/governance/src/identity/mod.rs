//! Who someone is: users, service accounts, API tokens, browser sessions, OIDC providers.
//!
//! | file | holds |
//! |---|---|
//! | `credential`, `token/text` | what a request offers, parsed: pure |
//! | `authenticate` | from a credential to a principal, with `cache`, `last` and `limiter` |
//! | `password`, `pepper` | hashing, MACs, sealed cookies |
//! | `session`, `csrf`, `origin` | browsers |
//! | `oidc`, `provision` | identity from elsewhere |
//! | `service`, `token/service` | the verbs; `http`, `front_door`, `page` speak HTTP for them |
//! | `sign_in` | between a proven password or provider and a token or cookie |
//! | `own_password` | changing one's own |
//! | `bootstrap` | the first admin |
//! | `worker` | last-used times, clearing away |
//!
//! Must hold:
//! - No secret is stored as it is: passwords as argon2id, tokens as MACs, session ids as hashes.
//! - Who is refused reads one constant sentence; why is on the audit log.
//! - Whatever takes rights away is noticed by this server at once and by the others in a second.
//!
//! Not here: what a principal may do (`authz`).

pub mod actions;
pub mod authenticate;
pub mod bootstrap;
mod cache;
pub mod config;
pub mod credential;
pub mod csrf;
mod front_door;
pub mod http;
mod last;
mod limiter;
pub mod oidc;
pub mod origin;
mod own_password;
mod page;
mod password;
mod pepper;
pub mod principal;
mod provision;
mod refusal;
pub mod service;
pub mod session;
mod sign_in;
mod store;
#[cfg(test)]
mod tests;
pub mod token;
mod uses;
pub mod worker;

pub use actions::ACTIONS;
pub use authenticate::Authenticator;
pub use bootstrap::{first_admin, recover_admin_token};
pub use config::IdentityConfig;
pub use http::routes;
pub use last::LastCredential;
pub use limiter::one_source;
pub use principal::Account;
pub use service::Identity;
pub use store::{MIGRATIONS, forget_project, forget_tenant};
pub use worker::workers;
