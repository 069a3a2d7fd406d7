//! Deleting for good.

use std::time::Duration;

use falaj_testkit::database::each_place;
use falaj_tracking::ExperimentId;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::artifact_world::{FILES, World};

const API: &str = "/api/2.0/mlflow";
const DAY: Duration = Duration::from_hours(24);

/// What belongs to runs and experiments, table by table.
const TABLES: [&str; 14] = [
    "SELECT COUNT(*) AS n FROM run",
    "SELECT COUNT(*) AS n FROM run_touch",
    "SELECT COUNT(*) AS n FROM param",
    "SELECT COUNT(*) AS n FROM run_tag",
    "SELECT COUNT(*) AS n FROM metric_log",
    "SELECT COUNT(*) AS n FROM metric_chunk",
    "SELECT COUNT(*) AS n FROM latest_metric",
    "SELECT COUNT(*) AS n FROM dataset_input",
    "SELECT COUNT(*) AS n FROM run_model",
    "SELECT COUNT(*) AS n FROM run_console",
    "SELECT COUNT(*) AS n FROM artifact",
    "SELECT COUNT(*) AS n FROM artifact_part",
    "SELECT COUNT(*) AS n FROM blob_ref",
    "SELECT COUNT(*) AS n FROM purge",
];

/// Makes a run with something of everything; its id.
async fn full_run(world: &World, experiment: ExperimentId) -> String {
    let call = world.call().await;
    let (run, root) = world.run_in(&call, experiment).await;
    let many: Vec<Value> =
        (0..400).map(|n| json!({ "key": "loss", "value": n, "step": n, "timestamp": n })).collect();
    for body in [
        json!({ "run_id": run, "metrics": many }),
        json!({
            "run_id": run, "metrics": [{ "key": "acc", "value": 1, "timestamp": 5 }],
            "params": [{ "key": "lr", "value": "0.1" }], "tags": [{ "key": "team", "value": "a" }],
        }),
    ] {
        let reply = world.post(&format!("{API}/runs/log-batch"), body).await;
        assert_eq!(reply.status(), StatusCode::OK);
    }
    let dataset = json!({ "name": "d", "digest": "1", "source_type": "s", "source": "x" });
    let inputs = json!({ "run_id": run, "datasets": [{ "dataset": dataset }] });
    let reply = world.post(&format!("{API}/runs/log-inputs"), inputs).await;
    assert_eq!(reply.status(), StatusCode::OK);
    for name in ["a.txt", "deep/b.bin", "deep/er/c.bin"] {
        world.put(&format!("{root}/{name}"), format!("{run}{name}")).await;
    }
    let piece = vec![b'x'; 200_000];
    let log = format!("/v1/tenants/default/projects/default/runs/{run}/log?offset=0");
    assert_eq!(world.send(Method::POST, &log, piece).await.status(), StatusCode::OK);
    run
}

async fn found(world: &World, experiment: ExperimentId) -> Vec<String> {
    let body = json!({ "experiment_ids": [experiment.to_string()], "view": "all" });
    let page = world.native(Method::POST, "runs/search", body).await;
    page["items"].as_array().unwrap().iter().map(|run| run["run_id"].to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_run_leaves_nothing() {
    each_place(async |database| {
        let world = World::new(database).await;
        let run = full_run(&world, ExperimentId::DEFAULT).await;
        let other = full_run(&world, ExperimentId::DEFAULT).await;
        assert_eq!(found(&world, ExperimentId::DEFAULT).await.len(), 2);
        let purge = format!("runs/{run}/purge");
        let (status, refused) = world.native_try(Method::POST, &purge, json!({})).await;
        assert_eq!((status, &refused["code"]), (400, &json!("invalid-state")), "{refused}");

        world.native(Method::DELETE, &format!("runs/{run}"), Value::Null).await;
        let gone = world.native(Method::POST, &purge, json!({})).await;
        assert_eq!(gone["files"], 3, "{gone}");
        assert_eq!(gone["pending"], false);
        assert_eq!(found(&world, ExperimentId::DEFAULT).await, [format!("{other:?}")]);
        for path in
            [format!("runs/{run}"), format!("runs/{run}/log"), format!("runs/{run}/metrics")]
        {
            let (status, _) = world.native_try(Method::GET, &path, Value::Null).await;
            assert_eq!(status, 404, "{path}");
        }
        let again = world.native_try(Method::POST, &purge, json!({})).await;
        assert_eq!(again.0, 404);
        let late = world.send(Method::PUT, &format!("{FILES}/0/{run}/artifacts/late"), "x").await;
        assert_eq!(late.status(), StatusCode::NOT_FOUND);

        // By force, without the bin.
        let force = json!({ "force": true });
        world.native(Method::POST, &format!("runs/{other}/purge"), force).await;
        for sql in TABLES {
            assert_eq!(world.count(sql).await, 0, "{sql}");
        }
        let audit = world.audit().await;
        let purged: Vec<_> = audit.iter().filter(|entry| entry["action"] == "run:purge").collect();
        assert_eq!(purged.len(), 2, "{purged:?}");
        // The bytes go with the next collection.
        world.later(DAY * 30);
        world.objects.collect().await.unwrap();
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_experiment_frees_its_name_and_keeps_its_id() {
    each_place(async |database| {
        let world = World::new(database).await;
        let first = world.experiment("team/a", None).await;
        let run = full_run(&world, first).await;
        full_run(&world, first).await;
        let model = json!({ "experiment_id": first.to_string(), "name": "net",
            "params": [{ "key": "a", "value": "1" }], "tags": [{ "key": "b", "value": "2" }] });
        let reply = world.post(&format!("{API}/logged-models"), model).await;
        assert_eq!(reply.status(), StatusCode::OK);
        let path = format!("experiments/{first}");
        let purge = format!("{path}/purge");
        assert_eq!(world.native_try(Method::POST, &purge, json!({})).await.0, 400);
        world.native(Method::DELETE, &path, Value::Null).await;
        let gone = world.native(Method::POST, &purge, json!({})).await;
        assert_eq!((&gone["files"], &gone["pending"]), (&json!(6), &json!(false)), "{gone}");
        for sql in TABLES {
            assert_eq!(world.count(sql).await, 0, "{sql}");
        }
        for table in [
            "experiment WHERE id <> 0",
            "experiment_tag",
            "tracking_key",
            "dataset",
            "logged_model",
            "logged_model_param",
            "logged_model_tag",
        ] {
            let sql: &'static str = format!("SELECT COUNT(*) AS n FROM {table}").leak();
            assert_eq!(world.count(sql).await, 0, "{table}");
        }
        assert_eq!(world.native_try(Method::GET, &path, Value::Null).await.0, 404);
        assert_eq!(world.native_try(Method::GET, &format!("runs/{run}"), Value::Null).await.0, 404);
        let second = world.experiment("team/a", None).await;
        assert!(second > first, "{second} was given again");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_takes_what_is_old_enough() {
    each_place(async |database| {
        let world = World::new(database).await;
        let experiment = world.experiment("e", None).await;
        let old = full_run(&world, experiment).await;
        let young = full_run(&world, experiment).await;
        let living = full_run(&world, experiment).await;
        let binned = world.experiment("binned", None).await;
        full_run(&world, binned).await;
        let (status, refused) = world.native_try(Method::GET, "gc", Value::Null).await;
        assert_eq!((status, &refused["field"]), (400, &json!("older_than_days")), "{refused}");
        // Without a retention everything is kept.
        world.native(Method::DELETE, &format!("runs/{old}"), Value::Null).await;
        world.native(Method::DELETE, &format!("experiments/{binned}"), Value::Null).await;
        world.later(DAY * 400);
        world.tracking.apply_retention().await.unwrap();
        assert_eq!(found(&world, experiment).await.len(), 3);

        let set = world.native(Method::PUT, "retention", json!({ "deleted_days": 30 })).await;
        assert_eq!(set["deleted_days"], 30);
        world.native(Method::DELETE, &format!("runs/{young}"), Value::Null).await;
        world.later(DAY * 29);
        let preview = world.native(Method::GET, "gc", Value::Null).await;
        assert_eq!(
            (&preview["runs"], &preview["experiments"]),
            (&json!(1), &json!(1)),
            "{preview}"
        );
        let early = json!({ "older_than_days": 3 });
        assert_eq!(world.native_try(Method::POST, "gc", early).await.0, 400);
        world.tracking.apply_retention().await.unwrap();
        let mut left = vec![format!("{young:?}"), format!("{living:?}")];
        left.sort();
        let mut seen = found(&world, experiment).await;
        seen.sort();
        assert_eq!(seen, left);
        assert_eq!(
            world.native_try(Method::GET, &format!("experiments/{binned}"), Value::Null).await.0,
            404
        );
        world.later(DAY * 2);
        let done = world.native(Method::POST, "gc", json!({})).await;
        assert_eq!((&done["runs"], &done["more"]), (&json!(1), &json!(false)), "{done}");
        assert_eq!(found(&world, experiment).await, [format!("{living:?}")]);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM purge").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_added_to_what_is_in_the_bin() {
    each_place(async |database| {
        let world = World::new(database).await;
        let experiment = world.experiment("e", None).await;
        world.native(Method::DELETE, &format!("experiments/{experiment}"), Value::Null).await;
        let body = json!({ "experiment_id": experiment.to_string() });
        for path in ["runs/create", "logged-models"] {
            let reply = world.post(&format!("{API}/{path}"), body.clone()).await;
            assert_eq!(reply.status(), StatusCode::BAD_REQUEST, "{path}");
        }
        // Side by side: a run is in the bin with its experiment, or was refused.
        world.native(Method::POST, &format!("experiments/{experiment}/restore"), Value::Null).await;
        let create = async || {
            for _ in 0..20 {
                world.post(&format!("{API}/runs/create"), body.clone()).await;
            }
        };
        let path = format!("experiments/{experiment}");
        futures::join!(create(), create(), world.native(Method::DELETE, &path, Value::Null));
        let search = json!({ "experiment_ids": [experiment.to_string()], "view": "active" });
        let active = world.native(Method::POST, "runs/search", search).await;
        assert_eq!(active["items"], json!([]));
    })
    .await;
}
