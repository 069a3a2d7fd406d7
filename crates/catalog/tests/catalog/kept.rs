//! How long things are kept.

use std::time::Duration;

use serde_json::json;

use super::world::{World, each, ok, refused};

const DAY: Duration = Duration::from_hours(24);

#[tokio::test]
async fn a_deleted_dataset_can_be_restored_for_a_while() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a")]).await;
        let held = world.blobs().await;
        ok(world.delete("/trips", json!({})).await);
        assert_eq!(refused(world.get("/trips").await).0, 404);
        assert_eq!(ok(world.get("").await)["items"], json!([]));
        // The name can be had again meanwhile.
        world.create("trips", &[]).await;
        let taken = refused(world.post("/trips/restore", json!({})).await);
        assert_eq!((taken.0, taken.1.as_str()), (409, "already-exists"));
        ok(world.delete("/trips", json!({ "purge": true })).await);
        ok(world.post("/trips/restore", json!({})).await);
        assert_eq!(world.rows("trips", "").await, vec![(1, "a".to_owned())]);
        ok(world.delete("/trips", json!({})).await);
        world.clock.advance(29 * DAY);
        world.datasets.sweep().await.unwrap();
        assert_eq!(world.blobs().await, held);
        world.clock.advance(2 * DAY);
        world.datasets.sweep().await.unwrap();
        assert_eq!(world.blobs().await, 0);
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM catalog_dataset").await, 0);
        assert_eq!(refused(world.post("/trips/restore", json!({})).await).0, 404);
    })
    .await;
}

#[tokio::test]
async fn what_is_purged_gives_its_bytes_back_at_once() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a")]).await;
        world.version("trips", &[(2, "b")]).await;
        world.file("trips", &[(3, "c")]).await;
        assert!(world.forget_project().await.is_err(), "a project with datasets is not empty");
        ok(world.delete("/trips", json!({ "purge": true })).await);
        assert_eq!(world.blobs().await, 0);
        world.clock.advance(DAY);
        world.objects.collect().await.unwrap();
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM blob").await, 0);
        world.forget_project().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn files_that_no_version_has_go_and_the_others_stay() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a")]).await;
        world.file("trips", &[(2, "b")]).await;
        world.clock.advance(2 * DAY);
        world.datasets.sweep().await.unwrap();
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM catalog_file").await, 1);
        assert_eq!(world.rows("trips", "").await, vec![(1, "a".to_owned())]);
        assert_eq!(world.blobs().await, 2);
    })
    .await;
}

#[tokio::test]
async fn old_versions_go_by_the_rules_of_their_dataset() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        for id in 1..=4 {
            world.version("trips", &[(id, "x")]).await;
            world.clock.advance(DAY);
        }
        ok(world.put("/trips/tags/gold", json!({ "version": 1 })).await);
        let rules = json!({ "keep": { "versions": 2 } });
        ok(world.put("/trips", rules).await);
        world.datasets.sweep().await.unwrap();
        let log = ok(world.get("/trips/versions").await);
        let gone: Vec<_> = log["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["removed_at"].is_string())
            .collect();
        assert_eq!(gone, [false, false, true, false], "4, 3, 2, 1");
        let read = refused(world.get("/trips/data?version=2").await);
        assert_eq!((read.0, read.1.as_str()), (400, "invalid-state"));
        assert_eq!(refused(world.get("/trips/statistics?version=2").await).1, "invalid-state");
        assert_eq!(
            refused(world.post("/trips/rollback", json!({ "to": "2" })).await).1,
            "invalid-state"
        );
        assert_eq!(world.rows("trips", "?tag=gold").await, vec![(1, "x".to_owned())]);
        assert!(world.events().await.contains(&"falaj.dataset.pruned".to_owned()));
        // What it had is given back once no version has it.
        assert_eq!(world.count("SELECT COUNT(*) AS n FROM catalog_file").await, 3);
        let before = world.events().await.len();
        world.datasets.sweep().await.unwrap();
        assert_eq!(world.events().await.len(), before, "nothing more is due");
    })
    .await;
}

#[tokio::test]
async fn a_version_that_is_needed_is_not_removed() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        world.version("trips", &[(1, "a")]).await;
        world.version("trips", &[(2, "b")]).await;
        ok(world.put("/trips/tags/gold", json!({ "version": 1 })).await);
        for version in ["1", "2", "latest", "gold"] {
            let path = format!("/trips/versions/{version}");
            assert_eq!(refused(world.delete(&path, json!({})).await).1, "in-use", "{version}");
        }
        ok(world.delete("/trips/tags/gold", json!({})).await);
        let gone = ok(world.delete("/trips/versions/1", json!({})).await);
        assert!(gone["removed_at"].is_string());
        assert_eq!(refused(world.delete("/trips/versions/1", json!({})).await).1, "invalid-state");
    })
    .await;
}
