//! What a sync does not touch: what was deleted or purged here, and what came from elsewhere.

use falaj_testkit::database::each_place;
use http::Method;
use serde_json::{Value, json};

use crate::import::{OTHER, OWN, RUN, batch, denied, made, points, run, seen, send, with};
use crate::world::{World, answer, ok, without};

const MODEL: &str = "m-0123456789abcdef0123456789abcdef";

fn logged_model(more: Value) -> Value {
    let model = json!({
        "id": MODEL, "experiment": "0", "name": "there", "status": 2, "created_at": 5,
        "updated_at": 6, "params": [["n", "1"]],
    });
    with(model, more)
}

fn models(source: &str, more: Value) -> Value {
    json!({ "source": source, "logged_models": [logged_model(more)] })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_purged_stays_away() {
    each_place(async |database| {
        let world = World::new(database).await;
        made(send(&world, "sync/runs", batch("laptop", &[run(RUN)])).await);
        made(send(&world, "sync/logged-models", models("laptop", json!({}))).await);
        ok(world.post(&format!("{OWN}/runs/{RUN}/purge"), json!({ "force": true })).await);
        let path = format!("{OWN}/logged-models/{MODEL}/purge");
        ok(world.post(&path, json!({ "force": true })).await);
        // Whoever follows a store does not know it yet, and another store may hold a copy.
        for source in ["laptop", "copy"] {
            let body = batch(source, &[run(RUN), run(OTHER)]);
            let reply = send(&world, "sync/runs", body).await;
            let gone = |id: &str| json!([{ "id": id, "stage": "gone" }]);
            if source == "laptop" {
                assert_eq!(made(reply), json!({ "count": 1, "left_out": gone(RUN) }));
            } else {
                // The other run is here, from the first source, and the same.
                assert_eq!(made(reply), json!({ "count": 0, "left_out": gone(RUN) }));
            }
            let reply = made(send(&world, "sync/logged-models", models(source, json!({}))).await);
            assert_eq!(reply, json!({ "count": 0, "left_out": gone(MODEL) }));
        }
        assert_eq!(world.get(&format!("/runs/get?run_id={RUN}")).await.0, 404);
        assert_eq!(send(&world, "sync/points", points("laptop", RUN, &[1])).await.0, 404);
        // An operator who imports has decided otherwise.
        made(send(&world, "import/runs", batch("laptop", &[run(RUN)])).await);
        assert_eq!(seen(&world, RUN).await["info"]["lifecycle_stage"], "active");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_added_to_what_is_in_the_bin() {
    each_place(async |database| {
        let world = World::new(database).await;
        ok(world.post("/experiments/create", json!({ "name": "shared" })).await);
        let mine = with(run(RUN), json!({ "experiment": "1" }));
        made(send(&world, "sync/runs", batch("laptop", &[mine.clone(), run(OTHER)])).await);
        made(send(&world, "sync/logged-models", models("laptop", json!({}))).await);
        ok(world.post("/runs/delete", json!({ "run_id": OTHER })).await);
        ok(world.delete(&format!("/logged-models/{MODEL}"), json!({})).await);
        let deleted = |id: &str| json!([{ "id": id, "stage": "deleted" }]);
        let renamed = with(run(OTHER), json!({ "name": "renamed" }));
        let reply = made(send(&world, "sync/runs", batch("laptop", &[renamed])).await);
        assert_eq!(reply, json!({ "count": 0, "left_out": deleted(OTHER) }));
        assert_eq!(seen(&world, OTHER).await["info"]["run_name"], "there");
        let reply = made(send(&world, "sync/points", points("laptop", OTHER, &[1])).await);
        assert_eq!(reply, json!({ "count": 0, "left_out": deleted(OTHER) }));

        let tagged = models("laptop", json!({ "tags": [["t", "1"]] }));
        let reply = made(send(&world, "sync/logged-models", tagged).await);
        assert_eq!(reply, json!({ "count": 0, "left_out": deleted(MODEL) }));

        // Nor to anything of an experiment that is there.
        ok(world.post("/experiments/delete", json!({ "experiment_id": "1" })).await);
        let binned = with(mine.clone(), json!({ "stage": "deleted" }));
        for body in [mine, binned] {
            let (status, said) = send(&world, "sync/runs", batch("laptop", &[body])).await;
            assert_eq!(status, 400, "{said}");
            assert!(said["detail"].as_str().unwrap().contains("'active' state"), "{said}");
        }
        let (status, said) = send(&world, "sync/points", points("laptop", RUN, &[1])).await;
        assert_eq!(status, 400, "{said}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_linked_only_with_runs_of_its_source() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (native, _) = world.run().await;
        ok(world.post("/experiments/create", json!({ "name": "other" })).await);
        let elsewhere = with(run(RUN), json!({ "experiment": "1" }));
        made(send(&world, "sync/runs", batch("laptop", &[elsewhere, run(OTHER)])).await);
        let metric = |run: &str| {
            json!({ "metrics": [{ "key": "k", "value": "1", "timestamp": 1, "step": 1,
                                  "run": run }] })
        };
        for more in
            [json!({ "inputs": [native] }), json!({ "outputs": [[native, 1]] }), metric(&native)]
        {
            let reply = send(&world, "sync/logged-models", models("laptop", more)).await;
            denied(reply, 409, "already-exists", &native);
        }
        // Who may sync there but not log there, adds nothing there.
        let path = format!("{OWN}/sync/logged-models");
        for (forbidden, status) in [("run:write", 404), ("sync:write", 404), ("x:y", 201)] {
            for more in [json!({ "inputs": [RUN] }), json!({ "outputs": [[RUN, 1]] }), metric(RUN)]
            {
                let ctx = without(&[(forbidden, "/1")]);
                let body = models("laptop", more);
                let reply = world.ask(ctx, "default", Method::POST, &path, &body).await;
                assert_eq!(answer(reply).await.0, status, "{forbidden}");
            }
        }
        for forbidden in ["run:write", "sync:write"] {
            let ctx = without(&[(forbidden, "/1")]);
            let body = json!({ "source": "laptop", "runs": [[RUN, "1"]] });
            let path = format!("{OWN}/sync/settled");
            let reply = world.ask(ctx, "default", Method::POST, &path, &body).await;
            assert_eq!(answer(reply).await.0, 404, "{forbidden}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_before_its_origin_was_kept_is_adopted() {
    each_place(async |database| {
        let world = World::new(database).await;
        made(send(&world, "import/runs", batch("old", &[run(RUN)])).await);
        made(send(&world, "import/logged-models", models("old", json!({}))).await);
        world.change("DELETE FROM imported").await;
        let grown = json!({ "status": "FINISHED", "params": [["lr", "0.1"], ["n", "2"]] });
        let grown = with(run(RUN), grown);
        let body = |more: Value| batch("old", &[with(grown.clone(), more)]);
        // Only an operator says so, and only of the same run.
        for (path, body) in [
            ("sync/runs", body(json!({}))),
            ("import/runs", body(json!({ "start_time": 6 }))),
            ("import/runs", body(json!({ "params": [["lr", "0.2"]] }))),
        ] {
            denied(send(&world, path, body).await, 409, "already-exists", RUN);
        }
        assert_eq!(made(send(&world, "import/runs", body(json!({}))).await)["count"], 1);
        made(send(&world, "import/points", points("old", RUN, &[1])).await);
        assert_eq!(seen(&world, RUN).await["info"]["status"], "FINISHED");
        let other = batch("other", &[with(grown.clone(), json!({ "name": "x" }))]);
        denied(send(&world, "import/runs", other).await, 409, "already-exists", RUN);

        let wrong = models("old", json!({ "created_at": 7 }));
        denied(send(&world, "import/logged-models", wrong).await, 409, "already-exists", MODEL);
        let body = models("old", json!({ "tags": [["t", "1"]] }));
        assert_eq!(made(send(&world, "import/logged-models", body).await)["count"], 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_of_an_experiment_are_an_update_of_it() {
    each_place(async |database| {
        let world = World::new(database).await;
        ok(world.post("/experiments/create", json!({ "name": "shared" })).await);
        let path = format!("{OWN}/sync/experiments");
        let body = |tags: Value| {
            let one = json!({ "id": "9", "name": "shared", "created_at": 3, "updated_at": 4,
                              "tags": tags });
            json!({ "source": "laptop", "experiments": [one] })
        };
        for (tags, status) in [(json!([["k", "v"]]), 404), (json!([]), 201)] {
            let ctx = without(&[("experiment:update", "/1")]);
            let reply = world.ask(ctx, "default", Method::POST, &path, &body(tags)).await;
            assert_eq!(answer(reply).await.0, status);
        }
    })
    .await;
}
