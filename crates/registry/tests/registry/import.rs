//! What an import and a sync may bring, and what they leave alone.

use falaj_testkit::database::each_place;
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, answer, ok, without};

pub(super) const OWN: &str = "/v1/tenants/default/projects/default";
pub(super) const RUN: &str = "0123456789abcdef0123456789abcdef";
pub(super) const OTHER: &str = "1123456789abcdef0123456789abcdef";

pub(super) async fn send(world: &World, path: &str, body: Value) -> Answer {
    world.post(&format!("{OWN}/{path}"), body).await
}

pub(super) fn made((status, body): Answer) -> Value {
    assert_eq!(status, 201, "{body}");
    body
}

/// Asserts a refusal of our own API: its status, its code, and a piece of what it says.
pub(super) fn denied((status, body): Answer, expected: u16, code: &str, text: &str) {
    assert_eq!((status, body["code"].as_str()), (expected, Some(code)), "{body}");
    assert!(body["detail"].as_str().unwrap().contains(text), "{body}");
}

pub(super) fn run(id: &str) -> Value {
    json!({
        "id": id, "experiment": "0", "name": "there", "user_id": "u", "status": "RUNNING",
        "start_time": 5, "params": [["lr", "0.1"]], "tags": [["t", "1"]],
    })
}

pub(super) fn with(mut value: Value, more: Value) -> Value {
    for (key, item) in more.as_object().unwrap() {
        value[key] = item.clone();
    }
    value
}

pub(super) fn batch(source: &str, runs: &[Value]) -> Value {
    json!({ "source": source, "runs": runs })
}

/// One point: timestamp, step and value as packed numbers.
pub(super) fn points(source: &str, run: &str, steps: &[i64]) -> Value {
    use base64::Engine as _;
    let mut bytes = Vec::new();
    for step in steps {
        bytes.extend(step.to_le_bytes());
        bytes.extend(step.to_le_bytes());
        bytes.extend(0.5_f64.to_le_bytes());
    }
    let packed = base64::engine::general_purpose::STANDARD.encode(bytes);
    json!({ "source": source, "series": [{ "run": run, "key": "m", "points": packed }] })
}

pub(super) async fn seen(world: &World, run: &str) -> Value {
    ok(world.get(&format!("/runs/get?run_id={run}")).await)["run"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_here_from_elsewhere_is_left_alone() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (native, uri) = world.run().await;
        for way in ["import", "sync"] {
            let path = format!("{way}/runs");
            let theirs = batch("old", &[run(&native)]);
            denied(send(&world, &path, theirs).await, 409, "already-exists", &native);
            let more = points("old", &native, &[1]);
            denied(
                send(&world, &format!("{way}/points"), more).await,
                409,
                "already-exists",
                &native,
            );
            let file = uri.trim_start_matches("mlflow-artifacts:/");
            let path = format!("{OWN}/{way}/artifacts/{file}/x.txt?source=old");
            denied(
                world.send_as("PUT", &path, json!("bytes")).await,
                409,
                "already-exists",
                "x.txt",
            );
        }
        // The same is no difference, and nothing is written.
        let info = seen(&world, &native).await["info"].take();
        let tags = seen(&world, &native).await["data"]["tags"].take();
        let tags: Vec<Value> = tags
            .as_array()
            .into_iter()
            .flatten()
            .map(|tag| json!([tag["key"], tag["value"]]))
            .collect();
        let same = json!({
            "id": native, "experiment": "0", "name": info["run_name"], "user_id": info["user_id"],
            "status": "RUNNING", "start_time": info["start_time"], "tags": tags,
        });
        let reply =
            made(send(&world, "import/runs", batch("old", std::slice::from_ref(&same))).await);
        assert_eq!(reply["count"], 0, "{reply}");

        // What came is extended by its own source, and by no other.
        made(send(&world, "import/runs", batch("old", &[run(RUN)])).await);
        made(send(&world, "import/points", points("old", RUN, &[1, 2])).await);
        let grown = with(
            run(RUN),
            json!({ "status": "FINISHED", "end_time": 9, "params": [["lr", "0.1"], ["n", "2"]],
                    "tags": [["t", "2"]] }),
        );
        let other = batch("other", std::slice::from_ref(&grown));
        denied(send(&world, "import/runs", other).await, 409, "already-exists", RUN);
        denied(
            send(&world, "sync/points", points("other", RUN, &[9])).await,
            409,
            "already-exists",
            RUN,
        );
        for _ in 0..2 {
            made(send(&world, "import/runs", batch("old", std::slice::from_ref(&grown))).await);
            made(send(&world, "sync/points", points("old", RUN, &[1, 2, 3])).await);
        }
        let there = seen(&world, RUN).await;
        assert_eq!(there["info"]["status"], "FINISHED");
        assert_eq!(there["data"]["params"].as_array().unwrap().len(), 2, "{there}");
        assert_eq!(there["data"]["tags"], json!([{ "key": "t", "value": "2" }]), "{there}");
        let path = format!("/metrics/get-history?run_id={RUN}&metric_key=m");
        assert_eq!(ok(world.get(&path).await)["metrics"].as_array().unwrap().len(), 3);

        // The audit log names each of them.
        let audit = world.audit().await;
        let named =
            |entry: &&Value| entry["action"] == "import:write" && entry["details"]["ids"] == RUN;
        let entry = audit.iter().find(named).expect("the run is named");
        assert_eq!(entry["details"]["source"], "old", "{entry}");
        assert!(world.events().await.iter().any(|kind| kind.ends_with("run.imported")));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_writes_only_that_it_was_asked() {
    each_place(async |database| {
        let world = World::new(database).await;
        let experiment = json!({ "id": "5", "name": "e", "created_at": 5, "updated_at": 6 });
        let default = json!({ "id": "0", "name": "Default", "created_at": 1, "updated_at": 1 });
        let body =
            json!({ "source": "old", "experiments": [default, experiment], "dry_run": true });
        let reply = made(send(&world, "import/experiments", body).await);
        assert_eq!(reply["experiments"][0]["created"], false, "{reply}");
        assert_eq!(
            reply["experiments"][1],
            json!({
                "source": "5", "id": "5", "created": true, "stage": "active",
            })
        );
        let models = json!({ "dry_run": true, "models": [model(json!([]), json!([]))] });
        let reply = made(send(&world, "import/models", models).await);
        assert_eq!(reply["models"][0]["created"], true, "{reply}");
        for (table, sql) in [
            ("experiment", "SELECT COUNT(*) AS n FROM experiment"),
            ("model", "SELECT COUNT(*) AS n FROM registered_model"),
            ("event", "SELECT COUNT(*) AS n FROM event WHERE kind LIKE '%experiment%'"),
        ] {
            assert_eq!(world.count(sql).await, 0, "{table}");
        }
        let audit = world.audit().await;
        let asked = audit.iter().filter(|entry| entry["details"]["dry_run"].is_string()).count();
        assert_eq!(asked, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_there_becomes_garbage_here() {
    each_place(async |database| {
        let world = World::new(database).await;
        let deleted = with(run(RUN), json!({ "stage": "deleted" }));
        made(send(&world, "import/runs", batch("old", &[deleted])).await);
        let gone = json!({ "id": "5", "name": "gone", "stage": "deleted", "created_at": 0, "updated_at": 0 });
        made(send(&world, "import/experiments", json!({ "source": "old", "experiments": [gone] })).await);
        // What is in the bin takes nothing that is not.
        let active = with(run(OTHER), json!({ "experiment": "5" }));
        let (status, body) = send(&world, "import/runs", batch("old", std::slice::from_ref(&active))).await;
        assert_eq!(status, 400, "{body}");
        assert!(body["detail"].as_str().unwrap().contains("'active' state"), "{body}");
        let deleted = with(active, json!({ "stage": "deleted", "deleted_at": 7 }));
        made(send(&world, "import/runs", batch("old", &[deleted])).await);

        // From now on it is as old as its stay here.
        let gc = |days: i64| json!({ "older_than_days": days });
        let kept = ok(world.post(&format!("{OWN}/gc"), gc(1)).await);
        assert_eq!((&kept["experiments"], &kept["runs"]), (&json!(0), &json!(1)), "{kept}");
        world.wait(2 * 86_400);
        let purged = ok(world.post(&format!("{OWN}/gc"), gc(1)).await);
        assert_eq!((&purged["experiments"], &purged["runs"]), (&json!(1), &json!(1)), "{purged}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_joins_and_never_undoes() {
    each_place(async |database| {
        let world = World::new(database).await;
        ok(world.post("/experiments/create", json!({ "name": "shared" })).await);
        let theirs = json!({ "id": "9", "name": "shared", "created_at": 3, "updated_at": 4,
                             "tags": [["k", "v"]] });
        let body = json!({ "source": "laptop", "experiments": [theirs] });
        denied(
            send(&world, "import/experiments", body.clone()).await,
            409,
            "already-exists",
            "shared",
        );
        let landed = made(send(&world, "sync/experiments", body).await);
        assert_eq!(landed["experiments"][0]["id"], "1", "{landed}");
        let there = ok(world.get("/experiments/get?experiment_id=1").await)["experiment"].take();
        assert_ne!(there["creation_time"], 3, "{there}");
        assert_eq!(there["tags"], json!([{ "key": "k", "value": "v" }]));

        // How far something has come is told to whoever asks, until it is gone.
        let marks = async || {
            let body = json!({ "source": "laptop" });
            ok(send(&world, "import/marks", body).await)["marks"].take()
        };
        let mine = with(run(RUN), json!({ "experiment": "1" }));
        made(send(&world, "sync/runs", batch("laptop", std::slice::from_ref(&mine))).await);
        assert_eq!(marks().await, json!([{ "id": RUN, "stage": "active" }]));
        let settled = json!({ "source": "laptop", "runs": [[RUN, "3-a"]] });
        assert_eq!(made(send(&world, "sync/settled", settled.clone()).await)["count"], 1);
        assert_eq!(marks().await, json!([{ "id": RUN, "mark": "3-a", "stage": "active" }]));
        ok(world.post("/runs/delete", json!({ "run_id": RUN })).await);
        assert_eq!(marks().await[0]["stage"], "deleted");
        // Deleted here stays deleted here, whatever the store says.
        made(send(&world, "sync/runs", batch("laptop", std::slice::from_ref(&mine))).await);
        assert_eq!(seen(&world, RUN).await["info"]["lifecycle_stage"], "deleted");
        ok(world.post(&format!("{OWN}/runs/{RUN}/purge"), json!({ "force": true })).await);
        assert_eq!(marks().await[0]["stage"], "gone");

        // It is logging by another way: who may not log may not sync.
        for forbidden in [("run:write", "/1"), ("sync:write", "/1")] {
            let ctx = without(&[forbidden]);
            let path = format!("{OWN}/sync/runs");
            let body = batch("laptop", std::slice::from_ref(&mine));
            let reply = world.ask(ctx, "default", Method::POST, &path, &body).await;
            assert_eq!(answer(reply).await.0, 404, "{forbidden:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_reads_no_more_than_it_may() {
    each_place(async |database| {
        let world = World::new(database).await;
        let ids: Vec<String> =
            (0..6).map(|n| format!("{n}123456789abcdef0123456789abcdef")).collect();
        let runs: Vec<Value> = ids.iter().map(|id| run(id)).collect();
        made(send(&world, "import/runs", batch("old", &runs)).await);
        let steps: Vec<i64> = (0..500).collect();
        for id in &ids {
            made(send(&world, "import/points", points("old", id, &steps)).await);
        }
        // A page is what fits: the rest is named and asked for again.
        let mut asked = json!({ "runs": ids, "series": true });
        let (mut found, mut pages) = (0, 0);
        loop {
            let mut here = ok(send(&world, "import/check", asked).await);
            let runs = here["runs"].as_array().unwrap();
            assert!(!runs.is_empty() && runs.len() < 6, "{here}");
            for one in runs {
                assert_eq!(one["series"][0][0], "m");
                assert_eq!(one["series"][0][1], one["points"]);
            }
            (found, pages) = (found + runs.len(), pages + 1);
            asked = here["left"].take();
            if asked["runs"].as_array().unwrap().is_empty() {
                break;
            }
        }
        assert!(found == 6 && pages > 1, "{found} in {pages}");
    })
    .await;
}

fn model(versions: Value, aliases: Value) -> Value {
    json!({ "name": "m", "created_at": 1, "updated_at": 2, "last_version": 3, "versions": versions,
            "aliases": aliases })
}

fn version(number: i64, location: &str, stage: &str) -> Value {
    json!({ "version": number, "stage": stage, "source": location, "location": location,
            "created_at": 1, "updated_at": 2 })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_gets_what_a_registration_gives() {
    each_place(async |database| {
        let world = World::new(database).await;
        let (run, uri) = world.run().await;
        world.upload(&uri, &[("model/MLmodel", "flavors: {}")]).await;
        let place = format!("{uri}/model");
        let versions = json!([
            with(version(1, &place, "Production"), json!({ "run_id": run })),
            version(2, "s3://bucket/x", "None"),
        ]);
        let body = json!({ "models": [model(versions, json!([["champion", 1], ["other", 2]]))] });
        // Who may not read the files may not register them, by whichever way.
        let ctx = without(&[("run:read", "/0")]);
        let reply =
            world.ask(ctx, "default", Method::POST, &format!("{OWN}/import/models"), &body).await;
        assert_eq!(answer(reply).await.0, 404);
        let nowhere = version(1, &format!("mlflow-artifacts:/0/{RUN}/artifacts"), "None");
        let absent = json!({ "models": [model(json!([nowhere]), json!([]))] });
        assert_eq!(send(&world, "import/models", absent).await.0, 404);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM registered_model").await, 0);

        for _ in 0..2 {
            let here = made(send(&world, "import/models", body.clone()).await);
            assert_eq!(here["models"][0]["left_out"], json!([]), "{here}");
        }
        world.work().await;
        let proof = ok(world.get(&format!("{OWN}/models/m/versions/1/signature")).await);
        assert_eq!(proof["state"], "signed", "{proof}");
        let (status, refused) =
            world.post(&format!("{OWN}/runs/{run}/purge"), json!({ "force": true })).await;
        assert_eq!((status, &refused["code"]), (409, &json!("in-use")), "{refused}");
        let there =
            ok(world.get("/model-versions/get?name=m&version=1").await)["model_version"].take();
        assert_eq!(
            (&there["current_stage"], &there["last_updated_timestamp"]),
            (&json!("Production"), &json!(2))
        );
        let kinds = world.events().await;
        let count = |end: &str| kinds.iter().filter(|kind| kind.ends_with(end)).count();
        assert_eq!(count(".model.created"), 1, "{kinds:?}");
        assert_eq!(count("model-version.created"), 2);
        assert_eq!(count("model.alias-moved"), 2);
        assert_eq!(count("model-version.stage-changed"), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_promotion_hold_for_what_comes() {
    each_place(async |database| {
        let world = World::new(database).await;
        let policy = json!({ "protected_aliases": ["champion"], "protected_stages": ["Production"],
                             "required_fields": ["owner"] });
        ok(world.send_as("PUT", &format!("{OWN}/model-policy"), policy).await);
        let versions =
            json!([version(1, "s3://b/x", "Production"), version(2, "s3://b/y", "Archived")]);
        let aliases = json!([["champion", 1], ["canary", 2]]);
        let body = json!({ "models": [model(versions, aliases)] });
        let here = made(send(&world, "import/models", body.clone()).await);
        let left = here["models"][0]["left_out"].as_array().unwrap();
        assert_eq!(left.len(), 2, "{here}");
        for (one, (field, name)) in
            left.iter().zip([("stage", "Production"), ("alias", "champion")])
        {
            assert_eq!(one[field], name, "{one}");
            assert!(one["why"].as_str().unwrap().contains("its card lacks owner"), "{one}");
        }
        let there = ok(world.get("/registered-models/get?name=m").await)["registered_model"].take();
        assert_eq!(there["aliases"], json!([{ "alias": "canary", "version": "2" }]), "{there}");
        // With what was missing it comes the next time.
        let path = format!("{OWN}/models/m/versions/1/card");
        ok(world.send_as("PUT", &path, json!({ "fields": { "owner": "ann" } })).await);
        let here = made(send(&world, "import/models", body).await);
        assert_eq!(here["models"][0]["left_out"], json!([]), "{here}");
    })
    .await;
}
