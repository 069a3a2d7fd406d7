//! How runs came to be, and what differs between them.

use falaj_testkit::database::each_place;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::artifact_world::{World, kept_from};

const API: &str = "/api/2.0/mlflow";

async fn made(world: &World, lr: &str, commit: &str, numpy: &str, digest: &str) -> String {
    let (run, root) = world.run().await;
    let batch = json!({
        "run_id": run,
        "metrics": [{ "key": "loss", "value": 0.5, "timestamp": 1 }],
        "params": [{ "key": "lr", "value": lr }, { "key": "random_state", "value": "7" }],
        "tags": [
            { "key": "mlflow.source.git.commit", "value": commit },
            { "key": "mlflow.source.name", "value": "train.py" },
            { "key": "falaj.command", "value": "[\"python\",\"train.py\"]" },
            { "key": "team", "value": "a" },
        ],
    });
    let reply = world.post(&format!("{API}/runs/log-batch"), batch).await;
    assert_eq!(reply.status(), StatusCode::OK);
    let dataset = json!({ "name": "d", "digest": digest, "source_type": "s", "source": "x" });
    let inputs = json!({ "run_id": run, "datasets": [{ "dataset": dataset }] });
    world.post(&format!("{API}/runs/log-inputs"), inputs).await;
    let requirements = format!("numpy=={numpy}\nmlflow==3\n");
    world.put(&format!("{root}/model/requirements.txt"), requirements).await;
    world.put(&format!("{root}/falaj/code.patch"), "diff --git a/x b/x\n").await;
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recipe_says_what_is_on_record_and_what_is_not() {
    each_place(async |database| {
        let world = World::new(database).await;
        let run = made(&world, "0.1", "abc", "1.0", "d1").await;
        let recipe = world.native(Method::GET, &format!("runs/{run}/recipe"), Value::Null).await;
        assert_eq!(recipe["command"], json!(["python", "train.py"]));
        assert_eq!(recipe["code"]["commit"], "abc");
        assert!(recipe["code"]["patch"].as_str().unwrap().ends_with("/falaj/code.patch"));
        assert_eq!(recipe["packages"]["numpy"], "==1.0");
        assert_eq!(recipe["seed"], "7");
        assert_eq!(recipe["datasets"][0]["digest"], "d1");
        assert_eq!(recipe["missing"], json!(["repository"]));
        let (bare, _) = world.run().await;
        let recipe = world.native(Method::GET, &format!("runs/{bare}/recipe"), Value::Null).await;
        let all = ["command", "commit", "repository", "environment", "datasets", "seed"];
        assert_eq!(recipe["missing"], json!(all));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diff_shows_what_differs_and_nothing_else() {
    each_place(async |database| {
        let world = World::new(database).await;
        let a = made(&world, "0.1", "abc", "1.0", "d1").await;
        let b = made(&world, "0.2", "def", "2.0", "d2").await;
        let c = made(&world, "0.1", "abc", "1.0", "d1").await;
        let diff = world.native(Method::GET, &format!("runs/{a}/diff/{b}"), Value::Null).await;
        let one = |key: &str, left: &str, right: &str| {
            json!([{ "key": key, "left": left, "right": right }])
        };
        assert_eq!(diff["params"], one("lr", "0.1", "0.2"));
        assert_eq!(diff["code"], one("commit", "abc", "def"));
        assert_eq!(diff["environment"], one("numpy", "==1.0", "==2.0"));
        assert_eq!(diff["datasets"], one("d", "d1", "d2"));
        assert_eq!((&diff["metrics"], &diff["tags"]), (&json!([]), &json!([])));
        assert_eq!(diff["same_recipe"], false);
        let same = world.native(Method::GET, &format!("runs/{a}/diff/{c}"), Value::Null).await;
        assert_eq!(same["same_recipe"], true, "{same}");

        // Both are authorised, and one that is not the caller's is not there.
        let other = world.experiment("other", None).await;
        let call = world.call().await;
        let (hidden, _) = world.run_in(&call, other).await;
        let fence = kept_from(&[format!("{}/{other}", call.place.id)]);
        for (left, right) in [(&a, &hidden), (&hidden, &a)] {
            let path = format!("/v1/tenants/default/projects/default/runs/{left}/diff/{right}");
            let request = http::Request::builder().uri(path).body(axum::body::Body::empty());
            let reply = world.ask(Some(fence.clone()), request.unwrap()).await;
            assert_eq!(reply.status(), StatusCode::NOT_FOUND);
        }
    })
    .await;
}
