//! Signatures, scans and bills of materials: made after registration, checked before promotion.

use falaj_base::{ByteSize, Ctx};
use falaj_registry::RegistryConfig;
use falaj_registry::signing::{Manifest, PublicKey, Sha256, verify};
use falaj_testkit::database::{Database, each_place};
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, answer, ok, refused, without};

const VERSION: &str = "/v1/tenants/default/projects/default/models/a/versions/1";
const KEY: &str = "/v1/tenants/default/projects/default/model-signing-key";
const ALIAS: &str = "/registered-models/alias";

const MLMODEL: &str = "\
flavors:
  sklearn:
    pickled_model: model.pkl
saved_input_example_info:
  artifact_path: input_example.json
  type: ndarray
signature:
  inputs: '[{\"type\": \"double\", \"name\":
    \"x\", \"required\": true}]'
  outputs: null
";
const FILES: [(&str, &str); 4] = [
    ("MLmodel", MLMODEL),
    ("model.pkl", "not really"),
    ("requirements.txt", "scikit-learn==1.5.2\n"),
    ("input_example.json", "[[1.5]]"),
];

/// A model with a version made from a run's files; the URI of the run's files.
async fn world(database: &Database) -> (World, String) {
    let world = World::new(database).await;
    world.model("a").await;
    let (run, uri) = world.run().await;
    for (path, body) in [
        ("/runs/log-parameter", json!({"run_id": run, "key": "alpha", "value": "0.5"})),
        ("/runs/log-metric", json!({"run_id": run, "key": "r2", "value": 0.75, "timestamp": 1})),
        (
            "/runs/log-inputs",
            json!({"run_id": run, "datasets": [{
                "dataset": {"name": "wine", "digest": "d1", "source_type": "s3", "source": "s3://b/wine"},
                "tags": [{"key": "mlflow.data.context", "value": "training"}]}]}),
        ),
    ] {
        ok(world.post(path, body).await);
    }
    world.upload(&format!("{uri}/model"), &FILES).await;
    register(&world, &run, &format!("{uri}/model")).await;
    (world, format!("{uri}/model"))
}

async fn register(world: &World, run: &str, source: &str) -> Value {
    let body = json!({"name": "a", "source": source, "run_id": run});
    ok(world.post("/model-versions/create", body).await)
}

async fn set(world: &World, version: &str) -> (u16, Value) {
    world.post(ALIAS, json!({"name": "a", "alias": "champion", "version": version})).await
}

#[tokio::test]
async fn a_version_is_signed_by_the_worker() {
    each_place(async |database| {
        let (world, _) = world(database).await;
        assert_eq!(
            world.count("SELECT COUNT(*) AS n FROM model_evidence WHERE state = 'pending'").await,
            1
        );
        for _ in 0..2 {
            world.work().await;
        }
        let events = world.events().await;
        assert_eq!(events.iter().filter(|e| *e == "falaj.model-version.signed").count(), 1);
        let shown = ok(world.get(&format!("{VERSION}/signature")).await);
        assert_eq!(shown["state"], "signed", "{shown}");
        assert_eq!(shown["files"].as_array().unwrap().len(), FILES.len());
        let key = ok(world.get(KEY).await);
        assert_eq!(key["id"], shown["key_id"]);
        let public = PublicKey::from_pem(key["public_key"].as_str().unwrap()).unwrap();
        let files = FILES.map(|(path, content)| {
            (path.to_owned(), Sha256::of(content.as_bytes()).to_string(), content.len() as u64)
        });
        let manifest = Manifest::new(files.to_vec()).unwrap();
        let verified = verify(&manifest, &shown["bundle"].to_string(), &public).unwrap();
        assert_eq!(verified.name, "a/1");
        assert_eq!(shown["digest"], manifest.digest().to_string());
        let checked = ok(world.get(&format!("{VERSION}/verification")).await);
        assert_eq!(checked["digest"], shown["digest"]);
        assert_eq!(checked["verdict"], "unsafe-format");
    })
    .await;
}

#[tokio::test]
async fn whoever_asks_first_need_not_wait() {
    each_place(async |database| {
        let (world, _) = world(database).await;
        let scan = ok(world.get(&format!("{VERSION}/scan")).await);
        assert_eq!((&scan["state"], &scan["verdict"]), (&json!("signed"), &json!("unsafe-format")));
        let pickle = scan["files"].as_array().unwrap().iter().find(|f| f["path"] == "model.pkl");
        assert_eq!(pickle.unwrap()["class"], "opaque-executable");
        ok(set(&world, "1").await);
    })
    .await;
}

#[tokio::test]
async fn a_bill_of_materials_and_the_lineage() {
    each_place(async |database| {
        let (world, _) = world(database).await;
        let card =
            json!({"fields": {"licence": "MIT", "intended_use": "wine"}, "markdown": "# Hi"});
        let answer = world.send_as("PUT", &format!("{VERSION}/card"), card).await;
        assert_eq!(ok(answer)["revision"], 1);
        let bom = ok(world.get(&format!("{VERSION}/bom")).await);
        assert_eq!(bom["bomFormat"], "CycloneDX");
        let text = bom.to_string();
        for part in
            ["pkg:pypi/scikit-learn@1.5.2", "x: double", "wine", "0.75", "\"MIT\"", "falaj:run"]
        {
            assert!(text.contains(part), "{part} is not in {bom:#}");
        }
        assert_eq!(bom, ok(world.get(&format!("{VERSION}/bom")).await));
        let lineage = ok(world.get(&format!("{VERSION}/lineage")).await);
        assert_eq!(lineage["run"]["params"], json!({"alpha": "0.5"}));
        assert_eq!(lineage["run"]["datasets"][0]["context"], "training");
        assert_eq!(lineage["model"]["signature"]["inputs"][0]["name"], "x");
        assert_eq!(lineage["model"]["input_example"]["content"], json!([[1.5]]));
        // Of a run that the caller may not read, only the id that the version names is shown.
        let ctx = without(&[("run:read", "/0")]);
        let path = format!("{VERSION}/lineage");
        let hidden = answer_of(&world, ctx, &path).await;
        assert_eq!(hidden["run"], Value::Null, "{hidden}");
        assert!(hidden["run_id"].is_string());
    })
    .await;
}

async fn answer_of(world: &World, ctx: Ctx, path: &str) -> Value {
    ok(answer(world.ask(ctx, "default", Method::GET, path, &Value::Null).await).await)
}

#[tokio::test]
async fn a_changed_file_stops_a_promotion() {
    each_place(async |database| {
        let (world, uri) = world(database).await;
        world.work().await;
        ok(set(&world, "1").await);
        world.upload(&uri, &[("model.pkl", "something else")]).await;
        let why = "the file \"model.pkl\" is not the one that was signed";
        refused(set(&world, "1").await, 409, "RESOURCE_CONFLICT", why);
        let stage = json!({"name": "a", "version": "1", "stage": "Production"});
        let moved = world.post("/model-versions/transition-stage", stage.clone()).await;
        refused(moved, 409, "RESOURCE_CONFLICT", why);
        let (status, body) = world.get(&format!("{VERSION}/verification")).await;
        assert_eq!((status, body["code"].as_str()), (409, Some("conflict")), "{body}");
        world.upload(&uri, &[("model.pkl", "not really")]).await;
        ok(set(&world, "1").await);
        world.upload(&uri, &[("extra.py", "print(1)")]).await;
        refused(set(&world, "1").await, 409, "RESOURCE_CONFLICT", "\"extra.py\" is in the model");
        world.remove(&uri, "extra.py").await;
        world.remove(&uri, "requirements.txt").await;
        let why = "\"requirements.txt\" was signed, but";
        refused(set(&world, "1").await, 409, "RESOURCE_CONFLICT", why);
        // Someone who may promote can sign what is there now.
        let signed = ok(world.post(&format!("{VERSION}/signature"), Value::Null).await);
        assert_eq!(signed["state"], "signed");
        ok(world.post("/model-versions/transition-stage", stage).await);
    })
    .await;
}

#[tokio::test]
async fn what_is_signed_is_what_was_registered() {
    each_place(async |database| {
        let (world, uri) = world(database).await;
        world.upload(&uri, &[("model.pkl", "swapped")]).await;
        world.work().await;
        let shown = ok(world.get(&format!("{VERSION}/signature")).await);
        assert_eq!(shown["state"], "changed");
        let why = "the file \"model.pkl\" was replaced since the version was registered";
        assert_eq!(shown["reason"], why);
        refused(set(&world, "1").await, 409, "RESOURCE_CONFLICT", why);
    })
    .await;
}

#[tokio::test]
async fn versions_without_files_here() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("a").await;
        world.version("a").await;
        let shown = ok(world.get(&format!("{VERSION}/signature")).await);
        assert_eq!(shown["state"], "elsewhere");
        ok(set(&world, "1").await);
        let (status, _) = world.post(&format!("{VERSION}/signature"), Value::Null).await;
        assert_eq!(status, 409);
        // Registered before its files were there: signed once they are.
        let (run, uri) = world.run().await;
        register(&world, &run, &format!("{uri}/late")).await;
        world.work().await;
        let second = VERSION.replace("/1", "/2");
        assert_eq!(ok(world.get(&format!("{second}/signature")).await)["state"], "empty");
        ok(set(&world, "2").await);
        world.upload(&format!("{uri}/late"), &FILES).await;
        assert_eq!(ok(world.get(&format!("{second}/signature")).await)["state"], "signed");
        let copied = json!({"name": "a", "source": "models:/a/2"});
        ok(world.post("/model-versions/create", copied).await);
        let third = VERSION.replace("/1", "/3");
        let lineage = ok(world.get(&format!("{third}/lineage")).await);
        assert_eq!(lineage["run"]["run_id"], run.as_str());
        // Deleting takes the proof along.
        ok(world.delete("/model-versions/delete", json!({"name": "a", "version": "2"})).await);
        ok(world.delete("/registered-models/delete", json!({"name": "a"})).await);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM model_evidence").await, 0);
    })
    .await;
}

/// Uploads a file in two parts, as clients do with large ones.
async fn upload_in_parts(world: &World, uri: &str, name: &str, parts: [&str; 2]) {
    let folder = uri.trim_start_matches("mlflow-artifacts:").trim_start_matches('/');
    let base = "/api/2.0/mlflow-artifacts/mpu";
    let asked = json!({"path": name, "num_parts": 2});
    let begun = ok(world.post(&format!("{base}/create/{folder}"), asked).await);
    let mut sent = Vec::new();
    for (at, content) in parts.iter().enumerate() {
        let url = begun["credentials"][at]["url"].as_str().unwrap();
        let path = &url[url.find("/api/").unwrap()..];
        let body = Value::String((*content).to_owned());
        let reply = world.ask(Ctx::system("test"), "default", Method::PUT, path, &body).await;
        assert_eq!(reply.status(), 200);
        let tag = reply.headers()["etag"].to_str().unwrap().to_owned();
        sent.push(json!({"part_number": at + 1, "etag": tag, "url": url}));
    }
    let complete = json!({"path": name, "upload_id": begun["upload_id"], "parts": sent});
    ok(world.post(&format!("{base}/complete/{folder}"), complete).await);
}

#[tokio::test]
async fn files_in_parts_are_read_for_their_digest() {
    each_place(async |database| {
        // Nothing may be read within a request: the worker does it.
        let config =
            RegistryConfig { inline_hashing: ByteSize::kib(0), ..RegistryConfig::default() };
        let world = World::with(database, config).await;
        world.model("a").await;
        let (run, uri) = world.run().await;
        upload_in_parts(&world, &uri, "w.bin", ["first", " second"]).await;
        register(&world, &run, &uri).await;
        assert_eq!(ok(world.get(&format!("{VERSION}/signature")).await)["state"], "pending");
        refused(set(&world, "1").await, 409, "RESOURCE_CONFLICT", "still being made");
        world.work().await;
        let shown = ok(world.get(&format!("{VERSION}/signature")).await);
        assert_eq!(shown["files"][0]["sha256"], Sha256::of(b"first second").to_string());
        ok(set(&world, "1").await);
        upload_in_parts(&world, &uri, "w.bin", ["first", " third"]).await;
        refused(set(&world, "1").await, 409, "RESOURCE_CONFLICT", "\"w.bin\" was uploaded anew");
    })
    .await;
}

#[tokio::test]
async fn many_who_ask_at_once_are_told_the_same() {
    each_place(async |database| {
        let config = RegistryConfig { inline_at_once: 1, ..RegistryConfig::default() };
        let world = World::with(database, config).await;
        world.model("a").await;
        let (run, uri) = world.run().await;
        upload_in_parts(&world, &uri, "w.bin", ["first", " second"]).await;
        register(&world, &run, &uri).await;
        let paths = ["signature", "scan", "bom", "verification"].map(|p| format!("{VERSION}/{p}"));
        let ask_all = async || {
            let all = paths.iter().cycle().take(16).map(|path| world.get(path));
            futures::future::join_all(all).await.into_iter().map(ok).collect::<Vec<_>>()
        };
        for shown in ask_all().await {
            assert!(shown.get("state").is_none_or(|state| state == "signed"), "{shown}");
        }
        let events = world.events().await;
        assert_eq!(events.iter().filter(|e| *e == "falaj.model-version.signed").count(), 1);
        // The same content in another upload: whoever checks has to read it.
        upload_in_parts(&world, &uri, "w.bin", ["fir", "st second"]).await;
        ask_all().await;
        upload_in_parts(&world, &uri, "w.bin", ["fir", "st third"]).await;
        let (status, body) = world.get(&paths[3]).await;
        assert_eq!(status, 409, "{body}");
    })
    .await;
}
