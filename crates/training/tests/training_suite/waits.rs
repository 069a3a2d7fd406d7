//! Queues, and why jobs wait.

use std::time::Duration;

use falaj_executors::End;
use serde_json::json;

use super::world::{World, definition, each, ok, refused};

#[tokio::test]
async fn a_quota_holds_and_is_told() {
    each(async |world: World| {
        let none = json!({ "cpu": 0.0 });
        ok(world.put("/queues/lab", json!({ "quota": { "cpu": 4.0 }, "borrow": none })).await);
        let first = world.submit(json!({ "queue": "lab" })).await;
        let second = world.submit(json!({ "queue": "lab" })).await;
        world.settle().await;
        assert_eq!(
            (world.state(&first).await, world.state(&second).await),
            ("RUNNING".into(), "PENDING".into())
        );
        let why = ok(world.get(&format!("/jobs/{second}/why")).await);
        assert_eq!(why["rule"], "quota");
        let words = why["why"].as_str().unwrap();
        assert!(
            words.starts_with("queue `lab` leaves room for 0 cores, and it needs 4 cores"),
            "{words}"
        );
        let queues = ok(world.get("/queues").await);
        assert_eq!(queues["items"][0]["held"]["cpu"], 4.0);
        assert_eq!(refused(world.delete("/queues/lab").await).0, 409);
        // A larger one lets it start at once.
        ok(world.put("/queues/lab", json!({ "quota": { "cpu": 8.0 }, "borrow": none })).await);
        world.settle().await;
        assert_eq!(world.state(&second).await, "RUNNING");
        for id in [&first, &second] {
            world.engine.end(&format!("{id}-0-1"), End::Succeeded);
        }
        world.settle().await;
        ok(world.delete("/queues/lab").await);
        assert_eq!(
            refused(world.post("/jobs", definition(json!({ "queue": "lab" }))).await).1,
            "queue"
        );
    })
    .await;
}

#[tokio::test]
async fn what_waits_for_room_knows_for_whom() {
    each(async |world: World| {
        let both = world.submit(json!({ "resources": { "cpu": 4.0, "nodes": 2 } })).await;
        let waits = world.submit(json!({})).await;
        world.settle().await;
        let why = ok(world.get(&format!("/jobs/{waits}/why")).await);
        assert_eq!(why["rule"], "no-room");
        let words = why["why"].as_str().unwrap();
        assert!(words.starts_with("0 of the 1 nodes that it needs have room"), "{words}");
        assert!(words.contains(&both), "{words}");
        let runs = ok(world.get(&format!("/jobs/{both}/why")).await);
        assert!(runs["why"].as_str().unwrap().starts_with("it has 2 nodes since"));
        world.engine.end(&format!("{both}-0-1"), End::Succeeded);
        world.settle().await;
        assert_eq!(ok(world.get(&format!("/jobs/{both}/why")).await)["why"], "it is done");
        let decided = ok(world.get(&format!("/jobs/{waits}/decisions")).await);
        assert_eq!(decided["items"][0]["kind"], "start");
    })
    .await;
}

#[tokio::test]
async fn what_its_engine_says_of_a_start_that_waits_there_is_told() {
    each(async |world: World| {
        world.engine.hold(Some("0/3 nodes are available: 3 Insufficient cpu"));
        let id = world.submit(json!({})).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "STARTING");
        let why = ok(world.get(&format!("/jobs/{id}/why")).await);
        assert_eq!(why["rule"], "engine", "{why}");
        assert!(why["why"].as_str().unwrap().ends_with("3 Insufficient cpu"), "{why}");
        world.engine.hold(None);
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        let why = ok(world.get(&format!("/jobs/{id}/why")).await);
        assert!(why["why"].as_str().unwrap().starts_with("it has 1 nodes since"), "{why}");
    })
    .await;
}

#[tokio::test]
async fn the_tree_of_queues_stays_a_tree() {
    each(async |world: World| {
        let put = async |name: &str, body| world.put(&format!("/queues/{name}"), body).await;
        ok(put("team", json!({ "quota": { "cpu": 8.0 } })).await);
        ok(put("deep", json!({ "parent": "team", "quota": { "cpu": 4.0 } })).await);
        for (name, body, field) in [
            ("deep", json!({ "quota": { "cpu": 4.0 } }), "parent"),
            ("team", json!({ "parent": "deep" }), "parent"),
            ("new", json!({ "parent": "nowhere" }), "parent"),
            ("new", json!({ "quota": { "cpu": -1.0 } }), "quota.cpu"),
            ("new", json!({ "quota": { "gpu_types": { "h100": 1.0 } } }), "gpu_types"),
            ("new", json!({ "weight": 0 }), "weight"),
            ("tenant", json!({ "parent": "team" }), "parent"),
        ] {
            let found = refused(put(name, body).await);
            assert_eq!((found.0, found.1.as_str()), (400, field), "{found:?}");
        }
        assert_eq!(refused(world.delete("/queues/team").await).0, 409, "one is below it");
        assert_eq!(refused(world.delete("/queues/nowhere").await).0, 404);
        // Jobs are in leaves.
        let inner = refused(world.post("/jobs", definition(json!({ "queue": "team" }))).await);
        assert_eq!((inner.0, inner.1.as_str()), (400, "queue"));
        for name in ["a", "b", "c"] {
            ok(put(name, json!({})).await);
        }
        assert_eq!(refused(put("d", json!({})).await).0, 409, "there are enough");
    })
    .await;
}

#[tokio::test]
async fn what_a_tenant_has_is_a_limit_for_all_its_queues() {
    each(async |world: World| {
        ok(world.put("/queues/tenant", json!({ "quota": { "cpu": 4.0 } })).await);
        let first = world.submit(json!({})).await;
        let second = world.submit(json!({})).await;
        world.settle().await;
        assert_eq!(
            (world.state(&first).await, world.state(&second).await),
            ("RUNNING".into(), "PENDING".into())
        );
        let why = ok(world.get(&format!("/jobs/{second}/why")).await);
        assert_eq!(why["rule"], "quota", "{why}");
        let large = json!({ "resources": { "cpu": 4.0, "nodes": 2 } });
        assert_eq!(refused(world.post("/jobs", definition(large)).await).1, "resources");
    })
    .await;
}

#[tokio::test]
async fn old_decisions_are_forgotten() {
    each(async |world: World| {
        let id = world.submit(json!({})).await;
        world.settle().await;
        let kept = async || world.count("SELECT COUNT(*) AS n FROM training_decision").await;
        world.clock.advance(Duration::from_hours(29 * 24));
        world.work("training-decisions").await;
        assert_eq!(kept().await, 1);
        world.clock.advance(Duration::from_hours(2 * 24));
        world.work("training-decisions").await;
        assert_eq!(kept().await, 0);
        assert_eq!(ok(world.get(&format!("/jobs/{id}/decisions")).await)["items"], json!([]));
    })
    .await;
}
