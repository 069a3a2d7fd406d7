//! Replies whose exact form clients rely on.

use falaj_testkit::database::each_place;
use serde_json::{Value, json};

use crate::artifact_world::{World, json as body};

const API: &str = "/api/2.0/mlflow";

async fn post(world: &World, path: &str, request: Value) -> Value {
    body(world.post(&format!("{API}/{path}"), request).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn as_mlflow_says_it() {
    each_place(async |database| {
        let world = World::new(database).await;
        let made =
            post(&world, "runs/create", json!({ "run_name": "first", "start_time": 1 })).await;
        assert_eq!(made["run"].get("outputs"), None, "{made}");
        let run = made["run"]["info"]["run_id"].as_str().unwrap();
        let shown = format!("{API}/runs/get?run_id={run}");
        assert_eq!(body(world.get(&shown).await).await["run"]["outputs"], json!({}));

        // A run is not left without a name.
        let tag = json!({ "run_id": run, "key": "mlflow.runName", "value": "" });
        assert_eq!(post(&world, "runs/set-tag", tag).await, json!({}));
        let found = body(world.get(&shown).await).await;
        assert_eq!(found["run"]["info"]["run_name"], "first");

        let odd = json!({ "run_id": "../../etc" });
        let refused = post(&world, "runs/log-batch", odd).await;
        assert_eq!(refused["error_code"], "INVALID_PARAMETER_VALUE", "{refused}");
        let none = json!({ "run_id": run, "models": [] });
        assert_eq!(post(&world, "runs/outputs", none).await, json!({}));
        let refused = post(&world, "runs/outputs", json!({ "run_id": run })).await;
        assert!(refused["message"].as_str().unwrap().contains("'models'"), "{refused}");
        let bulk = format!("{API}/metrics/get-history-bulk?run_id={run}&metric_key=none");
        assert_eq!(body(world.get(&bulk).await).await, json!({ "metrics": [] }));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logged_models_are_found_by_time() {
    each_place(async |database| {
        let world = World::new(database).await;
        post(&world, "logged-models", json!({ "experiment_id": "0", "name": "net" })).await;
        for (filter, count) in [
            ("creation_timestamp > 0", 1),
            ("creation_timestamp_ms < 1", 0),
            ("last_updated_timestamp > 0", 1),
        ] {
            let search = json!({ "experiment_ids": ["0"], "filter": filter });
            let found = post(&world, "logged-models/search", search).await;
            let found = found["models"].as_array().map_or(0, Vec::len);
            assert_eq!(found, count, "{filter}");
        }
    })
    .await;
}
