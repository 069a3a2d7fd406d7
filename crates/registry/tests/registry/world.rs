//! The registry and what it stands on, called as a client would.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::response::Response;
use axum::{Extension, Router};
use falaj_base::{
    Action, ByteSize, Clock, Ctx, Error, Gate, Name, Principal, PrincipalId, ProjectId,
    RequestInfo, Resource, Result,
};
use falaj_governance::audit::ReadLog;
use falaj_governance::epoch::{self, Epoch};
use falaj_governance::residency::{self, Residency};
use falaj_governance::tenancy::{self, NewProject, Tenancy};
use falaj_mlflow::{Places, edge};
use falaj_registry::in_use::{Users, hold};
use falaj_registry::model::RegisteredId;
use falaj_registry::{Registry, RegistryConfig};
use falaj_store::db::{DatabaseConfig, Db, Tx, params};
use falaj_store::objects::{Objects, ObjectsConfig};
use falaj_store::{keys, objects};
use falaj_testkit::database::Database;
use falaj_tracking::artifact::SignedUrls;
use falaj_tracking::{Tracking, TrackingConfig};
use futures::future::BoxFuture;
use http::{Method, header};
use serde_json::{Value, json};
use tower::ServiceExt;

const API: &str = "/api/2.0/mlflow";

pub(crate) struct World {
    clock: Clock,
    db: Db,
    router: Router,
    tenancy: Tenancy,
    reads: ReadLog,
    registry: Registry,
    _folder: tempfile::TempDir,
}

/// Uses all versions of a model that is described as used.
struct Somebody;

impl Users for Somebody {
    fn user_of(
        &self,
        tx: &mut Tx<'_>,
        _: ProjectId,
        model: RegisteredId,
        _: Option<i64>,
    ) -> Result<Option<String>> {
        let sql = "SELECT id FROM registered_model WHERE id = $1 AND description = 'used'";
        Ok(tx.query_opt(sql, &params![model])?.map(|_| "somebody".to_owned()))
    }
}

/// A reply: its status and what it says.
pub(crate) type Answer = (u16, Value);

impl World {
    pub(crate) async fn new(database: &Database) -> Self {
        Self::with(database, RegistryConfig::default()).await
    }

    pub(crate) async fn with(database: &Database, config: RegistryConfig) -> Self {
        let registry_config = config;
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
            ("registry", falaj_registry::MIGRATIONS),
        ]);
        db.migrate(&modules).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = keys::KeysConfig::default();
        let keys = keys::Keys::open(&config, folder.path(), db.clone()).await.unwrap();
        db.seal_replies_with(&keys.platform_secret("idempotent-replies").unwrap()).unwrap();
        let config = ObjectsConfig::default();
        let objects = Objects::open(&config, folder.path(), db.clone(), keys.clone()).unwrap();
        let local = Name::new("local").unwrap();
        Residency::new(db.clone()).ensure(local.clone(), "AE".to_owned()).await.unwrap();
        let epoch = Epoch::load(db.clone()).await.unwrap();
        let tenancy = Tenancy::new(db.clone(), epoch.clone(), local);
        tenancy.ensure_default().await.unwrap();
        let reads = ReadLog::new(db.clone(), 1000, 100);
        // Small, so that tests meet the limit.
        let config = TrackingConfig {
            max_import_check: ByteSize::from_bytes(40_000),
            ..TrackingConfig::default()
        };
        let tracking = Tracking::new(config, db.clone(), objects, reads.clone());
        let places = Places::new(tenancy.clone(), epoch);
        let secret = keys.platform_secret("artifact-urls").unwrap();
        let urls = SignedUrls::new(&secret, None, false);
        let registry = Registry::new(registry_config, tracking.clone(), tenancy.clone(), keys);
        let mut endpoints = falaj_tracking::module(&tracking, &places, &urls).endpoints;
        endpoints.extend(falaj_registry::module(&registry, &places).endpoints);
        let router = endpoints
            .into_iter()
            .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler))
            .layer(axum::middleware::from_fn(edge::speak));
        // The edge stands before the routes, or it could not rewrite a path.
        let router = Router::new().fallback_service(router);
        Self { clock, db, router, tenancy, reads, registry, _folder: folder }
    }

    pub(crate) async fn make_project(&self, name: &str) {
        let new: NewProject = serde_json::from_value(json!({ "name": name })).unwrap();
        let tenant = Name::new("default").unwrap();
        self.tenancy.create_project(&Ctx::system("test"), tenant, new).await.unwrap();
    }

    /// Sends a request to a path of the API, or to a whole path, in a project, as someone.
    pub(crate) async fn ask(
        &self,
        ctx: Ctx,
        project: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Response {
        let whole = if path.starts_with("/v1/")
            || path.starts_with("/model-versions/get-artifact")
            || path.starts_with("/api/")
        {
            path.to_owned()
        } else {
            format!("{API}{path}")
        };
        let request = http::Request::builder()
            .method(method)
            .uri(whole.replace(' ', "%20"))
            .header(header::HOST, "falaj.test")
            .header(header::CONTENT_TYPE, "application/json")
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

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str, body: Value) -> Answer {
        self.send(Method::DELETE, path, body).await
    }

    /// By a method that few routes have.
    pub(crate) async fn send_as(&self, method: &str, path: &str, body: Value) -> Answer {
        self.send(method.parse().unwrap(), path, body).await
    }

    /// Makes a model.
    pub(crate) async fn model(&self, name: &str) -> Value {
        ok(self.post("/registered-models/create", json!({ "name": name })).await)
    }

    /// Makes a version of a model from somewhere else.
    pub(crate) async fn version(&self, name: &str) -> Value {
        let body = json!({ "name": name, "source": "s3://bucket/model" });
        ok(self.post("/model-versions/create", body).await)["model_version"].take()
    }

    /// Makes a run; its id and the URI of its files.
    pub(crate) async fn run(&self) -> (String, String) {
        self.run_in("0").await
    }

    pub(crate) async fn run_in(&self, experiment: &str) -> (String, String) {
        let body = json!({ "experiment_id": experiment });
        let run = ok(self.post("/runs/create", body).await)["run"]["info"].take();
        (text(&run["run_id"]), text(&run["artifact_uri"]))
    }

    /// Makes a logged model of a run; its id and the URI of its files.
    pub(crate) async fn logged_model(&self, run: &str) -> (String, String) {
        self.logged_model_in("0", run).await
    }

    pub(crate) async fn logged_model_in(&self, experiment: &str, run: &str) -> (String, String) {
        let body = json!({ "experiment_id": experiment, "name": "m", "source_run_id": run });
        let model = ok(self.post("/logged-models", body).await)["model"]["info"].take();
        (text(&model["model_id"]), text(&model["artifact_uri"]))
    }

    /// Does the background work of the registry that is due.
    pub(crate) async fn work(&self) {
        self.registry.make_due().await.unwrap();
        self.registry.deliver_due().await.unwrap();
    }

    /// Lets some seconds pass.
    pub(crate) fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Stores files below the URI of a run or a logged model.
    pub(crate) async fn upload(&self, uri: &str, files: &[(&str, &str)]) {
        let folder = uri.trim_start_matches("mlflow-artifacts:").trim_start_matches('/');
        for (path, content) in files {
            let path = format!("/api/2.0/mlflow-artifacts/artifacts/{folder}/{path}");
            let (status, body) =
                self.send(Method::PUT, &path, Value::String((*content).to_owned())).await;
            assert_eq!(status, 200, "{path}: {body}");
        }
    }

    /// Deletes a file below such a URI.
    pub(crate) async fn remove(&self, uri: &str, path: &str) {
        let folder = uri.trim_start_matches("mlflow-artifacts:").trim_start_matches('/');
        let path = format!("/api/2.0/mlflow-artifacts/artifacts/{folder}/{path}");
        let (status, body) = self.send(Method::DELETE, &path, Value::Null).await;
        assert!(status < 300, "{path}: {body}");
    }

    /// Sends a request as somebody with an identity of their own.
    pub(crate) async fn as_person(
        &self,
        who: &Principal,
        method: Method,
        path: &str,
        body: Value,
    ) -> Answer {
        let all = Arc::new(Fence(Vec::new()));
        let ctx = Ctx::new(Arc::new(who.clone()), RequestInfo::internal(), all);
        answer(self.ask(ctx, "default", method, path, &body).await).await
    }

    /// The entries of the audit log so far, as they were written.
    pub(crate) async fn audit(&self) -> Vec<Value> {
        self.reads.flush().await.unwrap();
        self.column("SELECT entry AS text FROM audit_entry ORDER BY tx, seq").await
    }

    /// What was told to other domains so far.
    pub(crate) async fn events(&self) -> Vec<String> {
        let read = |tx: &mut Tx<'_>| {
            let rows = tx.query("SELECT kind FROM event ORDER BY tx, seq", &[])?;
            rows.iter().map(|row| row.get::<String>("kind")).collect::<Result<Vec<_>>>()
        };
        self.db.read(read).await.unwrap()
    }

    async fn column(&self, sql: &'static str) -> Vec<Value> {
        let read = move |tx: &mut Tx<'_>| {
            let rows = tx.query(sql, &[])?;
            rows.iter().map(|row| row.get::<String>("text")).collect::<Result<Vec<_>>>()
        };
        let texts = self.db.read(read).await.unwrap();
        texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let read = move |tx: &mut Tx<'_>| tx.query_one(sql, &[])?.get("n");
        self.db.read(read).await.unwrap()
    }

    /// Changes rows behind the server's back.
    pub(crate) async fn change(&self, sql: &'static str) {
        self.db.write(move |tx| tx.execute(sql, &[])).await.unwrap();
    }

    /// Makes a request while another transaction, which holds a lock of the project and has run a
    /// statement, is about to commit: what the request looks at first is old, and what it writes
    /// comes after.
    pub(crate) async fn meanwhile<T>(
        &self,
        lock: (&'static str, &'static str),
        sql: &'static str,
        request: impl Future<Output = T>,
    ) -> T {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (finish, may_finish) = std::sync::mpsc::channel::<()>();
        let other = self.db.write(move |tx| {
            let project = "SELECT id FROM project WHERE name = 'default'";
            let project: String = tx.query_one(project, &[])?.get("id")?;
            let (kind, name) = lock;
            tx.lock(&format!("{kind}/{project}{name}"))?;
            tx.execute(sql, &[])?;
            begun.send(()).unwrap();
            may_finish.recv().map_err(Error::internal)
        });
        let requested = async {
            has_begun.await.unwrap();
            let release = async {
                // Long enough for the request to have looked and to wait.
                tokio::time::sleep(Duration::from_millis(400)).await;
                finish.send(()).unwrap();
            };
            tokio::join!(request, release).0
        };
        let (other, answer) = tokio::join!(other, requested);
        other.unwrap();
        answer
    }

    /// Somebody begins to use the version 1 of a model while a request is under way, and says so in
    /// its description; tells whether it was there, and what the request was answered.
    pub(crate) async fn used_meanwhile<T>(
        &self,
        model: &'static str,
        request: impl Future<Output = T>,
    ) -> (bool, T) {
        self.registry.set_users(Arc::new(Somebody));
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let user = self.db.write(move |tx| {
            let id = "SELECT id FROM registered_model WHERE name = $1";
            let id = tx.query_one(id, &params![model])?.get("id")?;
            let there = hold(tx, id, 1)?;
            begun.send(()).unwrap();
            // Long enough for the request to have looked and to wait.
            std::thread::sleep(Duration::from_millis(400));
            if there {
                tx.execute("UPDATE registered_model SET description = 'used'", &[])?;
            }
            Ok(there)
        });
        let requested = async {
            has_begun.await.unwrap();
            request.await
        };
        let (there, answer) = tokio::join!(user, requested);
        (there.unwrap(), answer)
    }

    /// Lets a millisecond pass, so that times tell what came first.
    pub(crate) fn tick(&self) {
        self.clock.advance(Duration::from_millis(1));
    }
}

pub(crate) async fn answer(reply: Response) -> Answer {
    let status = reply.status().as_u16();
    let bytes = to_bytes(reply.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

pub(crate) fn ok((status, body): Answer) -> Value {
    assert_eq!(status, 200, "{body}");
    body
}

/// Asserts a refusal: its status, its error code, and a piece of its message.
pub(crate) fn refused((status, body): Answer, expected: u16, code: &str, message: &str) {
    assert_eq!((status, body["error_code"].as_str()), (expected, Some(code)), "{body}");
    assert!(body["message"].as_str().unwrap().contains(message), "{body}");
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// The values of one field of a list.
pub(crate) fn each(list: &Value, field: &str) -> Vec<String> {
    list.as_array()
        .map(|list| list.iter().map(|one| text(&one[field])).collect())
        .unwrap_or_default()
}

/// Lets everything pass but what it names.
struct Fence(Vec<(&'static str, String)>);
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

    fn allows(&self, _: &Ctx, action: &'static Action, resource: &Resource) -> bool {
        !self.0.iter().any(|(name, end)| *name == action.name && resource.id.ends_with(end))
    }
}

/// Someone who may do everything but what is named here, as `action kind-of-name`.
pub(crate) fn without(forbidden: &[(&'static str, &str)]) -> Ctx {
    let principal = Arc::new(Principal::system("fenced"));
    let fence = forbidden.iter().map(|(action, end)| (*action, (*end).to_owned())).collect();
    Ctx::new(principal, RequestInfo::internal(), Arc::new(Fence(fence)))
}

/// Somebody who may do everything, and is somebody.
pub(crate) fn person(name: &str) -> Principal {
    Principal { id: PrincipalId::new(), ..Principal::system(name) }
}
