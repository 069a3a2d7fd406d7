//! Jobs that were taken in and could not be now, rows that nobody can read, and many ends at once.

use std::time::Duration;

use falaj_base::Name;
use falaj_executors::Notice;
use falaj_store::db::Tx;
use falaj_training::config::TrainingConfig;
use serde_json::json;

use super::world::{World, config, each, ok};

fn other_pool() -> TrainingConfig {
    let mut config = config();
    config.pool[0].name = Name::new("other").unwrap();
    config.default_pool = Name::new("other").unwrap();
    config
}

fn other_gpus() -> TrainingConfig {
    let mut config = config();
    for node in &mut config.pool[0].node {
        node.gpu_type = serde_json::from_value(json!("other")).unwrap();
    }
    config
}

#[tokio::test]
async fn jobs_of_a_pool_that_is_gone_wait_until_it_is_back() {
    each(async |mut world: World| {
        let runs = world.submit(json!({ "resources": { "cpu": 4.0, "nodes": 2 } })).await;
        let waits = world.submit(json!({})).await;
        world.settle().await;
        world.die_and_be(other_pool());
        world.settle().await;
        assert_eq!(world.state(&runs).await, "PREEMPTED");
        assert_eq!(world.state(&waits).await, "PENDING");
        let open = "SELECT COUNT(*) AS n FROM training_attempt WHERE open > 0 OR ended_at IS NULL";
        assert_eq!(world.count(open).await, 0, "it costs nothing any more");
        for id in [&runs, &waits] {
            let why = ok(world.get(&format!("/jobs/{id}/why")).await);
            let words = why["why"].as_str().unwrap();
            assert!(words.contains("its pool is not there any more"), "{words}");
        }
        world.die_and_be(config());
        world.settle().await;
        let states = (world.state(&runs).await, world.state(&waits).await);
        assert!(states.0 == "RUNNING" || states.1 == "RUNNING", "{states:?}");
        assert!(!world.engine.there().contains(&format!("{runs}-0-1")));
        assert!(world.engine.told().contains(&(format!("{runs}-0-1"), Notice::Kill)));
    })
    .await;
}

#[tokio::test]
async fn a_type_of_gpu_that_is_gone_stops_nobody_else() {
    each(async |mut world: World| {
        let asks = json!({ "resources": { "cpu": 1.0, "gpus": 2, "gpu_type": "toy", "nodes": 2 } });
        let runs = world.submit(asks.clone()).await;
        let waits = world.submit(asks).await;
        world.settle().await;
        world.die_and_be(other_gpus());
        let plain = world.submit(json!({ "resources": { "cpu": 1.0 } })).await;
        world.settle().await;
        assert_eq!(world.state(&plain).await, "RUNNING");
        assert_eq!(world.state(&runs).await, "RUNNING", "it has what it has");
        assert_eq!(world.state(&waits).await, "PENDING");
        let why = ok(world.get(&format!("/jobs/{waits}/why")).await);
        assert_eq!(why["rule"], "never");
        assert!(why["why"].as_str().unwrap().contains("gpu_type"), "{why}");
        world.engine.end(&format!("{runs}-0-1"), falaj_executors::End::Succeeded);
        world.settle().await;
        assert_eq!(world.state(&runs).await, "SUCCEEDED");
        world.die_and_be(config());
        world.settle().await;
        assert_eq!(world.state(&waits).await, "RUNNING");
    })
    .await;
}

#[tokio::test]
async fn what_a_smaller_quota_leaves_no_room_for_waits_and_can_be_cancelled() {
    each(async |mut world: World| {
        ok(world.put("/queues/lab", json!({ "quota": { "cpu": 8.0 } })).await);
        ok(world.put("/queues/other", json!({})).await);
        let both = json!({ "queue": "lab", "resources": { "cpu": 4.0, "nodes": 2 } });
        let first = world.submit(both.clone()).await;
        let second = world.submit(both.clone()).await;
        let third = world.submit(both).await;
        world.settle().await;
        let none = json!({ "cpu": 0.0 });
        ok(world.put("/queues/lab", json!({ "quota": { "cpu": 4.0 }, "borrow": none })).await);
        world.engine.end(&format!("{first}-0-1"), falaj_executors::End::Succeeded);
        world.die();
        world.settle().await;
        assert_eq!(world.state(&second).await, "PENDING", "it was taken in");
        let other = world.submit(json!({ "queue": "other" })).await;
        world.settle().await;
        assert_eq!(world.state(&other).await, "RUNNING", "it is in nobody's way");
        ok(world.post(&format!("/jobs/{second}/cancel"), json!({})).await);
        world.engine.end(&format!("{other}-0-1"), falaj_executors::End::Succeeded);
        world.settle().await;
        assert_eq!(world.state(&second).await, "CANCELLED");
        ok(world.put("/queues/lab", json!({ "quota": { "cpu": 8.0 }, "borrow": none })).await);
        world.settle().await;
        assert_eq!(world.state(&third).await, "RUNNING");
    })
    .await;
}

#[tokio::test]
async fn a_row_that_cannot_be_read_stops_nobody_else() {
    each(async |mut world: World| {
        let bad = world.submit(json!({})).await;
        let good = world.submit(json!({})).await;
        world.settle().await;
        let spoil = move |tx: &mut Tx<'_>| {
            let sql = "UPDATE training_job SET definition = '{' WHERE id = $1";
            tx.execute(sql, &falaj_store::db::params![bad]).map(drop)
        };
        world.db.write(spoil).await.unwrap();
        world.die();
        world.settle().await;
        world.engine.end(&format!("{good}-0-1"), falaj_executors::End::Succeeded);
        world.settle().await;
        assert_eq!(world.state(&good).await, "SUCCEEDED");
    })
    .await;
}

#[tokio::test]
async fn many_tasks_that_can_never_run_end_together() {
    each(async |world: World| {
        world.settle().await;
        let deadline = world.clock.now() + Duration::from_millis(50);
        let late = json!({ "count": 1000, "deadline": deadline.to_string() });
        let id = world.submit(late).await;
        world.clock.advance(Duration::from_secs(1));
        world.settle().await;
        let job = world.job(&id).await;
        assert_eq!(
            (job["state"].as_str(), job["tasks"]["failed"].as_i64()),
            (Some("FAILED"), Some(1000))
        );
        assert!(job["reason"].as_str().unwrap().contains("a time to come"), "{job}");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_task").await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_decision").await, 1);
        assert_eq!(world.run_status(job["run_id"].as_str().unwrap()).await, "FAILED");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_inbox").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_run_knows_of_the_end_of_its_job_even_if_nobody_was_left_to_tell_it() {
    each(async |mut world: World| {
        let id = world.submit(json!({})).await;
        let run = world.job(&id).await["run_id"].as_str().unwrap().to_owned();
        // As whoever cancelled it leaves it when it is killed right after that.
        let job = id.clone();
        let cancelled = move |tx: &mut Tx<'_>| {
            tx.execute("DELETE FROM training_inbox", &[])?;
            tx.execute("UPDATE training_job SET live = 0, state = 'CANCELLED'", &[])?;
            let sql = "INSERT INTO training_inbox (id, kind, job) VALUES ($1, 'runs', $2)";
            tx.execute(sql, &falaj_store::db::params![format!("runs-{job}"), job]).map(drop)
        };
        world.db.write(cancelled).await.unwrap();
        world.die();
        assert_eq!(world.run_status(&run).await, "SCHEDULED");
        world.settle().await;
        assert_eq!(world.run_status(&run).await, "KILLED");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_inbox").await, 0);
    })
    .await;
}

#[tokio::test]
async fn reports_are_one_note_until_they_are_heard() {
    each(async |world: World| {
        let id = world.submit(json!({})).await;
        world.settle().await;
        for step in 1..20 {
            let body = json!({ "attempt": 1, "rank": 0, "step": step });
            ok(world.post(&format!("/jobs/{id}/report"), body).await);
        }
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_inbox").await, 1);
        world.settle().await;
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_inbox").await, 0);
    })
    .await;
}

#[tokio::test]
async fn who_was_saving_its_work_has_its_time_after_a_restart() {
    each(async |mut world: World| {
        let low = world
            .submit(json!({ "checkpoint": {}, "resources": { "cpu": 4.0, "nodes": 2 } }))
            .await;
        world.settle().await;
        world.clock.advance(Duration::from_hours(1));
        world.submit(json!({ "priority": 5 })).await;
        world.settle().await;
        assert_eq!(world.state(&low).await, "CHECKPOINTING");
        world.die();
        world.settle().await;
        assert_eq!(world.state(&low).await, "CHECKPOINTING");
        let told = world.engine.told();
        assert!(told.iter().all(|(_, notice)| *notice == Notice::Checkpoint), "{told:?}");
        world.clock.advance(Duration::from_hours(1));
        world.settle().await;
        assert_eq!(world.state(&low).await, "PREEMPTED");
    })
    .await;
}

#[tokio::test]
async fn a_job_whose_tasks_nobody_can_read_fails_and_stops_nobody_else() {
    each(async |mut world: World| {
        let broken = world.submit(json!({})).await;
        let other = world.submit(json!({})).await;
        world.settle().await;
        let spoil = |tx: &mut Tx<'_>| {
            let sql = "UPDATE training_task SET state = 'NONSENSE' WHERE job IN
                       (SELECT id FROM training_job ORDER BY id LIMIT 1)";
            tx.execute(sql, &[])
        };
        world.db.write(spoil).await.unwrap();
        world.die();
        world.settle().await;
        let job = world.job(&broken).await;
        assert_eq!(job["state"], "FAILED");
        let reason = job["reason"].as_str().unwrap();
        assert!(reason.starts_with("what is kept of its tasks cannot be read"), "{reason}");
        assert_eq!(world.state(&other).await, "RUNNING");
        let next = world.submit(json!({})).await;
        world.clock.advance(Duration::from_mins(1));
        world.settle().await;
        world.settle().await;
        assert_eq!(world.state(&next).await, "RUNNING", "its node is free");
        assert!(!world.engine.there().contains(&format!("{broken}-0-1")), "and nothing runs there");
    })
    .await;
}
