//! The calls of the protocol over a folder, behind one token.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use falaj_base::{Error, Name, Result, Secret, code};
use falaj_inference::runtime::{OnnxRuntime, Search};
use falaj_inference::{Engine, Engines};
use falaj_web::problem_response;
use futures::FutureExt;
use http::{HeaderMap, header};
use tokio::sync::Semaphore;

use super::desk::{Files, Folder, Target};
use super::folder::{self, Found};
use crate::config::ServingConfig;
use crate::endpoint::Runs;
use crate::live::{Arm, Served};
use crate::oip::desk::{Desk, Opening};
use crate::oip::edge::translate;
use crate::oip::table::{Kind, rows};
use crate::profile;
use crate::runtime::{Fleet, ModelKey};

/// The largest body that is read.
pub const MAX_BODY: usize = 64 << 20;
/// How many requests are answered at a time; the runtime's own queues are behind it.
const MAX_REQUESTS: usize = 1024;

/// What is served from where.
#[derive(Debug)]
pub struct EdgeConfig {
    pub models: PathBuf,
    /// What the only model is called; like its folder if absent.
    pub name: Option<Name>,
    pub token: Secret,
    pub serving: ServingConfig,
    pub runs: Runs,
}

/// Models of a folder, ready to answer.
pub struct Edge {
    folder: Arc<Folder>,
    token: Secret,
    found: Vec<Found>,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge").field("found", &self.found).finish_non_exhaustive()
    }
}

impl Edge {
    /// Reads the folder, tries every model, and loads it.
    pub async fn open(config: EdgeConfig) -> Result<Self> {
        let found = folder::look(&config.models, config.name)?;
        let library = Search::here(config.serving.onnxruntime.clone(), None);
        let engines = Arc::new(Engines::new(OnnxRuntime::find(&library)?));
        let source =
            Files { limits: config.serving.model_limits(), settings: config.runs.settings() };
        let fleet = Fleet::with_engine(config.serving.fleet(), Arc::new(source), engines.clone());
        let mut models: BTreeMap<String, Vec<Arm>> = BTreeMap::new();
        for model in &found {
            let (engines, file, serving) =
                (engines.clone(), model.file.clone(), config.serving.clone());
            let tried = tokio::task::spawn_blocking(move || try_out(&*engines, &file, &serving));
            let tried = tried.await.map_err(Error::internal)?;
            let invariant = tried.map_err(|error| named(&model.file, &error))?;
            let batches = invariant || config.runs.batch.even_if_answers_change;
            let target = Target { file: model.file.clone(), batches };
            let key = serde_json::to_string(&target).map(ModelKey::new).map_err(Error::internal)?;
            fleet.model(&key).await.map_err(|error| named(&model.file, &error))?;
            models.entry(model.name.to_string()).or_default().push(Arm {
                variant: Name::new(format!("v{}", model.version))?,
                version: model.version.to_string().into(),
                key,
                weight: 0.0,
                columns: Arc::default(),
            });
        }
        let mut served = BTreeMap::new();
        for (name, mut arms) in models {
            // They are in the order of their versions: the highest answers unless one is named.
            if let Some(highest) = arms.last_mut() {
                highest.weight = 1.0;
            }
            served.insert(name.clone(), Arc::new(Served::alone(name, arms)?));
        }
        let limits = config.serving.tensor_limits();
        let folder = Arc::new(Folder { served: served.into(), fleet, limits });
        Ok(Self { folder, token: config.token, found })
    }

    /// What answers.
    #[must_use]
    pub fn models(&self) -> &[Found] {
        &self.found
    }

    /// The calls. `bodies` puts around those behind the token what reads and unpacks their bodies,
    /// at most [`MAX_BODY`] bytes each.
    pub fn router(self, bodies: impl FnOnce(Router) -> Router) -> Router {
        router(self.folder, &self.token, bodies)
    }
}

/// Whether requests may share a run; an error if no engine runs the model.
fn try_out(engines: &dyn Engine, file: &Path, config: &ServingConfig) -> Result<bool> {
    let model = folder::read(file, &config.model_limits())?;
    let example = folder::small(file, profile::EXAMPLE, profile::MAX_EXAMPLE);
    let tried = profile::measure(engines, model, example.as_ref(), &[], config)?;
    Ok(tried.batch.allows_sharing())
}

fn named(file: &Path, error: &Error) -> Error {
    Error::new(error.code(), format!("{}: {}", file.display(), error.message())).at("models")
}

fn router(folder: Arc<Folder>, token: &Secret, bodies: impl FnOnce(Router) -> Router) -> Router {
    let desk: Arc<dyn Desk> = folder;
    let open: Opening = Arc::new(move |request: Request| {
        let desk = desk.clone();
        async move { Ok((desk, request)) }.boxed()
    });
    let token = Arc::new(sum(token.expose().as_bytes()));
    let places = Arc::new(Semaphore::new(MAX_REQUESTS));
    let guard = move |request: Request, next: Next| {
        let (token, places) = (token.clone(), places.clone());
        async move {
            match admit(&token, &places, request.headers()) {
                Ok(_place) => next.run(request).await,
                Err(error) => problem_response(&error),
            }
        }
    };
    let (mut open_rows, mut guarded) = (Router::new(), Router::new());
    for row in rows(&open) {
        match row.kind {
            Kind::Public(_) => open_rows = open_rows.route(row.path, row.handler),
            Kind::Rest(..) | Kind::Grpc(..) => guarded = guarded.route(row.path, row.handler),
        }
    }
    let guarded = bodies(guarded.layer(DefaultBodyLimit::max(MAX_BODY))).layer(from_fn(guard));
    let routes = open_rows.merge(guarded).fallback(nowhere).method_not_allowed_fallback(otherwise);
    routes.layer(from_fn(in_the_protocols_words)).with_state(())
}

async fn nowhere(request: Request) -> Response {
    problem_response(&Error::not_found("route", request.uri().path()))
}

async fn otherwise() -> Response {
    problem_response(&Error::new(&code::METHOD_NOT_ALLOWED, "this route has no such method"))
}

async fn in_the_protocols_words(request: Request, next: Next) -> Response {
    translate(next.run(request).await)
}

fn sum(text: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, text).as_ref());
    out
}

fn admit<'a>(
    token: &[u8; 32],
    places: &'a Semaphore,
    headers: &HeaderMap,
) -> Result<tokio::sync::SemaphorePermit<'a>> {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    // Digests are compared, in a time that tells nothing about where they differ.
    let known = shown.is_some_and(|(_, given)| {
        verify_slices_are_equal(&sum(given.trim().as_bytes()), token).is_ok()
    });
    if !known {
        return Err(Error::new(&code::UNAUTHENTICATED, "send the token: Authorization: Bearer …"));
    }
    places.try_acquire().map_err(|_| {
        let text = format!("{MAX_REQUESTS} requests are being answered");
        Error::new(&code::OVERLOADED, text).retry_after(std::time::Duration::from_secs(1))
    })
}
