//! Datasets as sources of features, and training sets as datasets.

use std::collections::BTreeMap;

use falaj_base::Ctx;
use falaj_catalog::Datasets;
use falaj_catalog::dataset::NewDataset;
use falaj_catalog::file::{FileFormat, Manner};
use falaj_catalog::version::{NewVersion, Which};
use falaj_store::objects::Expected;
use http::Method;
use serde_json::{Value, json};

use super::world::{World, answer, ok};
use super::{each, made};

const TRIPS: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "trips"
kind = "dataset"
dataset = "trips"
PIN

[[view]]
name = "stats"
entities = ["driver"]
source = "trips"
schema = [{ name = "trips", type = "int64" }]
"#;

/// Makes a version of CSV.
async fn put(world: &World, name: &str, csv: &'static str) {
    let (datasets, ctx, project) = (world.datasets(), Ctx::system("tester"), world.project().await);
    let new: NewDataset = serde_json::from_value(json!({ "name": name })).unwrap();
    drop(datasets.create(&ctx, &project, new).await);
    let manner = Manner { format: FileFormat::Csv, delimiter: b',', types: BTreeMap::new() };
    let content = futures::stream::iter([Ok(csv.into())]);
    let sent =
        datasets.send(&ctx, &project, name, manner, (content, Expected::default())).await.unwrap();
    let new = NewVersion { files: vec![sent.sha256], ..NewVersion::default() };
    datasets.commit(&ctx, &project, name, new).await.unwrap();
}

async fn trips(world: &World) -> (Value, Value) {
    let moments = json!({ "driver_id": [1], "event_timestamp": ["2026-05-01T11:30:00Z"] });
    let set = json!({ "features": ["stats:trips"], "moments": moments });
    let made = made(world, set).await;
    let sources = made["manifest"]["sources"].clone();
    (made, sources)
}

#[tokio::test]
async fn a_source_reads_the_version_that_it_names() {
    each(async |world: World| {
        put(&world, "trips", "driver_id,trips,event_timestamp\n1,7,2026-05-01T10:00:00Z\n").await;
        let refused = world
            .post(
                "/apply",
                TRIPS.replace("PIN", "tag = \"gold\"").replace("\"trips\"\nt", "\"nobody\"\nt"),
            )
            .await;
        assert_eq!(refused.0, 404, "{}", refused.1);
        world.apply(&TRIPS.replace("PIN", "")).await;
        let (first, sources) = trips(&world).await;
        assert_eq!(
            (&sources[0]["version"], &sources[1]["rows"]),
            (&json!("1"), &json!(1)),
            "{sources}"
        );
        put(&world, "trips", "driver_id,trips,event_timestamp\n1,8,2026-05-01T10:00:00Z\n").await;
        let (second, sources) = trips(&world).await;
        assert_eq!(sources[0]["version"], "2");
        assert_ne!(first["digest"], second["digest"]);
        world.apply(&TRIPS.replace("PIN", "version = 1")).await;
        let (third, sources) = trips(&world).await;
        assert_eq!(sources[0]["version"], "1");
        assert_eq!(third["manifest"]["sha256"], first["manifest"]["sha256"]);
        for (wrong, field) in [
            ("version = 0", "sources[0].version"),
            ("version = 1\ntag = \"x\"", "sources[0].tag"),
            ("path = \"lake/x\"", "sources[0].path"),
            ("tag = \"7\"", "sources[0].tag"),
        ] {
            let answer = world.post("/apply", TRIPS.replace("PIN", wrong)).await;
            assert_eq!(
                (answer.0, answer.1["field"].as_str()),
                (400, Some(field)),
                "{wrong}: {}",
                answer.1
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_training_set_becomes_a_version_of_a_dataset() {
    each(async |world: World| {
        put(&world, "trips", "driver_id,trips,event_timestamp\n1,7,2026-05-01T10:00:00Z\n").await;
        world.apply(&TRIPS.replace("PIN", "")).await;
        let moments = json!({ "driver_id": [1, 2], "event_timestamp":
            ["2026-05-01T11:30:00Z", "2026-05-01T11:30:00Z"] });
        let wanted =
            json!({ "features": ["stats:trips"], "moments": moments, "register": "training" });
        let made = made(&world, wanted.clone()).await;
        let (datasets, ctx, project) =
            (world.datasets(), Ctx::system("tester"), world.project().await);
        let datasets: Datasets = datasets;
        let opened = datasets.open(&ctx, &project, "training", Which::Latest).await.unwrap();
        let origin = opened.version.origin.clone().unwrap();
        assert_eq!(
            (origin.kind.as_str(), Value::from(origin.id)),
            ("training-set", made["id"].clone())
        );
        assert_eq!(origin.digest.map(Value::from), Some(made["digest"].clone()));
        assert_eq!(
            (opened.version.rows, opened.files[0].sha256.as_str()),
            (2, made["manifest"]["sha256"].as_str().unwrap())
        );
        assert_eq!(opened.version.created_by, "tester");
        // The same file: kept once, and there as long as one of both is.
        let refs = "SELECT MAX(refs) AS n FROM blob WHERE state = 'ready'";
        assert!(world.count(refs).await >= 2);
        let lineage = ok(world.get("/views/stats/lineage").await);
        assert_eq!(lineage["down"]["datasets"][0]["dataset"], "training");
        assert_eq!(lineage["up"]["sources"][0]["origin"]["dataset"], "trips");
        let fence = [("dataset:write", "/training")];
        let (status, body) =
            world.behind(&fence, Method::POST, "/training-sets", wanted.clone()).await;
        assert_eq!(status, 404, "{body}");
        let mut bad = wanted;
        bad["register"] = json!("a b");
        let asked =
            world.ask(Ctx::system("tester"), "default", Method::POST, "/training-sets", &bad).await;
        assert_eq!(answer(asked).await.0, 400);
    })
    .await;
}
