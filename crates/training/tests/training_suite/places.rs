//! Where jobs may run.

use serde_json::json;

use super::world::{World, config, definition, each, ok, refused};

#[tokio::test]
async fn a_zone_that_a_rule_forbids_is_refused_with_the_rule() {
    each(async |world: World| {
        let there = definition(json!({ "zones": ["dublin"] }));
        let (status, field, words) = refused(world.post("/jobs", there.clone()).await);
        assert_eq!((status, field.as_str()), (422, "zones"));
        assert!(words.starts_with("rule same-jurisdiction"), "{words}");
        assert_eq!(
            world
                .count("SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE '%residency/same%'")
                .await,
            1
        );
        // Where no zone is named, those that rules allow are used.
        let anywhere = ok(world.post("/jobs", definition(json!({ "zones": [] }))).await);
        assert_eq!(anywhere["zones"], json!(["local"]));
        world.allow_dublin().await;
        let made = ok(world.post("/jobs", there).await);
        world.settle().await;
        let id = made["id"].as_str().unwrap();
        assert_eq!(world.starts(id).await[0]["nodes"][0]["node"], "far");
    })
    .await;
}

#[tokio::test]
async fn what_was_allowed_when_it_was_submitted_is_asked_again_when_it_starts() {
    each(async |world: World| {
        world.allow_dublin().await;
        let first = world.submit(json!({ "zones": ["dublin"] })).await;
        let second = world.submit(json!({ "zones": ["dublin"] })).await;
        world.settle().await;
        assert_eq!(world.state(&second).await, "PENDING");
        world.end_transfer().await;
        world.engine.end(&format!("{first}-0-1"), falaj_executors::End::Succeeded);
        world.settle().await;
        let job = world.job(&second).await;
        assert_eq!(job["state"], "FAILED");
        assert!(job["reason"].as_str().unwrap().starts_with("rule same-jurisdiction"));
        assert!(world.starts(&second).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_no_node_could_hold_is_refused() {
    each(async |world: World| {
        for (change, field) in [
            (json!({ "resources": { "cpu": 5.0 } }), "resources"),
            (json!({ "resources": { "gpus": 3 } }), "resources"),
            (json!({ "resources": { "cpu": 1.0, "nodes": 3 } }), "resources.nodes"),
            (json!({ "resources": { "gpus": 1, "gpu_type": "h100" } }), "resources.gpu_type"),
            (json!({ "queue": "nowhere" }), "queue"),
            (json!({ "pool": "nowhere" }), "pool"),
            (json!({ "zones": ["nowhere"] }), "zones"),
        ] {
            let (status, found, words) =
                refused(world.post("/jobs", definition(change.clone())).await);
            assert_eq!((status, found.as_str()), (400, field), "{change}: {words}");
        }
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_job").await, 0);
    })
    .await;
}

#[tokio::test]
async fn where_only_spot_would_do_that_is_what_is_said() {
    each(async |mut world: World| {
        let mut spot = config();
        for node in &mut spot.pool[0].node {
            node.spot = true;
        }
        world.die_and_be(spot);
        let (status, field, words) = refused(world.post("/jobs", definition(json!({}))).await);
        assert_eq!((status, field.as_str()), (400, "spot"), "{words}");
        ok(world.post("/jobs", definition(json!({ "spot": "allowed" }))).await);
        let large = json!({ "resources": { "cpu": 64.0 } });
        assert_eq!(refused(world.post("/jobs", definition(large)).await).1, "resources");
    })
    .await;
}
