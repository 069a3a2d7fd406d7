//! Nodes that come and go.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use falaj_executors::End;
use falaj_training::config::{PoolConfig, TrainingConfig};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::world::{self, World, each, ok, refused};

fn config(scale: &Value) -> TrainingConfig {
    let mut config = world::config();
    let mut all = json!({
        "up_after": "0s", "up_pause": "1s", "down_after": "60s", "down_pause": "1s",
    });
    for (key, value) in scale.as_object().unwrap() {
        all[key] = value.clone();
    }
    config.pool[0].autoscale = Some(serde_json::from_value(all).unwrap());
    config
}

async fn pass(world: &World, seconds: u64) {
    for _ in 0..seconds.div_ceil(10) {
        world.clock.advance(Duration::from_secs(10));
        for _ in 0..3 {
            world.clock.advance(Duration::from_millis(400));
            world.training.pass().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The states of the nodes of a pool.
async fn states(world: &World) -> Vec<String> {
    let pools = ok(world.get("/pools").await);
    let nodes = pools["items"][0]["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["state"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_pool_grows_with_what_waits_and_shrinks_when_it_is_empty() {
    each(async |mut world: World| {
        world.die_and_be(config(&json!({})));
        world.settle().await;
        assert_eq!(states(&world).await, ["away", "away", "away"]);
        let id = world.submit(json!({ "resources": { "cpu": 4.0, "nodes": 2 } })).await;
        pass(&world, 10).await;
        assert_eq!(world.state(&id).await, "PENDING");
        // Both of this zone, for the gang is whole; none where its data may not be.
        assert_eq!(states(&world).await, ["asked", "asked", "away"]);
        // Whoever comes after knows what was asked for.
        world.die_and_be(config(&json!({})));
        ok(world.put("/pools/main/nodes/a", json!({})).await);
        pass(&world, 10).await;
        assert_eq!(states(&world).await, ["up", "asked", "away"]);
        assert_eq!(world.state(&id).await, "PENDING", "half a gang is none");
        ok(world.put("/pools/main/nodes/b", json!({ "address": "10.0.0.7" })).await);
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        let start = format!("{id}-0-1");
        assert_eq!(world.engine.env(&start)["WORLD_SIZE"], "2");
        pass(&world, 120).await;
        assert_eq!(states(&world).await, ["up", "up", "away"], "somebody is there");
        world.engine.end(&start, End::Succeeded);
        world.settle().await;
        pass(&world, 50).await;
        assert_eq!(states(&world).await, ["up", "up", "away"], "not for long");
        pass(&world, 40).await;
        assert_eq!(states(&world).await, ["away", "away", "away"]);
        let scale = ok(world.get("/pools").await)["items"][0]["autoscale"].clone();
        assert_eq!((&scale["target"], &scale["max"]), (&json!(0), &json!(3)));
    })
    .await;
}

#[tokio::test]
async fn a_node_is_drained_and_goes_when_it_is_empty() {
    each(async |world: World| {
        let first = world.submit(json!({ "name": "first" })).await;
        world.settle().await;
        let node = world.starts(&first).await[0]["nodes"][0]["node"].as_str().unwrap().to_owned();
        let other = if node == "a" { "b" } else { "a" };
        let path = |node: &str| format!("/pools/main/nodes/{node}");
        for node in ["a", "b"] {
            ok(world.put(&path(node), json!({ "drain": true })).await);
        }
        let second = world.submit(json!({ "name": "second" })).await;
        world.settle().await;
        assert_eq!(world.state(&first).await, "RUNNING", "what runs goes on");
        assert_eq!(world.state(&second).await, "PENDING");
        ok(world.put(&path(other), json!({})).await);
        world.settle().await;
        assert_eq!(world.state(&second).await, "RUNNING");
        assert_eq!(ok(world.delete(&path(&node)).await)["state"], "leaving");
        pass(&world, 30).await;
        assert!(states(&world).await.contains(&"leaving".to_owned()), "somebody is there");
        world.engine.end(&format!("{first}-0-1"), End::Succeeded);
        world.settle().await;
        pass(&world, 10).await;
        assert!(states(&world).await.contains(&"gone".to_owned()));
        assert_eq!(refused(world.delete(&path(&node)).await).0, 409);
        assert_eq!(refused(world.put(&path(&node), json!({ "drain": true })).await).0, 409);
        assert_eq!(refused(world.put(&path("nowhere"), json!({})).await).0, 404);
        let (status, field, _) = refused(world.put(&path("a"), json!({ "address": "" })).await);
        assert_eq!((status, field.as_str()), (400, "address"));
    })
    .await;
}

#[tokio::test]
async fn a_node_that_is_gone_takes_its_jobs_along_and_they_start_elsewhere() {
    each(async |world: World| {
        let id = world.submit(json!({})).await;
        world.settle().await;
        let node = world.starts(&id).await[0]["nodes"][0]["node"].as_str().unwrap().to_owned();
        let path = format!("/pools/main/nodes/{node}");
        ok(world.delete_with(&path, json!({ "gone": true })).await);
        world.settle().await;
        world.settle().await;
        let starts = world.starts(&id).await;
        assert_eq!(starts.len(), 2, "{starts:?}");
        assert_ne!(starts[1]["nodes"][0]["node"], node.as_str());
        assert_eq!(world.state(&id).await, "RUNNING");
    })
    .await;
}

#[tokio::test]
async fn a_node_that_is_gone_does_not_come_back_with_whoever_comes_after() {
    each(async |mut world: World| {
        world.die_and_be(config(&json!({})));
        let id = world.submit(json!({ "resources": { "cpu": 4.0 } })).await;
        pass(&world, 10).await;
        ok(world.put("/pools/main/nodes/a", json!({})).await);
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        ok(world.delete_with("/pools/main/nodes/a", json!({ "gone": true })).await);
        world.clock.advance(Duration::from_secs(2));
        world.training.pass().await.unwrap();
        assert_eq!(states(&world).await[0], "gone", "its start has not ended yet");
        world.die_and_be(config(&json!({})));
        world.clock.advance(Duration::from_secs(2));
        world.training.pass().await.unwrap();
        assert_ne!(states(&world).await[0], "up");
        pass(&world, 30).await;
        let after = states(&world).await;
        assert!(!after.iter().any(|state| state == "gone" || state == "up"), "{after:?}");
        assert!(after.contains(&"asked".to_owned()), "its job waits for another: {after:?}");
    })
    .await;
}

#[tokio::test]
async fn nothing_is_signed_with_an_empty_secret() {
    each(async |mut world: World| {
        let (url, heard) = provider().await;
        let secret = world.folder().join("empty.secret");
        std::fs::write(&secret, "\n").unwrap();
        world.die_and_be(config(&json!({ "webhook": { "url": url, "secret_file": secret } })));
        world.submit(json!({})).await;
        pass(&world, 20).await;
        let scale = ok(world.get("/pools").await)["items"][0]["autoscale"].clone();
        assert!(scale["problem"].as_str().unwrap().contains("the secret is empty"), "{scale}");
        assert_eq!(heard.lock().unwrap().heard.len(), 0);
    })
    .await;
}

/// A provider that fails at first, and keeps what it is told.
#[derive(Default)]
struct Provider {
    failures: usize,
    heard: Vec<(HeaderMap, String)>,
}

async fn provider() -> (String, Arc<Mutex<Provider>>) {
    let kept = Arc::new(Mutex::new(Provider { failures: 2, ..Provider::default() }));
    let hear =
        async |State(kept): State<Arc<Mutex<Provider>>>, headers: HeaderMap, body: String| {
            let mut kept = kept.lock().unwrap();
            kept.heard.push((headers, body));
            if kept.heard.len() <= kept.failures {
                return (StatusCode::SERVICE_UNAVAILABLE, "no machines".to_owned());
            }
            (StatusCode::OK, r#"{"target": 1}"#.to_owned())
        };
    let router = Router::new().route("/nodes", post(hear)).with_state(kept.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/nodes", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, kept)
}

#[tokio::test]
async fn a_provider_is_told_until_it_has_heard() {
    each(async |mut world: World| {
        let (url, heard) = provider().await;
        let secret = world.folder().join("provider.secret");
        std::fs::write(&secret, "open sesame\n").unwrap();
        let webhook = json!({ "webhook": { "url": url, "secret_file": secret } });
        world.die_and_be(config(&webhook));
        let id = world.submit(json!({ "resources": { "cpu": 1.0 } })).await;
        for _ in 0..20 {
            pass(&world, 10).await;
            if heard.lock().unwrap().heard.len() > 2 {
                break;
            }
        }
        pass(&world, 20).await;
        {
            let heard = heard.lock().unwrap();
            assert_eq!(heard.heard.len(), 3, "told again after each failure, and not after");
            let key = |at: usize| heard.heard[at].0["idempotency-key"].clone();
            assert_eq!(key(0), "main-1");
            assert_eq!((key(0), key(0)), (key(1), key(2)));
            let (headers, body) = &heard.heard[2];
            let told: Value = serde_json::from_str(body).unwrap();
            assert_eq!((&told["target"], &told["add"]), (&json!(1), &json!(["a"])));
            assert_eq!(told["nodes"][0]["gpu_type"], "toy");
            let time = headers["x-falaj-timestamp"].to_str().unwrap();
            let signed = falaj_registry::webhook::signature(b"open sesame", "main-1", time, body);
            assert_eq!(headers["x-falaj-signature"], signed.as_str());
        }
        let scale = ok(world.get("/pools").await)["items"][0]["autoscale"].clone();
        assert_eq!((&scale["told"], &scale["accepted"]), (&json!(true), &json!(1)), "{scale}");
        // A node that was asked for and is not needed any more is given up.
        ok(world.post(&format!("/jobs/{id}/cancel"), json!({})).await);
        pass(&world, 40).await;
        assert_eq!(states(&world).await, ["away", "away", "away"]);
        let heard = heard.lock().unwrap();
        let last: Value = serde_json::from_str(&heard.heard.last().unwrap().1).unwrap();
        assert_eq!((&last["target"], &last["remove"]), (&json!(0), &json!(["a"])));
    })
    .await;
}

#[tokio::test]
async fn no_nodes_are_asked_for_that_nobody_could_pay() {
    each(async |mut world: World| {
        world.die_and_be(config(&json!({})));
        ok(world.put("/budgets/project/month", json!({ "amount": 10.0 })).await);
        // Each may cost 6.
        let job = json!({ "time_limit": "5m", "resources": { "cpu": 1.0, "gpus": 2 } });
        let (first, second) = (world.submit(job.clone()).await, world.submit(job).await);
        pass(&world, 10).await;
        assert_eq!(
            states(&world).await.iter().filter(|state| *state == "asked").count(),
            2,
            "nobody knows yet which of them comes first"
        );
        ok(world.put("/pools/main/nodes/a", json!({})).await);
        world.settle().await;
        assert_eq!(world.state(&first).await, "RUNNING");
        pass(&world, 40).await;
        assert_eq!(states(&world).await, ["up", "away", "away"]);
        assert_eq!(ok(world.get(&format!("/jobs/{second}/why")).await)["rule"], "budget");
    })
    .await;
}

#[tokio::test]
async fn whoever_comes_after_tells_the_provider_what_went() {
    each(async |mut world: World| {
        let (url, heard) = provider().await;
        heard.lock().unwrap().failures = usize::MAX;
        let scale = json!({ "webhook": { "url": url } });
        world.die_and_be(config(&scale));
        let id = world.submit(json!({ "resources": { "cpu": 1.0 } })).await;
        pass(&world, 10).await;
        ok(world.put("/pools/main/nodes/a", json!({})).await);
        world.settle().await;
        world.engine.end(&format!("{id}-0-1"), End::Succeeded);
        world.settle().await;
        pass(&world, 90).await;
        assert_eq!(states(&world).await, ["away", "away", "away"]);
        world.die_and_be(config(&scale));
        heard.lock().unwrap().failures = 0;
        for _ in 0..60 {
            pass(&world, 10).await;
            if ok(world.get("/pools").await)["items"][0]["autoscale"]["told"] == true {
                break;
            }
        }
        let last = heard.lock().unwrap().heard.last().unwrap().1.clone();
        let last: Value = serde_json::from_str(&last).unwrap();
        assert_eq!((&last["target"], &last["remove"]), (&json!(0), &json!(["a"])), "{last}");
        let left = "SELECT COUNT(*) AS n FROM training_autoscale WHERE removed <> '[]'";
        assert_eq!(world.count(left).await, 0, "it knows");
    })
    .await;
}

/// Paths and bodies of requests.
type Told = Arc<Mutex<Vec<(String, Value)>>>;

/// A cluster that keeps what its one object is told.
async fn cluster() -> (String, Told) {
    let kept = Told::default();
    let hear =
        async |State(kept): State<Told>, uri: http::Uri, headers: HeaderMap, body: String| {
            if headers["content-type"] != "application/merge-patch+json" {
                return (StatusCode::UNSUPPORTED_MEDIA_TYPE, axum::Json(json!({})));
            }
            let mut kept = kept.lock().unwrap();
            kept.push((uri.path().to_owned(), serde_json::from_str(&body).unwrap()));
            if kept.len() == 1 {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                    "reason": "Forbidden", "message": "nodegroups is forbidden",
                });
                return (StatusCode::FORBIDDEN, axum::Json(status));
            }
            let object = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": { "name": "gpus", "namespace": "machines" },
            });
            (StatusCode::OK, axum::Json(object))
        };
    let router = Router::new().fallback(hear).with_state(kept.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, kept)
}

#[tokio::test]
async fn an_object_of_a_cluster_is_told_by_an_annotation() {
    each(async |mut world: World| {
        let (url, told) = cluster().await;
        let kubeconfig = world.folder().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": { "server": url } }],
            "users": [{ "name": "it", "user": {} }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        world.die_and_be(config(&json!({ "annotation": {
            "kubeconfig": kubeconfig, "api_version": "nodes.example.com/v1", "kind": "NodeGroup",
            "namespace": "machines", "name": "gpus", "key": "nodes.example.com/size",
        } })));
        world.submit(json!({ "resources": { "cpu": 1.0 } })).await;
        for _ in 0..100 {
            let scale = ok(world.get("/pools").await)["items"][0]["autoscale"].clone();
            if let Some(problem) = scale["problem"].as_str() {
                assert_eq!(problem, "it answered 403: nodegroups is forbidden");
            }
            if scale["told"] == true && told.lock().unwrap().len() > 1 {
                break;
            }
            world.clock.advance(Duration::from_secs(2));
            world.training.pass().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 2, "once more after it failed, and not after that: {told:?}");
        let (path, body) = &told[1];
        assert_eq!(path, "/apis/nodes.example.com/v1/namespaces/machines/nodegroups/gpus");
        let notes = &body["metadata"]["annotations"];
        assert_eq!(notes["nodes.example.com/size"], "1");
        let wish: Value = serde_json::from_str(notes["falaj.dev/wish"].as_str().unwrap()).unwrap();
        assert_eq!((&wish["target"], &wish["add"]), (&json!(1), &json!(["a"])));
    })
    .await;
}

/// Two pools: one of a node, and one elsewhere that takes its jobs.
fn bursting() -> TrainingConfig {
    // Whoever cannot start must not keep others from it.
    let policy = "fifo-backfill".to_owned();
    let mut config = TrainingConfig { policy, ..world::config() };
    config.pool[0].node.truncate(1);
    let cloud: PoolConfig = serde_json::from_value(json!({
        "name": "cloud", "kind": "slurm", "tenants": ["default"], "folder": "/shared",
        "node": [{ "name": "c", "count": 2, "cpu": 4.0, "memory": "8GiB", "zone": "dublin" }],
        "autoscale": { "up_after": "0s", "up_pause": "1s", "burst_for": ["main"],
                       "burst_after": "60s" },
    }))
    .unwrap();
    config.pool.push(cloud);
    config
}

#[tokio::test]
async fn only_a_job_whose_data_may_leave_goes_to_another_pool() {
    each(async |mut world: World| {
        world.die_and_be(bursting());
        let holds = world.submit(json!({ "name": "holds", "zones": [] })).await;
        world.settle().await;
        let stays = world.submit(json!({ "name": "stays", "zones": [] })).await;
        let goes = world.submit(json!({ "name": "goes", "zones": [], "burst": true })).await;
        let bound = world.submit(json!({ "name": "bound", "burst": true })).await;
        pass(&world, 120).await;
        assert_eq!(world.job(&goes).await["pool"], "main", "its data may not leave");
        world.allow_dublin().await;
        pass(&world, 20).await;
        assert_eq!(world.job(&goes).await["pool"], "cloud");
        assert_eq!(world.job(&goes).await["zones"], json!(["dublin"]));
        for id in [&holds, &stays, &bound] {
            assert_eq!(world.job(id).await["pool"], "main");
        }
        ok(world.put("/pools/cloud/nodes/c0", json!({})).await);
        world.settle().await;
        assert_eq!(world.state(&goes).await, "RUNNING");
        assert_eq!(world.starts(&goes).await[0]["pool"], "cloud");
        assert_eq!(world.state(&bound).await, "PENDING");
        let decided = ok(world.get(&format!("/jobs/{goes}/decisions")).await);
        assert_eq!(decided["items"][0]["kind"], "burst", "{decided}");
    })
    .await;
}

#[tokio::test]
async fn those_that_cannot_go_to_another_pool_do_not_keep_others_from_it() {
    each(async |mut world: World| {
        world.die_and_be(bursting());
        world.allow_dublin().await;
        // More than are asked at a time, for GPUs that the other pool does not have.
        for _ in 0..110 {
            let gpus = json!({ "cpu": 1.0, "memory": "1GiB", "gpus": 2 });
            world.submit(json!({ "zones": [], "burst": true, "resources": gpus })).await;
        }
        let goes = json!({ "zones": [], "burst": true, "resources": { "cpu": 4.0 } });
        let goes = world.submit(goes).await;
        pass(&world, 120).await;
        assert_eq!(world.job(&goes).await["pool"], "cloud");
    })
    .await;
}
