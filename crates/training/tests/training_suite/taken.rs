//! Executors that do not answer, answer late, or took what they did not say they took.

use std::time::{Duration, Instant};

use falaj_executors::{End, Notice};
use serde_json::json;

use super::world::{World, each, ok};

#[tokio::test]
async fn what_was_taken_without_an_answer_is_stopped_like_all_else() {
    each(async |world: World| {
        world.engine.set_silent(true);
        let id = world.submit(json!({})).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING", "it is there, whatever was said");
        let start = format!("{id}-0-1");
        world.engine.make_stubborn(&start);
        ok(world.post(&format!("/jobs/{id}/cancel"), json!({})).await);
        world.settle().await;
        assert_eq!(world.state(&id).await, "STOPPING", "it runs until it has ended");
        assert_eq!(world.engine.told(), [(start.clone(), Notice::Stop)]);
        world.clock.advance(Duration::from_mins(5));
        world.settle().await;
        assert_eq!((world.state(&id).await.as_str(), world.engine.launches()), ("STOPPING", 1));
        world.engine.end(&start, End::Stopped);
        world.settle().await;
        assert_eq!(world.state(&id).await, "CANCELLED");
        assert!(world.engine.there().is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_may_have_been_taken_is_killed_before_it_counts_as_stopped() {
    each(async |world: World| {
        world.engine.set_away(true);
        let id = world.submit(json!({})).await;
        world.settle().await;
        ok(world.post(&format!("/jobs/{id}/cancel"), json!({})).await);
        world.clock.advance(Duration::from_mins(2));
        world.settle().await;
        assert_eq!(world.state(&id).await, "STARTING", "nobody knows whether it runs");
        world.engine.set_away(false);
        world.clock.advance(Duration::from_mins(2));
        world.settle().await;
        assert_eq!(world.state(&id).await, "CANCELLED");
        assert_eq!(world.engine.told(), [(format!("{id}-0-1"), Notice::Kill)]);
        assert_eq!(world.engine.launches(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_launch_under_way_is_not_asked_for_again_by_whoever_begins_anew() {
    each(async |world: World| {
        world.engine.launch_takes(Duration::from_millis(300));
        let id = world.submit(json!({})).await;
        world.clock.advance(Duration::from_millis(1));
        world.training.pass().await.unwrap();
        world.engine.began(1).await;
        // What was in mind is dropped while the executor is at it.
        let write = |tx: &mut falaj_store::db::Tx<'_>| {
            tx.execute("UPDATE training_leader SET holder = 'another'", &[]).map(drop)
        };
        world.db.write(write).await.unwrap();
        world.submit(json!({ "name": "other" })).await;
        assert!(world.training.pass().await.is_err());
        world.settle().await;
        world.engine.began(2).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        world.clock.advance(Duration::from_secs(5));
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        assert_eq!(world.engine.launches(), 2, "one for each job");
    })
    .await;
}

#[tokio::test]
async fn what_is_cancelled_while_its_launch_waits_is_never_launched() {
    each(async |world: World| {
        world.engine.launch_takes(Duration::from_millis(600));
        // Eight are launched at a time.
        let small = json!({ "count": 12, "resources": { "cpu": 0.5, "memory": "64MiB" } });
        let id = world.submit(small).await;
        world.clock.advance(Duration::from_millis(1));
        world.training.pass().await.unwrap();
        world.engine.began(8).await;
        ok(world.post(&format!("/jobs/{id}/cancel"), json!({})).await);
        world.clock.advance(Duration::from_millis(1));
        world.training.pass().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        world.clock.advance(Duration::from_mins(2));
        world.settle().await;
        assert_eq!(world.state(&id).await, "CANCELLED");
        assert_eq!(world.engine.launches(), 8);
        assert!(world.engine.there().is_empty());
    })
    .await;
}

#[tokio::test]
async fn strangers_are_found_while_nothing_else_runs() {
    each(async |mut world: World| {
        world.submit(json!({})).await;
        world.settle().await;
        let forget = |tx: &mut falaj_store::db::Tx<'_>| {
            tx.execute("DELETE FROM training_attempt", &[])?;
            tx.execute("DELETE FROM training_task", &[])?;
            tx.execute("UPDATE training_job SET live = 0", &[]).map(drop)
        };
        world.engine.set_away(true);
        world.db.write(forget).await.unwrap();
        world.die();
        world.settle().await;
        assert_eq!(world.engine.there().len(), 1);
        world.engine.set_away(false);
        world.clock.advance(Duration::from_secs(31));
        world.settle().await;
        assert!(world.engine.there().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_pass_does_not_wait_for_an_executor_that_is_slow() {
    each(async |world: World| {
        let id = world.submit(json!({})).await;
        world.engine.observe_takes(Duration::from_millis(1500));
        let began = Instant::now();
        world.clock.advance(Duration::from_millis(1));
        world.training.pass().await.unwrap();
        world.training.pass().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        world.engine.observe_takes(Duration::ZERO);
        // It is heard as soon as it has answered.
        tokio::time::sleep(Duration::from_millis(1600)).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_left_alone_and_told_of() {
    each(async |world: World| {
        world.engine.set_away(true);
        let id = world.submit(json!({})).await;
        world.settle().await;
        let pools = ok(world.get("/pools").await);
        assert!(pools["items"][0]["away"]["why"].as_str().unwrap().contains("lunch"), "{pools}");
        let why = ok(world.get(&format!("/jobs/{id}/why")).await);
        assert_eq!((&why["rule"], &why["state"]), (&json!("away"), &json!("STARTING")), "{why}");
        world.engine.set_away(false);
        world.settle().await;
        assert_eq!(world.state(&id).await, "STARTING", "it has its pause");
        world.clock.advance(Duration::from_mins(2));
        world.settle().await;
        assert_eq!((world.state(&id).await, world.engine.launches()), ("RUNNING".into(), 1));
        assert!(ok(world.get("/pools").await)["items"][0]["away"].is_null());
    })
    .await;
}
