//! The routes over a real database, called as a client would.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::{Extension, Router};
use falaj_base::{Action, Ctx, Error, Gate, Name, Principal, RequestInfo, Resource, Result};
use falaj_governance::audit::ReadLog;
use falaj_governance::epoch::Epoch;
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::{NewProject, Tenancy};
use falaj_governance::{epoch, residency, tenancy};
use falaj_mlflow::{Places, edge};
use falaj_store::db::{Db, Tx};
use falaj_store::objects::{Objects, ObjectsConfig};
use falaj_store::worker::Worker;
use falaj_store::{keys, objects};
use falaj_testkit::database;
use falaj_traces::{Traces, TracesConfig, module};
use falaj_tracking::{Tracking, TrackingConfig};
use futures::future::BoxFuture;
use http::{Method, header};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const V3: &str = "/api/3.0/mlflow/traces";

pub(crate) struct World {
    db: Db,
    router: Router,
    tenancy: Tenancy,
    workers: Vec<Worker>,
    _folder: tempfile::TempDir,
}

/// Runs a test on each engine.
pub(crate) async fn each<F>(config: TracesConfig, suite: F)
where
    F: AsyncFn(World),
{
    database::each_place(async |database| {
        let db = database.open().await.unwrap();
        suite(World::new(db, config.clone()).await).await;
    })
    .await;
}

impl World {
    async fn new(db: Db, config: TracesConfig) -> Self {
        let mut modules = falaj_store::migrations();
        modules.extend([
            ("keys", keys::MIGRATIONS),
            ("blobs", objects::MIGRATIONS),
            ("epoch", epoch::MIGRATIONS),
            ("residency", residency::MIGRATIONS),
            ("tenancy", tenancy::MIGRATIONS),
            ("tracking", falaj_tracking::MIGRATIONS),
            ("traces", falaj_traces::MIGRATIONS),
        ]);
        db.migrate(&modules).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config_of_keys = keys::KeysConfig::default();
        let keys = keys::Keys::open(&config_of_keys, folder.path(), db.clone()).await.unwrap();
        let objects =
            Objects::open(&ObjectsConfig::default(), folder.path(), db.clone(), keys).unwrap();
        let local = Name::new("local").unwrap();
        Residency::new(db.clone()).ensure(local.clone(), "AE".to_owned()).await.unwrap();
        let epoch = Epoch::load(db.clone()).await.unwrap();
        let tenancy = Tenancy::new(db.clone(), epoch.clone(), local);
        tenancy.ensure_default().await.unwrap();
        let reads = ReadLog::new(db.clone(), 1000, 100);
        let tracking = Tracking::new(TrackingConfig::default(), db.clone(), objects, reads);
        let places = Places::new(tenancy.clone(), epoch);
        let traces = Traces::new(config, tracking.clone());
        let secret = [7; 32];
        let urls = falaj_tracking::artifact::SignedUrls::new(&secret, None, false);
        let ours = module(&traces, &places);
        let workers = ours.workers.clone();
        let modules = [ours, falaj_tracking::module(&tracking, &places, &urls)];
        let router = modules
            .into_iter()
            .flat_map(|module| module.endpoints)
            .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler))
            .layer(axum::middleware::from_fn(edge::speak));
        Self { db, router, tenancy, workers, _folder: folder }
    }

    pub(crate) async fn make_project(&self, name: &str) {
        let new: NewProject = serde_json::from_value(json!({ "name": name })).unwrap();
        let tenant = Name::new("default").unwrap();
        self.tenancy.create_project(&Ctx::system("test"), tenant, new).await.unwrap();
    }

    /// The status and the body of a reply.
    pub(crate) async fn ask(&self, ctx: Ctx, request: Request) -> (u16, Value) {
        let reply = self.router.clone().layer(Extension(ctx)).oneshot(request).await.unwrap();
        let status = reply.status().as_u16();
        let bytes = to_bytes(reply.into_body(), 100 << 20).await.unwrap();
        let text = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        self.send_to("default/default", Ctx::system("test"), method, path, body).await
    }

    pub(crate) async fn send_to(
        &self,
        project: &str,
        ctx: Ctx,
        method: Method,
        path: &str,
        body: Value,
    ) -> (u16, Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("x-falaj-project", project)
            .header("x-mlflow-experiment-id", "0")
            .header(header::CONTENT_TYPE, "application/json");
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.ask(ctx, request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, Value::Null).await
    }

    /// A reply that must be a success.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let (status, reply) = self.send(Method::POST, path, body).await;
        assert_eq!(status, 200, "{path}: {reply}");
        reply
    }

    pub(crate) async fn start(&self, id: &str, more: Value) -> Value {
        self.post(V3, json!({ "trace": { "trace_info": info(id, more) } })).await
    }

    pub(crate) async fn log(&self, spans: Value) -> (u16, Value) {
        self.send(Method::POST, "/v1/traces", otlp(spans)).await
    }

    pub(crate) async fn run(&self, sql: &'static str) {
        self.db.write(move |tx: &mut Tx<'_>| tx.execute(sql, &[])).await.unwrap();
    }

    /// Runs the background work of this domain once.
    pub(crate) async fn work(&self) {
        for worker in &self.workers {
            worker.run().await.unwrap();
        }
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT COUNT(*) AS n FROM {table}");
        self.db.read(move |tx: &mut Tx<'_>| tx.query_one(&sql, &[])?.get("n")).await.unwrap()
    }
}

pub(crate) fn info(id: &str, more: Value) -> Value {
    let mut info = json!({
        "trace_id": id,
        "trace_location": place("0"),
        "request_time": "2001-01-01T00:00:01Z",
        "execution_duration": "1.5s",
        "state": "OK",
    });
    info.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    info
}

pub(crate) fn place(experiment: &str) -> Value {
    json!({"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}})
}

pub(crate) fn otlp(spans: Value) -> Value {
    json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
}

/// A span of trace `trace`; the parent 0 is none.
pub(crate) fn span(trace: u64, id: u64, parent: u64, more: Value) -> Value {
    let mut span = json!({
        "traceId": format!("{trace:032x}"),
        "spanId": format!("{id:016x}"),
        "parentSpanId": if parent == 0 { String::new() } else { format!("{parent:016x}") },
        "name": format!("span {id}"),
        "startTimeUnixNano": (1_000_000_000 + id * 1_000_000).to_string(),
        "endTimeUnixNano": (2_000_000_000 + id * 1_000_000).to_string(),
    });
    span.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    span
}

pub(crate) fn trace_id(trace: u64) -> String {
    format!("tr-{trace:032x}")
}

/// Someone who may do nothing at all.
pub(crate) fn nobody() -> Ctx {
    struct Wall;
    impl Gate for Wall {
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

        fn allows(&self, _: &Ctx, action: &'static Action, _: &Resource) -> bool {
            action.name == "project:read"
        }
    }
    Ctx::new(Arc::new(Principal::system("nobody")), RequestInfo::internal(), Arc::new(Wall))
}
