//! A log over a real database and a real object store.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::{Clock, Ctx, EndpointId, Name, ProjectId, Resource, Scope, TenantId, Timestamp};
use falaj_governance::audit::ReadLog;
use falaj_governance::epoch::Epoch;
use falaj_governance::residency::Residency;
use falaj_governance::tenancy::Tenancy;
use falaj_governance::{epoch, residency, tenancy};
use falaj_inference::Tensor;
use falaj_serving::predictions::{File, Home, Prediction, Predictions, PredictionsConfig};
use falaj_store::db::{DatabaseConfig, Db, Tx, params};
use falaj_store::objects::{Objects, ObjectsConfig};
use falaj_store::{keys, objects};
use falaj_tables::{Batch, Column};
use falaj_testkit::database;
use futures::TryStreamExt;
use uuid::Uuid;

pub(crate) const ALL: (Timestamp, Timestamp) =
    (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));

pub(crate) struct World {
    pub(crate) db: Db,
    pub(crate) clock: Clock,
    pub(crate) objects: Objects,
    pub(crate) predictions: Predictions,
    tenant: TenantId,
    project: ProjectId,
    _folder: tempfile::TempDir,
}

/// Runs a test on each engine.
pub(crate) async fn each<F>(config: PredictionsConfig, suite: F)
where
    F: AsyncFn(World),
{
    database::each_place(async |database| {
        let clock = Clock::manual("2026-05-01T12:00:00Z".parse().unwrap());
        let db = database.open_with(&DatabaseConfig::default(), clock.clone()).await.unwrap();
        suite(World::new(db, clock, config.clone()).await).await;
    })
    .await;
}

impl World {
    async fn new(db: Db, clock: Clock, config: PredictionsConfig) -> Self {
        let mut modules = falaj_store::migrations();
        modules.extend([
            ("keys", keys::MIGRATIONS),
            ("blobs", objects::MIGRATIONS),
            ("epoch", epoch::MIGRATIONS),
            ("residency", residency::MIGRATIONS),
            ("tenancy", tenancy::MIGRATIONS),
            ("tracking", falaj_tracking::MIGRATIONS),
            ("registry", falaj_registry::MIGRATIONS),
            ("serving", falaj_serving::MIGRATIONS),
        ]);
        db.migrate(&modules).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let keys_config = keys::KeysConfig::default();
        let keys = keys::Keys::open(&keys_config, folder.path(), db.clone()).await.unwrap();
        let objects =
            Objects::open(&ObjectsConfig::default(), folder.path(), db.clone(), keys).unwrap();
        let local = Name::new("local").unwrap();
        Residency::new(db.clone()).ensure(local.clone(), "AE".to_owned()).await.unwrap();
        let epoch = Epoch::load(db.clone()).await.unwrap();
        let tenancy = Tenancy::new(db.clone(), epoch, local);
        tenancy.ensure_default().await.unwrap();
        let default = Name::new("default").unwrap();
        let project = tenancy.project(&Ctx::system("test"), &default, &default).await.unwrap();
        let reads = ReadLog::new(db.clone(), 1000, 100);
        let predictions = Predictions::start(config, db.clone(), objects.clone(), reads);
        let (tenant, project) = (project.tenant_id, project.id);
        Self { db, clock, objects, predictions, tenant, project, _folder: folder }
    }

    /// An endpoint that is there, in a zone.
    pub(crate) async fn endpoint_in(&self, zone: &str) -> Arc<Home> {
        let (endpoint, project, tenant) = (EndpointId::new(), self.project, self.tenant);
        self.db
            .write(move |tx: &mut Tx<'_>| {
                tx.execute(
                    "INSERT INTO endpoint (id, project, name, revision, spec, running, paused,
                         follows, created_at, created_by, updated_at, updated_by)
                     VALUES ($1, $2, $3, 1, '{}', '[]', 0, 0, 0, 'test', 0, 'test')",
                    &params![endpoint, project, endpoint.to_string()],
                )
            })
            .await
            .unwrap();
        let resource = Resource::new("endpoint", endpoint, Scope::Project(tenant, project));
        let zone = Name::new(zone).unwrap();
        Arc::new(Home { tenant, project, zone, endpoint, resource })
    }

    pub(crate) async fn endpoint(&self) -> Arc<Home> {
        self.endpoint_in("local").await
    }

    /// Offers predictions, one for each number.
    pub(crate) fn offer(&self, home: &Arc<Home>, numbers: std::ops::Range<u32>) -> Vec<Uuid> {
        let offer = |number| {
            let sample = sample(number);
            let prediction = sample.prediction(self.clock.now());
            assert!(self.predictions.log().offer(home, &prediction));
            prediction.id
        };
        numbers.map(offer).collect()
    }

    pub(crate) async fn files(&self, home: &Home) -> Vec<File> {
        self.predictions.files(&Ctx::system("test"), home, ALL, None, 1000).await.unwrap()
    }

    pub(crate) async fn rows(&self, home: &Home) -> Vec<Batch> {
        let files = self.files(home).await;
        let ctx = Ctx::system("test");
        let rows = self.predictions.rows(&ctx, home, files, None, 100).await.unwrap();
        rows.try_collect().await.unwrap()
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        let read = move |tx: &mut Tx<'_>| tx.query_one(sql, &[])?.get("n");
        self.db.read(read).await.unwrap()
    }

    /// Waits until the log says so.
    pub(crate) async fn until(&self, true_of: impl Fn(&World) -> bool) {
        for _ in 0..500 {
            if true_of(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{:?}", self.predictions.log().counts());
    }
}

/// What a prediction is made of.
pub(crate) struct Sample {
    pub(crate) number: u32,
    pub(crate) key: Option<String>,
    pub(crate) inputs: Vec<(String, Tensor)>,
    pub(crate) outputs: Vec<(String, Tensor)>,
}

pub(crate) fn sample(number: u32) -> Sample {
    let rows = usize::try_from(number % 3 + 1).unwrap();
    let scores = vec![f64::from(number); rows * 2];
    let labels = (0..rows).map(|row| format!("label {number} {row}"));
    Sample {
        number,
        key: number.is_multiple_of(5).then(|| format!("user {number}")),
        inputs: vec![("x".to_owned(), Tensor::of([rows, 2], scores).unwrap())],
        outputs: vec![("label".to_owned(), Tensor::strings([rows], labels).unwrap())],
    }
}

impl Sample {
    pub(crate) fn prediction(&self, at: Timestamp) -> Prediction<'_> {
        Prediction {
            id: Uuid::now_v7(),
            at,
            model: "churn",
            version: "3",
            variant: if self.number.is_multiple_of(2) { "blue" } else { "green" },
            key: self.key.as_deref(),
            inputs: &self.inputs,
            outputs: &self.outputs,
            latency: Duration::from_micros(u64::from(self.number) + 1),
        }
    }
}

pub(crate) fn texts(batch: &Batch, name: &str) -> Vec<String> {
    let (_, Column { items, .. }) = batch.column(name).unwrap();
    let falaj_inference::Data::Bytes(all) = items else { panic!("{name} is not text") };
    all.iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
}
