//! `/v1/tenants/{tenant}/projects/{project}/…`: what MLflow's protocol has no words for, and the
//! same nouns in our own.
//!
//! Not here: what the verbs do. Each folder has its own; these are the plain ones of experiments
//! and runs.

mod experiments;
mod runs;

use std::sync::Arc;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use falaj_base::{Ctx, Error, Name, Result, code};
use falaj_mlflow::{Call, Places};
use falaj_web::Endpoint;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Tracking, console, follow, media, purge, recipe};

macro_rules! paths {
    ($($name:ident = $rest:literal;)*) => {$(
        pub(crate) const $name: &str =
            concat!("/v1/tenants/{tenant}/projects/{project}/", $rest);
    )*};
}

paths! {
    EXPERIMENTS = "experiments";
    EXPERIMENT = "experiments/{experiment}";
    EXPERIMENT_RESTORE = "experiments/{experiment}/restore";
    EXPERIMENT_PURGED = "experiments/{experiment}/purge";
    FOLDERS = "folders";
    RUNS_SEARCH = "runs/search";
    RUN = "runs/{run}";
    RUN_RESTORE = "runs/{run}/restore";
    RUN_PURGED = "runs/{run}/purge";
    RUN_METRICS = "runs/{run}/metrics";
    RUN_MEDIA = "runs/{run}/media";
    RUN_LOG = "runs/{run}/log";
    RUN_FOLLOW = "runs/{run}/follow";
    RUN_RECIPE = "runs/{run}/recipe";
    RUN_DIFF = "runs/{run}/diff/{other}";
    MODEL_PURGED = "logged-models/{model}/purge";
    HOLDS = "holds";
    HOLD = "holds/{name}";
    RETENTION = "retention";
    GARBAGE = "gc";
}

/// What the native routes stand on.
#[derive(Debug)]
pub(crate) struct Native {
    tracking: Tracking,
    places: Places,
    /// Who follows runs.
    seats: follow::Seats,
}

impl Native {
    pub(crate) fn new(tracking: Tracking, places: Places) -> Self {
        Self { tracking, places, seats: follow::Seats::default() }
    }

    pub(crate) fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    pub(crate) fn seats(&self) -> &follow::Seats {
        &self.seats
    }

    /// The project that a path names, if the caller may see it.
    pub(crate) async fn call(&self, ctx: &Ctx, tenant: &Name, project: &Name) -> Result<Call> {
        self.places.call(ctx, tenant, project).await
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ProjectPath {
    pub(crate) tenant: Name,
    pub(crate) project: Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ExperimentPath {
    pub(crate) tenant: Name,
    pub(crate) project: Name,
    pub(crate) experiment: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RunPath {
    pub(crate) tenant: Name,
    pub(crate) project: Name,
    pub(crate) run: String,
}

/// The path of a raw endpoint, refused like that of a typed one.
pub(crate) fn run_path(path: Result<Path<RunPath>, PathRejection>) -> Result<RunPath> {
    let refused = |_| Error::new(&code::INVALID_INPUT, "the path is not valid").at("path");
    path.map(|Path(path)| path).map_err(refused)
}

pub(crate) fn routes(native: &Arc<Native>) -> Vec<Endpoint> {
    let mut all = experiments::routes(native);
    all.extend(runs::routes(native));
    all.extend(media::routes(native));
    all.extend(console::routes(native));
    all.extend(follow::routes(native));
    all.extend(recipe::routes(native));
    all.extend(purge::http::routes(native));
    all
}
