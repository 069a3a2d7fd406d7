//! What versions refer to is not purged.

use falaj_testkit::database::each_place;
use http::Method;
use serde_json::json;

use crate::world::{World, answer, ok};

const OWN: &str = "/v1/tenants/default/projects/default";
const FILES: &str = "/api/2.0/mlflow-artifacts/artifacts";

async fn put(world: &World, uri: &str, name: &str) -> String {
    let path = format!("{FILES}/{}/{name}", uri.strip_prefix("mlflow-artifacts:/").unwrap());
    let ctx = falaj_base::Ctx::system("tester");
    let reply = world.ask(ctx, "default", Method::PUT, &path, &json!("bytes")).await;
    assert_eq!(answer(reply).await.0, 200, "{path}");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_versions_stay_until_the_versions_go() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("thing").await;
        ok(world.post("/experiments/create", json!({ "name": "tried" })).await);
        let (run, uri) = world.run_in("1").await;
        let (model, model_uri) = world.logged_model_in("1", &run).await;
        let in_run = put(&world, &uri, "model/MLmodel").await;
        let in_model = put(&world, &model_uri, "MLmodel").await;
        for body in [
            json!({ "name": "thing", "source": format!("runs:/{run}/model"), "run_id": run }),
            json!({ "name": "thing", "source": format!("models:/{model}"), "model_id": model }),
        ] {
            ok(world.post("/model-versions/create", body).await);
        }
        let purge = async |what: &str| {
            world.post(&format!("{OWN}/{what}/purge"), json!({ "force": true })).await
        };
        for (what, version) in [
            (format!("runs/{run}"), "version 1"),
            (format!("logged-models/{model}"), "version 2"),
            ("experiments/1".to_owned(), "version"),
        ] {
            let (status, refused) = purge(&what).await;
            assert_eq!((status, &refused["code"]), (409, &json!("in-use")), "{what}: {refused}");
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.contains(version) && detail.contains("thing"), "{detail}");
        }
        // Garbage collection leaves it and says why.
        ok(world.post("/runs/delete", json!({ "run_id": run })).await);
        world.tick();
        let gc = ok(world.post(&format!("{OWN}/gc"), json!({ "older_than_days": 0 })).await);
        assert_eq!((&gc["runs"], &gc["kept_count"]), (&json!(0), &json!(1)), "{gc}");
        assert_eq!(world.get(&in_run).await.0, 200);
        assert_eq!(world.get(&in_model).await.0, 200);

        for version in ["1", "2"] {
            let body = json!({ "name": "thing", "version": version });
            ok(world.delete("/model-versions/delete", body).await);
        }
        ok(purge(&format!("runs/{run}")).await);
        // The model that the run logged is another thing.
        assert_eq!(world.get(&in_run).await.0, 404);
        assert_eq!(world.get(&in_model).await.0, 200);
        // What is gone cannot be registered any more.
        let late =
            json!({ "name": "thing", "source": format!("runs:/{run}/model"), "run_id": run });
        assert_eq!(world.post("/model-versions/create", late).await.0, 400);
        ok(purge("experiments/1").await);
        assert_eq!(world.get(&in_model).await.0, 404);
        assert_eq!(world.get("/experiments/get?experiment_id=1").await.0, 404);
        assert_eq!(purge("experiments/0").await.0, 409, "there is always a Default");
    })
    .await;
}
