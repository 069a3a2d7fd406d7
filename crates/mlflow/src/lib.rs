//! The MLflow dialect: how the tracking and registry domains read and answer its REST protocol.
//!
//! Must hold:
//! - A route is declared once, under `/api/…`. The browser's `/ajax-api/…` and a project's own
//!   prefix `/t/{tenant}/{project}/…` are other spellings of it ([`edge`]).
//! - Every reply to such a path speaks MLflow's JSON, errors of the middleware included.
//! - Which project a request is about is decided in one place ([`place`]), and the caller's right
//!   to see it is checked there.
//!
//! Not here: what an experiment or a model is (`tracking`, `registry`).

pub mod asked;
pub mod edge;
pub mod error;
pub mod filter;
pub mod names;
pub mod page;
pub mod place;
mod routes;
pub mod wire;

pub use place::{Place, Places};
pub use routes::{Api, Call, asked};
