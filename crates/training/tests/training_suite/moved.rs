//! What the scheduler does with jobs that run: spot before a deadline, elastic ones, and what it costs to
//! stop somebody.

use std::time::Duration;

use falaj_executors::End;
use falaj_training::config::TrainingConfig;
use serde_json::{Value, json};

use super::world::{World, config, each, ok};

fn with_spot() -> TrainingConfig {
    let mut config = config();
    config.pool[0].node[0].spot = true;
    config
}

fn nodes(start: &Value) -> Vec<&str> {
    start["nodes"].as_array().unwrap().iter().map(|at| at["node"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn spot_is_left_before_a_deadline_would_be_missed() {
    each(async |mut world: World| {
        world.die_and_be(with_spot());
        let id = world
            .submit(json!({
                "spot": "until_deadline_nears", "time_limit": "1h", "checkpoint": {},
                "deadline": "2026-05-01T15:00:00Z",
            }))
            .await;
        world.settle().await;
        assert_eq!(nodes(&world.starts(&id).await[0]), ["a"]);
        world.clock.advance(Duration::from_mins(40));
        world.settle().await;
        assert_eq!(world.starts(&id).await.len(), 1, "there is time");
        // Ten minutes of margin before what is left of its limit would not fit any more.
        world.clock.advance(Duration::from_mins(75));
        world.settle().await;
        world.clock.advance(Duration::from_mins(3));
        world.settle().await;
        world.settle().await;
        let starts = world.starts(&id).await;
        assert_eq!(starts.len(), 2, "{starts:?}");
        assert_eq!((nodes(&starts[1]), world.state(&id).await), (vec!["b"], "RUNNING".to_owned()));
        let decided = ok(world.get(&format!("/jobs/{id}/decisions")).await);
        assert!(decided.to_string().contains("no more risk on spot"), "{decided}");
    })
    .await;
}

#[tokio::test]
async fn an_elastic_job_shrinks_before_anybody_is_displaced() {
    each(async |world: World| {
        let elastic = json!({ "resources": { "cpu": 4.0, "nodes": 1, "max_nodes": 2 } });
        let wide = world.submit(elastic).await;
        world.settle().await;
        for _ in 0..3 {
            world.clock.advance(Duration::from_mins(2));
            world.settle().await;
        }
        let last = world.starts(&wide).await.pop().unwrap();
        assert_eq!(nodes(&last).len(), 2, "it grew");
        let other = world.submit(json!({})).await;
        for _ in 0..3 {
            world.clock.advance(Duration::from_secs(3));
            world.settle().await;
        }
        assert_eq!(world.state(&other).await, "RUNNING");
        let last = world.starts(&wide).await.pop().unwrap();
        assert_eq!((nodes(&last).len(), world.state(&wide).await), (1, "RUNNING".to_owned()));
        let decided = ok(world.get(&format!("/jobs/{wide}/decisions")).await).to_string();
        assert!(decided.contains("resized") && decided.contains(&other), "{decided}");
    })
    .await;
}

#[tokio::test]
async fn what_was_to_move_and_is_stopped_for_others_is_asked_for_money_again() {
    each(async |world: World| {
        let elastic = json!({
            "checkpoint": {}, "time_limit": "1h",
            "resources": { "cpu": 4.0, "nodes": 1, "max_nodes": 2 },
        });
        let wide = world.submit(elastic).await;
        world.settle().await;
        for _ in 0..5 {
            world.clock.advance(Duration::from_mins(2));
            world.settle().await;
        }
        let last = world.starts(&wide).await.pop().unwrap();
        assert_eq!(nodes(&last).len(), 2, "it grew");
        ok(world.put("/budgets/project/total", json!({ "amount": 1000.0 })).await);
        // It is to shrink for one, and has to go for the other before it has.
        world.submit(json!({})).await;
        world.clock.advance(Duration::from_secs(3));
        world.settle().await;
        assert_eq!(world.state(&wide).await, "CHECKPOINTING");
        let urgent = json!({ "priority": 9, "resources": { "cpu": 4.0, "nodes": 2 } });
        let urgent = world.submit(urgent).await;
        world.clock.advance(Duration::from_secs(3));
        world.settle().await;
        for _ in 0..3 {
            world.clock.advance(Duration::from_mins(1));
            world.settle().await;
        }
        assert_eq!(world.state(&urgent).await, "RUNNING");
        assert_eq!(world.state(&wide).await, "PREEMPTED");
        ok(world.put("/budgets/project/total", json!({ "amount": 0.01 })).await);
        world.engine.end(&format!("{urgent}-0-1"), End::Succeeded);
        for _ in 0..3 {
            world.clock.advance(Duration::from_mins(1));
            world.settle().await;
        }
        let why = ok(world.get(&format!("/jobs/{wide}/why")).await);
        assert_eq!(
            (world.state(&wide).await.as_str(), &why["rule"]),
            ("PREEMPTED", &json!("budget")),
            "{why}"
        );
    })
    .await;
}

#[tokio::test]
async fn what_stopping_somebody_loses_is_told() {
    each(async |world: World| {
        let asks = json!({ "cpu": 1.0, "gpus": 2, "ranks_per_node": 1 });
        let mut low = Vec::new();
        for _ in 0..2 {
            let body = json!({ "resources": asks, "checkpoint": {}, "queue": null });
            low.push(world.submit(body).await);
        }
        world.settle().await;
        world.clock.advance(Duration::from_mins(30));
        // The first has saved its work a minute ago, so it is the one that goes.
        let place = world.engine.env(&format!("{}-0-1", low[0]))["CHECKPOINT_DIR"].clone();
        let saved =
            json!({ "attempt": 1, "checkpoint": { "step": 1, "path": format!("{place}/1") } });
        ok(world.post(&format!("/jobs/{}/report", low[0]), saved).await);
        world.settle().await;
        world.clock.advance(Duration::from_mins(1));
        let urgent = world.submit(json!({ "resources": asks, "priority": 9 })).await;
        world.settle().await;
        assert_eq!(world.state(&low[0]).await, "CHECKPOINTING");
        assert_eq!(world.state(&low[1]).await, "RUNNING");
        let decided = ok(world.get(&format!("/jobs/{}/decisions", low[0])).await);
        let stop = decided["items"].as_array().unwrap().last().unwrap();
        assert_eq!((&stop["kind"], &stop["detail"]["for"]), (&json!("stop"), &json!(urgent)));
        let lost = stop["detail"]["lost_gpu_seconds"].as_u64().unwrap();
        assert!((118..=124).contains(&lost), "{stop}");
        world.clock.advance(Duration::from_mins(3));
        world.settle().await;
        assert_eq!(world.state(&urgent).await, "RUNNING");
        world.engine.end(&format!("{urgent}-0-1"), End::Succeeded);
        world.settle().await;
        assert_eq!(world.starts(&low[0]).await[1]["resumed_from"], 1);
    })
    .await;
}

#[tokio::test]
async fn residency_holds_whatever_is_free() {
    each(async |world: World| {
        // The far node is idle, and nobody may go there.
        let both =
            world.submit(json!({ "resources": { "cpu": 4.0, "nodes": 2 }, "zones": [] })).await;
        let waits = world.submit(json!({ "zones": [] })).await;
        world.settle().await;
        assert_eq!(world.state(&waits).await, "PENDING");
        assert_eq!(world.starts(&waits).await.len(), 0, "though a node is free");
        world.allow_dublin().await;
        let allowed = world.submit(json!({ "zones": [] })).await;
        world.engine.end(&format!("{both}-0-1"), End::Succeeded);
        world.settle().await;
        assert_eq!(nodes(&world.starts(&waits).await[0]), ["a"], "as it was when it was submitted");
        assert_eq!(world.state(&allowed).await, "RUNNING");
    })
    .await;
}
