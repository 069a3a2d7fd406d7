//! Files that another domain takes away: datasets go on without them.

use falaj_base::{Ctx, Result, code};
use falaj_catalog::name::DatasetName;
use falaj_catalog::replace::Replacement;
use falaj_catalog::version::Origin;
use falaj_store::db::Tx;
use falaj_store::objects::{Expected, Objects, Staged};
use serde_json::{Value, json};

use super::world::{World, each, ok, parquet, refused};

/// Who asks, for what, and what was stored for it.
type Prepared = (Ctx, Replacement, Staged);

/// Stores other rows, and prepares to put them in the place of a file.
async fn prepared(world: &World, old: &str, rows: &[(i64, &str)]) -> Prepared {
    let project = world.project().await;
    let content = futures::stream::iter([Ok(parquet(rows))]);
    let (tenant, zone) = (project.tenant_id, &project.zone);
    let stored = world.objects.upload(tenant, zone, content, Expected::default()).await.unwrap();
    let origin = Origin { kind: "test".to_owned(), id: "1".to_owned(), digest: None };
    let ctx = Ctx::system("tester");
    let replacement = world.datasets.replacement(&ctx, &project, old, &stored, origin).await;
    (ctx, replacement.unwrap(), stored)
}

async fn written(world: &World, (ctx, replacement, stored): Prepared) -> Result<Vec<DatasetName>> {
    let write = move |tx: &mut Tx<'_>| {
        let owner = stored.blob.to_string();
        let blob = Objects::attach(tx, &stored, "test", &owner)?;
        replacement.write(tx, &ctx, blob)
    };
    world.db.write(write).await
}

async fn replaced(world: &World, old: &str, rows: &[(i64, &str)]) -> Vec<DatasetName> {
    written(world, prepared(world, old, rows).await).await.unwrap()
}

async fn versions(world: &World, name: &str) -> Vec<(Value, Value, bool)> {
    let found = ok(world.get(&format!("/{name}/versions")).await);
    let found = found["items"].as_array().unwrap().clone();
    found
        .into_iter()
        .map(|it| (it["version"].clone(), it["rows"].clone(), !it["removed_at"].is_null()))
        .collect()
}

#[tokio::test]
async fn a_version_of_several_files_goes_on_with_the_others() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        let old = world.file("trips", &[(1, "a"), (2, "b")]).await;
        ok(world.post("/trips/versions", json!({ "files": [old] })).await);
        world.append("trips", &[(7, "z")]).await;
        ok(world.put("/trips/tags/gold", json!({ "version": 1 })).await);
        // One that was deleted and can be restored has the file as well.
        world.create("gone", &[]).await;
        world.version("gone", &[(1, "a"), (2, "b")]).await;
        ok(world.delete("/gone", json!({})).await);

        let names = replaced(&world, &old, &[(2, "b")]).await;
        assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["trips"]);
        assert_eq!(world.rows("trips", "").await, [(2, "b".to_owned()), (7, "z".to_owned())]);
        assert_eq!(
            versions(&world, "trips").await,
            [(json!(3), json!(2), false), (json!(2), json!(3), true), (json!(1), json!(2), true)]
        );
        let statistics = ok(world.get("/trips/statistics").await);
        assert_eq!(statistics["rows"], 2, "{statistics}");
        let ids = &statistics["columns"][0];
        assert_eq!((&ids["min"], &ids["max"]), (&json!(2), &json!(7)), "{ids}");
        assert_ne!(world.get("/trips/data?tag=gold").await.0, 200);
        ok(world.post("/gone/restore", json!({})).await);
        assert_ne!(world.get("/gone/data").await.0, 200);
        let left = "SELECT COUNT(*) AS n FROM catalog_file WHERE rows = 2";
        assert_eq!(world.count(left).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_dataset_with_as_many_versions_as_it_may_have_loses_files_again_and_again() {
    each(async |world: World| {
        world.create("trips", &[]).await;
        let first = world.file("trips", &[(1, "a"), (2, "b"), (3, "c")]).await;
        ok(world.post("/trips/versions", json!({ "files": [first] })).await);
        for sql in [
            "UPDATE catalog_version SET version = 100000",
            "UPDATE catalog_version_file SET version = 100000",
            "UPDATE catalog_dataset SET latest = 100000",
        ] {
            world.db.write(move |tx: &mut Tx<'_>| tx.execute(sql, &[])).await.unwrap();
        }
        let other = world.file("trips", &[(9, "z")]).await;
        let full = world.post("/trips/versions", json!({ "files": [other] })).await;
        assert_eq!(refused(full).0, 409);
        replaced(&world, &first, &[(2, "b"), (3, "c")]).await;
        let second = ok(world.get("/trips/versions").await)["items"][0].clone();
        assert_eq!(second["version"], 100_001, "{second}");
        let file = world.text("SELECT sha256 AS t FROM catalog_file WHERE rows = 2").await;
        replaced(&world, &file, &[(3, "c")]).await;
        assert_eq!(world.rows("trips", "").await, [(3, "c".to_owned())]);
    })
    .await;
}

#[tokio::test]
async fn a_dataset_that_gets_the_file_meanwhile_is_not_overlooked() {
    each(async |world: World| {
        let rows = [(1, "a"), (2, "b")];
        world.create("one", &[]).await;
        world.create("two", &[]).await;
        world.version("one", &rows).await;
        let old = world.text("SELECT sha256 AS t FROM catalog_file").await;
        let begun = prepared(&world, &old, &[(2, "b")]).await;
        // As many have it as before, and another.
        ok(world.delete("/one", json!({ "purge": true })).await);
        world.version("two", &rows).await;
        let error = written(&world, begun).await.unwrap_err();
        assert_eq!(error.code(), &code::CHANGED);
        assert_eq!(world.rows("two", "").await.len(), 2);
        replaced(&world, &old, &[(2, "b")]).await;
        assert_eq!(world.rows("two", "").await, [(2, "b".to_owned())]);
    })
    .await;
}
