//! From submission to the end.

use std::time::Duration;

use falaj_executors::{End, Notice, RankEnd};
use serde_json::json;

use super::world::{World, each, ok, refused};

#[tokio::test]
async fn a_job_starts_ends_and_leaves_its_output() {
    each(async |world: World| {
        let id = world.submit(json!({ "params": { "lr": "0.1" } })).await;
        let job = world.job(&id).await;
        let run = job["run_id"].as_str().unwrap().to_owned();
        assert_eq!(world.run_status(&run).await, "SCHEDULED");
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        assert_eq!(world.run_status(&run).await, "RUNNING");
        let start = format!("{id}-0-1");
        assert_eq!(world.engine.there(), [start.as_str()]);
        let env = world.engine.env(&start);
        assert_eq!(
            (env["FALAJ_JOB_ID"].as_str(), env["MLFLOW_RUN_ID"].as_str()),
            (id.as_str(), run.as_str())
        );
        assert_eq!(env["MLFLOW_TRACKING_URI"], "http://falaj.test/t/default/default");
        assert_eq!((env["RANK"].as_str(), env["WORLD_SIZE"].as_str()), ("0", "1"));
        world.clock.advance(Duration::from_hours(1));
        world.engine.end(&start, End::Succeeded);
        world.settle().await;
        let job = world.job(&id).await;
        assert_eq!(job["state"], "SUCCEEDED");
        assert_eq!(job["tasks"]["succeeded"], 1);
        assert_eq!(world.run_status(&run).await, "FINISHED");
        // What the executor had is in the object store now.
        assert!(world.engine.there().is_empty());
        let output = ok(world.get(&format!("/jobs/{id}/logs")).await);
        assert_eq!(output, json!(format!("output of {start} rank 0\n")));
        let (start, costs) = (&world.starts(&id).await[0], ok(world.get("/costs?by=job").await));
        assert_eq!(
            (start["cpu_seconds"].as_f64(), start["exit_code"].as_i64()),
            (Some(1.5), Some(0))
        );
        // Four cores of a node with GPUs, by the book, for an hour.
        let line = &costs["items"][0];
        let near = |number: f64| (4.0..4.01).contains(&number);
        assert!(near(line["cost"].as_f64().unwrap()) && near(line["core_hours"].as_f64().unwrap()));
    })
    .await;
}

#[tokio::test]
async fn failures_are_retried_as_often_as_was_said() {
    each(async |world: World| {
        let id = world.submit(json!({ "retries": 1 })).await;
        let failed = End::Failed { rank: 0, how: RankEnd::Exit(3) };
        world.settle().await;
        world.engine.end(&format!("{id}-0-1"), failed.clone());
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        world.engine.end(&format!("{id}-0-2"), failed);
        world.settle().await;
        let job = world.job(&id).await;
        assert_eq!(
            (job["state"].as_str(), job["reason"].as_str()),
            (Some("FAILED"), Some("rank 0 ended with 3"))
        );
        assert_eq!(world.run_status(job["run_id"].as_str().unwrap()).await, "FAILED");
        let codes: Vec<_> =
            world.starts(&id).await.iter().map(|it| it["exit_code"].as_i64()).collect();
        assert_eq!(codes, [Some(3), Some(3)]);
    })
    .await;
}

#[tokio::test]
async fn what_an_executor_refuses_fails_and_what_is_away_is_asked_again() {
    each(async |world: World| {
        world.engine.refuse(Some("no containers here"));
        let id = world.submit(json!({})).await;
        world.settle().await;
        let job = world.job(&id).await;
        assert_eq!(job["state"], "FAILED");
        assert_eq!(job["reason"], "it was not started: no containers here");
        world.engine.refuse(None);
        world.engine.set_away(true);
        let id = world.submit(json!({})).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "STARTING");
        world.engine.set_away(false);
        world.settle().await;
        assert_eq!(world.state(&id).await, "STARTING", "not before its pause is over");
        world.clock.advance(Duration::from_secs(5));
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        assert_eq!(world.starts(&id).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn cancelling_ends_what_waits_and_stops_what_runs() {
    each(async |world: World| {
        // Two nodes: two tasks run, three wait.
        let id = world.submit(json!({ "count": 5 })).await;
        world.settle().await;
        assert_eq!(world.engine.there().len(), 2);
        ok(world.post(&format!("/jobs/{id}/cancel"), json!({})).await);
        world.settle().await;
        let job = world.job(&id).await;
        assert_eq!(
            (job["state"].as_str(), job["tasks"]["cancelled"].as_i64()),
            (Some("CANCELLED"), Some(5))
        );
        let stops = world.engine.told().into_iter().filter(|(_, notice)| *notice == Notice::Stop);
        assert_eq!(stops.count(), 2);
        assert_eq!(world.run_status(job["run_id"].as_str().unwrap()).await, "KILLED");
        let waiting = world.submit(json!({})).await;
        ok(world.post(&format!("/jobs/{waiting}/cancel"), json!({})).await);
        world.settle().await;
        assert_eq!(world.state(&waiting).await, "CANCELLED");
        assert!(world.starts(&waiting).await.is_empty());
        assert_eq!(
            refused(world.post(&format!("/jobs/{}/cancel", "job_x"), json!({})).await).0,
            404
        );
    })
    .await;
}

#[tokio::test]
async fn an_array_is_one_row_until_it_runs() {
    each(async |world: World| {
        world.submit(json!({ "count": 1000 })).await;
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_task").await, 0);
        world.settle().await;
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_task").await, 2);
        world.submit(json!({ "count": 1000 })).await;
        let full = refused(world.post("/jobs", super::world::definition(json!({}))).await);
        assert_eq!((full.0, full.1.as_str()), (409, "count"), "{full:?}");
    })
    .await;
}

#[tokio::test]
async fn urgent_work_displaces_and_the_displaced_keep_their_progress() {
    each(async |world: World| {
        let low = world
            .submit(json!({ "checkpoint": {}, "resources": { "cpu": 4.0, "nodes": 2 } }))
            .await;
        world.settle().await;
        let start = format!("{low}-0-1");
        let place = world.engine.env(&start)["CHECKPOINT_DIR"].clone();
        for rank in 0..4 {
            let path = format!("{place}/x");
            let body =
                json!({ "attempt": 1, "rank": rank, "checkpoint": { "step": 7, "path": path } });
            let told = world.post(&format!("/jobs/{low}/report"), body).await;
            // One rank on each of two nodes.
            assert_eq!(told.0, if rank < 2 { 200 } else { 400 });
            if rank < 2 {
                assert_eq!(told.1["whole"], rank == 1);
            }
        }
        world.clock.advance(Duration::from_hours(1));
        let high = world.submit(json!({ "priority": 5 })).await;
        world.settle().await;
        // It may save its work first.
        assert_eq!(world.state(&low).await, "CHECKPOINTING");
        assert_eq!(world.engine.told(), [(start.clone(), Notice::Checkpoint)]);
        for rank in 0..2 {
            let path = format!("{place}/y");
            let body =
                json!({ "attempt": 1, "rank": rank, "checkpoint": { "step": 9, "path": path } });
            assert_eq!(
                ok(world.post(&format!("/jobs/{low}/report"), body).await)["stopping"],
                true
            );
        }
        world.settle().await;
        assert_eq!(world.state(&high).await, "RUNNING");
        assert_eq!(world.state(&low).await, "PREEMPTED");
        world.engine.end(&format!("{high}-0-1"), End::Succeeded);
        world.settle().await;
        assert_eq!(world.state(&low).await, "RUNNING");
        let env = world.engine.env(&format!("{low}-0-2"));
        assert_eq!(
            (env["RESUME_FROM"].as_str(), env["TORCHELASTIC_RESTART_COUNT"].as_str()),
            (format!("{place}/y").as_str(), "1")
        );
        let starts = world.starts(&low).await;
        assert_eq!(
            (starts[0]["state"].as_str(), starts[1]["resumed_from"].as_i64()),
            (Some("PREEMPTED"), Some(9))
        );
    })
    .await;
}

#[tokio::test]
async fn an_elastic_job_goes_on_with_more_nodes_when_nobody_needs_them() {
    each(async |world: World| {
        let id = world
            .submit(json!({
                "checkpoint": {}, "resources": { "cpu": 4.0, "nodes": 1, "max_nodes": 2 },
            }))
            .await;
        world.settle().await;
        assert_eq!(world.starts(&id).await[0]["world_size"], 1);
        let place = world.engine.env(&format!("{id}-0-1"))["CHECKPOINT_DIR"].clone();
        let path = format!("{place}/x");
        let saved = |attempt: u32, rank: u32| {
            let checkpoint = json!({ "step": 3, "path": path });
            json!({ "attempt": attempt, "rank": rank, "checkpoint": checkpoint })
        };
        world.clock.advance(Duration::from_mins(2));
        world.settle().await;
        assert_eq!(world.state(&id).await, "CHECKPOINTING");
        ok(world.post(&format!("/jobs/{id}/report"), saved(1, 0)).await);
        world.settle().await;
        let starts = world.starts(&id).await;
        assert_eq!((starts.len(), starts[1]["world_size"].as_i64()), (2, Some(2)), "{starts:?}");
        assert_eq!(starts[0]["end"], "it goes on on other nodes");
        assert_eq!(
            (world.state(&id).await.as_str(), &starts[1]["resumed_from"]),
            ("RUNNING", &json!(3))
        );
        // A start that is over has nothing to report any more.
        let late = refused(world.post(&format!("/jobs/{id}/report"), saved(1, 0)).await);
        assert_eq!((late.0, late.1.as_str()), (400, "attempt"));
        // Others come: it goes on with what it needs.
        world.clock.advance(Duration::from_mins(2));
        let other = world.submit(json!({})).await;
        world.settle().await;
        for rank in 0..2 {
            ok(world.post(&format!("/jobs/{id}/report"), saved(2, rank)).await);
        }
        world.settle().await;
        assert_eq!(world.state(&other).await, "RUNNING");
        assert_eq!(world.starts(&id).await[2]["world_size"], 1);
        assert_eq!(world.state(&id).await, "RUNNING");
    })
    .await;
}
