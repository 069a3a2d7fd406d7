//! Freshness, statistics, lineage, columns of their own, and skew.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::world::{World, ok};
use super::{each, made};

const DRIVERS: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "live"
kind = "push"

[[view]]
name = "stats"
entities = ["driver"]
source = "live"
freshness = "2h"
owner = "ada"
schema = [
    { name = "trips", type = "int64" },
    { name = "income", type = "float64", classification = "pii" },
]

[[service]]
name = "ranking"
features = ["stats:trips"]
"#;

async fn push(world: &World, id: i64, trips: i64, at: &str) {
    let columns = json!({
        "driver_id": [id], "trips": [trips], "income": [0.5], "event_timestamp": [at],
    });
    ok(world.post("/push", json!({ "view": "stats", "columns": columns })).await);
}

async fn told(world: &World, kind: &str) -> usize {
    world.events().await.iter().filter(|it| it.ends_with(kind)).count()
}

#[tokio::test]
async fn a_view_that_is_too_old_is_told_of_once_and_once_again_when_it_is_not() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        push(&world, 1, 7, "2026-05-01T11:00:00Z").await;
        let fresh = ok(world.get("/views/stats/freshness").await);
        assert_eq!(fresh["newest_event"], "2026-05-01T11:00:00.000000Z");
        assert_eq!(fresh["newest_known"], "2026-05-01T12:00:00.000000Z");
        assert_eq!((&fresh["age_seconds"], &fresh["allowed"]), (&json!(3600.0), &json!("2h")));
        world.features.watch_freshness().await.unwrap();
        assert_eq!(told(&world, "feature.stale").await, 0);
        world.clock.advance(Duration::from_mins(61));
        for _ in 0..3 {
            world.features.watch_freshness().await.unwrap();
        }
        assert_eq!(told(&world, "feature.stale").await, 1);
        let stale = ok(world.get("/views/stats/freshness").await);
        assert_eq!(stale["stale_since"], "2026-05-01T13:01:00.000000Z");
        push(&world, 2, 1, "2026-05-01T13:00:00Z").await;
        for _ in 0..3 {
            world.features.watch_freshness().await.unwrap();
        }
        assert_eq!(
            (told(&world, "feature.stale").await, told(&world, "feature.fresh").await),
            (1, 1)
        );
        assert!(ok(world.get("/views/stats/freshness").await)["stale_since"].is_null());
        // What is said of a view changes in place.
        let applied = world.apply(&DRIVERS.replace("2h", "9h")).await;
        let view =
            applied["definitions"].as_array().unwrap().iter().find(|it| it["kind"] == "view");
        assert_eq!(view.unwrap()["outcome"], "metadata");
        world.clock.advance(Duration::from_hours(3));
        world.features.watch_freshness().await.unwrap();
        assert_eq!(told(&world, "feature.stale").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_view_without_rows_is_as_old_as_its_definition() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        world.features.watch_freshness().await.unwrap();
        assert_eq!(told(&world, "feature.stale").await, 0);
        world.clock.advance(Duration::from_hours(3));
        world.features.watch_freshness().await.unwrap();
        assert_eq!(told(&world, "feature.stale").await, 1);
        assert!(ok(world.get("/views/stats/freshness").await)["newest_event"].is_null());
    })
    .await;
}

#[tokio::test]
async fn statistics_are_counted_when_asked_for() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        let before = world.get("/views/stats/statistics").await;
        assert_eq!((before.0, before.1["code"].as_str()), (400, Some("invalid-state")));
        for (id, trips) in [(1, 7), (2, 9), (3, 9)] {
            push(&world, id, trips, "2026-05-01T11:00:00Z").await;
        }
        let counted = ok(world.post("/views/stats/profile", json!({})).await);
        assert_eq!(counted["rows"], 3);
        let kept = ok(world.get("/views/stats/statistics").await);
        let column = |name: &str| {
            let columns = kept["columns"].as_array().unwrap();
            columns.iter().find(|it| it["name"] == name).cloned().unwrap_or_default()
        };
        assert_eq!((&column("trips")["min"], &column("trips")["max"]), (&json!(7), &json!(9)));
        assert_eq!(
            (&column("trips")["distinct"], &column("income")["mean"]),
            (&json!(2), &json!(0.5))
        );
        // Again: the old ones are given back.
        ok(world.post("/views/stats/profile", json!({})).await);
        let blobs = "SELECT COUNT(*) AS n FROM blob_ref WHERE owner_kind = 'feature-statistics'";
        assert_eq!(world.count(blobs).await, 1);
        let hidden = world
            .behind(
                &[("feature:read", "/stats/income")],
                Method::GET,
                "/views/stats/statistics",
                Value::Null,
            )
            .await;
        let names: Vec<_> =
            ok(hidden)["columns"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
        assert_eq!(names, ["driver_id", "trips", "event_timestamp"]);
    })
    .await;
}

#[tokio::test]
async fn what_is_found_to_be_sensitive_later_is_so_in_versions_of_before() {
    each(async |world: World| {
        world.apply(&DRIVERS.replace(", classification = \"pii\"", "")).await;
        push(&world, 1, 7, "2026-05-01T11:00:00Z").await;
        world.apply(DRIVERS).await;
        let fence = [("feature:read", "/stats/income"), ("feature:online", "/stats/income")];
        let moments = json!({ "driver_id": [1], "event_timestamp": ["2026-05-01T11:30:00Z"] });
        for version in ["stats@1:income", "stats@2:income"] {
            let set = json!({ "features": [version], "moments": moments });
            assert_eq!(world.behind(&fence, Method::POST, "/training-sets", set).await.0, 404);
            let online = json!({ "features": [version], "entities": { "driver_id": [1] } });
            assert_eq!(world.behind(&fence, Method::POST, "/online", online).await.0, 404);
        }
        // The rows are those of the version before.
        let online = json!({ "features": ["stats:trips"], "entities": { "driver_id": [1] } });
        assert_eq!(ok(world.post("/online", online).await)["values"], json!([[7]]));
        // What is classified becomes no dataset that everybody may read.
        let mut set = json!({ "features": ["stats:income"], "moments": moments });
        set["register"] = json!("incomes");
        let (status, body) = world.post("/training-sets", set).await;
        assert_eq!((status, &body["field"]), (400, &json!("register")), "{body}");
    })
    .await;
}

#[tokio::test]
async fn a_column_that_one_may_not_read_is_refused_by_its_name() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        push(&world, 1, 7, "2026-05-01T11:00:00Z").await;
        let moments = json!({ "driver_id": [1], "event_timestamp": ["2026-05-01T11:30:00Z"] });
        let fence = [("feature:read", "/stats/income"), ("feature:online", "/stats/income")];
        let set = |features: Value| json!({ "features": features, "moments": moments });
        for features in [json!(["stats"]), json!(["stats:income"])] {
            let (status, body) =
                world.behind(&fence, Method::POST, "/training-sets", set(features)).await;
            assert_eq!(status, 404, "{body}");
            assert!(body["detail"].as_str().unwrap().contains("stats:income"), "{body}");
        }
        let some =
            world.behind(&fence, Method::POST, "/training-sets", set(json!(["stats:trips"]))).await;
        assert_eq!(ok(some)["features"][0]["features"], json!(["trips"]));
        let online =
            |features: Value| json!({ "features": features, "entities": { "driver_id": [1] } });
        let (status, body) =
            world.behind(&fence, Method::POST, "/online", online(json!(["stats:income"]))).await;
        assert_eq!(status, 404, "{body}");
        assert!(body["detail"].as_str().unwrap().contains("stats:income"), "{body}");
        let trips =
            world.behind(&fence, Method::POST, "/online", online(json!(["stats:trips"]))).await;
        assert_eq!(ok(trips)["values"], json!([[7]]));
        // Nor is a set with it one that may be read.
        let whole = made(&world, set(json!(["stats"]))).await;
        let path = format!("/training-sets/{}", whole["id"].as_str().unwrap());
        assert_eq!(world.behind(&fence, Method::GET, &path, Value::Null).await.0, 404);
        assert_eq!(
            world.behind(&fence, Method::GET, &format!("{path}/data"), Value::Null).await.0,
            404
        );
    })
    .await;
}

#[tokio::test]
async fn lineage_goes_up_and_down() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        push(&world, 1, 7, "2026-05-01T11:00:00Z").await;
        let moments = json!({ "driver_id": [1], "event_timestamp": ["2026-05-01T11:30:00Z"] });
        let set = made(&world, json!({ "service": "ranking", "moments": moments })).await;
        let found = ok(world.get("/views/stats/lineage").await);
        assert_eq!(found["up"]["entities"], json!(["driver"]));
        assert_eq!(found["up"]["sources"][0]["name"], "live");
        assert_eq!(found["down"]["services"], json!(["ranking"]));
        assert_eq!(found["down"]["training_sets"][0]["id"], set["id"]);
        assert_eq!(found["down"]["training_sets"][0]["digest"], set["digest"]);
        let hidden = world
            .behind(
                &[("feature:read", "/service/ranking")],
                Method::GET,
                "/views/stats/lineage",
                Value::Null,
            )
            .await;
        assert_eq!(ok(hidden)["down"]["services"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn both_stores_are_compared() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        for id in 0..50 {
            push(&world, id, id, "2026-05-01T11:00:00Z").await;
        }
        world.clock.advance(Duration::from_secs(1));
        let same = ok(world.post("/views/stats/check", json!({})).await);
        assert_eq!((&same["entities"], &same["compared"]), (&json!(50), &json!(100)));
        assert_eq!((&same["mismatches"], &same["above"]), (&json!(0), &json!(false)), "{same}");
        let few = ok(world.post("/views/stats/check", json!({ "entities": 7 })).await);
        assert_eq!((&few["entities"], &few["compared"]), (&json!(7), &json!(14)));
        assert_eq!(world.post("/views/stats/check", json!({ "entities": 0 })).await.0, 400);
        assert_eq!(world.post("/views/stats/check", json!({ "threshold": 2.0 })).await.0, 400);
        assert_eq!(told(&world, "feature.skewed").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_set_of_what_is_computed_on_demand_is_made_of_what_it_is_computed_from() {
    const RATIO: &str = r#"
[[view]]
name = "ratio"
kind = "on_demand"
inputs = ["stats:trips"]
sql = "SELECT trips * 2 AS twice FROM inputs"
"#;
    each(async |world: World| {
        world.apply(&format!("{DRIVERS}{RATIO}")).await;
        push(&world, 1, 7, "2026-05-01T11:00:00Z").await;
        let moments = json!({ "driver_id": [1], "event_timestamp": ["2026-05-01T11:30:00Z"] });
        let set = made(&world, json!({ "features": ["ratio:twice"], "moments": moments })).await;
        for view in ["stats", "ratio"] {
            let found = ok(world.get(&format!("/views/{view}/lineage")).await);
            assert_eq!(found["down"]["training_sets"][0]["id"], set["id"], "{view}");
        }
        let below = ok(world.get("/views/stats/lineage").await);
        assert_eq!(below["down"]["views"], json!(["ratio"]));
        let above = ok(world.get("/views/ratio/lineage").await);
        assert_eq!(above["up"]["views"], json!(["stats"]));
        let diff = ok(world.get("/views/stats/diff?from=1&to=1").await);
        assert_eq!(diff["used_by"]["training_sets"], json!([set["id"]]));
    })
    .await;
}

fn metrics(world: &World) -> String {
    use falaj_features::knowledge::metrics::FreshnessCollector;
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(FreshnessCollector::new(world.features.clone())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test]
async fn both_stores_are_compared_as_often_as_a_view_asks_for() {
    each(async |world: World| {
        let check = "check = { every = \"6h\", sample = 20 }";
        world.apply(&DRIVERS.replace("freshness = \"2h\"", check)).await;
        assert_eq!(world.get("/views/stats/check").await.0, 400, "not yet");
        push(&world, 1, 1, "2026-05-01T10:00:00Z").await;
        world.clock.advance(Duration::from_mins(1));
        push(&world, 1, 2, "2026-05-01T11:00:00Z").await;
        world.clock.advance(Duration::from_mins(1));
        world.features.watch_skew().await.unwrap();
        let first = ok(world.get("/views/stats/check").await);
        assert_eq!(
            (&first["every"], &first["tried_at"]),
            (&json!("6h"), &json!("2026-05-01T12:02:00.000000Z"))
        );
        assert_eq!(
            (&first["result"]["compared"], &first["result"]["above"]),
            (&json!(2), &json!(false))
        );
        assert!(
            metrics(&world)
                .contains("falaj_feature_skewed{project=\"default/default\",view=\"stats\"} 0")
        );
        // History forgets what was pushed last, and the latest values do not.
        world.execute("DELETE FROM feature_log WHERE at = (SELECT MAX(at) FROM feature_log)").await;
        world.features.watch_skew().await.unwrap();
        assert_eq!(ok(world.get("/views/stats/check").await)["tried_at"], first["tried_at"]);
        world.clock.advance(Duration::from_hours(6));
        for _ in 0..3 {
            world.features.watch_skew().await.unwrap();
        }
        let second = ok(world.get("/views/stats/check").await);
        let result = &second["result"];
        assert_eq!(
            (&result["mismatches"], &result["above"]),
            (&json!(1), &json!(true)),
            "{second}"
        );
        assert_eq!(result["features"][0]["feature"], "trips");
        // Values are the entities', and are not kept.
        assert!(result["features"][0]["samples"].is_null(), "{second}");
        assert_eq!(told(&world, "feature.skewed").await, 1);
        let text = metrics(&world);
        assert!(
            text.contains("falaj_feature_skewed{project=\"default/default\",view=\"stats\"} 1"),
            "{text}"
        );
        assert!(text.contains("falaj_feature_skew_share"), "{text}");
        // What is said of it changes in place.
        let stopped = world.apply(&DRIVERS.replace("freshness = \"2h\"\n", "")).await;
        let view =
            stopped["definitions"].as_array().unwrap().iter().find(|it| it["kind"] == "view");
        assert_eq!(view.unwrap()["outcome"], "metadata");
        for (wrong, field) in [
            ("check = { every = \"1s\" }", "views[0].check.every"),
            ("check = { every = \"1h\", sample = 0 }", "views[0].check.sample"),
            ("check = { every = \"1h\", threshold = 2.0 }", "views[0].check.threshold"),
            ("check = { every = \"1h\", often = true }", "views[0].check"),
        ] {
            let answer = world.post("/apply", DRIVERS.replace("freshness = \"2h\"", wrong)).await;
            let found = answer.1["field"].as_str().unwrap_or_default();
            assert!(
                answer.0 == 400 && found.starts_with(field) || found.starts_with("view[0].check"),
                "{wrong}: {}",
                answer.1
            );
        }
    })
    .await;
}
