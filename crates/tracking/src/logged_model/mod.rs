//! Logged models: what a run produced, with its own parameters, tags, metrics and files.

pub(crate) mod http;
mod id;
mod model;
mod registration;
mod search;
mod service;
pub(crate) mod store;

pub use id::ModelId;
pub use model::{LoggedModel, ModelMetric, ModelStatus};
pub use registration::note_registration;
pub use service::{ModelHome, NewLoggedModel};
pub(crate) use service::{no_model, write_model_metrics};
pub(crate) use store::SCHEMA;
