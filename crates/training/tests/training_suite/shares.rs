//! Whose turn it is among queues that live on what others own.

use std::time::Duration;

use falaj_executors::End;
use serde_json::json;

use super::world::{World, each, ok};

async fn queues(world: &World) {
    ok(world.put("/queues/tenant", json!({ "quota": { "cpu": 8.0 } })).await);
    for name in ["a", "b"] {
        ok(world.put(&format!("/queues/{name}"), json!({ "quota": { "cpu": 0.0 } })).await);
    }
}

#[tokio::test]
async fn whoever_has_had_less_goes_first() {
    for dies in [false, true] {
        each(async |mut world: World| {
            queues(&world).await;
            // Each has both nodes.
            let whole =
                |queue: &str| json!({ "queue": queue, "resources": { "cpu": 4.0, "nodes": 2 } });
            let before = world.submit(whole("a")).await;
            world.settle().await;
            world.clock.advance(Duration::from_hours(24));
            let last = world.submit(whole("a")).await;
            let later = world.submit(whole("b")).await;
            world.settle().await;
            let why = ok(world.get(&format!("/jobs/{last}/why")).await);
            let words = why["why"].as_str().unwrap();
            assert!(words.contains("those go first who have had less"), "{words}");
            assert!(words.ends_with("and 1 task of others goes before it"), "{words}");
            world.engine.end(&format!("{before}-0-1"), End::Succeeded);
            if dies {
                // What was used is found again.
                world.die();
            }
            world.settle().await;
            assert_eq!(world.state(&later).await, "RUNNING", "{dies}");
            assert_eq!(world.state(&last).await, "PENDING");
            let shown = ok(world.get("/queues").await);
            let used = |name: &str| {
                let items = shown["items"].as_array().unwrap();
                let queue = items.iter().find(|queue| queue["name"] == name).unwrap();
                (queue["held"]["share"].as_f64().unwrap(), queue["held"]["used"].as_f64().unwrap())
            };
            // Two of three nodes for a day of a half-life of seven.
            let expected = 2.0 / 3.0 * (1.0 - 0.5_f64.powf(1.0 / 7.0));
            assert!((used("a").1 - expected).abs() < 0.001, "{:?} {expected}", used("a"));
            assert!(used("b").1 < 0.001 && (used("b").0 - 2.0 / 3.0).abs() < 1e-9);
        })
        .await;
    }
}
