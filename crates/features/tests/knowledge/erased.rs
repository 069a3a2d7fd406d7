//! Erasing an entity reaches what was made of it: training sets, the datasets that those became,
//! statistics, and what was put aside of streams.

use std::sync::mpsc::channel;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use falaj_base::{BlobId, Ctx, HumanDuration, Name};
use falaj_catalog::version::{Verb, Which};
use falaj_features::FeaturesConfig;
use falaj_store::db::{Tx, params};
use falaj_streams::{StreamConfig, StreamKind};
use falaj_tables::{Limits, Part, Table};
use http::Method;
use serde_json::{Value, json};

use super::world::{World, each_with, ok};
use super::{each, made};

const TIME: &str = "2026-05-01T11:00:00Z";

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
schema = [{ name = "trips", type = "int64" }]
"#;

async fn push(world: &World, id: i64, trips: i64) {
    let columns = json!({ "driver_id": [id], "trips": [trips], "event_timestamp": [TIME] });
    ok(world.post("/push", json!({ "view": "stats", "columns": columns })).await);
}

fn asked(ids: &[i64], register: Option<&str>) -> Value {
    let labels: Vec<usize> = (0..ids.len()).collect();
    let moments = json!({ "driver_id": ids, "label": labels,
        "event_timestamp": vec!["2026-05-01T11:30:00Z"; ids.len()] });
    let features = ["stats:trips"];
    json!({ "features": features, "moments": moments, "register": register, "hindsight": true })
}

async fn erase(world: &World, driver: i64) -> Value {
    let body = json!({ "keys": { "driver_id": driver } });
    ok(world.behind(&[], Method::DELETE, "/entities/driver/rows", body).await)
}

async fn data(world: &World, id: &Value) -> (u16, bytes::Bytes) {
    let path = format!("/training-sets/{}/data", id.as_str().unwrap());
    let ctx = Ctx::system("tester");
    let response = world.ask(ctx, "default", Method::GET, &path, &Value::Null).await;
    let status = response.status().as_u16();
    (status, axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap())
}

/// A column of a set's file.
async fn column(world: &World, id: &Value, name: &str) -> Vec<Option<i64>> {
    let (status, bytes) = data(world, id).await;
    assert_eq!(status, 200);
    let table = Table::open(bytes, Limits::default()).unwrap();
    let part = Part { columns: Some(vec![name.to_owned()]), groups: None, rows_at_once: 1000 };
    let batches = table.records(&part).unwrap().map(Result::unwrap);
    let values = batches.map(|batch| batch.column(0).as_primitive::<Int64Type>().clone());
    values.flat_map(|values| values.iter().collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn training_sets_and_their_datasets_go_on_without_it() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        for driver in 1..4 {
            push(&world, driver, driver * 10).await;
        }
        let with = made(&world, asked(&[1, 2, 1, 3], Some("rides"))).await;
        let without = made(&world, asked(&[2, 3], Some("others"))).await;
        let alone = made(&world, asked(&[1], None)).await;
        let waits = ok(world.post("/training-sets", asked(&[3, 1], None)).await);
        let (datasets, ctx, project) =
            (world.datasets(), Ctx::system("tester"), world.project().await);
        let old = datasets.open(&ctx, &project, "rides", Which::Latest).await.unwrap();
        let old_file = old.files[0].sha256.clone();
        // The files of those that have the entity, and the moments of all.
        let ids = [&with, &alone, &waits].map(|set| set["id"].as_str().unwrap().to_owned());
        let held = move |tx: &mut Tx<'_>| {
            let mut blobs = Vec::new();
            for id in &ids {
                let sql = "SELECT blob, NULLIF(moments, '') AS moments FROM training_set \
                           WHERE id = $1";
                let row = tx.query_one(sql, &params![id.as_str()])?;
                blobs.extend(row.get::<Option<BlobId>>("blob")?);
                blobs.extend(row.get::<Option<BlobId>>("moments")?);
            }
            Ok(blobs)
        };
        let before = world.db.read(held).await.unwrap();

        let done = erase(&world, 1).await;
        assert_eq!(done["state"], "done", "{done}");
        assert_eq!(done["training_sets"], json!([waits["id"], alone["id"], with["id"]]), "{done}");
        assert_eq!(done["datasets"], json!(["rides"]), "{done}");
        assert_eq!(done["successors"].as_array().unwrap().len(), 2, "{done}");

        // What was made cannot be read any more, and says so.
        let shown =
            ok(world.get(&format!("/training-sets/{}", with["id"].as_str().unwrap())).await);
        assert_eq!((&shown["state"], &shown["digest"]), (&json!("erased"), &with["digest"]));
        let (status, text) = data(&world, &with["id"]).await;
        assert_eq!(status, 400, "{text:?}");
        let next = &shown["successor"];
        assert_eq!(column(&world, next, "driver_id").await, [Some(2), Some(3)]);
        assert_eq!(column(&world, next, "label").await, [Some(1), Some(3)]);
        assert_eq!(column(&world, next, "trips").await, [Some(20), Some(30)]);
        let next = ok(world.get(&format!("/training-sets/{}", next.as_str().unwrap())).await);
        assert_eq!((&next["state"], &next["rows"]), (&json!("ready"), &json!(2)));
        assert_eq!(next["manifest"]["without_rows_of"], with["digest"]);
        assert_ne!(next["digest"], with["digest"]);
        // One without the entity is as it was; one that waited is not made of it.
        assert_eq!(column(&world, &without["id"], "driver_id").await, [Some(2), Some(3)]);
        world.features.make_training_sets().await.unwrap();
        let waited =
            ok(world.get(&format!("/training-sets/{}", waits["id"].as_str().unwrap())).await);
        assert_eq!(waited["state"], "failed", "{waited}");

        // Versions never change: the one that had the file is gone, and another follows.
        assert!(datasets.open(&ctx, &project, "rides", Which::Number(1)).await.is_err());
        assert!(datasets.statistics(&ctx, &project, "rides", Which::Number(1)).await.is_err());
        assert!(datasets.open_file(&ctx, &project, "rides", &old_file).await.is_err());
        let new = datasets.open(&ctx, &project, "rides", Which::Latest).await.unwrap();
        assert_eq!((new.version.version, new.version.made_by), (2, Verb::Erase));
        assert_eq!((new.version.rows, new.version.parent), (2, Some(1)));
        assert_eq!(json!(new.files[0].sha256), next["manifest"]["sha256"]);
        let (_, statistics) =
            datasets.statistics(&ctx, &project, "rides", Which::Latest).await.unwrap();
        let ids = statistics.columns.iter().find(|it| it.name == "driver_id").unwrap();
        assert_eq!(serde_json::to_value(ids).unwrap()["min"], json!(2), "{ids:?}");
        let others = datasets.open(&ctx, &project, "others", Which::Latest).await.unwrap();
        assert_eq!(others.version.version, 1);
        // Nobody holds the bytes of what went, nor the moments: the store may remove them.
        let held = "SELECT COUNT(*) AS n FROM training_set WHERE state = 'erased' AND \
                    (blob IS NOT NULL OR moments <> '')";
        assert_eq!(world.count(held).await, 0);
        let still = move |tx: &mut Tx<'_>| {
            let mut refs = Vec::new();
            for blob in before {
                let sql = "SELECT refs FROM blob WHERE id = $1";
                refs.push(tx.query_one(sql, &params![blob])?.get::<i64>("refs")?);
            }
            Ok(refs)
        };
        let refs = world.db.read(still).await.unwrap();
        assert!(refs.len() >= 5 && refs.iter().all(|refs| *refs == 0), "{refs:?}");

        // Done again, as after a crash, it changes nothing.
        world.execute("UPDATE feature_erasure SET state = 'running', finished_at = NULL").await;
        assert_eq!(world.features.run_erasures().await.unwrap(), 1);
        let path = format!("/erasures/{}", done["id"].as_str().unwrap());
        let again = ok(world.get(&path).await);
        for field in ["training_sets", "successors", "datasets"] {
            assert_eq!(again[field], done[field], "{field}");
        }
        let kinds = world.events().await;
        assert_eq!(kinds.iter().filter(|it| it.ends_with("training-set.erased")).count(), 2);
    })
    .await;
}

/// Whatever the rows are, the others stay, in their order.
#[tokio::test]
async fn the_other_rows_of_any_set_stay_in_their_order() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let mut sets = Vec::new();
        for _ in 0..8 {
            let count = next(40) + 1;
            let ids: Vec<i64> = (0..count).map(|_| next(4).cast_signed()).collect();
            sets.push((made(&world, asked(&ids, None)).await, ids));
        }
        erase(&world, 2).await;
        for (set, ids) in sets {
            let path = format!("/training-sets/{}", set["id"].as_str().unwrap());
            let shown = ok(world.get(&path).await);
            let places = ids.iter().enumerate().filter(|(_, id)| **id != 2);
            let labels: Vec<_> =
                places.map(|(place, _)| Some(i64::try_from(place).unwrap())).collect();
            let of = if ids.contains(&2) { &shown["successor"] } else { &shown["id"] };
            assert_eq!(column(&world, of, "label").await, labels, "{ids:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn statistics_that_may_tell_of_it_are_dropped() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        push(&world, 1, 777).await;
        push(&world, 2, 5).await;
        let before = ok(world.post("/views/stats/profile", json!({})).await);
        assert_eq!(before["rows"], 2);
        let done = erase(&world, 1).await;
        assert_eq!(done["statistics"], 1, "{done}");
        let (status, _) = world.get("/views/stats/statistics").await;
        assert_eq!(status, 400);
        let after = ok(world.post("/views/stats/profile", json!({})).await);
        assert_eq!(after["rows"], 1);
        assert!(!after.to_string().contains("777"), "{after}");
        // Freshness is that of what is left.
        let fresh = ok(world.get("/views/stats/freshness").await);
        assert_eq!(fresh["newest_event"], "2026-05-01T11:00:00.000000Z");
        erase(&world, 2).await;
        let none = ok(world.get("/views/stats/freshness").await);
        assert!(none["newest_event"].is_null(), "{none}");
    })
    .await;
}

/// An erasure that began before the rows were read, and ends before what was counted is put down.
#[tokio::test]
async fn what_was_counted_while_an_erasure_ran_is_not_kept() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        push(&world, 1, 777).await;
        erase(&world, 3).await;
        world.execute("UPDATE feature_erasure SET state = 'running', finished_at = NULL").await;
        let lock = format!("feature-statistics/{}", world.view("stats").await.id());
        let (db, (held, holds), (go, goes)) = (world.db.clone(), channel::<()>(), channel::<()>());
        let ending = tokio::spawn(async move {
            let end = move |tx: &mut Tx<'_>| {
                tx.lock(&lock)?;
                let done = "UPDATE feature_erasure SET state = 'done', finished_at = at";
                tx.execute(done, &[])?;
                held.send(()).unwrap();
                goes.recv().unwrap();
                Ok(())
            };
            db.write(end).await
        });
        tokio::task::spawn_blocking(move || holds.recv()).await.unwrap().unwrap();
        let later = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            go.send(()).unwrap();
        };
        let ((status, problem), ()) =
            tokio::join!(world.post("/views/stats/profile", json!({})), later);
        ending.await.unwrap().unwrap();
        assert_eq!((status, &problem["code"]), (409, &json!("changed")), "{problem}");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_statistics").await, 0);
        ok(world.post("/views/stats/profile", json!({})).await);
        // One that runs on drops what was counted meanwhile when it ends.
        world.execute("UPDATE feature_erasure SET state = 'running', finished_at = NULL").await;
        ok(world.post("/views/stats/profile", json!({})).await);
        assert_eq!(world.features.run_erasures().await.unwrap(), 1);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM feature_statistics").await, 0);
    })
    .await;
}

/// A set whose file is away.
#[tokio::test]
async fn a_set_that_cannot_be_read_keeps_no_other_from_being_erased() {
    each(async |world: World| {
        world.apply(DRIVERS).await;
        let older = made(&world, asked(&[1, 2], Some("rides"))).await;
        let clean = made(&world, asked(&[2, 3], None)).await;
        let away = made(&world, asked(&[1, 3], None)).await;
        let (id, nowhere) = (away["id"].as_str().unwrap().to_owned(), BlobId::new());
        let hide = move |tx: &mut Tx<'_>| {
            let sql = "SELECT blob FROM training_set WHERE id = $1";
            let blob: BlobId = tx.query_one(sql, &params![id.as_str()])?.get("blob")?;
            let sql = "UPDATE training_set SET blob = $2 WHERE id = $1";
            tx.execute(sql, &params![id.as_str(), nowhere])?;
            Ok((id, blob))
        };
        let (id, blob) = world.db.write(hide).await.unwrap();
        let body = json!({ "keys": { "driver_id": 1 } });
        let (status, _) = world.behind(&[], Method::DELETE, "/entities/driver/rows", body).await;
        assert_ne!(status, 200);
        let state = async |set: &Value| {
            let path = format!("/training-sets/{}", set["id"].as_str().unwrap());
            ok(world.get(&path).await)["state"].clone()
        };
        assert_eq!(state(&older).await, "erased");
        assert_eq!(state(&clean).await, "ready");
        assert_eq!(state(&away).await, "ready");
        let running = "SELECT COUNT(*) AS n FROM feature_erasure WHERE state = 'running'";
        assert_eq!(world.count(running).await, 1);
        // What is done is not looked through again.
        let looked = "SELECT COUNT(*) AS n FROM feature_erasure_looked";
        assert_eq!(world.count(looked).await, 2);
        let show = move |tx: &mut Tx<'_>| {
            let sql = "UPDATE training_set SET blob = $2 WHERE id = $1";
            tx.execute(sql, &params![id.as_str(), blob])
        };
        world.db.write(show).await.unwrap();
        assert_eq!(world.features.run_erasures().await.unwrap(), 1);
        assert_eq!(state(&away).await, "erased");
        assert_eq!((world.count(running).await, world.count(looked).await), (0, 0));
    })
    .await;
}

const STREAM: &str = r#"
[[entity]]
name = "driver"
join_keys = [{ name = "driver_id", type = "int64" }]

[[source]]
name = "rides"
kind = "stream"
stream = "events"
topic = "rides"
fields = { driver_id = "/ride/driver" }
on_bad = "quarantine"

[[view]]
name = "stats"
entities = ["driver"]
source = "rides"
schema = [{ name = "trips", type = "int64" }]
"#;

fn of_streams() -> FeaturesConfig {
    let name = |text: &str| Name::new(text).unwrap();
    let nowhere = vec!["127.0.0.1:1".to_owned()];
    let stream = StreamConfig::plain(name("events"), StreamKind::Nats, nowhere, name("default"));
    FeaturesConfig {
        wait: HumanDuration::from_secs(0),
        streams: vec![stream],
        ..FeaturesConfig::default()
    }
}

#[tokio::test]
async fn records_that_were_put_aside_lose_their_content() {
    each_with(of_streams(), async |world: World| {
        world.apply(STREAM).await;
        let records = [
            (r#"{"ride": {"driver": 7}, "trips": "many"}"#, 0, true),
            (r#"{"ride": {"driver": 8}, "trips": "many"}"#, 0, false),
            ("ada has the number 7", 0, true),
            (r#"{"trips": 3}"#, 0, true),
            (r#"{"ride": {"driver": 8}}"#, 5, true),
        ];
        erased_of_those_put_aside(&world, &records).await;
    })
    .await;
}

/// What one definition takes for another's key may be no key at all by the one that was meant.
#[tokio::test]
async fn a_record_stays_only_if_it_is_anothers_by_every_definition() {
    each_with(of_streams(), async |world: World| {
        world.apply(&STREAM.replace("/ride/driver", "/id")).await;
        world.apply(STREAM).await;
        let records = [
            (r#"{"id": 9, "ride": {"driver": "x7"}, "trips": 1}"#, 0, true),
            (r#"{"id": 9, "ride": {"driver": 7}, "trips": "many"}"#, 0, true),
            (r#"{"id": 7, "ride": {"driver": 8}, "trips": "many"}"#, 0, true),
            (r#"{"ride": {"driver": 8}, "trips": "many"}"#, 0, true),
            (r#"{"id": 9, "ride": {"driver": 8}, "trips": "many"}"#, 0, false),
        ];
        erased_of_those_put_aside(&world, &records).await;
    })
    .await;
}

/// Puts records aside, erases the driver 7, and expects that those which say so lost their content.
async fn erased_of_those_put_aside(world: &World, records: &[(&'static str, usize, bool)]) {
    for (place, (text, more, _)) in records.iter().enumerate() {
        let (text, size) = (text.as_bytes().to_vec(), text.len() + more);
        let offset = i64::try_from(place).unwrap();
        let project = world.project().await.id;
        let write = move |tx: &mut Tx<'_>| {
            let (now, id) = (tx.now(), format!("{offset:032}"));
            tx.execute(
                "INSERT INTO feature_quarantine (id, project, source, place, part, at_offset,
                         at, reason, size, record)
                     VALUES ($1, $2, 'rides', 'events/rides/', 0, $3, $4, 'why: many', $5, $6)",
                &params![id, project, offset, now, size, text],
            )
        };
        world.db.write(write).await.unwrap();
    }
    let done = erase(world, 7).await;
    let gone = records.iter().filter(|(_, _, gone)| *gone).count();
    assert_eq!(done["quarantined"], gone, "{done}");
    let found = ok(world.get("/quarantine?source=rides").await);
    let found = found["items"].as_array().unwrap();
    assert_eq!(found.len(), records.len());
    for ((text, _, gone), item) in records.iter().zip(found) {
        if *gone {
            assert!(item["record"].is_null() && item["truncated"] == false, "{item}");
            assert!(!item["reason"].as_str().unwrap().contains("many"), "{item}");
        } else {
            assert_eq!(item["record"], *text, "{item}");
        }
    }
}
