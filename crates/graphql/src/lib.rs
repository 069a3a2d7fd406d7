//! The few questions that MLflow's own pages ask in GraphQL: `POST /graphql`.
//!
//! A question is the same as a request of the REST protocol, and is answered by the same handler;
//! here is only how it is written. Nothing can be changed: what MLflow calls mutations are searches.
//!
//! Must hold:
//! - A document is bounded before anything is asked: its length, its tokens, its depth, its fields,
//!   its aliases, with fragments counted where they are used.
//! - Every question is authorised by the verb that answers it, like its REST twin.
//! - A reply is bounded, and so is what is looked up for the members of a list.
//!
//! Not here: introspection. The types are fixed and stand in `schema.rs`.

mod answer;
mod document;
mod http;
mod project;
mod schema;

use std::fmt;
use std::sync::Arc;

use falaj_mlflow::Places;
use falaj_registry::Registry;
use falaj_web::Module;

/// Answers questions out of tracking and the registry. Cheap to clone.
#[derive(Clone)]
pub struct Questions {
    registry: Registry,
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl Questions {
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self { registry }
    }
}

/// The domain, ready to be composed.
#[must_use]
pub fn module(registry: &Registry, places: &Places) -> Module {
    let questions = Arc::new(Questions::new(registry.clone()));
    Module::new("graphql").routes(http::routes(questions, places.clone()))
}
