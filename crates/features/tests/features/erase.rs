//! Erasing one entity: online, from the log, from files, and in stores that hear of it later.

use std::time::Duration;

use falaj_features::history::{Position, read_since};
use falaj_store::db::Tx;
use http::Method;
use serde_json::{Value, json};

use super::online::{DRIVERS, each, online, row};
use super::world::{World, ok};

const TIME: &str = "2026-05-01T11:00:00Z";

fn day(driver: i64, weekday: &str) -> Value {
    json!({ "view": "days", "columns": { "driver_id": [driver], "weekday": [weekday],
        "trips": [driver], "event_timestamp": [TIME] } })
}

async fn erase(world: &World, entity: &str, keys: Value) -> Value {
    let path = format!("/entities/{entity}/rows");
    let body = json!({ "keys": keys });
    ok(world.behind(&[], Method::DELETE, &path, body).await)
}

/// What is known of the trips of a driver, in both views.
async fn letters(world: &World, driver: i64) -> String {
    let ids = json!({ "driver_id": [driver], "weekday": ["mon"] });
    let found = online(world, json!(["stats:trips", "days:trips"]), ids).await;
    found["status"][0].as_str().unwrap().to_owned()
}

/// All rows of the log that have a driver.
async fn logged(world: &World, driver: i64) -> usize {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    let read = |tx: &mut Tx<'_>| read_since(tx, Position::START);
    let entries = world.db.read(read).await.unwrap();
    let count = |entry: &falaj_features::history::Entry| {
        let batch = entry.batch().unwrap();
        let ids = batch.column_by_name("driver_id").unwrap().as_primitive::<Int64Type>().clone();
        ids.values().iter().filter(|id| **id == driver).count()
    };
    entries.iter().map(count).sum()
}

#[tokio::test]
async fn one_entity_is_gone_everywhere_and_stays_gone() {
    each(async |world: World| {
        world.apply(&DRIVERS.replace("ttl = \"1d\"", "ttl = \"90d\"")).await;
        for driver in [1, 2] {
            ok(world.post("/push", row(driver, TIME, json!(driver))).await);
            ok(world.post("/push", day(driver, "mon")).await);
            ok(world.post("/push", day(driver, "tue")).await);
        }
        // Some are in files by now, and in the log as well; some are in the log alone.
        world.clock.advance(Duration::from_mins(20));
        assert_eq!(world.features.fold().await.unwrap(), 2);
        ok(world.post("/push", row(1, TIME, json!(10))).await);
        ok(world.post("/push", row(2, TIME, json!(20))).await);
        let other = tempfile::tempdir().unwrap();
        let mut config = world.features.config().clone();
        config.online.redis.prefix.push_str("other:");
        let beside = world.server(config.clone(), other.path());
        assert_eq!(letters(&beside, 1).await, "pp");
        let moments = json!({ "driver_id": [1, 3], "event_timestamp": [TIME, TIME] });
        let ask = |ids: Value| json!({ "features": ["stats:trips"], "moments": ids });
        let sets = async {
            let first = ok(world.post("/training-sets", ask(moments)).await);
            let other = json!({ "driver_id": [2], "event_timestamp": [TIME] });
            (first, ok(world.post("/training-sets", ask(other)).await))
        };
        let make = async {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                world.features.make_training_sets().await.unwrap();
            }
        };
        let (with, _) = tokio::select! { sets = sets => sets, () = make => unreachable!() };

        let done = erase(&world, "driver", json!({ "driver_id": 1 })).await;
        assert_eq!(done["state"], "done", "{done}");
        assert_eq!(done["views"], json!(["days", "stats"]));
        assert_eq!((&done["online"], &done["files"]), (&json!(3), &json!(3)), "{done}");
        assert_eq!(done["log"], 4, "{done}");
        assert_eq!(done["training_sets"], json!([with["id"]]), "{done}");
        assert_eq!(letters(&world, 1).await, "mm");
        assert_eq!(letters(&world, 2).await, "pp");
        assert_eq!((logged(&world, 1).await, logged(&world, 2).await), (0, 4));
        let path = format!("/erasures/{}", done["id"].as_str().unwrap());
        assert_eq!(ok(world.get(&path).await)["state"], "done");
        // A server with a store of its own hears of it.
        beside.run_worker("features-online").await;
        assert_eq!(letters(&beside, 1).await, "mm");
        assert_eq!(letters(&beside, 2).await, "pp");
        // One that is filled from files finds nothing of it.
        world.clock.advance(Duration::from_hours(26));
        world.features.fold().await.unwrap();
        world.clock.advance(Duration::from_hours(26));
        world.features.trim().await.unwrap();
        let last = tempfile::tempdir().unwrap();
        config.online.redis.prefix.push_str("last:");
        let late = world.server(config, last.path());
        assert_eq!(letters(&late, 1).await, "mm");
        assert_eq!(letters(&late, 2).await, "pp");
        // What is pushed later is kept.
        ok(world.post("/push", row(1, TIME, json!(11))).await);
        world.run_worker("features-online").await;
        assert_eq!(letters(&world, 1).await, "pm");
        let kinds = world.events().await;
        assert_eq!(kinds.iter().filter(|it| *it == "falaj.feature.erased").count(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_comes_after_an_erasure_counts_in_windows() {
    const RIDES: &str = r#"
[[view]]
name = "rides"
entities = ["driver"]
source = "live"
columns = [{ name = "fare", type = "float64" }]

[[view.aggregate]]
name = "paid"
column = "fare"
function = "sum"
window = "7d"
hop = "1h"
"#;
    each(async |world: World| {
        world.apply(&format!("{DRIVERS}{RIDES}")).await;
        let ride = |fare: f64| {
            json!({ "view": "rides", "columns": { "driver_id": [1], "fare": [fare],
                "event_timestamp": [TIME] } })
        };
        let paid = async || {
            let found = online(&world, json!(["rides:paid"]), json!({ "driver_id": [1] })).await;
            found["values"][0][0].clone()
        };
        ok(world.post("/push", ride(4.0)).await);
        assert_eq!(paid().await, json!(4.0));
        erase(&world, "driver", json!({ "driver_id": 1 })).await;
        assert_eq!(paid().await, Value::Null);
        // For a while an erasure is done again, which is not meant for this.
        world.clock.advance(Duration::from_secs(1));
        ok(world.post("/push", ride(2.5)).await);
        assert_eq!(paid().await, json!(2.5));
        world.clock.advance(Duration::from_secs(1));
        ok(world.post("/push", ride(1.0)).await);
        assert_eq!(paid().await, json!(3.5));
    })
    .await;
}

#[tokio::test]
async fn an_erasure_that_was_cut_off_is_done_by_the_next() {
    each(async |world: World| {
        ok(world.post("/push", row(1, TIME, json!(1))).await);
        erase(&world, "driver", json!({ "driver_id": 5 })).await;
        // As if somebody had asked for another and died.
        world
            .execute(
                "UPDATE feature_erasure SET state = 'running', finished_at = NULL,
                 keys = '{\"driver_id\":1}'",
            )
            .await;
        assert_eq!(world.features.run_erasures().await.unwrap(), 1);
        assert_eq!(letters(&world, 1).await, "mm");
        assert_eq!(logged(&world, 1).await, 0);
        // The keys are forgotten after a while; a store that missed it is filled anew.
        world.clock.advance(Duration::from_hours(8 * 24));
        world.features.run_erasures().await.unwrap();
        let sql = "SELECT COUNT(*) AS n FROM feature_erasure WHERE keys IS NOT NULL";
        assert_eq!(world.count(sql).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_store_that_was_away_for_too_long_is_filled_anew() {
    each(async |world: World| {
        world.apply(&DRIVERS.replace("ttl = \"1d\"", "ttl = \"90d\"")).await;
        let folder = tempfile::tempdir().unwrap();
        let mut config = world.features.config().clone();
        config.online.redis.prefix.push_str("away:");
        {
            let away = world.server(config.clone(), folder.path());
            ok(away.post("/push", row(1, TIME, json!(1))).await);
            ok(away.post("/push", row(2, TIME, json!(2))).await);
            assert_eq!(letters(&away, 1).await, "pm");
        }
        erase(&world, "driver", json!({ "driver_id": 1 })).await;
        world.clock.advance(Duration::from_hours(8 * 24));
        world.features.run_erasures().await.unwrap();
        let back = world.server(config, folder.path());
        assert_eq!(letters(&back, 1).await, "mm");
        assert_eq!(letters(&back, 2).await, "pm");
    })
    .await;
}

#[tokio::test]
async fn who_may_not_erase_is_told_that_nothing_is_there() {
    each(async |world: World| {
        ok(world.post("/push", row(1, TIME, json!(1))).await);
        let path = "/entities/driver/rows";
        let body = json!({ "keys": { "driver_id": 1 } });
        for fence in [("feature:erase", "/entity/driver"), ("feature:erase", "/view/stats")] {
            let (status, _) = world.behind(&[fence], Method::DELETE, path, body.clone()).await;
            assert_eq!(status, 404, "{fence:?}");
        }
        for (keys, field) in [
            (json!({}), "keys.driver_id"),
            (json!({ "driver_id": null }), "keys.driver_id"),
            (json!({ "driver_id": "x" }), "keys.driver_id"),
            (json!({ "driver_id": 1, "more": 1 }), "keys.more"),
        ] {
            let asked = json!({ "keys": keys });
            let (status, problem) = world.behind(&[], Method::DELETE, path, asked).await;
            assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
        }
        let (status, _) = world.behind(&[], Method::DELETE, "/entities/nobody/rows", body).await;
        assert_eq!(status, 404);
        assert_eq!(letters(&world, 1).await, "pm");
    })
    .await;
}
