//! Datasets and what they stand on, called as a client would.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use axum::body::{Body, to_bytes};
use axum::response::Response;
use axum::{Extension, Router};
use bytes::Bytes;
use falaj_base::{
    Action, ByteSize, Clock, Ctx, Error, Gate, HumanDuration, Name, Principal, RequestInfo,
    Resource, Result,
};
use falaj_catalog::{Datasets, DatasetsConfig};
use falaj_governance::audit::ReadLog;
use falaj_governance::epoch::{self, Epoch};
use falaj_governance::residency::{self, Residency};
use falaj_governance::tenancy::{self, Project, Tenancy};
use falaj_mlflow::{Places, edge};
use falaj_store::db::{DatabaseConfig, Db, Tx};
use falaj_store::objects::{Objects, ObjectsConfig};
use falaj_store::{keys, objects};
use falaj_tables::{Layout, Limits, Part, RecordWriter, Table};
use falaj_testkit::database;
use futures::future::BoxFuture;
use http::{Method, header};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) type Answer = (u16, Value);

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) db: Db,
    pub(crate) objects: Objects,
    pub(crate) datasets: Datasets,
    tenancy: Tenancy,
    router: Router,
    _folder: tempfile::TempDir,
}

/// Small enough that tests meet the limits.
pub(crate) fn config() -> DatasetsConfig {
    DatasetsConfig {
        max_files: 5,
        max_columns: 6,
        max_tags: 3,
        // Some records fit, so that every comparison spills.
        diff_memory: ByteSize::from_bytes(200),
        diff_wait: HumanDuration::new(Duration::from_mins(1)),
        ..DatasetsConfig::default()
    }
}

/// Runs a test on each engine.
pub(crate) async fn each<F: AsyncFn(World)>(suite: F) {
    database::each_place(async |database| {
        let clock = Clock::manual("2026-05-01T12:00:00Z".parse().unwrap());
        let db = database.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
        suite(World::new(db, clock).await).await;
    })
    .await;
}

impl World {
    async fn new(db: Db, clock: Clock) -> Self {
        let mut modules = falaj_store::migrations();
        modules.extend([
            ("keys", keys::MIGRATIONS),
            ("blobs", objects::MIGRATIONS),
            ("epoch", epoch::MIGRATIONS),
            ("residency", residency::MIGRATIONS),
            ("tenancy", tenancy::MIGRATIONS),
            ("catalog", falaj_catalog::MIGRATIONS),
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
            config(),
            db.clone(),
            objects.clone(),
            reads,
            tenancy.clone(),
            folder.path(),
        );
        let places = Places::new(tenancy.clone(), epoch);
        let router = falaj_catalog::module(&datasets, &places)
            .endpoints
            .into_iter()
            .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler))
            .layer(axum::middleware::from_fn(edge::speak));
        let router = Router::new().fallback_service(router);
        Self { clock, db, objects, datasets, tenancy, router, _folder: folder }
    }

    pub(crate) async fn project(&self) -> Project {
        let default = Name::new("default").unwrap();
        self.tenancy.project(&Ctx::system("test"), &default, &default).await.unwrap()
    }

    /// Removes the row of the project, if nothing holds it.
    pub(crate) async fn forget_project(&self) -> Result<()> {
        self.db.write(|tx: &mut Tx<'_>| tx.execute("DELETE FROM project", &[]).map(drop)).await
    }

    pub(crate) async fn ask(
        &self,
        ctx: Ctx,
        method: Method,
        path: &str,
        body: impl Into<Body>,
    ) -> Response {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/api/datasets{path}"))
            .header(header::HOST, "falaj.test")
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-falaj-project", "default/default")
            .body(body.into());
        let router = self.router.clone().layer(Extension(ctx));
        router.oneshot(request.unwrap()).await.unwrap()
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        answer(self.ask(Ctx::system("tester"), method, path, body).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str, body: Value) -> Answer {
        self.send(Method::DELETE, path, body).await
    }

    /// The content of a reply.
    pub(crate) async fn bytes(&self, path: &str) -> Bytes {
        let response = self.ask(Ctx::system("tester"), Method::GET, path, Body::empty()).await;
        assert_eq!(response.status().as_u16(), 200);
        to_bytes(response.into_body(), usize::MAX).await.unwrap()
    }

    /// Sends a request as somebody who may not do what the fence forbids.
    pub(crate) async fn behind(
        &self,
        forbidden: &[&'static str],
        method: Method,
        path: &str,
        body: Value,
    ) -> Answer {
        let principal = Arc::new(Principal::system("tester"));
        let gate = Arc::new(Fence(forbidden.to_vec()));
        let ctx = Ctx::new(principal, RequestInfo::internal(), gate);
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        answer(self.ask(ctx, method, path, body).await).await
    }

    /// Makes a dataset.
    pub(crate) async fn create(&self, name: &str, key: &[&str]) {
        ok(self.post("", json!({ "name": name, "key": key })).await);
    }

    /// Sends a file; its digest.
    pub(crate) async fn file(&self, name: &str, rows: &[(i64, &str)]) -> String {
        self.file_of(name, parquet(rows)).await
    }

    pub(crate) async fn file_of(&self, name: &str, content: Bytes) -> String {
        let sent = ok(self.raw(&format!("/{name}/files"), content).await);
        sent["sha256"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn raw(&self, path: &str, content: impl Into<Body>) -> Answer {
        answer(self.ask(Ctx::system("tester"), Method::POST, path, content).await).await
    }

    /// Puts rows as a version.
    pub(crate) async fn version(&self, name: &str, rows: &[(i64, &str)]) -> Value {
        let file = self.file(name, rows).await;
        ok(self.post(&format!("/{name}/versions"), json!({ "files": [file] })).await)
    }

    pub(crate) async fn append(&self, name: &str, rows: &[(i64, &str)]) -> Value {
        let file = self.file(name, rows).await;
        let body = json!({ "files": [file], "append": true });
        ok(self.post(&format!("/{name}/versions"), body).await)
    }

    /// The rows of a version, as `?version=3` and the like name it.
    pub(crate) async fn rows(&self, name: &str, which: &str) -> Vec<(i64, String)> {
        let bytes = self.bytes(&format!("/{name}/data{which}")).await;
        let table = Table::open(bytes, Limits::default()).unwrap();
        let part = Part { rows_at_once: 100, ..Part::default() };
        let mut rows = Vec::new();
        for batch in table.records(&part).unwrap() {
            let batch = batch.unwrap();
            let ids = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().clone();
            let texts = batch.column(1).as_any().downcast_ref::<StringArray>().unwrap().clone();
            rows.extend(
                ids.values().iter().copied().zip(texts.iter().map(|it| it.unwrap().to_owned())),
            );
        }
        rows
    }

    /// What was told to other domains so far.
    pub(crate) async fn events(&self) -> Vec<String> {
        let read = |tx: &mut Tx<'_>| {
            let sql = "SELECT kind FROM event WHERE kind LIKE 'falaj.dataset%' ORDER BY tx, seq";
            let rows = tx.query(sql, &[])?;
            rows.iter().map(|row| row.get::<String>("kind")).collect::<Result<Vec<_>>>()
        };
        self.db.read(read).await.unwrap()
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let read = move |tx: &mut Tx<'_>| tx.query_one(sql, &[])?.get("n");
        self.db.read(read).await.unwrap()
    }

    /// The text `t` that is found.
    pub(crate) async fn text(&self, sql: &'static str) -> String {
        let read = move |tx: &mut Tx<'_>| tx.query_one(sql, &[])?.get("t");
        self.db.read(read).await.unwrap()
    }

    /// How many blobs there are that something refers to.
    pub(crate) async fn blobs(&self) -> i64 {
        self.count("SELECT COUNT(*) AS n FROM blob WHERE refs > 0").await
    }
}

/// Rows of an `id` and a `text` as a file of Parquet.
pub(crate) fn parquet(rows: &[(i64, &str)]) -> Bytes {
    let ids: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)));
    file([("id", ids), ("text", texts)])
}

pub(crate) fn file<const N: usize>(columns: [(&str, ArrayRef); N]) -> Bytes {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = RecordWriter::new(Vec::new(), batch.schema(), Layout::default()).unwrap();
    writer.write(&batch).unwrap();
    Bytes::from(writer.close().unwrap())
}

/// Allows everything but some actions on datasets; those look as if nothing were there.
#[derive(Debug)]
struct Fence(Vec<&'static str>);

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
        resource.kind != "dataset" || !self.0.contains(&action.name)
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

/// The code and the field of a refusal.
#[track_caller]
pub(crate) fn refused((status, body): Answer) -> (u16, String, String) {
    assert!(status >= 400, "{body}");
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    (status, text("code"), text("field"))
}
