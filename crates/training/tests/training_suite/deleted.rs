//! Deleting jobs that have ended.

use std::time::Duration;

use falaj_base::{HumanDuration, Name};
use falaj_executors::End;
use falaj_training::config::PoolKind;
use serde_json::{Value, json};

use super::engine::shared as shared_engine;
use super::world::{World, config, each, ok, refused};

const BLOBS: &str = "SELECT COUNT(*) AS n FROM blob_ref";
const ROWS: &str =
    "SELECT (SELECT COUNT(*) FROM training_job) + (SELECT COUNT(*) FROM training_task)
    + (SELECT COUNT(*) FROM training_attempt) + (SELECT COUNT(*) FROM training_decision)
    + (SELECT COUNT(*) FROM training_checkpoint) + (SELECT COUNT(*) FROM training_telemetry)
    + (SELECT COUNT(*) FROM training_part) + (SELECT COUNT(*) FROM training_progress)
    + (SELECT COUNT(*) FROM training_inbox WHERE job IS NOT NULL) AS n";

async fn ended(world: &World, change: Value) -> String {
    let id = world.submit(change).await;
    world.settle().await;
    world.clock.advance(Duration::from_mins(30));
    world.engine.end(&format!("{id}-0-1"), End::Succeeded);
    world.settle().await;
    id
}

#[tokio::test]
async fn a_job_goes_with_all_that_is_its_own_and_its_cost_stays() {
    each(async |world: World| {
        let id = world.submit(json!({ "checkpoint": {} })).await;
        world.settle().await;
        assert_eq!(refused(world.delete(&format!("/jobs/{id}")).await).0, 409, "it runs");
        let place = world.engine.env(&format!("{id}-0-1"))["CHECKPOINT_DIR"].clone();
        std::fs::create_dir_all(format!("{place}/1")).unwrap();
        let saved =
            json!({ "attempt": 1, "checkpoint": { "step": 1, "path": format!("{place}/1") } });
        ok(world.post(&format!("/jobs/{id}/report"), saved).await);
        world.clock.advance(Duration::from_mins(30));
        world.engine.end(&format!("{id}-0-1"), End::Succeeded);
        world.settle().await;
        assert_eq!(world.count(BLOBS).await, 1, "its output");
        let costs = async |by: &str| ok(world.get(&format!("/costs?by={by}")).await);
        let before = costs("queue").await;
        assert!(before["items"][0]["cost"].as_f64().unwrap() > 0.0);
        ok(world.delete(&format!("/jobs/{id}")).await);
        assert_eq!(world.get(&format!("/jobs/{id}")).await.0, 404);
        assert_eq!(refused(world.delete(&format!("/jobs/{id}")).await).0, 404);
        assert_eq!((world.count(ROWS).await, world.count(BLOBS).await), (0, 0));
        assert!(!std::path::Path::new(&place).exists(), "{place}");
        for by in ["queue", "project", "tenant", "job"] {
            let after = costs(by).await;
            for field in ["cost", "core_hours", "gpu_hours", "starts"] {
                let (was, is) = (&before["items"][0][field], &after["items"][0][field]);
                let (was, is) = (was.as_f64().unwrap(), is.as_f64().unwrap());
                assert!((was - is).abs() < 1e-6, "{by} {field}: {was} {is}");
            }
        }
        assert_eq!(costs("job").await["items"][0]["key"], "deleted");
        // A second one is added to it.
        let other = ended(&world, json!({})).await;
        ok(world.delete(&format!("/jobs/{other}")).await);
        assert_eq!(costs("queue").await["items"][0]["starts"], 2);
        let events = "SELECT COUNT(*) AS n FROM event WHERE kind LIKE '%job.deleted'";
        assert_eq!(world.count(events).await, 2);
    })
    .await;
}

/// Folders that are still to be removed.
const NOTES: &str = "SELECT COUNT(*) AS n FROM training_inbox WHERE kind = 'folder'";

/// A job that has saved something and succeeded, and where that lies.
async fn saved(world: &World) -> (String, String) {
    let id = world.submit(json!({ "checkpoint": {} })).await;
    world.settle().await;
    let place = world.engine.env(&format!("{id}-0-1"))["CHECKPOINT_DIR"].clone();
    std::fs::create_dir_all(format!("{place}/1")).unwrap();
    world.engine.end(&format!("{id}-0-1"), End::Succeeded);
    world.settle().await;
    (id, place)
}

#[tokio::test]
async fn a_folder_goes_when_whoever_deletes_sees_where_it_lies() {
    each(async |mut world: World| {
        let (id, place) = saved(&world).await;
        // As a folder that nobody has mounted at the moment.
        let shared = world.folder().join("shared");
        let aside = world.folder().join("elsewhere");
        std::fs::rename(&shared, &aside).unwrap();
        ok(world.delete(&format!("/jobs/{id}")).await);
        world.work("training-folders").await;
        assert_eq!(world.count(NOTES).await, 1, "it may be there");
        std::fs::rename(&aside, &shared).unwrap();
        assert!(std::path::Path::new(&place).exists());
        world.work("training-folders").await;
        assert_eq!(world.count(NOTES).await, 0);
        assert!(!std::path::Path::new(&place).exists());
        // What lies on the machine of a server is removed by that one.
        let mut local = config();
        local.pool[0].kind = PoolKind::Local;
        world.die_and_be(local.clone());
        let (id, place) = saved(&world).await;
        let (other, engine) = (tempfile::tempdir().unwrap(), shared_engine());
        world.stand_by(local.clone(), &engine, other.path());
        ok(world.delete(&format!("/jobs/{id}")).await);
        world.work("training-folders").await;
        assert_eq!(world.count(NOTES).await, 1, "it is none of its own");
        assert!(std::path::Path::new(&place).exists());
        world.die_and_be(local);
        world.work("training-folders").await;
        assert_eq!(world.count(NOTES).await, 0);
        assert!(!std::path::Path::new(&place).exists());
    })
    .await;
}

#[tokio::test]
async fn a_folder_goes_though_its_pool_has_another_name_by_now() {
    each(async |mut world: World| {
        for kind in [PoolKind::Slurm, PoolKind::Local] {
            let mut named = config();
            named.pool[0].kind = kind;
            world.die_and_be(named.clone());
            let (id, place) = saved(&world).await;
            named.pool[0].name = Name::new("other").unwrap();
            named.default_pool = Name::new("other").unwrap();
            world.die_and_be(named);
            let (shared, aside) = (world.folder().join("shared"), world.folder().join("aside"));
            std::fs::rename(&shared, &aside).unwrap();
            ok(world.delete(&format!("/jobs/{id}")).await);
            if kind == PoolKind::Slurm {
                world.work("training-folders").await;
                assert_eq!(world.count(NOTES).await, 1, "it may be there");
            }
            std::fs::rename(&aside, &shared).unwrap();
            assert!(std::path::Path::new(&place).exists());
            world.work("training-folders").await;
            assert_eq!(world.count(NOTES).await, 0);
            assert!(!std::path::Path::new(&place).exists(), "{place}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_job_stays_until_its_run_knows_how_it_ended() {
    each(async |mut world: World| {
        let mut keeps = config();
        keeps.keep_ended = Some(HumanDuration::from_mins(60));
        world.die_and_be(keeps);
        let id = ended(&world, json!({})).await;
        let run = world.job(&id).await["run_id"].as_str().unwrap().to_owned();
        let note = format!(
            "INSERT INTO training_inbox (id, kind, job) VALUES ('runs-{id}', 'runs', '{id}')"
        );
        // As it is while the tracking cannot be told.
        world.db.write(move |tx| tx.execute(&note, &[])).await.unwrap();
        assert_eq!(refused(world.delete(&format!("/jobs/{id}")).await).0, 409);
        world.clock.advance(Duration::from_hours(7));
        world.work("training-ended").await;
        world.job(&id).await;
        world.settle().await;
        assert_eq!(world.run_status(&run).await, "FINISHED");
        world.work("training-ended").await;
        assert_eq!(world.get(&format!("/jobs/{id}")).await.0, 404);
        assert_eq!(world.run_status(&run).await, "FINISHED");
    })
    .await;
}

#[tokio::test]
async fn what_was_kept_for_long_enough_goes_by_itself() {
    each(async |mut world: World| {
        let old = ended(&world, json!({})).await;
        world.work("training-ended").await;
        world.job(&old).await;
        let mut keeps = config();
        keeps.keep_ended = Some(HumanDuration::from_mins(60));
        world.die_and_be(keeps);
        world.clock.advance(Duration::from_mins(31));
        let new = ended(&world, json!({})).await;
        let runs = world.submit(json!({})).await;
        world.settle().await;
        world.work("training-ended").await;
        assert_eq!(world.get(&format!("/jobs/{old}")).await.0, 404);
        world.job(&new).await;
        assert_eq!(world.state(&runs).await, "RUNNING");
    })
    .await;
}

#[tokio::test]
async fn a_run_whose_job_never_came_to_be_ends() {
    each(async |world: World| {
        let kept = world.submit(json!({})).await;
        let run = world.job(&kept).await["run_id"].as_str().unwrap().to_owned();
        let lost = world.submit(json!({})).await;
        let orphan = world.job(&lost).await["run_id"].as_str().unwrap().to_owned();
        let forget = |tx: &mut falaj_store::db::Tx<'_>| {
            let sql = "DELETE FROM training_job WHERE id IN
                       (SELECT id FROM training_job ORDER BY id DESC LIMIT 1)";
            tx.execute(sql, &[])
        };
        world.db.write(forget).await.unwrap();
        world.work("training-ended").await;
        assert_eq!(world.run_status(&orphan).await, "SCHEDULED", "it may be on its way");
        world.clock.advance(Duration::from_hours(7));
        world.work("training-ended").await;
        assert_eq!(world.run_status(&orphan).await, "FAILED");
        assert_eq!(world.run_status(&run).await, "SCHEDULED");
    })
    .await;
}
