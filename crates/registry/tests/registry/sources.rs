//! What a version may be made from, and where its files are then.

use axum::body::to_bytes;
use falaj_base::Ctx;
use falaj_testkit::database::each_place;
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, answer, ok, refused, without};

const BAD: &str = "INVALID_PARAMETER_VALUE";
const GONE: &str = "RESOURCE_DOES_NOT_EXIST";
const CREATE: &str = "/model-versions/create";

#[tokio::test]
async fn sources_inside_runs() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let (run, uri) = world.run().await;
        let (other, other_uri) = world.run().await;
        let create = async |source: &str, run: Option<&str>| {
            world.post(CREATE, json!({"name": "a", "source": source, "run_id": run})).await
        };
        for source in [format!("{uri}/model"), uri.clone(), format!("runs:/{run}/model")] {
            let made = ok(create(&source, Some(&run)).await);
            assert_eq!(made["model_version"]["source"], source.as_str());
            assert_eq!(made["model_version"]["run_id"], run.as_str());
        }
        let outside = "The run_id request parameter must identify the resource";
        for (source, run) in [
            (format!("{other_uri}/model"), Some(run.as_str())),
            (format!("runs:/{other}/model"), Some(run.as_str())),
            (format!("{uri}/model"), None),
            (format!("runs:/{run}/model"), None),
            ("mlflow-artifacts:/".to_owned(), Some(run.as_str())),
            ("mlflow-artifacts:/0".to_owned(), Some(run.as_str())),
            (format!("{uri}2"), Some(run.as_str())),
        ] {
            refused(create(&source, run).await, 400, BAD, outside);
        }
        let nobody = "0123456789abcdef0123456789abcdef";
        refused(create(&format!("runs:/{nobody}/m"), Some(nobody)).await, 400, BAD, outside);
        ok(create("runs:/run_id/model", Some("run_id")).await);
        for source in ["/etc/passwd", "file:///etc/passwd", "model", "C:\\x"] {
            refused(create(source, Some(&run)).await, 400, BAD, "To use a local path as a model");
        }
        let climbing = format!("{uri}/%2e%2e/x");
        refused(create(&climbing, Some(&run)).await, 400, BAD, "an absolute path must be provided");
        refused(create("", None).await, 400, BAD, "required parameter 'source'");
        let reply = world.post(CREATE, json!({"name": "zz", "source": "s3://b/x"})).await;
        refused(reply, 404, GONE, "Registered Model with name=zz not found");
    })
    .await;
}

#[tokio::test]
async fn only_the_sources_that_the_operator_allows() {
    each_place(async |database| {
        let config = serde_json::from_value(json!({"version_sources": "^mlflow-artifacts:/"}));
        let world = World::with(database, config.unwrap()).await;
        world.model("a").await;
        let (run, uri) = world.run().await;
        let create = async |source: &str| {
            world.post(CREATE, json!({"name": "a", "source": source, "run_id": run})).await
        };
        ok(create(&format!("{uri}/model")).await);
        let why = "Invalid model version source";
        refused(create("s3://path/to/model").await, 400, BAD, why);
        refused(create(&format!("runs:/{run}/model")).await, 400, BAD, why);
        // A prompt has a placeholder as its source.
        let tags = json!([{"key": "mlflow.prompt.is_prompt", "value": "true"}]);
        ok(world.post("/registered-models/create", json!({"name": "p", "tags": tags})).await);
        let prompt = json!({"name": "p", "source": "dummy-source", "tags": tags});
        ok(world.post(CREATE, prompt).await);
    })
    .await;
}

#[tokio::test]
async fn runs_of_other_projects_are_not_there() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.make_project("other").await;
        let (run, uri) = world.run().await;
        let (model, _) = world.logged_model(&run).await;
        let ask = async |path: &str, body: Value| {
            let ctx = Ctx::system("test");
            answer(world.ask(ctx, "other", Method::POST, path, &body).await).await
        };
        ok(ask("/registered-models/create", json!({"name": "a"})).await);
        for source in [format!("{uri}/m"), format!("runs:/{run}/m")] {
            let reply = ask(CREATE, json!({"name": "a", "source": source, "run_id": run})).await;
            refused(reply, 400, BAD, "must identify the resource");
        }
        let source = format!("models:/{model}");
        let reply = ask(CREATE, json!({"name": "a", "source": source, "model_id": model})).await;
        refused(reply, 404, GONE, "Logged model with ID");
        world.model("b").await;
        world.version("b").await;
        let reply = ask(CREATE, json!({"name": "a", "source": "models:/b/1"})).await;
        refused(reply, 404, GONE, "Registered Model with name=b not found");
    })
    .await;
}

#[tokio::test]
async fn sources_that_are_logged_models() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let (run, _) = world.run().await;
        let (model, uri) = world.logged_model(&run).await;
        let source = format!("models:/{model}");
        let body = json!({"name": "a", "source": source, "model_id": model});
        let made = ok(world.post(CREATE, body).await)["model_version"].take();
        assert_eq!(made["run_id"], run.as_str(), "taken from the model");
        assert_eq!(made["model_id"], model.as_str());
        let place = ok(world.get("/model-versions/get-download-uri?name=a&version=1").await);
        assert_eq!(place["artifact_uri"], uri.as_str());
        let body = json!({"name": "a", "source": format!("{uri}/sub"), "model_id": model});
        ok(world.post(CREATE, body).await);
        let outside = "The model_id request parameter must identify the resource";
        refused(
            world.post(CREATE, json!({"name": "a", "source": source})).await,
            400,
            BAD,
            outside,
        );
        for wrong in [format!("runs:/{run}/m"), "mlflow-artifacts:/0/x".to_owned()] {
            let body = json!({"name": "a", "source": wrong, "model_id": model});
            refused(world.post(CREATE, body).await, 400, BAD, outside);
        }
        let shown = ok(world.get(&format!("/logged-models/{model}")).await);
        let tag = &shown["model"]["info"]["tags"][0];
        assert_eq!(tag["key"], "mlflow.modelVersions");
        assert_eq!(tag["value"], r#"[{"name": "a", "version": 1}, {"name": "a", "version": 2}]"#);
    })
    .await;
}

#[tokio::test]
async fn copies_of_versions() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        world.model("b").await;
        let (run, uri) = world.run().await;
        let source = format!("{uri}/model");
        ok(world.post(CREATE, json!({"name": "a", "source": source, "run_id": run})).await);
        let alias = json!({"name": "a", "alias": "champion", "version": "1"});
        ok(world.post("/registered-models/alias", alias).await);
        for from in ["models:/a/1", "models:/a/latest", "models:/a/None", "models:/a@champion"] {
            let made = ok(world.post(CREATE, json!({"name": "b", "source": from})).await);
            assert_eq!(made["model_version"]["source"], "models:/a/1");
            assert_eq!(made["model_version"]["run_id"], run.as_str());
        }
        let place = ok(world.get("/model-versions/get-download-uri?name=b&version=4").await);
        assert_eq!(place["artifact_uri"], source.as_str());
        let body = json!({"name": "b", "source": "models:/a/1", "run_id": "x"});
        refused(world.post(CREATE, body).await, 400, BAD, "must match the referenced model");
        let body = json!({"name": "b", "source": "models:/a/7"});
        refused(world.post(CREATE, body).await, 404, GONE, "(name=a, version=7) not found");
        let body = json!({"name": "b", "source": "models:/a@nobody"});
        refused(world.post(CREATE, body).await, 400, BAD, "alias nobody not found");
        let body = json!({"name": "b", "source": "models:/a/1"});
        let ctx = without(&[("model:read", "/a")]);
        let reply = world.ask(ctx, "default", Method::POST, CREATE, &body).await;
        refused(answer(reply).await, 404, GONE, "Registered Model with name=a not found");
    })
    .await;
}

#[tokio::test]
async fn files_of_a_version() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        let (run, uri) = world.run().await;
        let folder = uri.strip_prefix("mlflow-artifacts:/").unwrap();
        let put = format!("/api/2.0/mlflow-artifacts/artifacts/{folder}/model/MLmodel");
        let content = json!("flavors: none");
        let reply = world.ask(Ctx::system("test"), "default", Method::PUT, &put, &content).await;
        assert_eq!(reply.status(), 200);
        for source in [format!("{uri}/model"), format!("runs:/{run}/model"), "s3://b/m".to_owned()]
        {
            ok(world.post(CREATE, json!({"name": "a", "source": source, "run_id": run})).await);
        }
        let get = "/model-versions/get-artifact?name=a";
        for version in [1, 2] {
            // Whoever reads the model needs no right to the experiment.
            let ctx = without(&[("run:read", "/0")]);
            let path = format!("{get}&version={version}&path=MLmodel");
            let reply = world.ask(ctx, "default", Method::GET, &path, &Value::Null).await;
            assert_eq!(reply.status(), 200);
            let bytes = to_bytes(reply.into_body(), 1000).await.unwrap();
            assert_eq!(&bytes[..], b"flavors: none");
        }
        refused(world.get(&format!("{get}&version=1&path=nope")).await, 404, GONE, "nope");
        for path in ["../x", "%2e%2e/x", "/etc/passwd", ""] {
            let reply = world.get(&format!("{get}&version=1&path={path}")).await;
            assert_eq!(reply.0, 400, "{path}: {reply:?}");
        }
        let elsewhere = world.get(&format!("{get}&version=3&path=MLmodel")).await;
        refused(elsewhere, 400, BAD, "not kept by this server");
        let ctx = without(&[("model:read", "/a")]);
        let path = format!("{get}&version=1&path=MLmodel");
        let reply = world.ask(ctx, "default", Method::GET, &path, &Value::Null).await;
        refused(answer(reply).await, 404, GONE, "(name=a, version=1) not found");
        let reads = world.audit().await;
        let read = |entry: &&Value| {
            entry["action"] == "model:read" && entry["details"]["path"] != Value::Null
        };
        assert_eq!(reads.iter().filter(read).count(), 2, "{reads:?}");
    })
    .await;
}
