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

fn version(number: i64, source: &str) -> Value {
    json!({ "version": number, "source": source, "tags": [["k", "v"]] })
}

fn registered(source: &str, versions: &[Value]) -> Value {
    json!({ "source": source, "name": "m", "description": "d", "versions": versions })
}

/// What became of each version.
async fn register(world: &World, source: &str, versions: &[Value]) -> Vec<String> {
    let reply = made(send(world, "sync/versions", registered(source, versions)).await);
    let all = reply["versions"].as_array().unwrap();
    all.iter().map(|one| one["outcome"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_registered_once_whatever_became_of_it() {
    each_place(async |database| {
        let world = World::new(database).await;
        let all = [version(1, "s3://b/x"), version(2, ""), version(3, "s3://b/y")];
        assert_eq!(register(&world, "laptop", &all).await, ["registered", "refused", "registered"]);
        assert_eq!(register(&world, "laptop", &all).await, ["known", "refused", "known"]);
        // Another store has versions of its own.
        assert_eq!(register(&world, "other", &all[..1]).await, ["registered"]);
        let count = async || world.count("SELECT COUNT(*) AS n FROM model_version").await;
        assert_eq!(count().await, 3);

        // A bad version was deleted, and the tag of another taken away.
        ok(world.delete("/model-versions/delete", json!({ "name": "m", "version": "1" })).await);
        let tag = json!({ "name": "m", "version": "2", "key": "falaj.synced" });
        ok(world.delete("/model-versions/delete-tag", tag).await);
        assert_eq!(register(&world, "laptop", &all).await, ["known", "refused", "known"]);
        // It has another name now: what is new goes there.
        let renamed = json!({ "name": "m", "new_name": "n" });
        ok(world.post("/registered-models/rename", renamed).await);
        let more = [version(1, "s3://b/x"), version(4, "s3://b/z")];
        assert_eq!(register(&world, "laptop", &more).await, ["known", "registered"]);
        ok(world.get("/model-versions/get?name=n&version=4").await);
        assert_eq!(world.get("/registered-models/get?name=m").await.0, 404);
        // It is gone, and stays so.
        ok(world.delete("/registered-models/delete", json!({ "name": "n" })).await);
        assert_eq!(register(&world, "laptop", &more).await, ["left_out", "left_out"]);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM registered_model").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_syncs_at_once_register_a_version_once() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("m").await;
        let all: Vec<Value> = (1..=5).map(|n| version(n, "s3://b/x")).collect();
        let (one, two) =
            tokio::join!(register(&world, "laptop", &all), register(&world, "laptop", &all));
        let new = one.iter().chain(&two).filter(|outcome| *outcome == "registered").count();
        assert_eq!(new, 5, "{one:?} {two:?}");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM model_version").await, 5);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_from_before_it_was_remembered_are_known_by_their_tag() {
    each_place(async |database| {
        let world = World::new(database).await;
        world.model("m").await;
        let tags = json!([{ "key": "falaj.synced", "value": "laptop 1" }]);
        let old = json!({ "name": "m", "source": "s3://b/x", "tags": tags });
        ok(world.post("/model-versions/create", old).await);
        let all = [version(1, "s3://b/x"), version(2, "s3://b/x")];
        assert_eq!(register(&world, "laptop", &all).await, ["known", "registered"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_a_model_learns_nothing_of_it() {
    each_place(async |database| {
        let world = World::new(database).await;
        register(&world, "laptop", &[version(1, "s3://b/x")]).await;
        let path = format!("{OWN}/sync/versions");
        let body = registered("laptop", &[version(1, "s3://b/x")]);
        let ctx = without(&[("model:write", "/m")]);
        let reply = world.ask(ctx, "default", Method::POST, &path, &body).await;
        assert_eq!(answer(reply).await.0, 404);
        for (more, field) in [
            (json!({ "source": "" }), "source"),
            (json!({ "name": "" }), "name"),
            (json!({ "versions": [version(0, "s3://b/x")] }), "versions.version"),
        ] {
            let (status, said) = send(&world, "sync/versions", with(body.clone(), more)).await;
            assert_eq!((status, &said["field"]), (400, &json!(field)), "{said}");
        }
    })
    .await;
}
