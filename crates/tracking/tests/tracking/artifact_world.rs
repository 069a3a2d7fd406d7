//! The artifact routes over a real store, called as a client would.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use axum::{Extension, Router};
use falaj_base::{Action, Clock, Ctx, Error, Gate, Name, Principal, RequestInfo, Resource, Result};
use falaj_governance::audit::ReadLog;
use falaj_governance::epoch::Epoch;
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::{NewProject, Tenancy};
use falaj_governance::{epoch, residency, tenancy};
use falaj_mlflow::{Call, Places, edge};
use falaj_store::db::{DatabaseConfig, Db, Tx};
use falaj_store::objects::{Objects, ObjectsConfig};
use falaj_store::worker::Worker;
use falaj_store::{keys, objects};
use falaj_testkit::database::Database;
use falaj_tracking::artifact::{ArtifactConfig, SignedUrls};
use falaj_tracking::run::NewRun;
use falaj_tracking::{ExperimentId, Tracking, TrackingConfig};
use futures::future::BoxFuture;
use http::{Method, StatusCode, header};
use serde_json::Value;
use tower::ServiceExt;

pub(crate) const FILES: &str = "/api/2.0/mlflow-artifacts/artifacts";

pub(crate) struct World {
    pub(crate) tracking: Tracking,
    pub(crate) clock: Clock,
    pub(crate) objects: Objects,
    router: Router,
    workers: Vec<Worker>,
    places: Places,
    tenancy: Tenancy,
    reads: ReadLog,
    _folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new(database: &Database) -> Self {
        Self::with(database, ArtifactConfig::default()).await
    }

    pub(crate) async fn with(database: &Database, artifact: ArtifactConfig) -> Self {
        let config = TrackingConfig { artifact, ..TrackingConfig::default() };
        Self::configured(database, config).await
    }

    pub(crate) async fn configured(database: &Database, tracking: TrackingConfig) -> Self {
        let clock = Clock::manual(Clock::System.now());
        let db = database.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
        let mut modules = falaj_store::migrations();
        modules.extend([
            ("keys", keys::MIGRATIONS),
            ("blobs", objects::MIGRATIONS),
            ("epoch", epoch::MIGRATIONS),
            ("residency", residency::MIGRATIONS),
            ("tenancy", tenancy::MIGRATIONS),
            ("tracking", falaj_tracking::MIGRATIONS),
        ]);
        db.migrate(&modules).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = keys::KeysConfig::default();
        let keys = keys::Keys::open(&config, folder.path(), db.clone()).await.unwrap();
        let config = ObjectsConfig::default();
        let objects = Objects::open(&config, folder.path(), db.clone(), keys.clone()).unwrap();
        let local = Name::new("local").unwrap();
        Residency::new(db.clone()).ensure(local.clone(), "AE".to_owned()).await.unwrap();
        let epoch = Epoch::load(db.clone()).await.unwrap();
        let tenancy = Tenancy::new(db.clone(), epoch.clone(), local);
        tenancy.ensure_default().await.unwrap();
        let reads = ReadLog::new(db.clone(), 1000, 100);
        let tracking = Tracking::new(tracking, db, objects.clone(), reads.clone());
        let places = Places::new(tenancy.clone(), epoch);
        let secret = keys.platform_secret("artifact-urls").unwrap();
        let urls = SignedUrls::new(&secret, None, false);
        let falaj_web::Module { endpoints, workers, .. } =
            falaj_tracking::module(&tracking, &places, &urls);
        let router = endpoints
            .into_iter()
            .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler))
            .layer(axum::middleware::from_fn(edge::speak));
        Self { tracking, clock, objects, router, workers, places, tenancy, reads, _folder: folder }
    }

    pub(crate) fn db(&self) -> &Db {
        self.tracking.db()
    }

    pub(crate) async fn make_project(&self, name: &str) {
        let new: NewProject = serde_json::from_value(serde_json::json!({ "name": name })).unwrap();
        let tenant = Name::new("default").unwrap();
        self.tenancy.create_project(&Ctx::system("test"), tenant, new).await.unwrap();
    }

    pub(crate) async fn call_in(&self, project: &str) -> Call {
        let ctx = Ctx::system("test");
        let request = http::Request::builder().header("x-falaj-project", project).body(()).unwrap();
        let place = self.places.of(&ctx, &request.into_parts().0).await.unwrap();
        Call { ctx, place, connection: None }
    }

    pub(crate) async fn call(&self) -> Call {
        self.call_in("default/default").await
    }

    pub(crate) async fn experiment(&self, name: &str, location: Option<&str>) -> ExperimentId {
        let new = falaj_tracking::experiment::NewExperiment {
            name: name.to_owned(),
            artifact_location: location.map(str::to_owned),
            tags: Vec::new(),
        };
        self.tracking.create_experiment(&self.call().await, new).await.unwrap()
    }

    /// Makes a run; its id and the path of its files.
    pub(crate) async fn run_in(&self, call: &Call, experiment: ExperimentId) -> (String, String) {
        let new = NewRun {
            experiment,
            name: None,
            user_id: String::new(),
            start_time: 0,
            tags: Vec::new(),
        };
        let run = self.tracking.create_run(call, new).await.unwrap();
        let root = run.info.artifact_uri.strip_prefix("mlflow-artifacts:/").unwrap().to_owned();
        (run.info.id.to_string(), root)
    }

    pub(crate) async fn run(&self) -> (String, String) {
        self.run_in(&self.call().await, ExperimentId::DEFAULT).await
    }

    pub(crate) async fn ask(&self, ctx: Option<Ctx>, request: Request) -> Response {
        let router = match ctx {
            Some(ctx) => self.router.clone().layer(Extension(ctx)),
            None => self.router.clone(),
        };
        router.oneshot(request).await.unwrap()
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Response {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(header::HOST, "falaj.test:5000").body(body.into()).unwrap();
        self.ask(Some(Ctx::system("test")), request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send(Method::GET, path, Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Response {
        let request = http::Request::builder().method(Method::POST).uri(path);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = request.header(header::HOST, "falaj.test:5000").body(body.to_string().into());
        self.ask(Some(Ctx::system("test")), request.unwrap()).await
    }

    /// The JSON answer of a request to a path below the default project, which must succeed.
    pub(crate) async fn native(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, body) = self.native_try(method, path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {body}");
        body
    }

    pub(crate) async fn native_try(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let path = format!("/v1/tenants/default/projects/default/{path}");
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let reply = self.ask(Some(Ctx::system("test")), request.body(body).unwrap()).await;
        let status = reply.status().as_u16();
        let bytes = bytes(reply).await;
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    pub(crate) async fn put(&self, path: &str, body: impl Into<Body>) {
        let reply = self.send(Method::PUT, &format!("{FILES}/{path}"), body).await;
        assert_eq!(reply.status(), StatusCode::OK, "{path}: {}", text(reply).await);
    }

    pub(crate) async fn listed(&self, query: &str) -> Vec<String> {
        let reply = self.get(&format!("{FILES}?{query}")).await;
        assert_eq!(reply.status(), StatusCode::OK, "{query}");
        names(&json(reply).await)
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let read = move |tx: &mut Tx<'_>| tx.query_one(sql, &[])?.get("n");
        self.db().read(read).await.unwrap()
    }

    /// The entries of the audit log so far, as they were written.
    pub(crate) async fn audit(&self) -> Vec<Value> {
        self.reads.flush().await.unwrap();
        let read = |tx: &mut Tx<'_>| {
            let rows = tx.query("SELECT entry FROM audit_entry ORDER BY tx, seq", &[])?;
            rows.iter().map(|row| row.get::<String>("entry")).collect::<Result<Vec<_>>>()
        };
        let entries = self.db().read(read).await.unwrap();
        entries.iter().map(|entry| serde_json::from_str(entry).unwrap()).collect()
    }

    /// Lets the server tell others on the same database what it knows.
    pub(crate) async fn tell(&self) {
        let teller = self.workers.iter().find(|worker| worker.name == "run-creation-tell");
        teller.unwrap().run().await.unwrap();
    }

    pub(crate) fn later(&self, by: Duration) {
        self.clock.advance(by);
    }
}

/// A list's entries: folders end in a slash.
pub(crate) fn names(list: &Value) -> Vec<String> {
    let files = list["files"].as_array().cloned().unwrap_or_default();
    let shown = |file: &Value| {
        let path = file["path"].as_str().unwrap();
        if file["is_dir"] == true { format!("{path}/") } else { path.to_owned() }
    };
    files.iter().map(shown).collect()
}

pub(crate) async fn bytes(reply: Response) -> Vec<u8> {
    to_bytes(reply.into_body(), 100 << 20).await.unwrap().to_vec()
}

pub(crate) async fn text(reply: Response) -> String {
    String::from_utf8(bytes(reply).await).unwrap()
}

pub(crate) async fn json(reply: Response) -> Value {
    serde_json::from_slice(&bytes(reply).await).unwrap()
}

pub(crate) fn head<'r>(reply: &'r Response, name: &str) -> &'r str {
    reply.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// Status and error code of a refusal.
pub(crate) async fn refusal(reply: Response) -> (u16, String) {
    let status = reply.status().as_u16();
    (status, json(reply).await["error_code"].as_str().unwrap_or("").to_owned())
}

/// Someone who may do everything but touch what is named here.
pub(crate) fn kept_from(resources: &[String]) -> Ctx {
    struct Fence(Vec<String>);
    impl Gate for Fence {
        fn authorize<'a>(
            &'a self,
            ctx: &'a Ctx,
            action: &'static Action,
            resource: &'a Resource,
        ) -> BoxFuture<'a, Result<()>> {
            let allowed = self.allows(ctx, action, resource);
            let refused = Error::not_found(resource.kind, resource.shown());
            Box::pin(async move { if allowed { Ok(()) } else { Err(refused) } })
        }

        fn allows(&self, _: &Ctx, _: &'static Action, resource: &Resource) -> bool {
            !self.0.contains(&resource.id)
        }
    }
    let principal = Arc::new(Principal::system("fenced"));
    Ctx::new(principal, RequestInfo::internal(), Arc::new(Fence(resources.to_vec())))
}
