//! What jobs report and save, and what is refused before anything runs.

use std::time::Duration;

use falaj_executors::End;
use serde_json::{Value, json};

use super::world::{World, definition, each, ok, refused};

fn saved(rank: u32, step: i64, path: &str) -> Value {
    json!({ "attempt": 1, "rank": rank, "checkpoint": { "step": step, "path": path } })
}

#[tokio::test]
async fn a_checkpoint_lies_in_the_folder_of_its_job() {
    each(async |world: World| {
        let (id, without) =
            (world.submit(json!({ "checkpoint": {} })).await, world.submit(json!({})).await);
        world.settle().await;
        let place = world.engine.env(&format!("{id}-0-1"))["CHECKPOINT_DIR"].clone();
        assert!(place.ends_with(&format!("/shared/.checkpoints/{id}/0")), "{place}");
        let other = format!("{place}/../1/x");
        for path in ["/etc", "x", &place, &other, &format!("{place}x")] {
            let answer = world.post(&format!("/jobs/{id}/report"), saved(0, 1, path)).await;
            let (status, field, words) = refused(answer);
            assert_eq!((status, field.as_str()), (400, "checkpoint.path"), "{path}: {words}");
        }
        let path = format!("{place}/x");
        let answer = world.post(&format!("/jobs/{without}/report"), saved(0, 1, &path)).await;
        assert_eq!(refused(answer).1, "checkpoint");
        let far = world.post(&format!("/jobs/{id}/report"), saved(0, i64::MAX, &path)).await;
        assert_eq!(refused(far).1, "checkpoint.step");
        let good = ok(world.post(&format!("/jobs/{id}/report"), saved(0, 1, &path)).await);
        assert_eq!(good["whole"], true);
    })
    .await;
}

#[tokio::test]
async fn reports_are_bounded_and_go_with_their_job() {
    each(async |world: World| {
        let id = world
            .submit(json!({ "checkpoint": {}, "resources": { "cpu": 4.0, "ranks_per_node": 2 } }))
            .await;
        world.settle().await;
        let place = world.engine.env(&format!("{id}-0-1"))["CHECKPOINT_DIR"].clone();
        let report = format!("/jobs/{id}/report");
        // Whoever has nothing to say says that it lives.
        ok(world.post(&report, json!({ "attempt": 1, "rank": 1 })).await);
        for step in 0..16 {
            ok(world.post(&report, saved(0, step, &format!("{place}/{step}"))).await);
        }
        let path = format!("{place}/x");
        let (status, field, _) = refused(world.post(&report, saved(0, 99, &path)).await);
        assert_eq!((status, field.as_str()), (409, "checkpoint.step"));
        for step in 0..3 {
            ok(world.post(&report, saved(1, step, &format!("{place}/{step}"))).await);
        }
        // As pages, without the names of all files.
        let all = format!("/jobs/{id}/checkpoints");
        let first = ok(world.get(&format!("{all}?page_size=2")).await);
        let steps = |page: &Value| -> Vec<i64> {
            let items = page["items"].as_array().unwrap();
            items.iter().map(|it| it["step"].as_i64().unwrap()).collect()
        };
        assert_eq!(steps(&first), [2, 1]);
        assert_eq!(
            (&first["items"][0]["ranks"], &first["items"][0]["manifest"]),
            (&json!(2), &Value::Null)
        );
        let token = first["next_page_token"].as_str().unwrap();
        let rest = ok(world.get(&format!("{all}?page_size=2&page_token={token}")).await);
        assert_eq!((steps(&rest), &rest["next_page_token"]), (vec![0], &Value::Null));
        assert_eq!(refused(world.get(&format!("{all}?page_token=x")).await).1, "page_token");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_part").await, 13);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_progress").await, 2);
        world.engine.end(&format!("{id}-0-1"), End::Succeeded);
        world.settle().await;
        assert_eq!(world.state(&id).await, "SUCCEEDED");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_part").await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_progress").await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_checkpoint").await, 3);
    })
    .await;
}

#[tokio::test]
async fn a_rank_that_says_it_lives_does_not_hang() {
    each(async |world: World| {
        let id = world.submit(json!({ "checkpoint": {} })).await;
        world.settle().await;
        let place = world.engine.env(&format!("{id}-0-1"))["CHECKPOINT_DIR"].clone();
        let report = format!("/jobs/{id}/report");
        for step in 1..4 {
            ok(world.post(&report, json!({ "attempt": 1, "step": step })).await);
            world.clock.advance(Duration::from_secs(1));
            world.settle().await;
        }
        // A long save or validation: nothing but signs of life, each of another kind.
        for sign in [
            json!({ "attempt": 1 }),
            json!({ "attempt": 1, "step": 3 }),
            saved(0, 3, &format!("{place}/x")),
        ] {
            world.clock.advance(Duration::from_secs(100));
            ok(world.post(&report, sign).await);
            world.settle().await;
            assert_eq!(world.starts(&id).await.len(), 1);
        }
        world.clock.advance(Duration::from_secs(130));
        world.settle().await;
        let starts = world.starts(&id).await;
        assert_eq!(starts[0]["end"], "its ranks made no progress", "{starts:?}");
    })
    .await;
}

#[tokio::test]
async fn what_no_executor_could_start_is_refused() {
    each(async |world: World| {
        for (change, field) in [
            (json!({ "image": "registry/x" }), "image"),
            (json!({ "resources": { "mig": "1g" } }), "resources.mig"),
            (
                json!({ "resources": { "nodes": 2, "max_nodes": 5, "ranks_per_node": 256 } }),
                "resources.ranks_per_node",
            ),
            (json!({ "command": ["x".repeat(70_000)] }), "definition"),
        ] {
            let (status, found, words) = refused(world.post("/jobs", definition(change)).await);
            assert_eq!((status, found.as_str()), (400, field), "{words}");
        }
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM training_job").await, 0);
    })
    .await;
}

#[tokio::test]
async fn lists_leave_out_what_is_large() {
    each(async |world: World| {
        let id = world.submit(json!({ "env": { "A": "x" } })).await;
        assert_eq!(world.job(&id).await["definition"]["env"]["A"], "x");
        let listed = ok(world.get("/jobs").await);
        assert_eq!(listed["items"][0]["id"], id.as_str());
        assert_eq!(listed["items"][0]["definition"]["env"], Value::Null);
    })
    .await;
}

#[tokio::test]
async fn nothing_is_billed_that_has_not_happened() {
    each(async |world: World| {
        let id = world.submit(json!({})).await;
        world.settle().await;
        world.clock.advance(Duration::from_hours(1));
        let cost = async |query: &str| {
            let lines = ok(world.get(&format!("/costs?by=job{query}")).await);
            lines["items"]
                .as_array()
                .unwrap()
                .first()
                .map_or(0.0, |it| it["cost"].as_f64().unwrap())
        };
        let near = |cost: f64| (4.0..4.01).contains(&cost);
        assert_eq!(world.state(&id).await, "RUNNING");
        let (now, later) = (cost("").await, cost("&to=2099-01-01T00:00:00Z").await);
        assert!(near(now) && near(later), "{now} {later}");
        let ahead = cost("&from=2098-01-01T00:00:00Z&to=2099-01-01T00:00:00Z").await;
        assert!(ahead.abs() < f64::EPSILON, "{ahead}");
    })
    .await;
}

#[tokio::test]
async fn reports_are_so_many_in_a_second_and_audited_by_it() {
    each(async |mut world: World| {
        let mut few = super::world::config();
        few.max_reports = 3;
        world.die_and_be(few);
        let id = world.submit(json!({})).await;
        world.settle().await;
        let report = format!("/jobs/{id}/report");
        let step = async |step: i64| {
            world.post(&report, json!({ "attempt": 1, "rank": 0, "step": step })).await
        };
        world.clock.advance(Duration::from_secs(1));
        for at in 0..3 {
            ok(step(at).await);
        }
        let (status, _, words) = refused(step(3).await);
        assert_eq!(status, 429, "{words}");
        assert!(words.contains("at most 3 times"), "{words}");
        world.clock.advance(Duration::from_secs(1));
        ok(step(4).await);
        let entries = "SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE '%job:report%'";
        assert_eq!(
            world.count(entries).await,
            2,
            "the first of each second, and the rest is counted"
        );
        assert_eq!(world.count("SELECT step AS n FROM training_progress").await, 4);
    })
    .await;
}
