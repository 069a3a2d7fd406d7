//! Registered models: a name under which versions gather.

pub(crate) mod http;
mod id;
#[allow(clippy::module_inception, reason = "the noun of this folder")]
mod model;
pub(crate) mod search;
mod service;
pub(crate) mod store;

pub use id::RegisteredId;
pub use model::Model;
pub(crate) use model::check_name;
pub use search::ModelSearch;
pub use service::NewModel;
