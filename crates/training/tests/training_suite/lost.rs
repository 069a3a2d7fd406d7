//! Whatever is killed: every job is found again and ends once.

use falaj_executors::End;
use serde_json::json;

use super::world::{World, each};

#[tokio::test]
async fn what_ran_is_found_again_and_what_ended_meanwhile_has_ended() {
    each(async |mut world: World| {
        let ids = [
            world.submit(json!({})).await,
            world.submit(json!({})).await,
            world.submit(json!({})).await,
        ];
        world.settle().await;
        let launches = world.engine.launches();
        world.die();
        world.engine.end(&format!("{}-0-1", ids[0]), End::Succeeded);
        world.settle().await;
        assert_eq!(world.state(&ids[0]).await, "SUCCEEDED");
        assert_eq!(world.state(&ids[1]).await, "RUNNING");
        assert_eq!(world.state(&ids[2]).await, "RUNNING", "there is room for it now");
        assert_eq!(world.engine.launches(), launches + 1, "nothing was started twice");
        for id in &ids {
            assert_eq!(world.starts(id).await.len(), 1);
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_written_down_and_not_launched_is_launched() {
    each(async |mut world: World| {
        world.engine.set_away(true);
        let id = world.submit(json!({})).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "STARTING");
        world.die();
        world.engine.set_away(false);
        world.settle().await;
        assert_eq!(
            (world.state(&id).await.as_str(), world.starts(&id).await.len()),
            ("RUNNING", 1)
        );
    })
    .await;
}

#[tokio::test]
async fn what_vanishes_is_started_again_before_others_and_not_for_ever() {
    each(async |world: World| {
        let id = world.submit(json!({ "resources": { "cpu": 4.0, "nodes": 2 } })).await;
        world.settle().await;
        let other = world.submit(json!({})).await;
        world.engine.lose(&format!("{id}-0-1"));
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        assert_eq!(world.state(&other).await, "PENDING");
        world.engine.lose(&format!("{id}-0-2"));
        world.settle().await;
        let job = world.job(&id).await;
        assert_eq!(job["state"], "LOST");
        assert_eq!(job["reason"], "its processes vanished without leaving an end");
        assert_eq!(world.state(&other).await, "RUNNING");
    })
    .await;
}

#[tokio::test]
async fn a_stop_that_was_under_way_goes_on() {
    each(async |mut world: World| {
        let id = world.submit(json!({})).await;
        world.settle().await;
        let start = format!("{id}-0-1");
        world.engine.make_stubborn(&start);
        world.post(&format!("/jobs/{id}/cancel"), json!({})).await;
        world.settle().await;
        assert_eq!(world.state(&id).await, "STOPPING");
        world.die();
        world.settle().await;
        assert_eq!(world.state(&id).await, "STOPPING");
        world.engine.end(&start, End::Stopped);
        world.settle().await;
        assert_eq!(world.state(&id).await, "CANCELLED");
    })
    .await;
}

#[tokio::test]
async fn one_that_was_away_too_long_changes_nothing_any_more() {
    each(async |world: World| {
        let id = world.submit(json!({})).await;
        world.settle().await;
        let other = world.another();
        other.pass().await.unwrap();
        world.submit(json!({})).await;
        let error = world.training.pass().await.unwrap_err();
        assert!(error.message().contains("another server schedules"), "{error}");
        // It begins anew with its next pass, and finds everything.
        world.settle().await;
        assert_eq!(world.state(&id).await, "RUNNING");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_attempt").await, 2);
    })
    .await;
}

#[tokio::test]
async fn what_nobody_knows_is_cleared_away() {
    each(async |mut world: World| {
        let id = world.submit(json!({})).await;
        world.settle().await;
        // As after a restore from a backup that was older than the job.
        world
            .db
            .write(|tx| {
                tx.execute("DELETE FROM training_attempt", &[])?;
                tx.execute("DELETE FROM training_task", &[])?;
                tx.execute("UPDATE training_job SET live = 0", &[]).map(drop)
            })
            .await
            .unwrap();
        world.die();
        world.submit(json!({})).await;
        world.settle().await;
        assert!(!world.engine.there().contains(&format!("{id}-0-1")));
    })
    .await;
}
