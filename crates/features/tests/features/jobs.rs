//! Bringing views into the online store, as jobs.

use falaj_base::Ctx;
use http::Method;
use serde_json::{Value, json};

use super::online::{feast, online};
use super::training::{Lake, Row, STATS, moment};
use super::world::{World, answer, each_with, ok};

/// The second that the tests' clock stands at.
const NOW: i64 = 1_777_636_800;

async fn trips(world: &World, view: &str, driver: i64) -> Value {
    let ids = json!({ "driver_id": [driver] });
    online(world, json!([format!("{view}:trips")]), ids).await["values"][0][0].clone()
}

async fn ask(world: &World, body: Value) -> Value {
    let (status, job) = world.post("/materialize", body).await;
    assert_eq!(status, 202, "{job}");
    assert_eq!(job["state"], "waiting", "{job}");
    job
}

async fn see(world: &World, job: &Value) -> Value {
    ok(world.get(&format!("/materialize/{}", job["id"].as_str().unwrap())).await)
}

#[tokio::test]
async fn a_file_written_anew_replaces_what_was_brought() {
    let first: &[Row] = &[(1, NOW - 5, NOW - 5, Some(1)), (2, NOW - 5, NOW - 5, Some(2))];
    let again: &[Row] = &[(2, NOW - 5, NOW - 5, Some(20)), (1, NOW - 5, NOW - 5, Some(10))];
    let lake = Lake::new(&[("stats.parquet", first)]);
    each_with(lake.config(), async |world: World| {
        lake.rewrite("stats.parquet", first);
        world.apply(STATS).await;
        let all = json!({ "feature_views": ["stats", "pushed"], "disable_event_timestamp": true });
        ok(feast(&world, "/materialize", all.clone()).await);
        assert_eq!(trips(&world, "stats", 1).await, 1);
        lake.rewrite("stats.parquet", again);
        ok(feast(&world, "/materialize", all.clone()).await);
        assert_eq!(trips(&world, "stats", 1).await, 10);
        assert_eq!(trips(&world, "stats", 2).await, 20);
        // Of one event that became known at one time, what was pushed stays, as it does offline.
        let columns = json!({ "driver_id": [1], "trips": [30], "rate": [0.5],
            "event_timestamp": [moment(NOW)] });
        ok(world.post("/push", json!({ "view": "pushed", "columns": columns })).await);
        lake.rewrite("stats.parquet", &[(1, NOW, NOW, Some(40))]);
        ok(feast(&world, "/materialize", all).await);
        assert_eq!(trips(&world, "stats", 1).await, 40);
        assert_eq!(trips(&world, "pushed", 1).await, 30);
    })
    .await;
}

#[tokio::test]
async fn a_job_is_answered_at_once_and_run_when_its_turn_comes() {
    let rows: &[Row] = &[(1, NOW - 5, NOW - 5, Some(1)), (2, NOW - 4, NOW - 4, Some(2))];
    let lake = Lake::new(&[("stats-1.parquet", rows), ("stats-2.parquet", &rows[..1])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let job = ask(&world, json!({ "views": ["stats", "pushed"] })).await;
        assert_eq!(trips(&world, "stats", 1).await, Value::Null, "nothing was brought yet");
        // Neither again, nor by Feast's way, while it waits.
        let (status, problem) = world.post("/materialize", json!({ "views": ["stats"] })).await;
        assert_eq!((status, &problem["code"]), (409, &json!("conflict")), "{problem}");
        let feasts = json!({ "feature_views": ["pushed"], "disable_event_timestamp": true });
        assert_eq!(feast(&world, "/materialize", feasts).await.0, 409);
        assert_eq!(world.features.run_jobs().await.unwrap(), 1);
        let done = see(&world, &job).await;
        assert_eq!(done["state"], "done", "{done}");
        let view = &done["views"][0];
        for (field, value) in [("rows", 3), ("read", 3), ("total", 3), ("file", 2), ("files", 2)] {
            assert_eq!(view[field], value, "{field} of {view}");
        }
        assert_eq!((&view["view"], &view["state"]), (&json!("stats"), &json!("done")));
        assert_eq!(trips(&world, "stats", 2).await, 2);
        assert_eq!(trips(&world, "pushed", 2).await, 2);
        let listed = ok(world.get("/materialize").await);
        assert_eq!(listed["items"][0]["id"], job["id"]);
        let events = world.events().await;
        let told = |kind: &str| events.iter().filter(|it| *it == kind).count();
        assert_eq!(told("falaj.feature.materialize-requested"), 2);
        assert_eq!(told("falaj.feature.materialized"), 2);
        // On from there: nothing is left to bring.
        world.clock.advance(std::time::Duration::from_secs(1));
        let next = ask(&world, json!({ "views": ["stats"] })).await;
        world.features.run_jobs().await.unwrap();
        assert_eq!(see(&world, &next).await["views"][0]["rows"], 0);
        let whole = ask(&world, json!({ "views": ["stats"], "everything": true })).await;
        world.features.run_jobs().await.unwrap();
        assert_eq!(see(&world, &whole).await["views"][0]["rows"], 3);
    })
    .await;
}

#[tokio::test]
async fn feasts_routes_answer_at_once_if_they_are_asked_to() {
    let lake = Lake::new(&[("stats.parquet", &[(1, NOW - 5, NOW - 5, Some(1))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        for (path, body) in [
            (
                "/materialize?async=true",
                json!({ "feature_views": ["stats"], "start_ts": moment(NOW - 9),
                    "end_ts": moment(NOW) }),
            ),
            (
                "/materialize-incremental?async=true",
                json!({ "feature_views": ["stats"], "end_ts": moment(NOW) }),
            ),
        ] {
            let (status, job) = feast(&world, path, body).await;
            assert_eq!((status, &job["state"]), (202, &json!("waiting")), "{job}");
            world.features.run_jobs().await.unwrap();
            assert_eq!(see(&world, &job).await["state"], "done");
        }
        assert_eq!(trips(&world, "stats", 1).await, 1);
        assert_eq!(feast(&world, "/materialize?async=soon", json!({})).await.0, 400);
    })
    .await;
}

#[tokio::test]
async fn one_view_that_cannot_be_brought_does_not_stop_the_others() {
    let lake = Lake::new(&[("stats.parquet", &[(1, NOW - 5, NOW - 5, Some(1))])]);
    let more = "[[source]]\nname = \"none\"\nkind = \"parquet\"\npath = \"lake/none.parquet\"\n\
        [[view]]\nname = \"absent\"\nentities = [\"driver\"]\nsource = \"none\"\n\
        schema = [{ name = \"trips\", type = \"int64\" }]\n";
    each_with(lake.config(), async |world: World| {
        world.apply(&format!("{STATS}\n{more}")).await;
        let job = ask(&world, json!({})).await;
        world.features.run_jobs().await.unwrap();
        let done = see(&world, &job).await;
        assert_eq!(done["state"], "failed", "{done}");
        assert!(done["error"].as_str().unwrap().contains("view absent"), "{done}");
        let states: Vec<_> =
            done["views"].as_array().unwrap().iter().map(|view| &view["state"]).collect();
        assert_eq!(states, ["failed", "done", "done"], "{done}");
        assert_eq!(trips(&world, "stats", 1).await, 1);
        assert!(world.events().await.contains(&"falaj.feature.materialize-failed".to_owned()));
        // The view is free again.
        ask(&world, json!({ "views": ["absent"] })).await;
    })
    .await;
}

#[tokio::test]
async fn a_job_goes_on_behind_the_rows_that_were_put_down() {
    let rows: Vec<Row> = (0..10).map(|id| (id, NOW - 5, NOW - 5, Some(id))).collect();
    let lake = Lake::new(&[("stats-1.parquet", &rows[..6]), ("stats-2.parquet", &rows[6..])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let all = json!({ "views": ["stats"], "everything": true });
        ask(&world, all.clone()).await;
        world.features.run_jobs().await.unwrap();
        // Another one whose server died after seven rows: one of the second file.
        let job = ask(&world, all.clone()).await;
        world
            .execute(
                "UPDATE feature_job_view SET seen = 7, rows = 7, plan = (SELECT MIN(plan)
                 FROM feature_job_view WHERE plan IS NOT NULL) WHERE state = 'waiting'",
            )
            .await;
        world
            .execute(
                "UPDATE feature_job SET state = 'running', runner = 'dead', not_before = 1
                 WHERE state = 'waiting'",
            )
            .await;
        world.features.run_jobs().await.unwrap();
        let done = see(&world, &job).await;
        let view = &done["views"][0];
        assert_eq!((&done["state"], &view["read"]), (&json!("done"), &json!(10)), "{done}");
        assert_eq!(view["rows"], 10);
        assert_eq!(view["placed"], 3, "only those that were left");
        // Over other files it begins anew.
        let job = ask(&world, all).await;
        world
            .execute("UPDATE feature_job_view SET seen = 7, rows = 7, plan = 'other' WHERE state = 'waiting'")
            .await;
        world.features.run_jobs().await.unwrap();
        assert_eq!(see(&world, &job).await["views"][0]["placed"], 10);
    })
    .await;
}

#[tokio::test]
async fn how_far_views_were_brought_is_told_of_each_store() {
    let lake = Lake::new(&[("stats.parquet", &[(1, NOW - 5, NOW - 5, Some(1))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let more = json!({ "feature_views": ["stats"], "end_ts": moment(NOW) });
        ok(feast(&world, "/materialize-incremental", more.clone()).await);
        let folder = tempfile::tempdir().unwrap();
        let other = world.server(world.features.config().clone(), folder.path());
        let brought = ok(feast(&other, "/materialize-incremental", more).await);
        assert_eq!(brought["rows"], json!({ "stats": 1 }), "its own store had nothing yet");
        assert_eq!(trips(&other, "stats", 1).await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_job_can_be_called_off_by_those_who_may() {
    let lake = Lake::new(&[("stats.parquet", &[(1, NOW - 5, NOW - 5, Some(1))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let job = ask(&world, json!({ "views": ["stats"] })).await;
        let path = format!("/materialize/{}", job["id"].as_str().unwrap());
        let cancel = format!("{path}/cancel");
        let unseen = [("feature:read", "/view/stats")];
        let (status, refused) = world.behind(&unseen, Method::GET, &path, Value::Null).await;
        let absent = format!("/materialize/fmat_{}", "0".repeat(32));
        let (_, missing) = world.get(&absent).await;
        assert_eq!(status, 404);
        let text = |problem: &Value| {
            let text = problem["detail"].as_str().unwrap();
            text.split('"').next().unwrap().to_owned()
        };
        assert_eq!(text(&refused), text(&missing), "not yours reads like not there");
        assert_eq!(world.behind(&unseen, Method::POST, &cancel, json!({})).await.0, 404);
        let read_only = [("feature:write", "/view/stats")];
        assert_eq!(world.behind(&read_only, Method::POST, &cancel, json!({})).await.0, 404);
        world.make_project("elsewhere").await;
        let ctx = Ctx::system("tester");
        let other = world.ask(ctx, "elsewhere", Method::GET, &path, &Value::Null).await;
        assert_eq!(answer(other).await.0, 404);
        assert_eq!(ok(world.post(&cancel, json!({})).await)["state"], "cancelled");
        assert_eq!(world.post(&cancel, json!({})).await.0, 400);
        assert_eq!(world.features.run_jobs().await.unwrap(), 0);
        assert_eq!(trips(&world, "stats", 1).await, Value::Null);
        assert!(world.events().await.contains(&"falaj.feature.materialize-cancelled".to_owned()));
        ask(&world, json!({ "views": ["stats"] })).await;
    })
    .await;
}

#[tokio::test]
async fn bad_questions_are_refused_by_field() {
    let lake = Lake::new(&[("stats.parquet", &[(1, NOW, NOW, Some(1))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        for (body, status, field) in [
            (json!({ "views": ["nothing"] }), 404, Value::Null),
            (json!({ "views": [] }), 400, json!("feature_views")),
            (json!({ "from": moment(NOW), "to": moment(NOW - 1) }), 400, json!("from")),
            (json!({ "from": "soon" }), 400, json!("from")),
            (json!({ "everything": true, "to": moment(NOW) }), 400, json!("everything")),
            (json!({ "what": 1 }), 400, json!("what")),
        ] {
            let (found, problem) = world.post("/materialize", body.clone()).await;
            assert_eq!((found, &problem["field"]), (status, &field), "{body}: {problem}");
        }
        let (status, problem) = world.get("/materialize?page_token=x").await;
        assert_eq!((status, &problem["field"]), (400, &json!("page_token")), "{problem}");
    })
    .await;
}
