//! Training sets: the rules of the join by name, over files, objects and pushes, and what is kept.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use falaj_base::{ByteSize, Ctx, HumanDuration, Timestamp};
use falaj_features::FeaturesConfig;
use falaj_features::config::SourceRoot;
use falaj_features::history::{Rows, append};
use falaj_store::db::{Tx, params};
use falaj_tables::{Layout, Limits, Part, RecordWriter, Table};
use http::Method;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::world::{World, answer, each_with, ok};

pub(crate) const STATS: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "file"
kind = "parquet"
path = "lake/stats*.parquet"

[[source]]
name = "live"
kind = "push"
batch = "file"

[[view]]
name = "stats"
entities = ["driver"]
source = "file"
ttl = "7s"
known_time = "created"
schema = [{ name = "trips", type = "int64" }, { name = "rate", type = "float64" }]

[[view]]
name = "pushed"
entities = ["driver"]
source = "live"
known_time = "created"
schema = [{ name = "trips", type = "int64" }, { name = "rate", type = "float64" }]

[[service]]
name = "both"
features = ["stats:trips", "pushed:rate"]
"#;

/// Key, event, known, trips.
pub(crate) type Row = (i64, i64, i64, Option<i64>);

pub(crate) fn moment(second: i64) -> String {
    Timestamp::from_micros(second * 1_000_000).to_string()
}

fn times(seconds: impl Iterator<Item = i64>) -> ArrayRef {
    let micros = TimestampMicrosecondArray::from_iter_values(seconds.map(|it| it * 1_000_000));
    Arc::new(micros.with_timezone("UTC"))
}

fn batch(rows: &[Row]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([
        (
            "driver_id",
            Arc::new(rows.iter().map(|row| Some(row.0)).collect::<Int64Array>()) as ArrayRef,
            true,
        ),
        ("event_timestamp", times(rows.iter().map(|row| row.1)), true),
        ("created", times(rows.iter().map(|row| row.2)), true),
        ("trips", Arc::new(rows.iter().map(|row| row.3).collect::<Int64Array>()), true),
        (
            "rate",
            Arc::new(
                rows.iter()
                    .map(|row| Some(f64::from(i32::try_from(row.0).unwrap())))
                    .collect::<Float64Array>(),
            ),
            true,
        ),
    ])
    .unwrap()
}

fn write(path: &Path, batch: &RecordBatch) {
    let file = File::create(path).unwrap();
    // Small groups of rows, some of which need not be read.
    let layout = Layout { group_rows: 3, ..Layout::default() };
    let mut writer = RecordWriter::new(file, batch.schema(), layout).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

pub(crate) struct Lake(tempfile::TempDir);

impl Lake {
    pub(crate) fn new(files: &[(&str, &[Row])]) -> Self {
        let lake = Self(tempfile::tempdir().unwrap());
        for (name, rows) in files {
            write(&lake.0.path().join(name), &batch(rows));
        }
        lake
    }

    /// Writes a file of it anew.
    pub(crate) fn rewrite(&self, name: &str, rows: &[Row]) {
        write(&self.0.path().join(name), &batch(rows));
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn config(&self) -> FeaturesConfig {
        let [name, tenant] = ["lake", "default"].map(|name| name.parse().unwrap());
        let root = SourceRoot::folder(name, self.0.path().to_owned(), tenant);
        FeaturesConfig {
            source_roots: vec![root],
            // Nothing runs beside the test: it makes what it asked for itself.
            wait: HumanDuration::from_millis(0),
            ..FeaturesConfig::default()
        }
    }
}

/// Asks, makes, downloads.
pub(crate) async fn joined(world: &World, asked: &[(i64, i64)], more: Value) -> RecordBatch {
    let set = made(world, asked, more).await;
    assert_eq!(set["state"], "ready", "{set}");
    table(world, set["id"].as_str().unwrap()).await
}

async fn made(world: &World, asked: &[(i64, i64)], more: Value) -> Value {
    let keys: Vec<i64> = asked.iter().map(|it| it.0).collect();
    let at: Vec<String> = asked.iter().map(|it| moment(it.1)).collect();
    let label: Vec<usize> = (0..asked.len()).collect();
    let mut body = json!({
        "moments": {"driver_id": keys, "event_timestamp": at, "label": label},
    });
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let set = ok(world.post("/training-sets", body).await);
    assert_eq!(set["state"], "waiting", "{set}");
    world.features.make_training_sets().await.unwrap();
    ok(world.get(&format!("/training-sets/{}", set["id"].as_str().unwrap())).await)
}

pub(crate) async fn table(world: &World, id: &str) -> RecordBatch {
    let path = format!("/training-sets/{id}/data");
    let ctx = Ctx::system("tester");
    let response = world.ask(ctx, "default", Method::GET, &path, &Value::Null).await;
    assert_eq!(response.status(), 200);
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let table = Table::open(bytes, Limits::default()).unwrap();
    let part = Part { columns: None, groups: None, rows_at_once: 100_000 };
    let batches: Vec<_> = table.records(&part).unwrap().map(Result::unwrap).collect();
    arrow_select::concat::concat_batches(&table.schema().clone(), &batches).unwrap()
}

fn ints(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().iter().collect()
}

async fn trips(world: &World, asked: &[(i64, i64)], more: Value) -> Vec<Option<i64>> {
    let mut more = more;
    more["features"] = json!(["stats:trips"]);
    let found = joined(world, asked, more).await;
    // Every row is there, in its place.
    let labels: Vec<_> = (0..asked.len()).map(|it| Some(i64::try_from(it).unwrap())).collect();
    assert_eq!(ints(&found, "label"), labels);
    ints(&found, "trips")
}

/// Runs one case on both engines.
async fn check(rows: &[Row], asked: &[(i64, i64)], expected: &[Option<i64>]) {
    let lake = Lake::new(&[("stats.parquet", rows)]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        assert_eq!(trips(&world, asked, json!({})).await, expected);
    })
    .await;
}

// The answers that Feast gets wrong, each by its name.

#[tokio::test]
async fn feast_drops_rows_whose_values_are_too_old() {
    check(&[(1, 10, 10, Some(5))], &[(1, 17), (1, 18)], &[Some(5), None]).await;
}

#[tokio::test]
async fn feast_drops_rows_that_have_only_a_future() {
    check(&[(1, 10, 10, Some(5))], &[(1, 9), (2, 50)], &[None, None]).await;
}

#[tokio::test]
async fn feast_collapses_equal_rows_with_other_labels() {
    check(&[(1, 10, 10, Some(5))], &[(1, 12), (1, 12)], &[Some(5), Some(5)]).await;
}

#[tokio::test]
async fn feast_sorts_what_was_in_another_order() {
    let rows = [(1, 10, 10, Some(5)), (2, 10, 10, Some(6))];
    check(&rows, &[(2, 14), (1, 12), (2, 11)], &[Some(6), Some(5), Some(6)]).await;
}

#[tokio::test]
async fn feast_multiplies_or_mixes_rows_of_one_time() {
    let rows = [(1, 10, 10, Some(5)), (1, 10, 10, Some(6)), (1, 10, 10, Some(7))];
    check(&rows, &[(1, 12)], &[Some(7)]).await;
}

#[tokio::test]
async fn feast_leaks_corrections_that_came_later() {
    let rows = [(1, 10, 10, Some(5)), (1, 10, 14, Some(6))];
    check(&rows, &[(1, 12), (1, 14)], &[Some(5), Some(6)]).await;
}

#[tokio::test]
async fn of_several_corrections_the_last_that_was_known_counts() {
    let rows = [(1, 10, 13, Some(7)), (1, 10, 10, Some(5)), (1, 10, 12, Some(6))];
    check(&rows, &[(1, 11), (1, 12), (1, 13)], &[Some(5), Some(6), Some(7)]).await;
}

#[tokio::test]
async fn a_null_that_is_the_latest_is_the_answer() {
    check(&[(1, 10, 10, Some(5)), (1, 11, 11, None)], &[(1, 12)], &[None]).await;
}

#[tokio::test]
async fn feast_runs_keys_into_each_other() {
    let toml = r#"
        [[entity]]
        name = "pair"
        join_keys = [{ name = "a", type = "string" }, { name = "b", type = "string" }]
        [[source]]
        name = "s"
        kind = "push"
        [[view]]
        name = "v"
        entities = ["pair"]
        source = "s"
        schema = [{ name = "x", type = "int64" }]"#;
    let config =
        FeaturesConfig { wait: HumanDuration::from_millis(0), ..FeaturesConfig::default() };
    each_with(config, async |world: World| {
        world.apply(toml).await;
        let view = world.view("v").await;
        let text =
            |it: [&str; 2]| Arc::new(arrow_array::StringArray::from(it.to_vec())) as ArrayRef;
        let rows = RecordBatch::try_from_iter([
            ("a", text(["1", "11"])),
            ("b", text(["11", "1"])),
            ("x", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
            ("event_timestamp", times([1, 1].into_iter())),
        ]);
        let rows = Rows::new(&view, rows.unwrap(), world.features.config()).unwrap();
        world.db.write(move |tx: &mut Tx<'_>| append(tx, &rows)).await.unwrap();
        let at = world.db.now().to_string();
        let moments =
            json!({"a": ["1", "11", "1"], "b": ["11", "1", "1"], "event_timestamp": [at, at, at]});
        let set =
            ok(world.post("/training-sets", json!({"features": ["v"], "moments": moments})).await);
        world.features.make_training_sets().await.unwrap();
        let found = table(&world, set["id"].as_str().unwrap()).await;
        assert_eq!(ints(&found, "x"), [Some(1), Some(2), None]);
    })
    .await;
}

#[tokio::test]
async fn hindsight_and_frozen_knowledge_are_asked_for() {
    let rows = [(1, 10, 10, Some(5)), (1, 10, 14, Some(6)), (1, 11, 20, Some(7))];
    let lake = Lake::new(&[("stats.parquet", &rows)]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let asked = [(1, 12), (1, 15)];
        assert_eq!(trips(&world, &asked, json!({})).await, [Some(5), Some(6)]);
        let hindsight = json!({"hindsight": true});
        assert_eq!(trips(&world, &asked, hindsight).await, [Some(7), Some(7)]);
        let frozen = json!({"as_of": moment(13)});
        assert_eq!(trips(&world, &asked, frozen).await, [Some(5), Some(5)]);
    })
    .await;
}

#[tokio::test]
async fn pushes_count_from_when_they_came_on_top_of_files_and_gathered_or_not() {
    let lake = Lake::new(&[("stats.parquet", &[(1, 10, 10, Some(5))])]);
    let mut config = lake.config();
    config.segment_age = HumanDuration::from_secs(60);
    each_with(config, async |world: World| {
        world.apply(STATS).await;
        let view = world.view("pushed").await;
        let pushed = world.db.now();
        let push = async |key: i64, trips: i64| {
            let all = batch(&[(key, 20, 0, Some(trips))]);
            let rows = all.project(&[0, 3, 4, 1]).unwrap();
            let rows = Rows::new(&view, rows, world.features.config()).unwrap();
            world.db.write(move |tx: &mut Tx<'_>| append(tx, &rows)).await.unwrap();
        };
        push(1, 6).await;
        push(1, 7).await;
        let now = pushed.seconds();
        let asked = [(1, 15), (1, 30), (1, now), (2, now)];
        let body = json!({"features": ["pushed:trips"]});
        // What was pushed was not known at the time that it is about.
        let expected = [Some(5), Some(5), Some(7), None];
        let found = joined(&world, &asked, body.clone()).await;
        assert_eq!(ints(&found, "trips"), expected);
        assert_eq!(world.features.fold().await.unwrap(), 0);
        world.clock.advance(std::time::Duration::from_secs(61));
        assert_eq!(world.features.fold().await.unwrap(), 1);
        assert_eq!(world.features.fold().await.unwrap(), 0);
        let found = joined(&world, &asked, body.clone()).await;
        assert_eq!(ints(&found, "trips"), expected);
        // A later push is no older than what was gathered.
        push(1, 8).await;
        let later = [(1, now), (1, now + 61)];
        let found = joined(&world, &later, body.clone()).await;
        assert_eq!(ints(&found, "trips"), [Some(7), Some(8)]);
        // The log lets go of what it no longer needs, and loses nothing.
        world.clock.advance(std::time::Duration::from_hours(48));
        assert_eq!(world.features.trim().await.unwrap(), 2);
        assert_eq!(world.features.fold().await.unwrap(), 1);
        let found = joined(&world, &later, body).await;
        assert_eq!(ints(&found, "trips"), [Some(7), Some(8)]);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_segment").await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_set_knows_what_it_was_made_of() {
    let first: &[Row] = &[(1, 10, 10, Some(5))];
    let lake =
        Lake::new(&[("stats-1.parquet", first), ("stats-2.parquet", &[(2, 10, 10, Some(6))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let asked = [(1, 12), (2, 12)];
        let body = json!({"service": "both", "full_feature_names": true, "name": "mine"});
        let set = made(&world, &asked, body.clone()).await;
        assert_eq!((&set["rows"], &set["name"]), (&json!(2), &json!("mine")));
        let manifest = &set["manifest"];
        let sources = manifest["sources"].as_array().unwrap();
        let names: Vec<_> = sources.iter().map(|it| it["name"].as_str().unwrap()).collect();
        let files = ["lake/stats-1.parquet", "lake/stats-2.parquet"];
        assert_eq!(names, [files, files].concat());
        assert!(sources.iter().all(|it| it["blake3"].as_str().unwrap().len() == 64));
        let found = table(&world, set["id"].as_str().unwrap()).await;
        assert_eq!(ints(&found, "stats__trips"), [Some(5), Some(6)]);
        let rates: Vec<_> = found
            .column_by_name("pushed__rate")
            .unwrap()
            .as_primitive::<Float64Type>()
            .iter()
            .collect();
        assert_eq!(rates, [Some(1.0), Some(2.0)]);
        // The same again is the same, to the bit.
        let again = made(&world, &asked, body.clone()).await;
        assert_ne!(again["id"], set["id"]);
        assert_eq!(again["digest"], set["digest"]);
        // It is found from the view, also after that has moved on.
        world.apply(&STATS.replace("7s", "8s")).await;
        let diff = ok(world.get("/views/stats/diff").await);
        assert_eq!(diff["used_by"]["training_sets"], json!([again["id"], set["id"]]));
        // Who may not read another view of a set does not hear of the set.
        for fence in [("feature:read", "/view/pushed"), ("training-set:read", "")] {
            let path = "/views/stats/diff";
            let diff = ok(world.behind(&[fence], Method::GET, path, Value::Null).await);
            assert_eq!(diff["used_by"]["training_sets"], json!([]), "{fence:?}");
        }
        let newer = made(&world, &asked, body.clone()).await;
        assert_ne!(newer["digest"], set["digest"]);
        let older = made(&world, &asked, json!({"features": ["stats@1"]})).await;
        assert_eq!(older["features"][0]["version"], 1);
        let list = ok(world.get("/training-sets?page_size=2").await);
        assert_eq!(list["items"][0]["id"], older["id"]);
        assert!(list["next_page_token"].is_string());
        let kinds = world.events().await;
        let requested = kinds.iter().filter(|it| *it == "falaj.training-set.requested").count();
        let ready = kinds.iter().filter(|it| *it == "falaj.training-set.ready").count();
        assert_eq!((requested, ready), (4, 4));
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_made_says_why() {
    let lake = Lake::new(&[("stats.parquet", &[(1, 10, 10, Some(5))])]);
    let path = lake.0.path().join("stats.parquet");
    each_with(lake.config(), async |world: World| {
        write(&path, &batch(&[(1, 10, 10, Some(5))]));
        world.apply(STATS).await;
        let fails = async || {
            let set = made(&world, &[(1, 12)], json!({"features": ["stats"]})).await;
            assert_eq!(set["state"], "failed", "{set}");
            let (status, body) =
                world.get(&format!("/training-sets/{}/data", set["id"].as_str().unwrap())).await;
            assert_eq!((status, &body["code"]), (400, &json!("invalid-state")), "{body}");
            set["error"].as_str().unwrap().to_owned()
        };
        std::fs::write(&path, "not a file of columns").unwrap();
        assert!(fails().await.contains("lake/stats.parquet"));
        write(&path, &batch(&[]).project(&[0, 1, 2, 3]).unwrap());
        assert!(fails().await.contains("stats.rate in lake/stats.parquet"));
        let wrong = batch(&[(1, 10, 10, Some(5))]);
        let columns = [
            ("trips", wrong.column(4).clone()),
            ("driver_id", wrong.column(0).clone()),
            ("event_timestamp", wrong.column(1).clone()),
            ("created", wrong.column(2).clone()),
            ("rate", wrong.column(4).clone()),
        ];
        write(&path, &RecordBatch::try_from_iter(columns).unwrap());
        assert!(fails().await.contains("Float64"));
        std::fs::remove_file(&path).unwrap();
        assert!(fails().await.contains("lake/stats*.parquet"));
        std::os::unix::fs::symlink("/etc/passwd", lake.0.path().join("stats-x.parquet")).unwrap();
        assert!(fails().await.contains("no links out of it"));
        std::fs::remove_file(lake.0.path().join("stats-x.parquet")).unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_named() {
    let lake = Lake::new(&[("stats.parquet", &[(1, 10, 10, Some(5))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(STATS).await;
        let at = moment(1);
        let good = json!({"driver_id": [1], "event_timestamp": [at]});
        for (body, field) in [
            (json!({"features": ["stats"]}), "moments"),
            (json!({"moments": good}), "features"),
            (json!({"moments": good, "features": ["stats:no"]}), "features[0]"),
            (json!({"moments": good, "features": ["stats"], "service": "both"}), "service"),
            (json!({"moments": good, "features": ["stats", "pushed"]}), "features"),
            (json!({"moments": good, "features": ["stats", "stats:trips"]}), "features"),
            (json!({"moments": {"event_timestamp": [at]}, "features": ["stats"]}), "moments.driver_id"),
            (json!({"moments": {"driver_id": [1]}, "features": ["stats"]}), "moments.event_timestamp"),
            (
                json!({"moments": {"driver_id": ["x"], "event_timestamp": [at]}, "features": ["stats"]}),
                "moments.driver_id[0]",
            ),
            (json!({"moments": good, "features": ["stats"], "name": "a\u{0}"}), "name"),
            (json!({"moments": good, "features": ["stats"], "event_time": "\u{0}"}), "event_time"),
            (json!({"moments_object": "a\u{0}", "features": ["stats"]}), "moments_object"),
        ] {
            let (status, answer) = world.post("/training-sets", body.clone()).await;
            assert_eq!((status, &answer["field"]), (400, &json!(field)), "{body}: {answer}");
        }
        let (status, _) =
            world.post("/training-sets", json!({"moments": good, "features": ["nobody"]})).await;
        assert_eq!(status, 404);
        let hidden = ("feature:read", "/view/stats");
        let body = json!({"moments": good, "features": ["stats"]});
        let (status, _) = world.behind(&[hidden], Method::POST, "/training-sets", body).await;
        assert_eq!(status, 404);
        let set = made(&world, &[(1, 12)], json!({"features": ["stats"]})).await;
        let data = format!("/training-sets/{}/data", set["id"].as_str().unwrap());
        let (status, _) = world.behind(&[hidden], Method::GET, &data, Value::Null).await;
        assert_eq!(status, 404);
        // Who may not know of a view may not know of what is made of it.
        let there = format!("/training-sets/{}", set["id"].as_str().unwrap());
        let (status, hidden_set) = world.behind(&[hidden], Method::GET, &there, Value::Null).await;
        assert_eq!(status, 404);
        let absent = format!("/training-sets/tset_{}", "0".repeat(32));
        let (_, absent) = world.behind(&[hidden], Method::GET, &absent, Value::Null).await;
        let detail = hidden_set["detail"].as_str().unwrap();
        let id = set["id"].as_str().unwrap();
        let zeros = format!("tset_{}", "0".repeat(32));
        assert_eq!(detail.replace(id, &zeros), absent["detail"].as_str().unwrap());
        let list = world.behind(&[hidden], Method::GET, "/training-sets", Value::Null).await;
        assert_eq!(ok(list)["items"], json!([]));
        let list = ok(world.get("/training-sets").await);
        assert!(list["items"].as_array().unwrap().iter().any(|it| it["id"] == set["id"]));
        world.make_project("other").await;
        let there = format!("/training-sets/{}", set["id"].as_str().unwrap());
        assert_eq!(world.get_in("other", &there).await.0, 404);
        // A moment without a time is found when the set is made.
        let gap = json!({"driver_id": [1, 1], "event_timestamp": [at, null]});
        let body = json!({"moments": gap, "features": ["stats"]});
        let set = ok(world.post("/training-sets", body).await);
        world.features.make_training_sets().await.unwrap();
        let path = format!("/training-sets/{}", set["id"].as_str().unwrap());
        let set = ok(world.get(&path).await);
        assert!(set["error"].as_str().unwrap().contains("moments.event_timestamp[1]"), "{set}");
    })
    .await;
}

#[tokio::test]
async fn rows_of_another_zone_stay_there() {
    let lake = Lake::new(&[("stats.parquet", &[(1, 10, 10, Some(5))])]);
    let mut config = lake.config();
    config.source_roots[0].zone = Some("elsewhere".parse().unwrap());
    each_with(config, async |world: World| {
        world.apply(STATS).await;
        let set = made(&world, &[(1, 12)], json!({"features": ["stats"]})).await;
        assert_eq!(set["state"], "failed", "{set}");
        assert!(set["error"].as_str().unwrap().contains("unknown-zone"), "{set}");
    })
    .await;
}

/// The whole way against the definition of the join, looked up row by row.
#[tokio::test]
async fn any_history_answers_as_the_definition_says() {
    let rows =
        prop::collection::vec((0..4_i64, 0..40_i64, 0..50_i64, prop::option::of(0..99_i64)), 1..80);
    let asked = prop::collection::vec((0..5_i64, 0..45_i64), 1..60);
    let cases = (rows.clone(), rows, asked, prop::option::of(0..50_i64), any::<bool>());
    let lake = Lake::new(&[]);
    let mut config = lake.config();
    // Several slices, so that each history is read several times.
    config.rows_at_once = 7;
    each_with(config, async |world: World| {
        write(&lake.0.path().join("stats-0.parquet"), &batch(&[]));
        world.apply(STATS).await;
        let mut runner = TestRunner::deterministic();
        for _ in 0..25 {
            let (a, b, asked, as_of, hindsight) = cases.new_tree(&mut runner).unwrap().current();
            write(&lake.0.path().join("stats-1.parquet"), &batch(&a));
            write(&lake.0.path().join("stats-2.parquet"), &batch(&b));
            let all: Vec<Row> = a.into_iter().chain(b).collect();
            let answer = |(key, at): &(i64, i64)| {
                let fits = |row: &&(usize, &Row)| {
                    let (_, (of, event, known, _)) = row;
                    of == key
                        && event <= at
                        && (hindsight || known <= at)
                        && as_of.is_none_or(|latest| *known <= latest)
                        && at - event <= 7
                };
                let rows: Vec<_> = all.iter().enumerate().collect();
                let best =
                    rows.iter().filter(fits).max_by_key(|(place, row)| (row.1, row.2, *place));
                best.and_then(|(_, row)| row.3)
            };
            let expected: Vec<_> = asked.iter().map(answer).collect();
            let mut more = json!({"hindsight": hindsight});
            if let Some(second) = as_of {
                more["as_of"] = json!(moment(second));
            }
            assert_eq!(trips(&world, &asked, more).await, expected);
        }
    })
    .await;
}

/// Two features of eight bytes for each moment: slices are cut until they fit, and rows keep their
/// places.
#[tokio::test]
async fn answers_that_take_much_are_joined_in_smaller_slices() {
    let rows: Vec<Row> = (0..40).map(|key| (key, 10, 10, Some(key * 3))).collect();
    for (memory, fits) in [(50, true), (16, true), (15, false)] {
        let lake = Lake::new(&[("stats.parquet", &rows)]);
        let mut config = lake.config();
        config.memory = ByteSize::from_bytes(memory);
        each_with(config, async |world: World| {
            world.apply(STATS).await;
            // The same row answers many moments: it counts as often.
            let asked: Vec<_> = (0..40).map(|key| (if key < 20 { 7 } else { key }, 12)).collect();
            let set = made(&world, &asked, json!({"features": ["stats"]})).await;
            if fits {
                let found = table(&world, set["id"].as_str().unwrap()).await;
                let expected: Vec<_> = asked.iter().map(|(key, _)| Some(key * 3)).collect();
                assert_eq!(ints(&found, "trips"), expected);
                assert_eq!(ints(&found, "label"), (0..40).map(Some).collect::<Vec<_>>());
            } else {
                assert_eq!(set["state"], "failed", "{set}");
                assert!(set["error"].as_str().unwrap().contains("features.memory"), "{set}");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn one_that_fails_does_not_stop_the_others() {
    let lake = Lake::new(&[("stats.parquet", &[(1, 10, 10, Some(5))])]);
    let mut config = lake.config();
    config.segment_age = HumanDuration::from_secs(0);
    each_with(config, async |world: World| {
        world.make_project("other").await;
        let body = json!({
            "moments": {"driver_id": [1], "event_timestamp": [moment(12)]}, "features": ["stats"],
        });
        let mut asked = Vec::new();
        for project in ["other", "default"] {
            let post = async |path: &str, body: Value| {
                let ctx = Ctx::system("tester");
                ok(answer(world.ask(ctx, project, Method::POST, path, &body).await).await)
            };
            post("/apply", json!(STATS)).await;
            asked.push(post("/training-sets", body.clone()).await["id"].clone());
        }
        let tags = async |text: &'static str| {
            let sql = "UPDATE project SET tags = $1 WHERE name = 'other'";
            let write = move |tx: &mut Tx<'_>| tx.execute(sql, &params![text]);
            assert_eq!(world.db.write(write).await.unwrap(), 1);
        };
        let attempts = "SELECT attempts AS n FROM training_set WHERE state = 'waiting'";
        tags("not JSON").await;
        assert!(world.features.make_training_sets().await.is_err());
        let there = format!("/training-sets/{}", asked[1].as_str().unwrap());
        assert_eq!(ok(world.get(&there).await)["state"], "ready");
        assert_eq!(world.count(attempts).await, 1);
        tags("{}").await;
        assert_eq!(world.features.make_training_sets().await.unwrap(), 1);

        // Rows of a view that is gone, before those of one that is not.
        let view = world.view("pushed").await;
        let rows = batch(&[(1, 20, 0, Some(6))]).project(&[0, 3, 4, 1]).unwrap();
        let rows = Rows::new(&view, rows, world.features.config()).unwrap();
        let write = move |tx: &mut Tx<'_>| {
            append(tx, &rows)?;
            let sql = "INSERT INTO feature_log (tx, seq, view, at, rows, size, segment, batch)
                       SELECT tx, seq + 1, -1, at, rows, size, NULL, batch FROM feature_log";
            tx.execute(sql, &[])
        };
        world.db.write(write).await.unwrap();
        assert!(world.features.fold().await.is_err());
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_segment").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_digest_does_not_change_with_pushes_to_other_views() {
    let lake = Lake::new(&[("stats.parquet", &[(1, 10, 10, Some(5))])]);
    each_with(lake.config(), async |world: World| {
        world.apply(&format!("{STATS}\n{}", view_like_pushed("neighbour"))).await;
        let push = async |view: &str| {
            let rows = batch(&[(1, 20, 0, Some(6))]).project(&[0, 3, 4, 1]).unwrap();
            let view = world.view(view).await;
            let rows = Rows::new(&view, rows, world.features.config()).unwrap();
            world.db.write(move |tx: &mut Tx<'_>| append(tx, &rows)).await.unwrap();
        };
        let digest = async || {
            let set = made(&world, &[(1, 12)], json!({"features": ["pushed"]})).await;
            set["digest"].as_str().unwrap().to_owned()
        };
        push("pushed").await;
        let first = digest().await;
        push("neighbour").await;
        assert_eq!(digest().await, first);
        push("pushed").await;
        assert_ne!(digest().await, first);
    })
    .await;
}

fn view_like_pushed(name: &str) -> String {
    format!(
        "[[view]]\nname = \"{name}\"\nentities = [\"driver\"]\nsource = \"live\"\n\
         schema = [{{ name = \"trips\", type = \"int64\" }}, {{ name = \"rate\", type = \"float64\" }}]"
    )
}
