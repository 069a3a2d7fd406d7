//! Training and what it stands on, called as a client would, one pass at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::{Extension, Router};
use falaj_base::{Clock, Ctx, Name, Result};
use falaj_executors::Executor;
use falaj_governance::audit::ReadLog;
use falaj_governance::epoch::{self, Epoch};
use falaj_governance::residency::{self, Residency};
use falaj_governance::tenancy::{self, Tenancy};
use falaj_mlflow::{Places, edge};
use falaj_store::db::{DatabaseConfig, Db, Tx};
use falaj_store::objects::{Objects, ObjectsConfig};
use falaj_store::{keys, objects};
use falaj_testkit::database;
use falaj_tracking::{Tracking, TrackingConfig};
use falaj_training::config::{LocalConfig, NodeConfig, PoolConfig, PriceBook, TrainingConfig};
use falaj_training::pool::{Machine, Pools};
use falaj_training::{Floor, Reach, Training};
use http::{Method, header};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::engine::{Engine, shared};

/// Starts that were not launched yet, and ends that were not seen to.
const UNDER_WAY: &str = "SELECT COUNT(*) AS n FROM training_attempt
    WHERE open = 1 OR (open = 2 AND state = 'STARTING')";

pub(crate) type Answer = (u16, Value);

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) db: Db,
    pub(crate) engine: Arc<Engine>,
    pub(crate) training: Training,
    floor: Floor,
    router: Router,
    folder: tempfile::TempDir,
}

/// Two nodes of four cores and two GPUs in this zone, and one in another.
pub(crate) fn config() -> TrainingConfig {
    let node = |name: &str, zone: Option<&str>| -> NodeConfig {
        let zone = zone.map(|zone| json!(zone));
        serde_json::from_value(json!({
            "name": name, "cpu": 4.0, "memory": "8GiB", "gpus": 2, "gpu_type": "toy",
            "zone": zone, "price": 36.0,
        }))
        .unwrap()
    };
    let pool: PoolConfig = serde_json::from_value(json!({
        "name": "main", "kind": "slurm", "tenants": ["default"], "folder": "/shared",
    }))
    .unwrap();
    TrainingConfig {
        // The order of arrival, so that tests can tell who is next.
        policy: "fifo".to_owned(),
        default_pool: Name::new("main").unwrap(),
        local: LocalConfig { enabled: false, ..LocalConfig::default() },
        pool: vec![PoolConfig {
            node: vec![node("a", None), node("b", None), node("far", Some("dublin"))],
            ..pool
        }],
        prices: PriceBook { core: 1.0, gpu: 2.0, spot: 0.5 },
        max_losses: 1,
        max_array: 1000,
        max_unfinished: 2000,
        max_queues: 5,
        ..TrainingConfig::default()
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

fn training(floor: &Floor, engine: &Arc<Engine>, folder: &Path) -> Training {
    training_with(config(), floor, engine, folder)
}

fn training_with(
    mut config: TrainingConfig,
    floor: &Floor,
    engine: &Arc<Engine>,
    folder: &Path,
) -> Training {
    let home = Name::new("local").unwrap();
    let machine = Machine { cpu: 1.0, memory_mib: 1, gpus: 0, gpu_type: None };
    let mut engines = |_: &Name, _| -> Result<Arc<dyn Executor>> { Ok(engine.clone()) };
    // What jobs save goes where this test may write.
    config.pool[0].folder = Some(folder.join("shared"));
    let pools = Pools::new(&config, &home, &machine, &mut engines).unwrap();
    let training = Training::new(config, floor.clone(), pools, folder);
    training.reached_at(Reach { url: "http://falaj.test/".to_owned(), certificate: None });
    training
}

fn router(training: &Training, places: &Places) -> Router {
    let router = falaj_training::module(training, places)
        .endpoints
        .into_iter()
        .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler))
        .layer(axum::middleware::from_fn(edge::speak));
    Router::new().fallback_service(router)
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
            ("tracking", falaj_tracking::MIGRATIONS),
            ("training", falaj_training::MIGRATIONS),
        ]);
        db.migrate(&modules).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let keys_config = keys::KeysConfig::default();
        let keys = keys::Keys::open(&keys_config, folder.path(), db.clone()).await.unwrap();
        db.seal_replies_with(&keys.platform_secret("idempotent-replies").unwrap()).unwrap();
        let objects =
            Objects::open(&ObjectsConfig::default(), folder.path(), db.clone(), keys).unwrap();
        let local = Name::new("local").unwrap();
        let zones = Residency::new(db.clone());
        zones.ensure(local.clone(), "AE".to_owned()).await.unwrap();
        zones.ensure(Name::new("dublin").unwrap(), "EU".to_owned()).await.unwrap();
        let epoch = Epoch::load(db.clone()).await.unwrap();
        let tenancy = Tenancy::new(db.clone(), epoch.clone(), local);
        tenancy.ensure_default().await.unwrap();
        let reads = ReadLog::new(db.clone(), 1000, 100);
        let tracking = Tracking::new(TrackingConfig::default(), db.clone(), objects.clone(), reads);
        let places = Places::new(tenancy.clone(), epoch);
        let floor =
            Floor { db: db.clone(), objects, tracking, tenancy, places, authenticator: None };
        let engine = shared();
        let training = training(&floor, &engine, folder.path());
        let router = router(&training, &floor.places);
        Self { clock, db, engine, training, floor, router, folder }
    }

    /// Forgets everything that was in memory, as a server that was killed does.
    pub(crate) fn die(&mut self) {
        self.training = self.another();
        self.router = router(&self.training, &self.floor.places);
    }

    /// Dies, and is there again with another configuration.
    pub(crate) fn die_and_be(&mut self, config: TrainingConfig) {
        self.training = training_with(config, &self.floor, &self.engine, self.folder.path());
        self.router = router(&self.training, &self.floor.places);
    }

    /// Another server over the same stores takes requests from now on, with a machine of its own.
    pub(crate) fn stand_by(&mut self, config: TrainingConfig, engine: &Arc<Engine>, folder: &Path) {
        self.become_one(training_with(config, &self.floor, engine, folder));
    }

    /// Lets a server take requests; the one that did before.
    pub(crate) fn become_one(&mut self, training: Training) -> Training {
        self.router = router(&training, &self.floor.places);
        std::mem::replace(&mut self.training, training)
    }

    /// Runs the background work of a name.
    pub(crate) async fn work(&self, name: &str) {
        let module = falaj_training::module(&self.training, &self.floor.places);
        let worker = module.workers.iter().find(|worker| worker.name == name).unwrap();
        worker.run().await.unwrap();
    }

    /// Another server over the same stores.
    pub(crate) fn another(&self) -> Training {
        training(&self.floor, &self.engine, self.folder.path())
    }

    pub(crate) async fn allow_dublin(&self) {
        let ctx = Ctx::system("tester");
        let (from, to) = (Name::new("local").unwrap(), Name::new("dublin").unwrap());
        let zones = Residency::new(self.db.clone());
        zones.allow_transfer(&ctx, from, to, "contract".to_owned(), None).await.unwrap();
    }

    pub(crate) async fn end_transfer(&self) {
        let ctx = Ctx::system("tester");
        let (from, to) = (Name::new("local").unwrap(), Name::new("dublin").unwrap());
        Residency::new(self.db.clone()).end_transfer(&ctx, from, to).await.unwrap();
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("/api{path}"))
            .header(header::HOST, "falaj.test")
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-falaj-project", "default/default")
            .body(body);
        let router = self.router.clone().layer(Extension(Ctx::system("tester")));
        let response = router.oneshot(request.unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        (status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
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

    pub(crate) async fn delete_with(&self, path: &str, body: Value) -> Answer {
        self.send(Method::DELETE, path, body).await
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, json!({})).await
    }

    /// Submits a job; its id.
    pub(crate) async fn submit(&self, change: Value) -> String {
        ok(self.post("/jobs", definition(change)).await)["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        ok(self.get(&format!("/jobs/{id}")).await)
    }

    pub(crate) async fn state(&self, id: &str) -> String {
        self.job(id).await["state"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn starts(&self, id: &str) -> Vec<Value> {
        let found = ok(self.get(&format!("/jobs/{id}/attempts")).await);
        found["items"].as_array().unwrap().clone()
    }

    /// Passes until everything that is under way has come to something.
    pub(crate) async fn settle(&self) {
        for pass in 0..120 {
            self.clock.advance(Duration::from_millis(1));
            self.training.pass().await.unwrap();
            // Launches and endings are seen to beside the pass, slowly on a busy machine.
            tokio::time::sleep(Duration::from_millis(15)).await;
            if pass > 10 && (self.engine.is_away() || self.count(UNDER_WAY).await == 0) {
                return;
            }
        }
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let read = move |tx: &mut Tx<'_>| tx.query_one(sql, &[])?.get("n");
        self.db.read(read).await.unwrap()
    }

    /// The latest value of a metric of a run.
    pub(crate) async fn metric(&self, id: &str, name: &str) -> Option<f64> {
        let (tenant, project) = ("default".parse().unwrap(), "default".parse().unwrap());
        let ctx = Ctx::system("tester");
        let call = self.floor.places.call(&ctx, &tenant, &project).await.unwrap();
        let run = self.floor.tracking.run(&call, id).await.unwrap();
        let found = run.data.metrics.iter().find(|(key, _)| key == name);
        found.map(|(_, point)| point.value())
    }

    /// The status of a run.
    pub(crate) async fn run_status(&self, id: &str) -> String {
        let call = self
            .floor
            .places
            .call(&Ctx::system("tester"), &"default".parse().unwrap(), &"default".parse().unwrap())
            .await
            .unwrap();
        let run = self.floor.tracking.run(&call, id).await.unwrap();
        run.info.status.as_str().to_owned()
    }
}

/// A small job, with some of it changed.
pub(crate) fn definition(change: Value) -> Value {
    let mut body = json!({
        "name": "test", "command": ["true"], "resources": { "cpu": 4.0, "memory": "1GiB" },
        "zones": ["local"],
    });
    for (key, value) in change.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[track_caller]
pub(crate) fn ok((status, body): Answer) -> Value {
    assert_eq!(status, 200, "{body}");
    body
}

/// The status, the field and the words of a refusal.
#[track_caller]
pub(crate) fn refused((status, body): Answer) -> (u16, String, String) {
    assert!(status >= 400, "{body}");
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    (status, text("field"), text("detail"))
}
