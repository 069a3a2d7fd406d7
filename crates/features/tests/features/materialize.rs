//! Sources in the online store: windows, what is late, and the same values as offline.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use falaj_base::Ctx;
use http::Method;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::training::{Lake, Row, STATS, joined, moment};
use super::world::{Answer, World, answer, each_with, ok};

/// The second that the tests' clock stands at.
const NOW: i64 = 1_777_636_800;

async fn feast(world: &World, path: &str, body: Value) -> Answer {
    let response = world.ask_at(Ctx::system("tester"), "default", Method::POST, path, &body).await;
    answer(response).await
}

async fn materialize(world: &World, views: &[&str], from: i64, to: i64) -> Value {
    let body = json!({ "feature_views": views, "start_ts": moment(from), "end_ts": moment(to) });
    ok(feast(world, "/materialize", body).await)["rows"].clone()
}

/// The trips of each driver, and what is known about them.
async fn trips(world: &World, view: &str, drivers: &[i64]) -> Vec<(Option<i64>, char)> {
    let body =
        json!({ "features": [format!("{view}:trips")], "entities": { "driver_id": drivers } });
    let found = ok(world.post("/online", body).await);
    let one = |row: usize| {
        let letter = found["status"][row].as_str().unwrap().chars().next().unwrap();
        (found["values"][row][0].as_i64(), letter)
    };
    (0..drivers.len()).map(one).collect()
}

#[tokio::test]
async fn a_window_has_both_its_ends_and_what_became_known_in_it() {
    let rows: &[Row] = &[
        (1, NOW - 6, NOW - 6, Some(1)),
        (1, NOW - 4, NOW - 4, Some(2)),
        (2, NOW - 4, NOW - 4, Some(3)),
        (2, NOW - 4, NOW - 3, Some(4)),
        (3, NOW - 2, NOW - 2, Some(5)),
        (4, NOW - 6, NOW - 1, Some(6)),
        (5, NOW - 6, NOW + 1, Some(7)),
    ];
    let lake = Lake::new(&[("stats.parquet", rows)]);
    each_with(lake.config(), async |world: World| {
        assert_eq!(moment(NOW), world.db.now().to_string());
        world.apply(STATS).await;
        let ids = [1, 2, 3, 4, 5];
        assert_eq!(materialize(&world, &["stats"], NOW - 6, NOW - 4).await, json!({ "stats": 5 }));
        let none = (None, 'm');
        let found = trips(&world, "stats", &ids).await;
        assert_eq!(found, [(Some(2), 'p'), (Some(4), 'p'), none, (Some(6), 'p'), none]);
        // On from there, with what was late: the fourth again, and not the one nobody knows yet.
        let body = json!({ "feature_views": ["stats"], "end_ts": moment(NOW) });
        let more = ok(feast(&world, "/materialize-incremental", body.clone()).await);
        assert_eq!(more["rows"], json!({ "stats": 5 }));
        assert_eq!(trips(&world, "stats", &[3, 5]).await, [(Some(5), 'p'), none]);
        world.clock.advance(std::time::Duration::from_secs(1));
        let more = ok(feast(&world, "/materialize-incremental", body).await);
        assert_eq!(more["rows"], json!({ "stats": 1 }));
        assert_eq!(trips(&world, "stats", &[5]).await, [(Some(7), 'p')]);
        let events = world.events().await;
        let told = events.iter().filter(|it| *it == "falaj.feature.materialized").count();
        assert_eq!(told, 3);
        // What there is already stays, however often it is brought.
        assert_eq!(materialize(&world, &["stats"], NOW - 9, NOW).await, json!({ "stats": 7 }));
        assert_eq!(trips(&world, "stats", &[1]).await, [(Some(2), 'p')]);
    })
    .await;
}

#[tokio::test]
async fn what_has_not_happened_yet_is_left_where_it_is() {
    let rows: &[Row] = &[(1, NOW, NOW, Some(1)), (1, NOW + 3, NOW, Some(2))];
    let lake = Lake::new(&[("stats.parquet", rows)]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let all = json!({ "feature_views": ["stats"], "disable_event_timestamp": true });
        let more = json!({ "feature_views": ["stats"], "end_ts": moment(NOW + 50) });
        assert_eq!(materialize(&world, &["stats"], NOW - 5, NOW + 50).await, json!({ "stats": 1 }));
        for (path, body) in [("/materialize", &all), ("/materialize-incremental", &more)] {
            let brought = ok(feast(&world, path, body.clone()).await);
            assert_eq!(brought["rows"], json!({ "stats": 1 }), "{path}");
            assert_eq!(trips(&world, "stats", &[1]).await, [(Some(1), 'p')]);
        }
        world.clock.advance(std::time::Duration::from_secs(3));
        ok(feast(&world, "/materialize-incremental", more).await);
        assert_eq!(trips(&world, "stats", &[1]).await, [(Some(2), 'p')]);
    })
    .await;
}

#[tokio::test]
async fn a_view_whose_source_takes_no_pushes_refuses_them() {
    let lake = Lake::new(&[("stats.parquet", &[(1, NOW, NOW, Some(1))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let df = json!({ "driver_id": [1], "trips": [3], "rate": [0.5],
            "event_timestamp": [moment(NOW)] });
        let push = json!({ "view": "stats", "columns": df });
        let (status, problem) = world.post("/push", push.clone()).await;
        assert_eq!((status, &problem["field"]), (400, &json!("view")), "{problem}");
        let text = "the feature view stats takes no pushes: its source file is not of the kind";
        assert!(problem["detail"].as_str().unwrap().contains(text), "{problem}");
        let write = json!({ "feature_view_name": "stats", "df": df });
        let (status, detail) = feast(&world, "/write-to-online-store", write).await;
        assert!(detail.as_str().unwrap().contains(text), "{detail}");
        assert_eq!(status, 400);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_log").await, 0);
        // Not there, for whoever may not write to it.
        let fence = [("feature:write", "/view/stats")];
        assert_eq!(world.behind(&fence, Method::POST, "/push", push).await.0, 404);
    })
    .await;
}

#[tokio::test]
async fn a_row_that_is_too_long_is_refused_by_view_and_place() {
    let lake = Lake::new(&[("stats.parquet", &[(1, NOW, NOW, Some(1))])]);
    let mut config = lake.config();
    config.online.max_row = falaj_base::ByteSize::from_bytes(15);
    each_with(config, async |world: World| {
        world.apply(STATS).await;
        let body = json!({ "feature_views": ["stats"], "disable_event_timestamp": true });
        let (status, detail) = feast(&world, "/materialize", body).await;
        let text = detail.as_str().unwrap();
        assert!(text.contains("view stats: row 0") && text.contains("online.max_row"), "{text}");
        assert_eq!(status, 413);
        assert_eq!(trips(&world, "stats", &[1]).await, [(None, 'm')]);
    })
    .await;
}

#[tokio::test]
async fn bad_questions_are_refused_and_not_yours_is_not_there() {
    let lake = Lake::new(&[("stats.parquet", &[(1, NOW, NOW, Some(1))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let (start, end) = (moment(NOW - 5), moment(NOW));
        for (body, status) in [
            (json!({ "feature_views": ["nothing"], "start_ts": start, "end_ts": end }), 404),
            (json!({ "feature_views": [], "start_ts": start, "end_ts": end }), 400),
            (json!({ "feature_views": ["stats"], "start_ts": end, "end_ts": start }), 400),
            (json!({ "feature_views": ["stats"], "start_ts": "soon", "end_ts": end }), 400),
            (json!({ "feature_views": ["stats"], "end_ts": end }), 400),
            (json!({ "feature_views": "stats" }), 400),
        ] {
            assert_eq!(feast(&world, "/materialize", body.clone()).await.0, status, "{body}");
        }
        let body = json!({ "disable_event_timestamp": true });
        let all = ok(feast(&world, "/materialize", body).await);
        assert_eq!(all["rows"], json!({ "pushed": 1, "stats": 1 }));
    })
    .await;
}

fn cell(batch: &RecordBatch, name: &str) -> Option<i64> {
    let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
    (!column.is_null(0)).then(|| column.value(0))
}

/// Key, event, trips.
type Push = (i64, i64, Option<i64>);

fn cases() -> impl Strategy<Value = (Vec<Row>, Vec<Push>)> {
    let value = proptest::option::weighted(0.8, 0_i64..100);
    let row = (0_i64..3, -9_i64..=0, 0_i64..4, value.clone())
        .prop_map(|(key, event, late, trips)| (key, NOW + event, NOW + event + late, trips));
    let push = (0_i64..3, -9_i64..=0, value);
    (proptest::collection::vec(row, 1..30), proptest::collection::vec(push, 0..10))
}

/// The latest value of now is the one that a training set has for now: from files, and from files
/// and pushes together, with ties, corrections, gaps, rows that are too old and rows that nobody
/// knows yet.
#[tokio::test]
async fn online_and_offline_have_the_same_values() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let (rows, pushes) = cases().new_tree(&mut runner).unwrap().current();
        let lake = Lake::new(&[("stats.parquet", &rows)]);
        let (rows, pushes) = (Arc::new(rows), Arc::new(pushes));
        each_with(lake.config(), async |world: World| {
            world.apply(STATS).await;
            for (place, (key, event, trips)) in pushes.iter().enumerate() {
                let columns = json!({ "driver_id": [key], "trips": [trips], "rate": [0.5],
                    "event_timestamp": [moment(NOW + event)] });
                ok(world.post("/push", json!({ "view": "pushed", "columns": columns })).await);
                if place == 4 {
                    materialize(&world, &["stats", "pushed"], NOW - 100, NOW).await;
                }
            }
            materialize(&world, &["stats", "pushed"], NOW - 100, NOW).await;
            for key in 0..4 {
                for view in ["stats", "pushed"] {
                    let feature = format!("{view}:trips");
                    let offline =
                        joined(&world, &[(key, NOW)], json!({ "features": [feature] })).await;
                    let online = trips(&world, view, &[key]).await[0].0;
                    assert_eq!(online, cell(&offline, "trips"), "{view} {key} {rows:?} {pushes:?}");
                }
            }
        })
        .await;
    }
}
