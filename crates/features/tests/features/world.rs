//! Features and what they stand on, called as a client would.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::response::Response;
use axum::{Extension, Router};
use falaj_base::{Action, Clock, Ctx, Error, Gate, Name, Principal, RequestInfo, Resource, Result};
use falaj_catalog::{Datasets, DatasetsConfig};
use falaj_features::definition::{Catalog, ViewVersion};
use falaj_features::name::FeatureName;
use falaj_features::source::{FoundObject, ProjectObjects};
use falaj_features::{Features, FeaturesConfig};
use falaj_governance::audit::ReadLog;
use falaj_governance::epoch::{self, Epoch};
use falaj_governance::residency::{self, Residency};
use falaj_governance::tenancy::{self, NewProject, Project, Tenancy};
use falaj_mlflow::{Places, edge};
use falaj_store::db::{DatabaseConfig, Db, Tx};
use falaj_store::objects::{Objects, ObjectsConfig};
use falaj_store::{keys, objects};
use falaj_testkit::database;
use futures::future::BoxFuture;
use http::{Method, header};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) type Answer = (u16, Value);

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) db: Db,
    datasets: Datasets,
    pub(crate) features: Features,
    router: Router,
    tenancy: Tenancy,
    places: Places,
    pub(crate) folder: tempfile::TempDir,
}

/// Runs a test on each engine.
pub(crate) async fn each<F: AsyncFn(World)>(suite: F) {
    each_with(FeaturesConfig::default(), suite).await;
}

pub(crate) async fn each_with<F: AsyncFn(World)>(config: FeaturesConfig, suite: F) {
    database::each_place(async |database| {
        let clock = Clock::manual("2026-05-01T12:00:00Z".parse().unwrap());
        let db = database.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
        suite(World::new(db, clock, config.clone()).await).await;
    })
    .await;
}

impl World {
    async fn new(db: Db, clock: Clock, config: FeaturesConfig) -> Self {
        let mut modules = falaj_store::migrations();
        modules.extend([
            ("keys", keys::MIGRATIONS),
            ("blobs", objects::MIGRATIONS),
            ("epoch", epoch::MIGRATIONS),
            ("residency", residency::MIGRATIONS),
            ("tenancy", tenancy::MIGRATIONS),
            ("catalog", falaj_catalog::MIGRATIONS),
            ("features", falaj_features::MIGRATIONS),
        ]);
        db.migrate(&modules).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let keys_config = keys::KeysConfig::default();
        let keys = keys::Keys::open(&keys_config, folder.path(), db.clone()).await.unwrap();
        db.seal_replies_with(&keys.platform_secret("idempotent-replies").unwrap()).unwrap();
        let objects =
            Objects::open(&ObjectsConfig::default(), folder.path(), db.clone(), keys).unwrap();
        let local = Name::new("local").unwrap();
        Residency::new(db.clone()).ensure(local.clone(), "AE".to_owned()).await.unwrap();
        let epoch = Epoch::load(db.clone()).await.unwrap();
        let tenancy = Tenancy::new(db.clone(), epoch.clone(), local);
        tenancy.ensure_default().await.unwrap();
        let reads = ReadLog::new(db.clone(), 1000, 100);
        let datasets = Datasets::new(
            DatasetsConfig::default(),
            db.clone(),
            objects.clone(),
            reads.clone(),
            tenancy.clone(),
            folder.path(),
        );
        let features = Features::new(config, db.clone(), objects, reads, folder.path());
        features.connect(tenancy.clone(), Arc::new(NoObjects));
        features.connect_datasets(datasets.clone());
        let places = Places::new(tenancy.clone(), epoch);
        let router = router(&features, &places);
        Self { clock, db, datasets, features, router, tenancy, places, folder }
    }

    /// The same world with another server in it.
    pub(crate) fn with(&self, features: &Features) -> Self {
        Self {
            clock: self.clock.clone(),
            db: self.db.clone(),
            datasets: self.datasets.clone(),
            features: features.clone(),
            router: router(features, &self.places),
            tenancy: self.tenancy.clone(),
            places: self.places.clone(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Another server in the same world, with its own file in this folder.
    pub(crate) fn server(&self, config: FeaturesConfig, data_dir: &Path) -> Self {
        let (objects, reads) = (self.features.objects().clone(), self.features.reads().clone());
        let features = Features::new(config, self.db.clone(), objects, reads, data_dir);
        features.connect(self.tenancy.clone(), Arc::new(NoObjects));
        self.with(&features)
    }

    /// Declares a zone of another jurisdiction.
    pub(crate) async fn make_zone(&self, name: &str) {
        let name = Name::new(name).unwrap();
        Residency::new(self.db.clone()).ensure(name, "XX".to_owned()).await.unwrap();
    }

    /// Allows data of a zone in another, or no longer.
    #[allow(dead_code, reason = "only some of the suites that share this world ask for it")]
    pub(crate) async fn transfer(&self, from: &str, to: &str, allowed: bool) {
        let (from, to) = (Name::new(from).unwrap(), Name::new(to).unwrap());
        let (rules, ctx) = (Residency::new(self.db.clone()), Ctx::system("test"));
        if allowed {
            let basis = "a test".to_owned();
            rules.allow_transfer(&ctx, from, to, basis, None).await.unwrap();
        } else {
            rules.end_transfer(&ctx, from, to).await.unwrap();
        }
    }

    pub(crate) async fn execute(&self, sql: &'static str) {
        self.db.write(move |tx: &mut Tx<'_>| tx.execute(sql, &[])).await.unwrap();
    }

    #[allow(dead_code, reason = "only some of the suites that share this world ask for it")]
    pub(crate) fn datasets(&self) -> Datasets {
        self.datasets.clone()
    }

    /// Waits until all that was written can be read as history. On PostgreSQL that ends at the oldest
    /// transaction that still runs, be it one of the database's own that gathers statistics.
    #[allow(dead_code, reason = "only some of the suites that share this world ask for it")]
    pub(crate) async fn is_settled(&self) {
        assert!(self.db.settled(Duration::from_secs(30)).await.unwrap());
    }

    /// Lets one of the domain's workers do its work.
    pub(crate) async fn run_worker(&self, name: &str) {
        let module = falaj_features::module(&self.features, &self.places);
        let worker = module.workers.iter().find(|worker| worker.name == name).unwrap();
        worker.run().await.unwrap();
    }

    pub(crate) async fn make_project(&self, name: &str) {
        let new: NewProject = serde_json::from_value(json!({ "name": name })).unwrap();
        let tenant = Name::new("default").unwrap();
        self.tenancy.create_project(&Ctx::system("test"), tenant, new).await.unwrap();
    }

    pub(crate) async fn project(&self) -> Project {
        let default = Name::new("default").unwrap();
        self.tenancy.project(&Ctx::system("test"), &default, &default).await.unwrap()
    }

    /// Sends a request in a project as someone.
    pub(crate) async fn ask(
        &self,
        ctx: Ctx,
        project: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Response {
        self.ask_at(ctx, project, method, &format!("/api/features{path}"), body).await
    }

    /// The same, to a route of any beginning.
    pub(crate) async fn ask_at(
        &self,
        ctx: Ctx,
        project: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Response {
        let kind = if body.is_string() { "application/toml" } else { "application/json" };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "falaj.test")
            .header(header::CONTENT_TYPE, kind)
            .header("x-falaj-project", format!("default/{project}"));
        let body = match body {
            Value::Null => Body::empty(),
            Value::String(text) => Body::from(text.clone()),
            body => Body::from(body.to_string()),
        };
        let router = self.router.clone().layer(Extension(ctx));
        router.oneshot(request.body(body).unwrap()).await.unwrap()
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Answer {
        answer(self.ask(Ctx::system("tester"), "default", method, path, &body).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn get_in(&self, project: &str, path: &str) -> Answer {
        let ctx = Ctx::system("tester");
        answer(self.ask(ctx, project, Method::GET, path, &Value::Null).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Value>) -> Answer {
        self.send(Method::POST, path, body.into()).await
    }

    /// Sends a body as it stands; the reply as text.
    pub(crate) async fn post_text(&self, path: &str, body: &str) -> (u16, String) {
        let request = http::Request::post(path)
            .header(header::HOST, "falaj.test")
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-falaj-project", "default/default")
            .body(Body::from(body.to_owned()));
        let router = self.router.clone().layer(Extension(Ctx::system("tester")));
        let response = router.oneshot(request.unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// The routes that take large bodies.
    pub(crate) fn large_routes(&self) -> Vec<&'static str> {
        let endpoints = falaj_features::module(&self.features, &self.places).endpoints;
        endpoints.into_iter().filter(|it| it.large).map(|it| it.path).collect()
    }

    /// Sends a request as somebody who may not do what the fence forbids.
    pub(crate) async fn behind(
        &self,
        forbidden: &[(&'static str, &str)],
        method: Method,
        path: &str,
        body: impl Into<Value>,
    ) -> Answer {
        let fence = forbidden.iter().map(|(action, id)| (*action, (*id).to_owned())).collect();
        let principal = Arc::new(Principal::system("tester"));
        let ctx = Ctx::new(principal, RequestInfo::internal(), Arc::new(Fence(fence)));
        answer(self.ask(ctx, "default", method, path, &body.into()).await).await
    }

    /// Applies TOML; it must be taken.
    pub(crate) async fn apply(&self, toml: &str) -> Value {
        ok(self.post("/apply", toml).await)
    }

    pub(crate) async fn catalog(&self) -> Arc<Catalog> {
        self.features.catalog(self.project().await.id).await.unwrap()
    }

    pub(crate) async fn view(&self, name: &str) -> ViewVersion {
        self.catalog().await.view(&FeatureName::new(name).unwrap()).unwrap()
    }

    /// What was told to other domains so far.
    pub(crate) async fn events(&self) -> Vec<String> {
        let read = |tx: &mut Tx<'_>| {
            let sql = "SELECT kind FROM event WHERE kind LIKE 'falaj.feature%' OR \
                       kind LIKE 'falaj.training%' ORDER BY tx, seq";
            let rows = tx.query(sql, &[])?;
            rows.iter().map(|row| row.get::<String>("kind")).collect::<Result<Vec<_>>>()
        };
        self.db.read(read).await.unwrap()
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let read = move |tx: &mut Tx<'_>| tx.query_one(sql, &[])?.get("n");
        self.db.read(read).await.unwrap()
    }
}

fn router(features: &Features, places: &Places) -> Router {
    let router = falaj_features::module(features, places)
        .endpoints
        .into_iter()
        .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler))
        .layer(axum::middleware::from_fn(edge::speak));
    // The edge stands before the routes, or it could not rewrite a path.
    Router::new().fallback_service(router)
}

/// A project without objects: what has them stands above this domain.
struct NoObjects;

impl ProjectObjects for NoObjects {
    fn find<'a>(
        &'a self,
        _: &'a Ctx,
        _: &'a Project,
        name: &'a str,
    ) -> BoxFuture<'a, Result<FoundObject>> {
        Box::pin(async move { Err(Error::not_found("object", name)) })
    }
}

/// Allows everything but some actions on resources whose id ends so.
#[derive(Debug)]
struct Fence(Vec<(&'static str, String)>);

impl Gate for Fence {
    fn authorize<'a>(
        &'a self,
        ctx: &'a Ctx,
        action: &'static Action,
        resource: &'a Resource,
    ) -> BoxFuture<'a, Result<()>> {
        let allowed = self.allows(ctx, action, resource);
        Box::pin(async move {
            if allowed { Ok(()) } else { Err(Error::not_found(resource.kind, resource.shown())) }
        })
    }

    fn allows(&self, _: &Ctx, action: &'static Action, resource: &Resource) -> bool {
        !self.0.iter().any(|(name, id)| *name == action.name && resource.id.ends_with(id.as_str()))
    }
}

pub(crate) async fn answer(response: Response) -> Answer {
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

#[track_caller]
pub(crate) fn ok((status, body): Answer) -> Value {
    assert_eq!(status, 200, "{body}");
    body
}
