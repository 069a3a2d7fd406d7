//! The latest values: pushed, read in our words and in Feast's, on both online stores.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use falaj_base::{ByteSize, Ctx, Secret};
use falaj_features::{Features, FeaturesConfig};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::world::{Answer, World, answer, ok};

pub(crate) const DRIVERS: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[entity]]
name = "day"
join_keys = [{ name = "weekday", type = "string" }]

[[source]]
name = "live"
kind = "push"

[[view]]
name = "stats"
entities = ["driver"]
source = "live"
ttl = "1d"
schema = [
    { name = "rate", type = "float32" },
    { name = "trips", type = "int64" },
    { name = "seen", type = "timestamp" },
    { name = "tags", type = "list<string>" },
]

[[view]]
name = "days"
entities = ["driver", "day"]
source = "other"
schema = [{ name = "trips", type = "int32" }]

[[source]]
name = "other"
kind = "push"

[[service]]
name = "ranking"
features = ["stats:trips", "days:trips"]
"#;

/// Runs a test on each engine, with each kind of online store that there is a server for.
pub(crate) async fn each<F: AsyncFn(World)>(suite: F) {
    super::world::each(async |world: World| {
        world.apply(DRIVERS).await;
        suite(world).await;
    })
    .await;
    let Ok(url) = std::env::var("FALAJ_TEST_REDIS_URL") else { return };
    super::world::each(async |world: World| {
        // Each database numbers its views from the same number on.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut config = FeaturesConfig::default();
        config.online.redis.url = Secret::new(url.clone());
        config.online.redis.prefix = format!("features-{}-{count}:", std::process::id());
        let world = world.server(config, world.folder.path());
        world.apply(DRIVERS).await;
        suite(world).await;
    })
    .await;
}

/// A server on the database of a world.
fn server(world: &World, config: FeaturesConfig, data_dir: &Path) -> Features {
    let (objects, reads) = (world.features.objects().clone(), world.features.reads().clone());
    Features::new(config, world.db.clone(), objects, reads, data_dir)
}

pub(crate) async fn feast(world: &World, path: &str, body: Value) -> Answer {
    let response = world.ask_at(Ctx::system("tester"), "default", Method::POST, path, &body).await;
    answer(response).await
}

pub(crate) async fn online(world: &World, features: Value, entities: Value) -> Value {
    ok(world.post("/online", json!({ "features": features, "entities": entities })).await)
}

/// A row of `stats`.
pub(crate) fn row(driver: i64, time: &str, trips: Value) -> Value {
    json!({
        "view": "stats",
        "columns": {
            "driver_id": [driver], "rate": [0.5], "trips": [trips],
            "seen": ["2026-04-30T23:59:59.5Z"], "tags": [["a", "b"]],
            "event_timestamp": [time],
        },
    })
}

#[tokio::test]
async fn present_null_missing_and_expired_are_told_apart() {
    each(async |world: World| {
        ok(world.post("/push", row(1, "2026-05-01T11:00:00Z", json!(7))).await);
        ok(world.post("/push", row(2, "2026-05-01T11:00:00Z", Value::Null)).await);
        // As old as it may be: still given.
        ok(world.post("/push", row(3, "2026-04-30T12:00:00Z", json!(9))).await);
        ok(world.post("/push", row(4, "2026-04-30T11:59:59.999999Z", json!(9))).await);
        let ids = json!({ "driver_id": [1, 2, 3, 4, 5, null] });
        let found = online(&world, json!(["stats:trips", "stats:seen"]), ids.clone()).await;
        assert_eq!(found["features"], json!(["stats:trips", "stats:seen"]));
        let seen = "2026-04-30T23:59:59.500Z";
        assert_eq!(
            found["values"],
            json!([[7, seen], [null, seen], [9, seen], [null, null], [null, null], [null, null]])
        );
        assert_eq!(found["status"], json!(["pp", "np", "pp", "ee", "mm", "mm"]));
        let event = "2026-05-01T11:00:00Z";
        assert_eq!(found["event_times"]["stats"][0], event);
        assert_eq!(found["event_times"]["stats"][3], "2026-04-30T11:59:59.999999Z");
        assert_eq!(found["event_times"]["stats"][4], Value::Null);
        // A moment later the third is too old as well.
        world.clock.advance(Duration::from_micros(1));
        let found = online(&world, json!(["stats:trips"]), ids).await;
        assert_eq!(found["status"], json!(["p", "n", "e", "e", "m", "m"]));
    })
    .await;
}

#[tokio::test]
async fn the_reply_is_feasts() {
    each(async |world: World| {
        let df = json!({
            "driver_id": [1, 2], "rate": [0.1, "NaN"], "trips": [7.0, null],
            "seen": [1_777_593_599, null], "tags": [["a"], []],
            "event_timestamp": ["2026-05-01T11:00:00", "2026-05-01T11:30:00.25"],
            "created": ["2026-05-01T11:00:00", null],
        });
        let body = json!({ "push_source_name": "live", "df": df, "to": "online",
            "allow_registry_cache": true, "transform_on_write": true });
        assert_eq!(feast(&world, "/push", body).await, (200, Value::Null));
        let asked = json!({
            "features": ["stats:rate", "stats:trips", "stats:seen", "stats:tags"],
            "entities": { "driver_id": [2, 1, 9] },
            "full_feature_names": false, "include_feature_view_version_metadata": true,
        });
        let times = json!(["2026-05-01T11:30:00.250Z", "2026-05-01T11:00:00Z", "1970-01-01T00:00:00Z"]);
        let epoch = vec!["1970-01-01T00:00:00Z"; 3];
        let column = |values: Value, statuses: [&str; 3]| {
            json!({ "values": values, "statuses": statuses, "event_timestamps": times })
        };
        let (there, null, missing) = ("PRESENT", "NULL_VALUE", "NOT_FOUND");
        let expected = json!({
            "metadata": {
                "feature_names": ["driver_id", "rate", "trips", "seen", "tags"],
                "feature_view_metadata": [{ "name": "stats", "version": 1 }],
            },
            "results": [
                { "values": [2, 1, 9], "statuses": [there, there, there], "event_timestamps": epoch },
                column(json!(["NaN", 0.1, null]), [there, there, missing]),
                column(json!([null, 7, null]), [null, there, missing]),
                column(json!([null, 1_777_593_599, null]), [null, there, missing]),
                column(json!([[], ["a"], null]), [there, there, missing]),
            ],
        });
        assert_eq!(ok(feast(&world, "/get-online-features", asked).await), expected);
        let asked = json!({ "features": ["stats:trips"], "entities": { "driver": [1] },
            "full_feature_names": true });
        let found = ok(feast(&world, "/get-online-features", asked).await);
        assert_eq!(found["metadata"], json!({ "feature_names": ["driver_id", "stats__trips"] }));
        world.clock.advance(Duration::from_hours(48));
        let asked = json!({ "features": ["stats:trips"], "entities": { "driver_id": [1] } });
        let found = ok(feast(&world, "/get-online-features", asked).await);
        assert_eq!(found["results"][1]["statuses"], json!(["OUTSIDE_MAX_AGE"]));
        assert_eq!(found["results"][1]["values"], json!([null]));
    })
    .await;
}

#[tokio::test]
async fn the_newer_event_stays_and_corrections_win() {
    each(async |world: World| {
        let trips = async || {
            let ids = json!({ "driver_id": [1] });
            online(&world, json!(["stats:trips"]), ids).await["values"][0][0].clone()
        };
        let push = async |time: &str, value: i64| {
            ok(world.post("/push", row(1, time, json!(value))).await)["placed"].clone()
        };
        assert_eq!(push("2026-05-01T11:00:00Z", 1).await, 1);
        assert_eq!(push("2026-05-01T10:00:00Z", 2).await, 0, "an older event came later");
        assert_eq!(trips().await, 1);
        assert_eq!(push("2026-05-01T11:00:00Z", 3).await, 1, "the same event, known later");
        assert_eq!(trips().await, 3);
        // Twice in one push: the later row is the one that counts.
        let twice = json!({ "view": "stats", "columns": {
            "driver_id": [1, 1], "rate": [1, 1], "trips": [4, 5], "seen": [null, null],
            "tags": [null, null], "event_timestamp": vec!["2026-05-01T11:00:00Z"; 2] } });
        assert_eq!(ok(world.post("/push", twice).await)["rows"], 2);
        assert_eq!(trips().await, 5);
    })
    .await;
}

#[tokio::test]
async fn a_bad_row_is_refused_by_row_and_field() {
    each(async |world: World| {
        let good = json!({
            "driver_id": [1, 2], "rate": [0.5, 0.5], "trips": [1, 2], "seen": [null, null],
            "tags": [null, null],
            "event_timestamp": ["2026-05-01T11:00:00Z", "2026-05-01T11:00:00Z"],
        });
        let changes = [
            ("driver_id", json!([1, null]), "df.driver_id[1]"),
            ("driver_id", json!([1, "2"]), "df.driver_id[1]"),
            ("rate", json!([1, 1e39]), "df.rate[1]"),
            ("trips", json!([1, 1.5]), "df.trips[1]"),
            ("trips", json!([1]), "df.trips"),
            ("trips", json!(5), "df.trips"),
            ("tags", json!([["a"], ["a", 5]]), "df.tags[1][1]"),
            ("seen", json!(["soon", null]), "df.seen[0]"),
            ("event_timestamp", json!(["2026-05-01T11:00:00Z", null]), "df.event_timestamp[1]"),
            // Clocks differ, but not by that much.
            (
                "event_timestamp",
                json!(["2026-05-01T11:00:00Z", "2026-05-01T12:05:00.000001Z"]),
                "df.event_timestamp[1]",
            ),
            ("colour", json!(["red", "blue"]), "df.colour"),
        ];
        for (name, values, field) in changes {
            let mut columns = good.clone();
            columns[name] = values;
            let push = json!({ "view": "stats", "columns": columns });
            let (status, problem) = world.post("/push", push).await;
            assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
        }
        for name in ["driver_id", "trips", "event_timestamp"] {
            let mut columns = good.clone();
            columns.as_object_mut().unwrap().remove(name);
            let (status, problem) =
                world.post("/push", json!({ "view": "stats", "columns": columns })).await;
            assert_eq!(
                (status, &problem["field"]),
                (400, &json!(format!("df.{name}"))),
                "{problem}"
            );
        }
        let found = online(&world, json!(["stats"]), json!({ "driver_id": [1, 2] })).await;
        assert_eq!(found["status"], json!(["mmmm", "mmmm"]), "nothing of them was kept");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_log").await, 0);
    })
    .await;
}

#[tokio::test]
async fn bad_questions_are_refused_by_field() {
    each(async |world: World| {
        let ids = json!({ "driver_id": [1] });
        let table = [
            (json!([]), ids.clone(), 400, json!("features")),
            (json!(["stats:trips:x"]), ids.clone(), 400, json!("features")),
            (json!(["stats@7:trips"]), ids.clone(), 400, json!("features")),
            (json!(["stats:speed"]), ids.clone(), 404, json!("features")),
            (json!(["nothing:trips"]), ids.clone(), 404, Value::Null),
            (json!(["stats:trips"]), json!({}), 400, json!("entities")),
            (json!(["stats:trips"]), json!({ "car": [1] }), 400, json!("entities.driver_id")),
            (
                json!(["stats:trips"]),
                json!({ "driver_id": [1], "car": [1] }),
                400,
                json!("entities.car"),
            ),
            (
                json!(["stats:trips"]),
                json!({ "driver_id": [1, "a"] }),
                400,
                json!("entities.driver_id[1]"),
            ),
            (
                json!(["days:trips"]),
                json!({ "driver_id": [1], "weekday": ["a", "b"] }),
                400,
                json!("entities.weekday"),
            ),
            (
                json!(["stats:trips"]),
                json!({ "driver_id": vec![1; 10_001] }),
                400,
                json!("entities"),
            ),
        ];
        for (features, entities, expected, field) in table {
            let body = json!({ "features": features, "entities": entities });
            let (status, problem) = world.post("/online", body.clone()).await;
            assert_eq!((status, &problem["field"]), (expected, &field), "{problem}");
            let (status, detail) = feast(&world, "/get-online-features", body).await;
            let detail: Value = serde_json::from_str(detail.as_str().unwrap()).unwrap();
            assert_eq!((status, &detail["message"]), (expected, &problem["detail"]), "{detail}");
        }
        // Two columns of one name, unless they are told apart.
        let asked = |full: bool| {
            json!({ "features": ["stats:trips", "days:trips"], "full_feature_names": full,
                "entities": { "driver_id": [1], "weekday": ["mon"] } })
        };
        assert_eq!(feast(&world, "/get-online-features", asked(false)).await.0, 400);
        assert_eq!(feast(&world, "/get-online-features", asked(true)).await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn every_view_is_authorised() {
    each(async |world: World| {
        ok(world.post("/push", row(1, "2026-05-01T11:00:00Z", json!(7))).await);
        let fence = [("feature:online", "/view/days")];
        let asked = json!({ "features": ["stats:trips", "days:trips"],
            "entities": { "driver_id": [1], "weekday": ["mon"] } });
        let missing = json!({ "features": ["stats:trips", "dayz:trips"],
            "entities": { "driver_id": [1], "weekday": ["mon"] } });
        let (status, refused) = world.behind(&fence, Method::POST, "/online", asked).await;
        let (_, absent) = world.post("/online", missing).await;
        assert_eq!(status, 404);
        let text = |problem: &Value| problem["detail"].as_str().unwrap().replace("dayz", "days");
        assert_eq!(text(&refused), text(&absent), "not yours reads like not there");
        // By a service as well.
        let service = json!({ "service": "ranking",
            "entities": { "driver_id": [1], "weekday": ["mon"] } });
        assert_eq!(world.behind(&fence, Method::POST, "/online", service.clone()).await.0, 404);
        ok(world.post("/online", service).await);
        let fence = [("feature:write", "/view/stats")];
        let push = row(1, "2026-05-01T11:30:00Z", json!(8));
        assert_eq!(world.behind(&fence, Method::POST, "/push", push).await.0, 404);
        let other = json!({ "features": ["stats:trips"], "entities": { "driver_id": [1] } });
        world.make_project("elsewhere").await;
        let ctx = Ctx::system("tester");
        let response = world.ask(ctx, "elsewhere", Method::POST, "/online", &other).await;
        assert_eq!(answer(response).await.0, 404, "views of another project are not there");
    })
    .await;
}

#[tokio::test]
async fn versions_of_the_same_rows_share_them_and_others_have_their_own() {
    each(async |world: World| {
        ok(world.post("/push", row(1, "2026-05-01T11:00:00Z", json!(7))).await);
        let key = json!({ "view": "days", "columns": { "driver_id": [1], "weekday": ["mon"],
            "trips": [2], "event_timestamp": ["2020-05-01T11:00:00Z"] } });
        ok(world.post("/push", key).await);
        let ids = json!({ "driver_id": [1, 1], "weekday": ["mon", "tue"] });
        let service = json!({ "service": "ranking", "entities": ids });
        let found = ok(world.post("/online", service.clone()).await);
        assert_eq!(found["values"], json!([[7, 2], [7, null]]));
        let longer = DRIVERS.replace("ttl = \"1d\"", "ttl = \"2d\"");
        let report = world.apply(&longer).await;
        let told = |report: &Value| {
            let all = report["definitions"].as_array().unwrap().clone();
            all.into_iter().find(|it| it["name"] == "stats").unwrap()["keeps_rows"].clone()
        };
        assert_eq!(told(&report), true);
        let one = json!({ "driver_id": [1] });
        let latest = online(&world, json!(["stats:trips"]), one.clone()).await;
        assert_eq!(latest["values"], json!([[7]]), "the rows are the same, for longer");
        ok(world.post("/push", row(1, "2026-05-01T11:00:00Z", json!(8))).await);
        let both = online(&world, json!(["stats@1:trips", "stats:trips"]), one.clone()).await;
        assert_eq!(both["features"], json!(["stats@1:trips", "stats@2:trips"]));
        assert_eq!(both["values"], json!([[8, 8]]));
        world.clock.advance(Duration::from_hours(30));
        let both = online(&world, json!(["stats@1:trips", "stats:trips"]), one.clone()).await;
        assert_eq!(both["status"], json!(["ep"]), "each has its own time to live");
        let found = ok(world.post("/online", service).await);
        assert_eq!(found["features"], json!(["stats:trips", "days:trips"]));
        // Other rows: the new version begins without any, and says so.
        let more = longer.replace(
            "{ name = \"trips\", type = \"int64\" },",
            "{ name = \"trips\", type = \"int64\" }, { name = \"stars\", type = \"int64\" },",
        );
        assert_eq!(told(&world.apply(&more).await), false);
        let latest = online(&world, json!(["stats:trips", "stats:stars"]), one.clone()).await;
        assert_eq!(latest["status"], json!(["mm"]));
        let before = online(&world, json!(["stats@2:trips"]), one).await;
        assert_eq!(before["values"], json!([[8]]));
    })
    .await;
}

#[tokio::test]
async fn a_push_is_on_record_and_lasts() {
    each(async |world: World| {
        for driver in 0..20 {
            ok(world.post("/push", row(driver, "2026-05-01T11:00:00Z", json!(driver))).await);
        }
        let pushed = world.events().await.iter().filter(|it| *it == "falaj.feature.pushed").count();
        assert_eq!(pushed, 20);
        let sql = "SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE '%feature:write%'";
        assert_eq!(world.count(sql).await, 20);
        // Another server, whose file is empty: the log tells it everything before it answers.
        let other = tempfile::tempdir().unwrap();
        let mut config = world.features.config().clone();
        config.online.redis.prefix.push_str("another:");
        let fresh = world.with(&server(&world, config, other.path()));
        let ids: Vec<_> = (0..21).collect();
        let found = online(&fresh, json!(["stats:trips"]), json!({ "driver_id": ids })).await;
        let expected: Vec<_> =
            (0..21).map(|id| if id < 20 { json!([id]) } else { json!([null]) }).collect();
        assert_eq!(found["values"], json!(expected));
        // What is pushed to one is read by the other once it has looked at the log.
        ok(world.post("/push", row(1, "2026-05-01T11:30:00Z", json!(99))).await);
        fresh.run_worker("features-online").await;
        let found = online(&fresh, json!(["stats:trips"]), json!({ "driver_id": [1] })).await;
        assert_eq!(found["values"], json!([[99]]));
    })
    .await;
}

#[tokio::test]
async fn feasts_way_to_write_one_view() {
    each(async |world: World| {
        let df = json!({ "driver_id": [1], "weekday": ["mon"], "trips": [3],
            "event_timestamp": ["2026-05-01T11:00:00"], "created": [null] });
        let write = json!({ "feature_view_name": "days", "df": df, "allow_registry_cache": false });
        assert_eq!(feast(&world, "/write-to-online-store", write).await, (200, Value::Null));
        let ids = json!({ "driver_id": [1], "weekday": ["mon"] });
        assert_eq!(online(&world, json!(["days"]), ids).await["values"], json!([[3]]));
        let missing = [
            (
                "/write-to-online-store",
                json!({ "feature_view_name": "x", "df": df }),
                "FeatureViewNotFoundException",
            ),
            ("/push", json!({ "push_source_name": "x", "df": df }), "PushSourceNotFoundException"),
            (
                "/get-online-features",
                json!({ "feature_service": "x", "entities": { "a": [1] } }),
                "FeatureServiceNotFoundException",
            ),
        ];
        for (path, body, class) in missing {
            let (status, detail) = feast(&world, path, body).await;
            let detail: Value = serde_json::from_str(detail.as_str().unwrap()).unwrap();
            assert_eq!((status, &detail["class"]), (404, &json!(class)));
        }
        let push = json!({ "push_source_name": "other", "df": df, "to": "offline" });
        assert_eq!(feast(&world, "/push", push).await.0, 400);
    })
    .await;
}

/// A world whose replies and rows are small.
fn narrow(world: &World, set: impl Fn(&mut FeaturesConfig)) -> World {
    let mut config = world.features.config().clone();
    set(&mut config);
    let folder = tempfile::tempdir().unwrap();
    let mut narrow = world.with(&server(world, config, folder.path()));
    narrow.folder = folder;
    narrow
}

#[tokio::test]
async fn a_reply_is_bounded_by_bytes_and_a_key_is_read_once() {
    each(async |world: World| {
        let set = |config: &mut FeaturesConfig| {
            config.online.max_reply = ByteSize::kib(64);
            config.online.redis.prefix.push_str("narrow:");
        };
        let world = narrow(&world, set);
        let tag = "x".repeat(20_000);
        for driver in 1..=4 {
            let mut push = row(driver, "2026-05-01T11:00:00Z", json!(driver));
            push["columns"]["tags"] = json!([[tag]]);
            ok(world.post("/push", push).await);
        }
        let asked = |features: Value, drivers: &[i64]| {
            json!({ "features": features, "entities": { "driver_id": drivers } })
        };
        let status = async |body: Value| {
            let feasts = feast(&world, "/get-online-features", body.clone()).await;
            let (ours, problem) = world.post("/online", body).await;
            assert_eq!(ours, feasts.0, "{problem}");
            if ours != 200 {
                let text = problem["detail"].as_str().unwrap();
                assert!(text.contains("features.online.max_reply"), "{text}");
            }
            ours
        };
        assert_eq!(status(asked(json!(["stats:tags"]), &[1, 2, 3])).await, 200);
        // Four rows are over it, although little of them is asked for.
        assert_eq!(status(asked(json!(["stats:trips"]), &[1, 2, 3, 4])).await, 413);
        // One row is read once, however often it is asked for; written, it counts each time.
        assert_eq!(status(asked(json!(["stats:trips"]), &[1; 50])).await, 200);
        assert_eq!(status(asked(json!(["stats:tags"]), &[1; 50])).await, 413);
        let mixed = asked(json!(["stats:trips"]), &[2, 1, 2, 9, 1]);
        let found = ok(world.post("/online", mixed).await);
        assert_eq!(found["values"], json!([[2], [1], [2], [null], [1]]));
    })
    .await;
}

#[tokio::test]
async fn a_row_is_bounded_when_it_is_pushed() {
    each(async |world: World| {
        let set = |config: &mut FeaturesConfig| {
            config.online.max_row = ByteSize::kib(1);
            config.online.redis.prefix.push_str("narrow:");
        };
        let world = narrow(&world, set);
        let mut push = row(1, "2026-05-01T11:00:00Z", json!(1));
        push["columns"]["tags"] = json!([["x".repeat(900)]]);
        ok(world.post("/push", push.clone()).await);
        push["columns"]["tags"] = json!([["x".repeat(600), "x".repeat(600)]]);
        let (status, problem) = world.post("/push", push).await;
        assert_eq!((status, &problem["field"]), (400, &json!("df.tags[0]")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("features.online.max_row"));
    })
    .await;
}

#[tokio::test]
async fn an_event_ahead_of_our_clock_is_one_of_now() {
    each(async |world: World| {
        ok(world.post("/push", row(1, "2026-05-01T12:04:00Z", json!(1))).await);
        let ids = json!({ "driver_id": [1] });
        let found = online(&world, json!(["stats:trips"]), ids.clone()).await;
        assert_eq!(found["values"], json!([[1]]));
        assert_eq!(found["event_times"]["stats"], json!(["2026-05-01T12:00:00Z"]));
        // It does not keep out what happens before the time that it claimed.
        world.clock.advance(Duration::from_mins(1));
        ok(world.post("/push", row(1, "2026-05-01T12:01:00Z", json!(2))).await);
        let found = online(&world, json!(["stats:trips"]), ids).await;
        assert_eq!(found["values"], json!([[2]]));
    })
    .await;
}

#[tokio::test]
async fn a_column_that_comes_twice_is_refused() {
    each(async |world: World| {
        let df = r#"{"driver_id": [1], "weekday": ["mon"], "trips": [3], "trips": [4],
            "event_timestamp": ["2026-05-01T11:00:00Z"]}"#;
        for (path, body) in [
            ("/api/features/push", format!(r#"{{"view": "days", "columns": {df}}}"#)),
            ("/push", format!(r#"{{"push_source_name": "other", "df": {df}}}"#)),
            ("/write-to-online-store", format!(r#"{{"feature_view_name": "days", "df": {df}}}"#)),
        ] {
            let (status, text) = world.post_text(path, &body).await;
            assert_eq!(status, 400, "{path}: {text}");
            assert!(text.contains("`trips` comes twice"), "{path}: {text}");
        }
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_log").await, 0);
    })
    .await;
}

#[tokio::test]
async fn bodies_of_pushes_may_be_large() {
    each(async |world: World| {
        let large = world.large_routes();
        assert!(
            ["/api/features/push", "/push", "/write-to-online-store"]
                .iter()
                .all(|path| large.contains(path)),
            "{large:?}"
        );
        assert!(!large.contains(&"/get-online-features") && !large.contains(&"/materialize"));
    })
    .await;
}

#[tokio::test]
async fn reads_that_were_counted_are_on_record_after_a_flush() {
    each(async |world: World| {
        online(&world, json!(["stats:trips"]), json!({ "driver_id": [1] })).await;
        world.features.flush();
        world.features.reads().flush().await.unwrap();
        let sql = "SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE '%feature:online%'";
        assert_eq!(world.count(sql).await, 1);
    })
    .await;
}

/// A Redis that lost a push it had acknowledged, and is as it was before.
#[tokio::test]
async fn redis_is_given_again_what_it_may_have_lost() {
    each(async |world: World| {
        let config = world.features.config().online.redis.clone();
        if config.url.is_empty() {
            return;
        }
        online(&world, json!(["stats:trips"]), json!({ "driver_id": [1] })).await;
        ok(world.post("/push", row(1, "2026-05-01T11:00:00Z", json!(7))).await);
        let rows = format!("{}row:*", config.prefix);
        let forget = "return redis.call('DEL', unpack(redis.call('KEYS', ARGV[1])))";
        let command = format!("EVAL \"{forget}\" 0 {rows}\r\n");
        let address = config.url.expose().trim_start_matches("redis://").trim_end_matches('/');
        let address = address.split('/').next().unwrap();
        let mut link = tokio::net::TcpStream::connect(address).await.unwrap();
        link.write_all(command.as_bytes()).await.unwrap();
        let mut reply = [0; 4];
        link.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b":1\r\n", "there was one row");
        world.run_worker("features-online").await;
        let found = online(&world, json!(["stats:trips"]), json!({ "driver_id": [1] })).await;
        assert_eq!(found["values"], json!([[7]]));
    })
    .await;
}
