//! Roles, policies, and the gate behind `Ctx::authorize`.
//!
//! | file | holds |
//! |---|---|
//! | `schema` | the Cedar schema, generated from all actions |
//! | `policies.cedar` | the built-in policies, the same everywhere |
//! | `question`, `slice` | one question and the handful of entities it needs |
//! | `engine` | evaluation |
//! | `upload`, `library` | tenants' policies: checked when stored, in force from memory |
//! | `gate` | decisions remembered, refusals recorded, *not yours* told as *not there* |
//! | `bindings`, `store` | who holds which role where, as rows |
//! | `service`, `policies`, `place`, `http` | the verbs and their routes |
//! | `matrix` | the table of roles and actions, as Cedar decides it |
//!
//! Must hold:
//! - Role bindings are data, never policies: the cost of a decision does not grow with them.
//! - A tenant's policy can add and take away inside its tenant, and cannot open what a built-in
//!   `forbid` closes.
//!
//! Not here: who somebody is (`identity`), what the audit log proves (`audit`).

pub mod actions;
pub mod bindings;
mod cache;
pub mod config;
pub mod engine;
pub mod gate;
mod http;
mod library;
pub mod matrix;
mod place;
pub mod policies;
pub mod question;
pub mod schema;
pub mod service;
mod slice;
pub mod store;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod tests;
pub mod upload;

pub use actions::ACTIONS;
pub use config::AuthzConfig;
pub use gate::CedarGate;
pub use http::routes;
pub use service::Authz;
pub use store::{MIGRATIONS, forget_project, forget_tenant, grants_of};
