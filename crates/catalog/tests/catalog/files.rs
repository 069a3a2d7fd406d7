//! Taking files in.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array};
use serde_json::{Value, json};

use super::world::{World, each, file, ok, parquet, refused};

#[tokio::test]
async fn csv_becomes_parquet_with_types_and_statistics() {
    each(async |world: World| {
        world.create("people", &[]).await;
        let csv = "id,name,born,score,zip\n1,Ada,1815-12-10,0.5,007\n2,,1906-12-09,,123\n";
        let sent = ok(world.raw("/people/files?format=csv", csv).await);
        let kinds: Vec<_> =
            sent["columns"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect();
        assert_eq!(kinds, ["Int64", "Utf8", "Date32", "Float64", "Utf8"]);
        assert_eq!((&sent["rows"], &sent["known"]), (&json!(2), &json!(false)));
        let again = ok(world.raw("/people/files?format=csv", csv).await);
        assert_eq!((&again["known"], &again["sha256"]), (&json!(true), &sent["sha256"]));
        ok(world.post("/people/versions", json!({ "files": [sent["sha256"]] })).await);
        let told = ok(world.get("/people/statistics").await);
        let score = &told["columns"][3];
        assert_eq!(
            (&score["nulls"], &score["min"], &score["mean"]),
            (&json!(1), &json!(0.5), &json!(0.5))
        );
        assert_eq!(told["columns"][1]["min"], "Ada");
        let typed = "/people/files?format=csv&delimiter=;&types=id=string";
        let sent = ok(world.raw(typed, "id;x\n1;2\n").await);
        assert_eq!(sent["columns"][0]["type"], "Utf8");
    })
    .await;
}

#[tokio::test]
async fn files_of_many_pieces_are_read_within_bounds() {
    each(async |world: World| {
        world.create("long", &[]).await;
        let mut csv = String::from("id,text\n");
        for id in 0..40_000 {
            writeln!(csv, "{id},\"row, number {id}\"").unwrap();
        }
        let sent = ok(world.raw("/long/files?format=csv", csv).await);
        assert_eq!(sent["rows"], 40_000);
        ok(world.post("/long/versions", json!({ "files": [sent["sha256"]] })).await);
        let rows = world.rows("long", "").await;
        assert_eq!((rows.len(), &rows[39_999].1), (40_000, &"row, number 39999".to_owned()));
        let told = ok(world.get("/long/statistics").await);
        let distinct = told["columns"][0]["distinct"].as_u64().unwrap();
        assert!(distinct.abs_diff(40_000) < 3000, "{distinct}");
        assert_eq!(told["columns"][0]["max"], 39_999);
    })
    .await;
}

#[tokio::test]
async fn statistics_of_files_are_summed_up() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a"), (2, "b")]).await;
        world.append("trips", &[(9, "b"), (10, "c")]).await;
        let told = ok(world.get("/trips/statistics").await);
        let id = &told["columns"][0];
        assert_eq!((&told["rows"], &id["min"], &id["max"]), (&json!(4), &json!(1), &json!(10)));
        assert_eq!((&id["mean"], &id["distinct"]), (&json!(5.5), &json!(4)));
        assert_eq!(told["columns"][1]["distinct"], 3);
        let before = ok(world.get("/trips/statistics?version=1").await);
        assert_eq!(before["rows"], 2);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_leaves_nothing() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        let whole = parquet(&[(1, "a")]);
        let wide: Vec<u8> = {
            let one = |n: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![n])) };
            file([
                ("a", one(1)),
                ("b", one(1)),
                ("c", one(1)),
                ("d", one(1)),
                ("e", one(1)),
                ("f", one(1)),
                ("g", one(1)),
            ])
            .to_vec()
        };
        let damaged = [&whole[..40], &whole[44..]].concat();
        for (what, path, content) in [
            ("empty", "", Vec::new()),
            ("text", "", b"id,text".to_vec()),
            ("cut", "", whole[..whole.len() / 2].to_vec()),
            ("damaged", "", damaged),
            ("too wide", "", wide),
            ("uneven", "?format=csv", b"a,b\n1\n".to_vec()),
            ("not text", "?format=csv", b"a\n\xff\n".to_vec()),
            ("empty csv", "?format=csv", Vec::new()),
            ("no such type", "?format=csv&types=a=int4", b"a\n1\n".to_vec()),
            ("no such format", "?format=xml", b"a\n1\n".to_vec()),
            ("no delimiter", "?format=csv&delimiter=ab", b"a\n1\n".to_vec()),
        ] {
            let answer = refused(world.raw(&format!("/trips/files{path}"), content).await);
            assert_eq!((answer.0, answer.1.as_str()), (400, "invalid-input"), "{what}");
        }
        assert_eq!(world.blobs().await, 0);
        let pending = "SELECT COUNT(*) AS n FROM blob WHERE state = 'pending'";
        assert_eq!(world.count(pending).await, 0, "what was refused is given up at once");
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM catalog_file").await, 0);
    })
    .await;
}

#[tokio::test]
async fn files_of_a_version_have_the_same_columns() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a")]).await;
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let other = world.file_of("trips", file([("id", floats), ("text", ids)])).await;
        let body = json!({ "files": [other], "append": true });
        let (status, body) = world.post("/trips/versions", body).await;
        assert_eq!(status, 400);
        assert!(body["detail"].as_str().unwrap().contains("column id is Float64"), "{body}");
        // In place of the others they may be whatever they are.
        let put = ok(world.post("/trips/versions", json!({ "files": [other] })).await);
        assert_eq!(put["columns"][0]["type"], "Float64");
        let diff = ok(world.get("/trips/diff").await);
        assert_eq!(diff["diff"]["columns"]["changed"][0]["name"], "id");
        assert_eq!(diff["diff"]["rows"]["added"], 1);
        let _: Value = diff;
    })
    .await;
}
