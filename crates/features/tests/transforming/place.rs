//! Where a test happens: rides in files and pushed ones, and what is asked about them.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use falaj_base::{Ctx, HumanDuration, Secret, Timestamp};
use falaj_features::FeaturesConfig;
use falaj_features::config::SourceRoot;
use falaj_tables::{Layout, Limits, Part, RecordWriter, Table};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, answer, each_with, ok};

/// The second that the tests' clock stands at.
pub(crate) const NOW: i64 = 1_777_636_800;

/// Driver, event, known, fare, city.
pub(crate) type Ride = (i64, i64, i64, Option<f64>, Option<&'static str>);

pub(crate) const BASE: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "file"
kind = "parquet"
path = "lake/rides*.parquet"

[[source]]
name = "live"
kind = "push"
batch = "file"
"#;

pub(crate) fn moment(second: i64) -> String {
    Timestamp::from_micros(second * 1_000_000).to_string()
}

fn times(seconds: impl Iterator<Item = i64>) -> ArrayRef {
    let micros = TimestampMicrosecondArray::from_iter_values(seconds.map(|it| it * 1_000_000));
    Arc::new(micros.with_timezone("UTC"))
}

pub(crate) struct Lake(tempfile::TempDir);

impl Lake {
    pub(crate) fn new(rides: &[Ride]) -> Self {
        let lake = Self(tempfile::tempdir().unwrap());
        lake.write(rides);
        lake
    }

    pub(crate) fn write(&self, rides: &[Ride]) {
        let batch = RecordBatch::try_from_iter_with_nullable([
            (
                "driver_id",
                Arc::new(rides.iter().map(|row| Some(row.0)).collect::<Int64Array>()) as ArrayRef,
                true,
            ),
            ("event_timestamp", times(rides.iter().map(|row| row.1)), true),
            ("created", times(rides.iter().map(|row| row.2)), true),
            ("fare", Arc::new(rides.iter().map(|row| row.3).collect::<Float64Array>()), true),
            ("city", Arc::new(rides.iter().map(|row| row.4).collect::<StringArray>()), true),
        ])
        .unwrap();
        let file = File::create(self.0.path().join("rides.parquet")).unwrap();
        let mut writer = RecordWriter::new(file, batch.schema(), Layout::default()).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    fn config(&self) -> FeaturesConfig {
        let [name, tenant] = ["lake", "default"].map(|name| name.parse().unwrap());
        FeaturesConfig {
            source_roots: vec![SourceRoot::folder(name, self.0.path().to_owned(), tenant)],
            wait: HumanDuration::from_millis(0),
            ..FeaturesConfig::default()
        }
    }

    /// Runs a test on each engine, with each online store.
    pub(crate) async fn each<F: AsyncFn(World)>(&self, toml: &str, suite: F) {
        each_with(self.config(), async |world: World| {
            world.apply(toml).await;
            suite(world).await;
        })
        .await;
        let url =
            std::env::var("FALAJ_TEST_REDIS_URL").expect("a Redis, as with-services starts one");
        each_with(self.config(), async |world: World| {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let mut config = self.config();
            config.online.redis.url = Secret::new(url.clone());
            config.online.redis.prefix = format!("transforming-{}-{count}:", std::process::id());
            let folder = tempfile::tempdir().unwrap();
            let world = world.server(config, folder.path());
            world.apply(toml).await;
            suite(world).await;
        })
        .await;
    }
}

pub(crate) async fn feast(world: &World, path: &str, body: Value) -> Answer {
    let response = world.ask_at(Ctx::system("tester"), "default", Method::POST, path, &body).await;
    answer(response).await
}

/// Pushes rides, together.
pub(crate) async fn push(world: &World, view: &str, rides: &[Ride]) -> Answer {
    let of = |one: fn(&Ride) -> Value| rides.iter().map(one).collect::<Vec<_>>();
    let columns = json!({
        "driver_id": of(|ride| ride.0.into()), "event_timestamp": of(|ride| moment(ride.1).into()),
        "fare": of(|ride| ride.3.into()), "city": of(|ride| ride.4.into()),
    });
    world.post("/push", json!({ "view": view, "columns": columns })).await
}

/// The values of features of drivers, and the letters that tell about them.
pub(crate) async fn online(world: &World, features: &[&str], entities: Value) -> (Value, Value) {
    let body = json!({ "features": features, "entities": entities });
    let found = ok(world.post("/online", body).await);
    (found["values"].clone(), found["status"].clone())
}

/// The features of drivers at moments, as a training set has them, and as JSON would.
pub(crate) async fn trained(
    world: &World,
    features: &[&str],
    asked: &[(i64, i64)],
    more: Value,
) -> Vec<Vec<Value>> {
    let keys: Vec<i64> = asked.iter().map(|it| it.0).collect();
    let at: Vec<String> = asked.iter().map(|it| moment(it.1)).collect();
    let mut body = json!({
        "features": features, "moments": { "driver_id": keys, "event_timestamp": at },
    });
    for (name, value) in more.as_object().unwrap() {
        match name.as_str() {
            "moments" => {
                let moments = body["moments"].as_object_mut().unwrap();
                moments.extend(value.as_object().unwrap().clone());
            }
            _ => body[name] = value.clone(),
        }
    }
    let set = ok(world.post("/training-sets", body).await);
    world.features.make_training_sets().await.unwrap();
    let id = set["id"].as_str().unwrap().to_owned();
    let set = ok(world.get(&format!("/training-sets/{id}")).await);
    assert_eq!(set["state"], "ready", "{set}");
    let path = format!("/training-sets/{id}/data");
    let ctx = Ctx::system("tester");
    let response = world.ask(ctx, "default", Method::GET, &path, &Value::Null).await;
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let table = Table::open(bytes, Limits::default()).unwrap();
    let part = Part { columns: None, groups: None, rows_at_once: 100_000 };
    let batches: Vec<_> = table.records(&part).unwrap().map(Result::unwrap).collect();
    let whole = arrow_select::concat::concat_batches(table.schema(), &batches).unwrap();
    let row = |row: usize| {
        let names = features.iter().map(|it| it.split_once(':').unwrap().1);
        names.map(|name| shown(whole.column_by_name(name).unwrap(), row)).collect()
    };
    (0..whole.num_rows()).map(row).collect()
}

fn shown(column: &ArrayRef, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    match column.data_type() {
        arrow_schema::DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        arrow_schema::DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        arrow_schema::DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        arrow_schema::DataType::Boolean => column.as_boolean().value(row).into(),
        other => panic!("{other}"),
    }
}
