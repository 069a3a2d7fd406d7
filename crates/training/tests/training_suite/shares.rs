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

#[tokio::test]
async fn what_was_used_stays_used_when_jobs_and_queues_are_gone() {
    each(async |mut world: World| {
        queues(&world).await;
        let whole =
            |queue: &str| json!({ "queue": queue, "resources": { "cpu": 4.0, "nodes": 2 } });
        let before = world.submit(whole("a")).await;
        world.settle().await;
        world.clock.advance(Duration::from_hours(24));
        world.engine.end(&format!("{before}-0-1"), End::Succeeded);
        world.settle().await;
        let used = async |world: &World, name: &str| {
            let shown = ok(world.get("/queues").await);
            let items = shown["items"].as_array().unwrap().clone();
            let queue = items.into_iter().find(|queue| queue["name"] == name).unwrap();
            queue["held"]["used"].as_f64().unwrap()
        };
        let expected = used(&world, "a").await;
        assert!(expected > 0.05, "{expected}");
        ok(world.delete(&format!("/jobs/{before}")).await);
        world.die();
        world.settle().await;
        let after = used(&world, "a").await;
        assert!((after - expected).abs() < 0.001, "{after} {expected}");
        let (last, later) = (world.submit(whole("a")).await, world.submit(whole("b")).await);
        world.settle().await;
        assert_eq!(
            (world.state(&later).await.as_str(), world.state(&last).await.as_str()),
            ("RUNNING", "PENDING")
        );
        // Half of it is forgotten in a week, by whoever counts.
        for id in [&last, &later] {
            ok(world.post(&format!("/jobs/{id}/cancel"), json!({})).await);
        }
        world.settle().await;
        world.clock.advance(Duration::from_hours(24 * 7));
        world.settle().await;
        let (living, tenant) = (used(&world, "a").await, used(&world, "tenant").await);
        assert!((living - expected / 2.0).abs() < 0.001, "{living} {expected}");
        world.die();
        world.settle().await;
        assert!((used(&world, "a").await - living).abs() < 0.001);
        // A queue that is removed leaves what it used to its tenant.
        ok(world.delete("/queues/a").await);
        world.die();
        world.settle().await;
        let left = used(&world, "tenant").await;
        assert!((left - tenant).abs() < 0.001, "{left} {tenant}");
    })
    .await;
}

#[tokio::test]
async fn what_was_used_before_anybody_kept_sums_is_found() {
    each(async |mut world: World| {
        queues(&world).await;
        let id = world.submit(json!({ "queue": "a" })).await;
        world.settle().await;
        world.clock.advance(Duration::from_hours(24));
        world.engine.end(&format!("{id}-0-1"), End::Succeeded);
        world.settle().await;
        let sum = "SELECT CAST(SUM(cpu) AS BIGINT) AS n FROM training_used";
        let before = world.count(sum).await;
        assert!(before > 0);
        let forget = |tx: &mut falaj_store::db::Tx<'_>| {
            tx.execute("DELETE FROM training_used", &[])?;
            tx.execute("DELETE FROM training_filled", &[])
        };
        world.db.write(forget).await.unwrap();
        for _ in 0..2 {
            world.die();
            world.settle().await;
            let after = world.count(sum).await;
            assert!((after - before).abs() <= before / 1000, "{after} {before}");
        }
    })
    .await;
}
