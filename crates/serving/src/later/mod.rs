//! Predictions that are asked for now and answered later: submitted, run by a worker, fetched.
//!
//! ```text
//! submit   body → object store, sealed; row `queued` → commit → 202 and an id
//! claim    a server takes the next request for a while, longer for as long as it runs it
//! run      as `…/infer` would, behind everybody who waits for an answer
//! settle   result → object store; row `done` or `failed`, event, callback → commit
//! sweep    waited too long: `failed`; kept long enough, or the endpoint is gone: deleted
//! ```
//!
//! Must hold:
//! - Acknowledged is durable: body and row are there before the id is given out. A request that was
//!   taken ends `done`, `failed` or `cancelled`, whichever server dies on the way.
//! - A request runs at least once, and exactly one result is written down: whoever lost its claim
//!   writes nothing.
//! - Bodies and results lie in the zone of their project under the key of their tenant. The body is
//!   let go with the end of its request.
//! - Only who submitted a request finds it, and operators of the endpoint.
//! - What waits is bounded for an endpoint and for a project; what runs in number and in bytes, and
//!   one endpoint does not take all places.
//!
//! Not here: computing (`oip`, `runtime`); sending callbacks (`falaj_registry::webhook`).

mod claim;
mod config;
mod desk;
pub(crate) mod http;
mod places;
mod request;
mod run;
mod service;
mod settle;
pub(crate) mod store;
mod sweep;
mod work;

pub use config::LaterConfig;
pub use request::{Request, State};
pub use work::LaterCounts;

pub(crate) use store::SCHEMA;
pub(crate) use sweep::sweeper;
pub(crate) use work::{Later, worker};
