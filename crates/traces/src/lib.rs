//! Traces of generative AI: what a model or an agent was asked, did and answered, span by span,
//! and what people and judges think of it; MLflow's tracing API, and OpenTelemetry's.
//!
//! Must hold:
//! - A trace belongs to an experiment and is authorised there. A trace of another project reads
//!   exactly like one that does not exist, and may have the same id as one of ours.
//! - A span is stored whole or rejected, within limits that are checked before it is read.
//! - What is added up over a trace (tokens, cost, time) comes from its stored spans, so a span that
//!   is sent again changes nothing.
//! - Every change of a trace holds that trace's lock.
//! - Issues and scorers belong to an experiment like traces; evaluation datasets to the project.
//!
//! Not here: experiments and runs (`tracking`), how the protocol and its filters are spelled
//! (`mlflow`).

mod access;
mod actions;
pub mod assessment;
pub mod config;
pub mod evaluation;
pub mod issue;
mod leaving;
pub mod otlp;
mod schema;
pub mod search;
pub mod span;
mod sweep;
pub mod trace;

use std::fmt;
use std::sync::Arc;

use falaj_mlflow::Places;
use falaj_store::db::Db;
use falaj_tracking::Tracking;
use falaj_web::Module;

pub use actions::{
    ACTIONS, EVALUATION_DELETE, EVALUATION_READ, EVALUATION_WRITE, TRACE_DELETE, TRACE_READ,
    TRACE_UNTAG, TRACE_WRITE,
};
pub use config::TracesConfig;
pub use leaving::forget_project;
pub use schema::MIGRATIONS;

/// The traces service. Cheap to clone.
#[derive(Clone)]
pub struct Traces(Arc<Inner>);

struct Inner {
    config: TracesConfig,
    tracking: Tracking,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").finish_non_exhaustive()
    }
}

impl Traces {
    #[must_use]
    pub fn new(config: TracesConfig, tracking: Tracking) -> Self {
        Self(Arc::new(Inner { config, tracking }))
    }

    #[must_use]
    pub fn config(&self) -> &TracesConfig {
        &self.0.config
    }

    #[must_use]
    pub fn tracking(&self) -> &Tracking {
        &self.0.tracking
    }

    #[must_use]
    pub fn db(&self) -> &Db {
        self.0.tracking.db()
    }
}

/// The domain, ready to be composed.
#[must_use]
pub fn module(traces: &Traces, places: &Places) -> Module {
    let service = Arc::new(traces.clone());
    Module::new("traces")
        .actions(ACTIONS)
        .routes(otlp::http::routes(service.clone(), places.clone()))
        .routes(otlp::grpc::routes(service.clone(), places.clone()))
        .routes(trace::http::routes(service.clone(), places.clone()))
        .routes(assessment::http::routes(service.clone(), places.clone()))
        .routes(search::http::routes(service.clone(), places.clone()))
        .routes(evaluation::dataset::http::routes(service.clone(), places.clone()))
        .routes(evaluation::scorer::http::routes(service.clone(), places.clone()))
        .routes(issue::http::routes(service, places.clone()))
        .worker(trace::sweeper(traces.db().clone()))
        .worker(sweep::sweeper(traces.db().clone()))
}
