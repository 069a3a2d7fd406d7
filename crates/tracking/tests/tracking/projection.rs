//! Parts of runs, pages that end by their bytes, media, folders.

use falaj_base::ByteSize;
use falaj_testkit::database::each_place;
use falaj_tracking::TrackingConfig;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::artifact_world::{World, json as read};

const API: &str = "/api/2.0/mlflow";

async fn run_with(world: &World, size: usize) -> String {
    let (run, _) = world.run().await;
    let batch = json!({
        "run_id": run,
        "metrics": [
            { "key": "loss", "value": 1.5, "timestamp": 1 }, { "key": "a b", "value": 2, "timestamp": 1 },
        ],
        "params": [{ "key": "lr", "value": "x".repeat(size) }, { "key": "depth", "value": "3" }],
        "tags": [{ "key": "team", "value": "a" }],
    });
    let reply = world.post(&format!("{API}/runs/log-batch"), batch).await;
    assert_eq!(reply.status(), StatusCode::OK);
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_columns_that_were_asked_for() {
    each_place(async |database| {
        let world = World::new(database).await;
        run_with(&world, 3).await;
        let search = async |columns: Value| {
            let body = json!({ "experiment_ids": ["0"], "columns": columns });
            let reply = world.post(&format!("{API}/runs/search"), body).await;
            assert_eq!(reply.status(), StatusCode::OK);
            read(reply).await["runs"][0].take()
        };
        let keys = |list: &Value| -> Vec<String> {
            let all = list.as_array().into_iter().flatten();
            all.map(|one| one["key"].as_str().unwrap().to_owned()).collect()
        };
        let run = search(json!(["metrics.loss", "params.depth", "info"])).await;
        assert_eq!(keys(&run["data"]["metrics"]), ["loss"]);
        assert_eq!(run["data"]["metrics"][0]["value"], 1.5);
        assert_eq!(keys(&run["data"]["params"]), ["depth"]);
        assert_eq!(keys(&run["data"]["tags"]), Vec::<String>::new());
        assert_eq!(run["info"]["status"], "RUNNING");
        let run = search(json!(["metrics", "tags.team", "metrics.`a b`"])).await;
        assert_eq!(keys(&run["data"]["metrics"]), ["a b", "loss"]);
        assert_eq!(keys(&run["data"]["tags"]), ["team"]);
        let run = search(json!(["info"])).await;
        assert_eq!(run["data"], json!({}));
        let whole = search(json!([])).await;
        assert_eq!(keys(&whole["data"]["params"]), ["depth", "lr"]);
        let bad = json!({ "experiment_ids": ["0"], "columns": ["speed"] });
        let reply = world.post(&format!("{API}/runs/search"), bad).await;
        assert_eq!(reply.status(), StatusCode::BAD_REQUEST);
        assert!(read(reply).await["message"].as_str().unwrap().contains("speed"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_ends_where_its_bytes_end() {
    each_place(async |database| {
        let config =
            TrackingConfig { max_search_reply: ByteSize::from_bytes(9000), ..Default::default() };
        let world = World::configured(database, config).await;
        let mut made = Vec::new();
        for size in [10, 5000, 6000, 10, 10, 3000, 2000, 10] {
            made.push(run_with(&world, size).await);
        }
        made.sort();
        let (mut seen, mut token, mut pages) = (Vec::new(), Value::Null, 0);
        loop {
            let body = json!({ "experiment_ids": ["0"], "max_results": 100, "page_token": token });
            let mut page = read(world.post(&format!("{API}/runs/search"), body).await).await;
            for run in page["runs"].as_array().unwrap() {
                seen.push(run["info"]["run_id"].as_str().unwrap().to_owned());
            }
            pages += 1;
            token = page["next_page_token"].take();
            if token.is_null() {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen, made, "each run once");
        assert!((3..=7).contains(&pages), "{pages} pages");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn media_and_folders() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (run, root) = world.run().await;
        for name in [
            "media/samples/10.png",
            "media/samples/9.png",
            "images/dogs+step+2+timestamp+1700+x.png",
            "model/MLmodel",
        ] {
            world.put(&format!("{root}/{name}"), "bytes").await;
        }
        let media = world.native(Method::GET, &format!("runs/{run}/media"), Value::Null).await;
        let steps: Vec<_> =
            media["items"].as_array().unwrap().iter().map(|i| (&i["key"], &i["step"])).collect();
        let (dogs, samples) = (json!("dogs"), json!("samples"));
        assert_eq!(steps, [(&dogs, &json!(2)), (&samples, &json!(9)), (&samples, &json!(10))]);
        let only = format!("runs/{run}/media?key=dogs");
        let only = world.native(Method::GET, &only, Value::Null).await;
        assert_eq!(only["items"].as_array().unwrap().len(), 1);

        for name in ["cv/a", "cv/b/x", "nlp/y", "top"] {
            world.experiment(name, None).await;
        }
        let folders = world.native(Method::GET, "folders", Value::Null).await;
        let expected = json!([
            { "folder": "cv", "experiments": 2 }, { "folder": "nlp", "experiments": 1 },
        ]);
        assert_eq!(folders["items"], expected);
        let inside = world.native(Method::GET, "experiments?folder=cv", Value::Null).await;
        let names: Vec<_> =
            inside["items"].as_array().unwrap().iter().map(|e| &e["name"]).collect();
        assert_eq!(names, ["cv/a", "cv/b/x"]);
        let paged = world.native(Method::GET, "experiments?page_size=2", Value::Null).await;
        let token = paged["next_page_token"].as_str().unwrap();
        let next = format!("experiments?page_token={token}");
        let rest = world.native(Method::GET, &next, Value::Null).await;
        assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    })
    .await;
}
