//! Comparing versions. The memory of the tests' configuration holds a few rows only, so all of this
//! goes through the disk.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, StringArray};
use serde_json::{Value, json};

use super::world::{World, each, file, ok, refused};

fn counts(answer: &Value) -> [u64; 4] {
    let rows = &answer["diff"]["rows"];
    ["added", "removed", "changed", "unchanged"].map(|name| rows[name].as_u64().unwrap())
}

#[tokio::test]
async fn rows_are_compared_by_key_or_as_they_are() {
    each(async |world: World| {
        world.create("trips", &["id"]).await;
        let many: Vec<_> = (0..500).map(|id| (id, "same")).collect();
        world.version("trips", &many).await;
        let mut after = many.clone();
        after.remove(0);
        after[10].1 = "other";
        after.push((1000, "new"));
        world.version("trips", &after).await;
        let keyed = ok(world.get("/trips/diff?samples=3").await);
        assert_eq!(counts(&keyed), [1, 1, 1, 498]);
        let samples = &keyed["diff"]["samples"];
        assert_eq!(samples["added"], json!([{ "id": 1000, "text": "new" }]));
        assert_eq!(samples["removed"], json!([{ "id": 0, "text": "same" }]));
        let changed = &samples["changed"][0];
        assert_eq!(
            (&changed["key"], &changed["columns"]),
            (&json!({ "id": 11 }), &json!(["text"]))
        );
        assert_eq!(
            (&changed["before"]["text"], &changed["after"]["text"]),
            (&json!("same"), &json!("other"))
        );
        let plain = ok(world.get("/trips/diff?key=").await);
        assert_eq!(counts(&plain), [2, 2, 0, 498]);
        let back = ok(world.get("/trips/diff?from=2&to=1").await);
        assert_eq!(counts(&back), [1, 1, 1, 498]);
        let same = ok(world.get("/trips/diff?from=2&to=2").await);
        assert_eq!(counts(&same), [0, 0, 0, 500]);
    })
    .await;
}

#[tokio::test]
async fn columns_that_came_and_went_are_told_and_not_compared() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a"), (2, "b")]).await;
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let names: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
        let other = world.file_of("trips", file([("id", ids), ("name", names)])).await;
        ok(world.post("/trips/versions", json!({ "files": [other] })).await);
        let diff = ok(world.get("/trips/diff").await);
        assert_eq!(diff["diff"]["compared"], json!(["id"]));
        assert_eq!(diff["diff"]["columns"]["added"][0]["name"], "name");
        assert_eq!(diff["diff"]["columns"]["removed"][0]["name"], "text");
        assert_eq!(counts(&diff), [0, 0, 0, 2]);
        let wrong = refused(world.get("/trips/diff?key=text").await);
        assert_eq!((wrong.0, wrong.2.as_str()), (400, "key"));
        assert_eq!(refused(world.get("/trips/diff?samples=1000").await).2, "samples");
        assert_eq!(refused(world.get("/trips/diff?from=9").await).0, 400);
    })
    .await;
}

#[tokio::test]
async fn what_was_appended_is_what_differs() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a"), (1, "a")]).await;
        world.append("trips", &[(1, "a"), (2, "b")]).await;
        let diff = ok(world.get("/trips/diff").await);
        assert_eq!(counts(&diff), [2, 0, 0, 2]);
        let keyed = ok(world.get("/trips/diff?key=id").await);
        assert_eq!(counts(&keyed), [1, 0, 1, 0]);
        assert_eq!(keyed["diff"]["duplicate_keys"], json!({ "before": 1, "after": 1 }));
    })
    .await;
}
