//! Evaluation datasets: kept, found, and nobody else's.

use falaj_base::{ByteSize, Ctx};
use falaj_traces::TracesConfig;
use http::Method;
use serde_json::{Value, json};

use crate::world::{World, each, nobody};

const DATASETS: &str = "/api/3.0/mlflow/datasets";

async fn create(world: &World, name: &str, more: Value) -> Value {
    let mut body = json!({ "name": name });
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    world.post(&format!("{DATASETS}/create"), body).await["dataset"].clone()
}

fn id(dataset: &Value) -> &str {
    dataset["dataset_id"].as_str().unwrap()
}

async fn upsert(world: &World, dataset: &str, records: &Value) -> (u16, Value) {
    let body = json!({ "records": records.to_string() });
    world.send(Method::POST, &format!("{DATASETS}/{dataset}/records"), body).await
}

async fn records(world: &World, dataset: &str, query: &str) -> (Vec<Value>, Option<String>) {
    let (status, page) = world.get(&format!("{DATASETS}/{dataset}/records?{query}")).await;
    assert_eq!(status, 200, "{page}");
    let records = serde_json::from_str(page["records"].as_str().unwrap()).unwrap();
    (records, page["next_page_token"].as_str().map(str::to_owned))
}

async fn names(world: &World, body: Value) -> Vec<String> {
    let found = world.post(&format!("{DATASETS}/search"), body).await;
    let all = found["datasets"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

async fn experiment(world: &World, name: &str) -> String {
    let made = world.post("/api/2.0/mlflow/experiments/create", json!({ "name": name })).await;
    made["experiment_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn records_are_added_completed_and_deleted() {
    each(TracesConfig::default(), async |world| {
        let made = create(&world, "shop", json!({"tags": "{\"mlflow.user\": \"ada\"}"})).await;
        assert_eq!((&made["created_by"], made.get("profile")), (&json!("ada"), None));
        let id = id(&made);
        let two = json!([
            {"inputs": {"q": "tea?"}, "expectations": {"a": "3"}, "tags": {"t": "1"}},
            {"inputs": {"q": "milk?"}, "outputs": "2"},
        ]);
        assert_eq!(
            upsert(&world, id, &two).await.1,
            json!({"inserted_count": 2, "updated_count": 0})
        );
        let again = json!([
            {"inputs": {"q": "tea?"}, "expectations": {"b": true}},
            {"inputs": {"q": "salt?"}}, {"inputs": {"q": "salt?"}},
        ]);
        assert_eq!(
            upsert(&world, id, &again).await.1,
            json!({"inserted_count": 1, "updated_count": 2})
        );
        let (all, next) = records(&world, id, "").await;
        assert_eq!((all.len(), next), (3, None));
        assert_eq!(all[0]["expectations"], json!({"a": "3", "b": true}));
        assert_eq!((&all[1]["outputs"], &all[2]["inputs"]), (&json!("2"), &json!({"q": "salt?"})));
        let (_, shown) = world.get(&format!("{DATASETS}/{id}")).await;
        let shown = &shown["dataset"];
        assert_eq!(shown["profile"], "{\"num_records\":3}");
        assert!(shown["schema"].as_str().unwrap().contains("\"q\":\"string\""));
        assert_ne!(shown["digest"], made["digest"]);

        let (mut seen, mut token) = (Vec::new(), String::new());
        for _ in 0..3 {
            let (page, next) =
                records(&world, id, &format!("max_results=1&page_token={token}")).await;
            seen.extend(page);
            token = next.unwrap_or_default();
        }
        assert_eq!((seen, token.as_str()), (all.clone(), ""));

        let gone =
            json!({"dataset_record_ids": [all[0]["dataset_record_id"], "dr-nothing", "a\0b"]});
        let path = format!("{DATASETS}/{id}/records");
        assert_eq!(world.send(Method::DELETE, &path, gone).await.1, json!({"deleted_count": 1}));
        assert_eq!(records(&world, id, "").await.0, all[1..]);
        assert_eq!(world.send(Method::DELETE, &format!("{DATASETS}/{id}"), json!({})).await.0, 200);
        assert_eq!(world.get(&format!("{DATASETS}/{id}")).await.0, 404);
        for table in ["evaluation_dataset", "evaluation_record", "evaluation_dataset_link"] {
            assert_eq!(world.count(table).await, 0, "{table}");
        }
    })
    .await;
}

#[tokio::test]
async fn they_are_found_by_what_they_are() {
    each(TracesConfig::default(), async |world| {
        let (one, two) = (experiment(&world, "one").await, experiment(&world, "two").await);
        create(&world, "a", json!({"experiment_ids": [&one], "tags": "{\"team\": \"x\"}"})).await;
        let b = create(&world, "b", json!({"experiment_ids": [&one, &two, &one]})).await;
        create(&world, "c", json!({"tags": "{\"team\": \"y\"}"})).await;
        assert_eq!(b["experiment_ids"], json!([one, two]));
        let by_name = json!({"order_by": ["name ASC"]});
        assert_eq!(names(&world, by_name).await, ["a", "b", "c"]);
        for (filter, expected) in [
            ("tags.team = 'x'", &["a"][..]),
            ("tags.team != 'x'", &["c"]),
            ("name LIKE '%b%' OR tags.team = 'y'", &["b", "c"]),
            ("name IN ('a', 'c')", &["a", "c"]),
            ("created_time > 5", &["a", "b", "c"]),
            ("created_by = 'x'", &[]),
        ] {
            let body = json!({"filter_string": filter, "order_by": ["name ASC"]});
            assert_eq!(names(&world, body).await, expected, "{filter}");
        }
        let inside = json!({"experiment_ids": [&one], "order_by": ["name DESC"]});
        assert_eq!(names(&world, inside).await, ["b", "a"]);
        assert_eq!(names(&world, json!({"experiment_ids": ["99"]})).await, [""; 0]);

        let search = format!("{DATASETS}/search");
        let mut body = json!({"max_results": 2, "order_by": ["name"]});
        let first = world.post(&search, body.clone()).await;
        body["page_token"] = first["next_page_token"].clone();
        let second = world.post(&search, body).await;
        assert_eq!(first["datasets"].as_array().unwrap().len(), 2);
        assert_eq!(
            (&second["datasets"][0]["name"], second.get("next_page_token")),
            (&json!("c"), None)
        );

        let take = format!("{DATASETS}/{}/remove-experiments", id(&b));
        let left = world.post(&take, json!({"experiment_ids": [&two, "99"]})).await;
        assert_eq!(left["dataset"]["experiment_ids"], json!([one]));
        let add = format!("{DATASETS}/{}/add-experiments", id(&b));
        assert_eq!(world.send(Method::POST, &add, json!({"experiment_ids": ["99"]})).await.0, 404);
        let more = world.post(&add, json!({"experiment_ids": [&two, &one]})).await;
        assert_eq!(more["dataset"]["experiment_ids"], json!([one, two]));
        let (_, places) = world.get(&format!("{DATASETS}/{}/experiment-ids", id(&b))).await;
        assert_eq!(places["experiment_ids"], json!([one, two]));
    })
    .await;
}

#[tokio::test]
async fn tags_change_and_limits_hold() {
    let limits = TracesConfig {
        max_tags: 2,
        max_datasets: 2,
        max_dataset_records: 3,
        max_record_size: ByteSize::kib(1),
        ..TracesConfig::default()
    };
    each(limits, async |world| {
        let made = create(&world, "a", json!({"tags": "{\"k\": \"v\"}"})).await;
        let (id, tags) = (id(&made), format!("{DATASETS}/{}/tags", id(&made)));
        let set =
            async |text: &str| world.send(Method::PATCH, &tags, json!({ "tags": text })).await;
        assert_eq!(set("{\"k\": 5, \"new\": null}").await.0, 200);
        assert_eq!(
            world.get(&format!("{DATASETS}/{id}")).await.1["dataset"]["tags"],
            "{\"k\":\"5\"}"
        );
        assert_eq!(set("{\"b\": \"1\", \"c\": \"2\"}").await.0, 400, "there would be three");
        for key in ["k", "never"] {
            let path = format!("{tags}/{key}");
            assert_eq!(world.send(Method::DELETE, &path, json!({})).await.0, 200, "{key}");
        }
        assert_eq!(world.get(&format!("{DATASETS}/{id}")).await.1["dataset"]["tags"], "{}");

        let many = json!((0..4).map(|n| json!({"inputs": {"n": n}})).collect::<Vec<_>>());
        assert_eq!(upsert(&world, id, &many).await.0, 400);
        let three = json!((0..3).map(|n| json!({"inputs": {"n": n}})).collect::<Vec<_>>());
        assert_eq!(upsert(&world, id, &three).await.0, 200);
        assert_eq!(upsert(&world, id, &json!([{"inputs": {"n": 9}}])).await.0, 400);
        assert_eq!(upsert(&world, id, &json!([{"inputs": {"t": "x".repeat(2000)}}])).await.0, 413);
        // What is added bit by bit is bounded, too.
        let grown = async |n: usize| {
            let more = json!([{"inputs": {"n": 0}, "tags": {format!("t{n}"): "x".repeat(800)}}]);
            upsert(&world, id, &more).await.0
        };
        assert_eq!((grown(1).await, grown(2).await, grown(3).await), (200, 200, 413));
        assert_eq!(world.count("evaluation_record").await, 3, "a refused request adds nothing");

        create(&world, "b", json!({})).await;
        let third = json!({"name": "c"});
        assert_eq!(world.send(Method::POST, &format!("{DATASETS}/create"), third).await.0, 409);
    })
    .await;
}

/// Every way to name a dataset.
fn asked(id: &str) -> Vec<(Method, String, Value)> {
    vec![
        (Method::GET, format!("{DATASETS}/{id}"), Value::Null),
        (Method::GET, format!("{DATASETS}/{id}/records"), Value::Null),
        (Method::GET, format!("{DATASETS}/{id}/experiment-ids"), Value::Null),
        (Method::PATCH, format!("{DATASETS}/{id}/tags"), json!({"tags": "{\"k\": \"v\"}"})),
        (Method::DELETE, format!("{DATASETS}/{id}/tags/k"), json!({})),
        (Method::POST, format!("{DATASETS}/{id}/records"), json!({"records": "not even JSON"})),
        (Method::DELETE, format!("{DATASETS}/{id}/records"), json!({"dataset_record_ids": ["x"]})),
        (
            Method::POST,
            format!("{DATASETS}/{id}/add-experiments"),
            json!({"experiment_ids": ["99"]}),
        ),
        (
            Method::POST,
            format!("{DATASETS}/{id}/remove-experiments"),
            json!({"experiment_ids": ["0"]}),
        ),
        (Method::DELETE, format!("{DATASETS}/{id}"), json!({})),
    ]
}

#[tokio::test]
async fn another_projects_dataset_reads_like_none() {
    each(TracesConfig::default(), async |world| {
        world.make_project("other").await;
        let made = create(&world, "ours", json!({"experiment_ids": ["0"]})).await;
        let (real, fake) = (id(&made).to_owned(), format!("d-{}", "0".repeat(32)));
        for ((method, path, body), (_, fake_path, fake_body)) in
            asked(&real).into_iter().zip(asked(&fake))
        {
            let known: fn() -> Ctx = || Ctx::system("test");
            for (project, ctx) in [("default/other", known), ("default/default", nobody)] {
                let ask = async |path: &str, body: Value| {
                    world.send_to(project, ctx(), method.clone(), path, body).await
                };
                let (status, reply) = ask(&path, body.clone()).await;
                assert_eq!(status, 404, "{path}: {reply}");
                let same = reply.to_string().replace(&real, &fake);
                assert_eq!(same, ask(&fake_path, fake_body.clone()).await.1.to_string(), "{path}");
            }
        }
        let search = format!("{DATASETS}/search");
        let there = world
            .send_to("default/other", Ctx::system("test"), Method::POST, &search, json!({}))
            .await;
        let hidden =
            world.send_to("default/default", nobody(), Method::POST, &search, json!({})).await;
        assert_eq!((there, hidden), ((200, json!({})), (200, json!({}))));
        let new = json!({"name": "x"});
        let path = format!("{DATASETS}/create");
        assert_eq!(
            world.send_to("default/default", nobody(), Method::POST, &path, new).await.0,
            404
        );
        assert_eq!(world.count("evaluation_dataset").await, 1);
        for id in ["", "d-1", "%00", "d-%ff", "..", "create", "search"] {
            let (status, _) = world.get(&format!("{DATASETS}/{id}/records")).await;
            assert!((400..500).contains(&status), "{id}: {status}");
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_lost_when_many_write_at_once() {
    each(TracesConfig::default(), async |world| {
        let made = create(&world, "busy", json!({})).await;
        let id = id(&made);
        let write = |n: usize| {
            let some = json!([{"inputs": {"n": n % 4}, "tags": {format!("w{n}"): "x"}}]);
            let world = &world;
            async move { upsert(world, id, &some).await }
        };
        let done = futures::future::join_all((0..16).map(write)).await;
        let count =
            |what: &str| done.iter().map(|(_, reply)| reply[what].as_u64().unwrap()).sum::<u64>();
        assert_eq!((count("inserted_count"), count("updated_count")), (4, 12));
        let (all, _) = records(&world, id, "").await;
        assert_eq!(all.iter().map(|one| one["tags"].as_object().unwrap().len()).sum::<usize>(), 16);
        let (_, shown) = world.get(&format!("{DATASETS}/{id}")).await;
        assert_eq!(shown["dataset"]["profile"], "{\"num_records\":4}");
    })
    .await;
}

#[tokio::test]
async fn what_is_held_stays() {
    each(TracesConfig::default(), async |world| {
        let made = create(&world, "evidence", json!({"experiment_ids": ["0"]})).await;
        let id = id(&made);
        upsert(&world, id, &json!([{"inputs": {"q": 1}}])).await;
        let record = records(&world, id, "").await.0[0]["dataset_record_id"].clone();
        let hold = "/v1/tenants/default/projects/default/holds/case";
        let body = json!({"reason": "a case", "experiment_id": "0"});
        let (status, reply) = world.send(Method::PUT, hold, body).await;
        assert!(status < 300, "{reply}");
        for (method, path, body) in [
            (Method::DELETE, format!("{DATASETS}/{id}"), json!({})),
            (
                Method::DELETE,
                format!("{DATASETS}/{id}/records"),
                json!({"dataset_record_ids": [record]}),
            ),
            (
                Method::POST,
                format!("{DATASETS}/{id}/remove-experiments"),
                json!({"experiment_ids": ["0"]}),
            ),
        ] {
            assert_eq!(world.send(method, &path, body).await.0, 409, "{path}");
        }
        assert!(world.send(Method::DELETE, hold, Value::Null).await.0 < 300);
        assert_eq!(world.send(Method::DELETE, &format!("{DATASETS}/{id}"), json!({})).await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn an_experiment_that_is_gone_is_forgotten() {
    each(TracesConfig::default(), async |world| {
        let made = create(&world, "left", json!({"experiment_ids": ["0"]})).await;
        world.run("UPDATE experiment SET id = -1 - no").await;
        let (_, shown) = world.get(&format!("{DATASETS}/{}", id(&made))).await;
        assert_eq!(shown["dataset"].get("experiment_ids"), None);
        world.work().await;
        assert_eq!(world.count("evaluation_dataset_link").await, 0);
        assert_eq!(world.count("evaluation_dataset").await, 1);
    })
    .await;
}
