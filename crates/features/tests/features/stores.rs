//! Online stores that are lost, new, or somebody else's, and what is bounded around them.

use std::time::{Duration, Instant};

use falaj_base::{ByteSize, Name, Secret};
use falaj_features::FeaturesConfig;
use falaj_store::db::Tx;
use http::Method;
use serde_json::{Value, json};

use super::online::{DRIVERS, each, feast, online, row};
use super::training::{Lake, STATS, moment};
use super::world::{World, ok};

async fn trips(world: &World, drivers: &[i64]) -> Value {
    let ids = json!({ "driver_id": drivers });
    online(world, json!(["stats:trips"]), ids).await["values"].clone()
}

/// A server whose store is empty.
fn fresh(world: &World, folder: &tempfile::TempDir) -> World {
    let mut config = world.features.config().clone();
    config.online.redis.prefix.push_str("fresh:");
    world.server(config, folder.path())
}

/// Gathers what was pushed into files, and clears the log but for its last push.
async fn gather(world: &World) {
    world.clock.advance(Duration::from_mins(20));
    assert!(world.features.fold().await.unwrap() > 0);
    world.clock.advance(Duration::from_hours(25));
    assert!(world.features.trim().await.unwrap() > 0);
    assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_log").await, 1);
}

#[tokio::test]
async fn a_store_that_was_lost_is_filled_from_files_where_the_log_is_too_short() {
    each(async |world: World| {
        world.apply(&DRIVERS.replace("ttl = \"1d\"", "ttl = \"30d\"")).await;
        let time = "2026-05-01T11:00:00Z";
        for driver in 0..5 {
            ok(world.post("/push", row(driver, time, json!(driver))).await);
        }
        // A correction at the same moment of our clock, and twice in one push: the last stands.
        let twice = json!({ "view": "stats", "columns": {
            "driver_id": [1, 1], "rate": [1, 1], "trips": [70, 71], "seen": [null, null],
            "tags": [null, null], "event_timestamp": [time, time] } });
        ok(world.post("/push", twice).await);
        ok(world.post("/push", row(9, time, json!(9))).await);
        gather(&world).await;
        let other = tempfile::tempdir().unwrap();
        let fresh = fresh(&world, &other);
        let expected = json!([[0], [71], [2], [3], [4], [9]]);
        assert_eq!(trips(&fresh, &[0, 1, 2, 3, 4, 9]).await, expected);
        assert_eq!(trips(&world, &[0, 1, 2, 3, 4, 9]).await, expected);
        // Once it is up with the log, it stays so.
        ok(world.post("/push", row(0, time, json!(100))).await);
        fresh.run_worker("features-online").await;
        assert_eq!(trips(&fresh, &[0, 1]).await, json!([[100], [71]]));
    })
    .await;
}

#[tokio::test]
async fn a_store_that_was_left_behind_is_filled_from_files() {
    each(async |world: World| {
        world.apply(&DRIVERS.replace("ttl = \"1d\"", "ttl = \"30d\"")).await;
        let time = "2026-05-01T11:00:00Z";
        ok(world.post("/push", row(1, time, json!(1))).await);
        let other = tempfile::tempdir().unwrap();
        let behind = fresh(&world, &other);
        assert_eq!(trips(&behind, &[1, 2]).await, json!([[1], [null]]));
        for driver in [2, 3] {
            ok(world.post("/push", row(driver, time, json!(driver))).await);
        }
        gather(&world).await;
        behind.run_worker("features-online").await;
        assert_eq!(trips(&behind, &[1, 2, 3]).await, json!([[1], [2], [3]]));
    })
    .await;
}

/// Pushes that a server applied when they came are passed over in the log; those of others between them
/// are not.
#[tokio::test]
async fn pushes_of_two_servers_in_turn_are_all_applied_on_both() {
    each(async |world: World| {
        world.apply(&DRIVERS.replace("ttl = \"1d\"", "ttl = \"30d\"")).await;
        let other = tempfile::tempdir().unwrap();
        let second = fresh(&world, &other);
        let time = "2026-05-01T11:00:00Z";
        for driver in 0..12 {
            let server = if driver % 3 == 1 { &second } else { &world };
            ok(server.post("/push", row(driver, time, json!(driver))).await);
            if driver == 6 {
                world.run_worker("features-online").await;
            }
        }
        let drivers: Vec<_> = (0..12).collect();
        let expected: Vec<_> = drivers.iter().map(|driver| json!([driver])).collect();
        for server in [&world, &second] {
            server.run_worker("features-online").await;
            assert_eq!(trips(server, &drivers).await, json!(expected));
        }
    })
    .await;
}

/// After an older backup was restored, its numbers are given out again: to other views, perhaps.
#[tokio::test]
async fn rows_of_another_database_are_never_read() {
    each(async |world: World| {
        let folder = tempfile::tempdir().unwrap();
        let config = world.features.config().clone();
        {
            let first = world.server(config.clone(), folder.path());
            ok(first.post("/push", row(1, "2026-05-01T11:00:00Z", json!(7))).await);
            assert_eq!(trips(&first, &[1]).await, json!([[7]]));
        }
        world.execute("DELETE FROM feature_log").await;
        // The database remembers what it is: nothing has changed for the store.
        {
            let second = world.server(config.clone(), folder.path());
            assert_eq!(trips(&second, &[1]).await, json!([[7]]));
        }
        world.execute("DELETE FROM feature_generation").await;
        let restored = world.server(config.clone(), folder.path());
        assert_eq!(trips(&restored, &[1]).await, json!([[null]]));
        ok(restored.post("/push", row(1, "2026-05-01T11:00:00Z", json!(8))).await);
        assert_eq!(trips(&restored, &[1]).await, json!([[8]]));
        drop(restored);
        // Of another installation altogether: a file is ours to empty, a Redis may be in use.
        world.execute("DELETE FROM feature_log").await;
        world.execute("UPDATE feature_home SET installation = 'another'").await;
        let foreign = world.server(config.clone(), folder.path());
        if config.online.redis.url.is_empty() {
            assert_eq!(trips(&foreign, &[1]).await, json!([[null]]));
        } else {
            let asked = json!({ "features": ["stats:trips"], "entities": { "driver_id": [1] } });
            let (status, problem) = foreign.post("/online", asked).await;
            assert_eq!(status, 503, "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains("redis.prefix"), "{problem}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_redis_that_is_away_is_told_of_soon_to_everybody() {
    super::world::each(async |world: World| {
        world.apply(DRIVERS).await;
        let mut config = FeaturesConfig::default();
        // Nobody answers there, nor says that nobody does.
        config.online.redis.url = Secret::new("redis://10.255.255.1:6379");
        let folder = tempfile::tempdir().unwrap();
        let away = world.server(config, folder.path());
        let asked = json!({ "features": ["stats:trips"], "entities": { "driver_id": [1] } });
        let start = Instant::now();
        let all = (0..50).map(|_| away.post("/online", asked.clone()));
        for (status, problem) in futures::future::join_all(all).await {
            assert_eq!((status, &problem["code"]), (503, &json!("unavailable")), "{problem}");
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_push_to_an_old_catalog_goes_to_the_newest_version() {
    each(async |world: World| {
        let folder = tempfile::tempdir().unwrap();
        let other = world.server(world.features.config().clone(), &{
            if world.features.config().online.redis.url.is_empty() {
                folder.path().to_owned()
            } else {
                world.folder.path().to_owned()
            }
        });
        // It has looked, and does not hear of what is applied elsewhere.
        ok(other.post("/push", row(1, "2026-05-01T11:00:00Z", json!(7))).await);
        let more = DRIVERS.replace(
            "{ name = \"trips\", type = \"int64\" },",
            "{ name = \"trips\", type = \"int64\" }, { name = \"stars\", type = \"int64\" },",
        );
        world.apply(&more).await;
        let mut push = row(1, "2026-05-01T11:00:00Z", json!(8));
        push["columns"]["stars"] = json!([5]);
        // What does not fit the version it knows is refused; what fits goes to the one there is.
        let (status, problem) = other.post("/push", row(1, "2026-05-01T11:00:00Z", json!(8))).await;
        assert_eq!((status, &problem["field"]), (400, &json!("df.stars")), "{problem}");
        assert_eq!(ok(other.post("/push", push).await)["version"], 2);
    })
    .await;
}

#[tokio::test]
async fn all_features_of_a_view_count_one_by_one() {
    super::world::each_with(
        FeaturesConfig { max_fields: 4, ..FeaturesConfig::default() },
        async |world: World| {
            world.apply(DRIVERS).await;
            let asked = |features: Value| {
                json!({ "features": features,
                    "entities": { "driver_id": [1], "weekday": ["mon"] } })
            };
            let one = json!({ "features": ["stats", "stats:trips"],
                "entities": { "driver_id": [1] } });
            ok(world.post("/online", one).await);
            let (status, problem) = world.post("/online", asked(json!(["stats", "days"]))).await;
            assert_eq!((status, &problem["field"]), (400, &json!("features")), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains("max_fields"), "{problem}");
        },
    )
    .await;
}

#[tokio::test]
async fn rows_are_placed_where_a_rule_allows_it() {
    let lake = Lake::new(&[("stats.parquet", &[(1, 1_777_636_800, 1_777_636_800, Some(1))])]);
    super::world::each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        world.make_zone("abroad").await;
        let mut config = world.features.config().clone();
        config.online.zone = Some(Name::new("abroad").unwrap());
        let folder = tempfile::tempdir().unwrap();
        let abroad = world.server(config, folder.path());
        let columns = json!({ "driver_id": [1], "trips": [3], "rate": [0.5],
            "event_timestamp": [moment(1_777_636_800)] });
        let push = json!({ "view": "pushed", "columns": columns });
        let (status, problem) = abroad.post("/push", push.clone()).await;
        assert_eq!((status, &problem["code"]), (422, &json!("residency")), "{problem}");
        let job = json!({ "views": ["stats"] });
        let (status, problem) = abroad.post("/materialize", job.clone()).await;
        assert_eq!((status, &problem["code"]), (422, &json!("residency")), "{problem}");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_log").await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_job").await, 0);
        let sql = "SELECT COUNT(*) AS n FROM audit_entry WHERE entry LIKE '%residency/%'";
        assert_eq!(world.count(sql).await, 2, "both refusals are on record");
        ok(world.post("/push", push).await);
        assert_eq!(world.post("/materialize", job).await.0, 202);
    })
    .await;
}

/// Rules may change between asking and doing, and while it is done.
#[tokio::test]
async fn a_job_stops_where_a_rule_no_longer_allows_it() {
    let lake = Lake::new(&[("stats.parquet", &[(1, 1_777_636_795, 1_777_636_795, Some(1))])]);
    super::world::each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        world.make_zone("abroad").await;
        world.transfer("local", "abroad", true).await;
        let mut config = world.features.config().clone();
        config.online.zone = Some(Name::new("abroad").unwrap());
        let folder = tempfile::tempdir().unwrap();
        let abroad = world.server(config, folder.path());
        let job = json!({ "views": ["stats"] });
        let (status, asked) = abroad.post("/materialize", job.clone()).await;
        assert_eq!(status, 202, "{asked}");
        world.transfer("local", "abroad", false).await;
        assert!(abroad.features.run_jobs().await.is_ok());
        let path = format!("/materialize/{}", asked["id"].as_str().unwrap());
        let failed = ok(abroad.get(&path).await);
        assert_eq!(failed["state"], "failed", "{failed}");
        assert_eq!(failed["views"][0]["placed"], 0, "{failed}");
        let ids = json!({ "driver_id": [1] });
        let found = online(&abroad, json!(["stats:trips"]), ids.clone()).await;
        assert_eq!(found["status"][0], "m");
        // Once it is allowed again, it is done.
        world.transfer("local", "abroad", true).await;
        assert_eq!(abroad.post("/materialize", job).await.0, 202);
        abroad.features.run_jobs().await.unwrap();
        let found = online(&abroad, json!(["stats:trips"]), ids).await;
        assert_eq!(found["status"][0], "p");
    })
    .await;
}

#[tokio::test]
async fn what_waits_to_be_gathered_is_found_without_looking_at_the_rest() {
    super::world::each(async |world: World| {
        if world.db.engine_name() != "sqlite" {
            return;
        }
        let plan = |tx: &mut Tx<'_>| {
            let rows = tx.query(
                "EXPLAIN QUERY PLAN SELECT view FROM feature_log WHERE segment IS NULL
                 GROUP BY view HAVING MIN(at) <= 5 OR CAST(SUM(size) AS BIGINT) >= 9 ORDER BY view",
                &[],
            )?;
            rows.iter()
                .map(|row| row.get::<String>("detail"))
                .collect::<falaj_base::Result<Vec<_>>>()
        };
        let plan = world.db.read(plan).await.unwrap().join(" ");
        assert!(plan.contains("feature_log_loose"), "{plan}");
    })
    .await;
}

#[tokio::test]
async fn nothing_outside_a_root_is_named_and_no_pipe_is_waited_for() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret-name.parquet"), b"x").unwrap();
    let lake = Lake::new(&[]);
    std::os::unix::fs::symlink(outside.path(), lake.path().join("away")).unwrap();
    let pipe = lake.path().join("pipe.parquet");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    super::world::each_with(lake.config(), async |world: World| {
        for path in ["lake/away/*.parquet", "lake/pipe.parquet"] {
            world.apply(&STATS.replace("lake/stats*.parquet", path)).await;
            let asked = json!({ "feature_views": ["stats"], "disable_event_timestamp": true });
            let bring = feast(&world, "/materialize", asked);
            let (status, detail) =
                tokio::time::timeout(Duration::from_secs(20), bring).await.unwrap();
            assert_eq!(status, 400, "{detail}");
            assert!(!detail.as_str().unwrap().contains("secret-name"), "{detail}");
        }
    })
    .await;
}

#[tokio::test]
async fn pushes_that_take_all_the_memory_make_others_wait() {
    let config = FeaturesConfig { push_memory: ByteSize::kib(1), ..FeaturesConfig::default() };
    super::world::each_with(config, async |world: World| {
        world.apply(DRIVERS).await;
        // One after the other, since each takes all there is; and all of them are taken.
        let push = |driver: i64| world.post("/push", row(driver, "2026-05-01T11:00:00Z", json!(1)));
        for done in futures::future::join_all((0..20).map(push)).await {
            ok(done);
        }
        let found = world.behind(&[], Method::POST, "/push", row(1, "soon", json!(1))).await;
        assert_eq!(found.0, 400);
    })
    .await;
}
