//! Endpoints: names under which models answer.
//!
//! An endpoint has variants; each is a version of a registered model, by its number or through an
//! alias that it follows. Weights share the requests out.
//!
//! Must hold:
//! - What an endpoint runs was checked before it was written down: the version is servable, its
//!   files are those that were signed, and it was loaded and reproduced its golden pair.
//! - A version that cannot be served never replaces one that can. An alias that moves to one leaves
//!   the endpoint as it is, and the reason on record.
//! - Every change is a new revision that can be gone back to, holds the endpoint's lock, and moves
//!   the number that tells all servers to look again.
//!
//! Not here: answering (`live`, `oip`), running models (`runtime`).

#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod endpoint;
mod follow;
pub(crate) mod http;
mod key;
mod resolve;
mod service;
mod spec;
pub(crate) mod store;
mod users;

pub(crate) use endpoint::resource;
pub use endpoint::{Endpoint, Running};
pub(crate) use follow::{HeldBack, follower};
pub(crate) use key::{Target, key_of};
pub(crate) use service::Act;
pub use spec::{Batch, Runs, Spec, Variant};
pub(crate) use users::Endpoints;
